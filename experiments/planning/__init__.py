"""Plans before a run starts: what is asked for, and the rows of numbers that answer it."""
