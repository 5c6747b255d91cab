"""Commands about data sets: making them, looking at them, counting their words."""
