"""Whether a participation log refutes the sampling of its plan: exact tests of the cohorts."""
