"""Training runs as values: a configuration, one call, a result."""
