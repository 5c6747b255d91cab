"""Accounting: what a run guarantees, and the report that says so. No TensorFlow.

A `PrivacyPlan` holds everything that noise and guarantee depend on. What is optional in it are its
parts (`Part`), such as a `Sampling`, `AdaptiveClip`, `Estimator` or releases before training. The
sensitivity comes from the mechanism; `dp_accounting` converts it to epsilon where it can.
"""

from dpfl.accounting.clipping import AdaptiveClip, Estimator
from dpfl.accounting.composed import ReleaseBefore
from dpfl.accounting.events import epsilon_of_event
from dpfl.accounting.gaussian import (
    ACCOUNTANTS,
    epsilon_from_mu,
    epsilon_from_rho,
    mu_from_epsilon,
    mu_from_rho,
)
from dpfl.accounting.hardened import NOISES
from dpfl.accounting.part import Part
from dpfl.accounting.plan import ADJACENCIES, PrivacyPlan
from dpfl.accounting.reports.inputs import About
from dpfl.accounting.reports.report import PrivacyReport
from dpfl.accounting.reports.schema import of_reports as report_schema
from dpfl.accounting.sampling.b_min_sep import BMinSep
from dpfl.accounting.sampling.balls_in_bins import BallsInBins, RandomAllocation
from dpfl.accounting.sampling.base import Sampling
from dpfl.accounting.sampling.independent_cohorts import (
    CyclicPoisson,
    Poisson,
    TruncatedPoisson,
    WithoutReplacement,
)
from dpfl.mechanisms.discretization import Discretization
from dpfl.mechanisms.rounding import round_up

__all__ = [
    'ACCOUNTANTS',
    'ADJACENCIES',
    'About',
    'BMinSep',
    'BallsInBins',
    'CyclicPoisson',
    'Poisson',
    'RandomAllocation',
    'Sampling',
    'TruncatedPoisson',
    'WithoutReplacement',
    'AdaptiveClip',
    'Discretization',
    'Estimator',
    'NOISES',
    'Part',
    'PrivacyPlan',
    'PrivacyReport',
    'ReleaseBefore',
    'epsilon_from_mu',
    'epsilon_from_rho',
    'epsilon_of_event',
    'mu_from_epsilon',
    'mu_from_rho',
    'report_schema',
    'round_up',
]

FOR_ROOMS = (
    'gaussian',
    'hardened',
    'measured.estimate',
    'measured.measured',
    'measured.sums',
    'records.archive',
    'records.cohorts',
    'records.comparison',
    'records.journal',
    'records.signatures',
    'records.verification',
    'reports.inputs',
    'reports.observed',
    'reports.page',
    'reports.report',
    'reports.two_reports',
    'running',
    'sampling.base',
    'sampling.independent_cohorts',
    'sampling.kinds',
    'selection',
    'tradeoff',
)
