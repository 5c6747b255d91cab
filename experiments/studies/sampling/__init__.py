"""Sampling designs: groups and bands of cyclic Poisson sampling."""
