"""Binaries, run from the repository root as `python -m experiments.<name> --flags`."""
