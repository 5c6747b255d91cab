"""Participation of clients: the schema that is planned, and the log of what happened."""

from dpfl.participation.client_rounds import ClientRounds, LogStatistics
from dpfl.participation.log import ParticipationLog, cohorts
from dpfl.participation.schema import Participation

__all__ = ['ClientRounds', 'LogStatistics', 'Participation', 'ParticipationLog', 'cohorts']
