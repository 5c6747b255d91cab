"""Flags of how devices behave: timers, nights, drop-outs. No TensorFlow."""

from absl import flags

from dpfl.simulation.availability import Availability
from dpfl.simulation.population import Population
from experiments.command import command_line

_DEVICES = (
    ('timer_hours', 'A device takes part again this long after its last report, at the earliest.'),
    ('over_selection', 'Devices that are asked in a round, divided by the report goal.'),
    ('drop_out', 'Probability that a device that was asked does not report.'),
    ('check_in_minutes', 'Average time between two check-ins of an eligible device.'),
    ('client_minutes', 'Median time from check-in to report.'),
    ('client_spread', 'Standard deviation of the logarithm of that time.'),
    ('server_minutes', 'Time from the end of a round to the start of the next one.'),
)
_HABITS = (
    ('eligible_share', 'Probability that a device is idle, charging and unmetered on a day.'),
    ('daytime_share', 'Share of devices that are so at any time of the day, not in the evening.'),
    ('window_hours', 'Average time that they are.'),
    ('jitter_hours', 'Their windows open up to so much earlier or later from day to day.'),
    ('time_zone_hours', 'Time zones of the population spread over so many hours.'),
)

for _owner, _names in ((Population, _DEVICES), (Availability, _HABITS)):
    for _name, _help in _names:
        flags.DEFINE_float(_name, getattr(_owner, _name), _help)


def devices(population: int, clients_per_round: int, seed: int, **changed) -> Population:
    """The population of the flags.

    Args:
      population, clients_per_round, seed: as in `Population`.
      changed: values in place of those of the flags.

    Raises:
      UsageError: if a value is not allowed.
    """
    habits = {name: flags.FLAGS[name].value for name, _ in _HABITS}
    values = {name: flags.FLAGS[name].value for name, _ in _DEVICES}
    values |= dict(population=population, clients_per_round=clients_per_round, seed=seed)
    with command_line.refusing_bad_values():
        return Population(habits=Availability(**habits), **values | changed)
