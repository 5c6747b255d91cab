"""Updates as integers for modular sums, with noise from the server or from the clients."""
