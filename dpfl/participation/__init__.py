"""Participation of clients: the schema that is planned, and the log of what happened.

It also reads logs and round times of production systems. NumPy and Arrow only.
"""

from dpfl.participation.imported import ImportedLog, read_log, read_round_times
from dpfl.participation.log import ClientRounds, LogStatistics, ParticipationLog, cohorts
from dpfl.participation.round_times import RoundTimes
from dpfl.participation.schema import Participation

__all__ = [
    'ClientRounds',
    'ImportedLog',
    'LogStatistics',
    'Participation',
    'ParticipationLog',
    'RoundTimes',
    'cohorts',
    'read_log',
    'read_round_times',
]

FOR_ROOMS = (
    'imported',
    'log',
)
