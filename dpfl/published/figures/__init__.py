"""Figures of the source documents that need no training: their data, and statements on them."""
