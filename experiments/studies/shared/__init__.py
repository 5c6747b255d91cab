"""What the scripts of `experiments.studies` share."""
