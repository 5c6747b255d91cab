"""The privacy report: its numbers, assumptions, statements and page."""
