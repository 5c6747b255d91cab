"""Binaries: `python -m experiments.<name> --flags`, from the repository root."""
