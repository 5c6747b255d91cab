"""Sentences and words that two generators write, compared."""
