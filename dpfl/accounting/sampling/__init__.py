"""Amplification by sampling: what each sampling of cohorts makes of a plan's releases."""
