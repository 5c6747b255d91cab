"""Names of the mechanisms for the flag --mechanism. No TensorFlow."""

from dpfl.simulation.training import mechanism

NAMES = mechanism.NAMES
