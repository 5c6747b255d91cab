"""Executes TFF computations in this process or on Ray. Knows nothing about privacy."""
