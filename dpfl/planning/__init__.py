"""Planning: what can be said of a run before it starts. NumPy and SciPy only.

A `Deployment` says which separation and how many participations population, timer and pace allow.
A `Planner` finds the noise or the cohort that a `Target` needs, `scaled` carries a plan over to
other cohorts, and `dpfl.planning.feasibility` judges whether a model can learn under its noise. The
room builds on `dpfl.participation`, `dpfl.mechanisms` and `dpfl.accounting`.
"""

from dpfl.planning.deployment import DailyCounts, DailyPattern, Deployment, Pace
from dpfl.planning.planner import Planner, Simulation, Target, scaled
from dpfl.planning.uniform_cohorts import UniformCohorts

__all__ = [
    'DailyCounts',
    'DailyPattern',
    'Deployment',
    'Pace',
    'Planner',
    'Simulation',
    'Target',
    'UniformCohorts',
    'scaled',
]

FOR_ROOMS = (
    'feasibility',
    'planner',
)
