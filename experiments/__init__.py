"""The commands of dpfl, run from a checkout as `python -m experiments.<name> --flags`."""
