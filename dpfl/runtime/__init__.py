"""Executes TFF computations, here or in workers elsewhere. It knows nothing of privacy."""
