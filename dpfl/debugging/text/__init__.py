"""What language models write about text that nobody may look at: traits, and what faults do."""
