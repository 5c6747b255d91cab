"""Which mechanisms the flag --mechanism names. No TensorFlow."""

from dpfl.simulation.training import mechanism

NAMES = mechanism.NAMES
