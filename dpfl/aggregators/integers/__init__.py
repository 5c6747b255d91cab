"""Updates as integers, for sums under a modulus, with noise from the server or from clients."""
