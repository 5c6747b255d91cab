"""The published numbers and figures of the papers, recomputed."""
