"""Empirical privacy: what attacks find out of releases, held against the claimed guarantee."""
