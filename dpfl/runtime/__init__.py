"""Executes TFF computations in this process or on remote workers. Knows nothing about privacy."""
