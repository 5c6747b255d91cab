"""Counts of words that follow each other in text, and predictors made of them (NumPy only)."""
