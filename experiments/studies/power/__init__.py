"""Detection power: how often a diagnosis finds a fault of a size."""
