"""Images that two generators draw, compared."""
