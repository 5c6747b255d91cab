"""Participation of clients: the schema that is planned, and the log of what happened."""

from dpfl.participation.client_rounds import ClientRounds, LogStatistics
from dpfl.participation.confidence import UniformCohorts
from dpfl.participation.imported import ImportedLog, read_log, read_round_times
from dpfl.participation.log import ParticipationLog, cohorts
from dpfl.participation.paces import DailyCounts, DailyPattern, Pace
from dpfl.participation.round_times import RoundTimes
from dpfl.participation.schema import Participation

__all__ = [
    'ClientRounds',
    'DailyCounts',
    'DailyPattern',
    'ImportedLog',
    'LogStatistics',
    'Pace',
    'Participation',
    'ParticipationLog',
    'RoundTimes',
    'UniformCohorts',
    'cohorts',
    'read_log',
    'read_round_times',
]
