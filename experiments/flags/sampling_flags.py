"""Flags of how cohorts are chosen, and the sampler that they make. No TensorFlow."""

from collections.abc import Callable

from absl import flags

from dpfl import Participation
from dpfl.simulation import sampling
from experiments.command import command_line
from experiments.flags import device_flags

flags.adopt_module_key_flags(device_flags)
_SAMPLING = flags.DEFINE_enum(
    'sampling',
    'min_separation',
    ['min_separation', 'timer', 'uniform', 'poisson', 'without_replacement'],
    'How cohorts are chosen. min_separation: in turn, so that the schema holds; timer: by a '
    'simulated population of devices with timers; uniform: at random, with nothing claimed for it; '
    'poisson and without_replacement: at random, and the guarantee rests on that.',
)
_POPULATION = flags.DEFINE_integer(
    'population',
    None,
    'Number of clients to train on; by default all that the data have, and 10000 of those of a '
    'synthetic task.',
)
_CLIENTS_PER_ROUND = flags.DEFINE_integer(
    'clients_per_round', 100, 'Clients in every round; with --sampling=poisson on average.'
)
_AMPLIFIED = ('poisson', 'without_replacement')


def clients_per_round() -> int:
    """Value of --clients_per_round."""
    return _CLIENTS_PER_ROUND.value


def given_population() -> int | None:
    """Value of --population, or None if it is not given."""
    return _POPULATION.value


def plan_fields(population: Callable[[], int]) -> dict:
    """What the sampling means for the privacy plan: its fields `sampling` and `population`.

    Args:
      population: number of clients; called if it is needed.
    """
    if _SAMPLING.value not in _AMPLIFIED:
        return {}
    return {'sampling': _SAMPLING.value, 'population': population()}


def sampler(participation: Participation, population: int, seed: int) -> sampling.Sampler:
    """The sampler of the flags, for the schema of the plan.

    Raises:
      UsageError: if it cannot keep the schema.
    """
    cohort = _CLIENTS_PER_ROUND.value
    with command_line.refusing_bad_values():
        if _SAMPLING.value == 'min_separation':
            return sampling.MinSeparationSampler(participation, population, cohort, seed)
        if _SAMPLING.value == 'timer':
            devices = device_flags.devices(population, cohort, seed)
            return sampling.TimerSampler(participation, devices)
        if _SAMPLING.value == 'poisson':
            return sampling.PoissonSampler(participation.rounds, population, cohort, seed)
        amplification = 'none' if _SAMPLING.value == 'uniform' else _SAMPLING.value
        return sampling.FixedSizeSampler(
            participation.rounds, population, cohort, seed, amplification
        )
