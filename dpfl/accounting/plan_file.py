"""A privacy plan as plain values, apart from the parameters of its mechanism."""

import dataclasses

from dpfl import mechanisms
from dpfl.accounting.adaptive_clip import AdaptiveClip
from dpfl.accounting.estimator import Estimator
from dpfl.accounting.plan import PrivacyPlan
from dpfl.mechanisms.discretization import Discretization
from dpfl.participation import Participation

_NUMBERS = (
    'clip_norm',
    'noise_multiplier',
    'clients_per_round',
    'adjacency',
    'sampling',
    'population',
)


def to_dict(plan: PrivacyPlan) -> dict:
    """The plan without the parameters of its mechanism, for which stands their digest."""
    return {
        'mechanism_digest': plan.mechanism.digest(),
        'participation': dataclasses.asdict(plan.participation),
        **{name: getattr(plan, name) for name in _NUMBERS},
        'discretization': plan.discretization and dataclasses.asdict(plan.discretization),
        'adaptive_clip': plan.adaptive_clip and dataclasses.asdict(plan.adaptive_clip),
        'clip_schedule': [list(change) for change in plan.clip_schedule],
        'estimator': dataclasses.asdict(plan.estimator),
        'noise': plan.noise,
    }


def from_dict(values: dict, mechanism_parameters: dict) -> PrivacyPlan:
    """The plan of `to_dict` and of its mechanism's `to_dict`.

    Raises:
      ValueError: if the digest is not that of the mechanism, or a value is out of its range.
      KeyError, TypeError: if the values are not those of a plan.
    """
    mechanism = mechanisms.from_dict(mechanism_parameters)
    if mechanism.digest() != values['mechanism_digest']:
        raise ValueError('mechanism_digest is not that of the parameters')
    discretization, adaptive_clip = values['discretization'], values.get('adaptive_clip')
    return PrivacyPlan(
        mechanism=mechanism,
        participation=Participation(**values['participation']),
        discretization=None if discretization is None else Discretization(**discretization),
        adaptive_clip=None if adaptive_clip is None else AdaptiveClip(**adaptive_clip),
        clip_schedule=tuple(tuple(change) for change in values.get('clip_schedule', ())),
        estimator=Estimator(**values.get('estimator', {})),
        noise=values.get('noise', 'default'),
        **{name: values[name] for name in _NUMBERS},
    )
