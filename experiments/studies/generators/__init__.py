"""What two generators write, compared on one page."""
