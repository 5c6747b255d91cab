"""Research: scripts that a checkout runs as `python -m experiments.studies.<name>`."""
