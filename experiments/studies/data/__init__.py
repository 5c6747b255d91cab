"""Data sets of messages, and measures of text and words."""
