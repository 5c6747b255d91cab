"""Studies: many runs of `dpfl train` that differ in a few flags, and what they show."""
