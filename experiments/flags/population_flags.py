"""Flags of a population of devices, and the population that they make. No TensorFlow."""

from absl import flags

from dpfl.simulation.population import Population
from experiments.flags import device_flags

flags.adopt_module_key_flags(device_flags)
_POPULATION = flags.DEFINE_integer(
    'population', 4_210_000, 'Number of devices; by default that of es-ES in document 000, table 1.'
)
_CLIENTS_PER_ROUND = flags.DEFINE_integer(
    'clients_per_round', 6500, 'Report goal: reports that are aggregated in every round.'
)
_SEED = flags.DEFINE_integer('seed', 0, 'Of everything random.')


def devices(**changed) -> Population:
    """The population of the flags; `changed`: values in place of theirs.

    Raises:
      UsageError: if a value is not allowed.
    """
    values = {flag.name: flag.value for flag in (_POPULATION, _CLIENTS_PER_ROUND, _SEED)}
    return device_flags.devices(**values | changed)
