"""Figures of the source documents that need no training: their data, and what is said of them."""
