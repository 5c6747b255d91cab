"""Empirical privacy: lower bounds from attacks on releases, held against the claimed guarantee."""
