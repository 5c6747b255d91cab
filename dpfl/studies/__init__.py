"""Studies: many runs of `experiments.train` that differ in a few flags, and what they show."""
