"""The published privacy and loss numbers, and how each of them is recomputed."""
