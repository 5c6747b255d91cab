"""Tasks: clients' data, models and metrics. Importing this package does not load TensorFlow."""
