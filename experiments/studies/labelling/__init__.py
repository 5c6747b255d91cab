"""Labels of the images that generators draw."""
