"""Accounting: what a run guarantees, and the report that says so. No TensorFlow.

A `PrivacyPlan` holds everything that noise and guarantee depend on; its parts are `AdaptiveClip`,
`Estimator`, `Discretization`, `NoiseMatch` and `ReleaseBefore`. The sensitivity comes from the
mechanism; `dp_accounting` converts it to epsilon where it can.
"""

from dpfl.accounting.adaptive_clip import AdaptiveClip
from dpfl.accounting.before_training import ReleaseBefore
from dpfl.accounting.calibration import mu_from_epsilon
from dpfl.accounting.estimator import Estimator
from dpfl.accounting.events import epsilon_of_event
from dpfl.accounting.gaussian import ACCOUNTANTS, epsilon_from_mu, epsilon_from_rho, mu_from_rho
from dpfl.accounting.hardened import NOISES
from dpfl.accounting.noise_match import NoiseMatch
from dpfl.accounting.plan import PrivacyPlan
from dpfl.accounting.plan_checks import ADJACENCIES, SAMPLINGS
from dpfl.accounting.reports.about import About
from dpfl.accounting.reports.checklist import round_up
from dpfl.accounting.reports.report import PrivacyReport
from dpfl.mechanisms.discretization import Discretization

__all__ = [
    'ACCOUNTANTS',
    'ADJACENCIES',
    'About',
    'SAMPLINGS',
    'AdaptiveClip',
    'Discretization',
    'Estimator',
    'NOISES',
    'NoiseMatch',
    'PrivacyPlan',
    'PrivacyReport',
    'ReleaseBefore',
    'epsilon_from_mu',
    'epsilon_from_rho',
    'epsilon_of_event',
    'mu_from_epsilon',
    'mu_from_rho',
    'round_up',
]
