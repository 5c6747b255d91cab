"""Tasks: data sets of clients, models and metrics. Importing this package loads no TensorFlow."""
