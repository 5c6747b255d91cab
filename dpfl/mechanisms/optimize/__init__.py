"""Optimisers: the parameters of a mechanism with the smallest loss for a participation schema."""
