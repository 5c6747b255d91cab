"""Commands that train models, and those for the runs that come of it."""
