"""The JSON form of a privacy plan."""

import dataclasses
from typing import Any

from dpfl import _json, errors, mechanisms
from dpfl.accounting.adaptive_clip import AdaptiveClip
from dpfl.accounting.before_training import ReleaseBefore
from dpfl.accounting.estimator import Estimator
from dpfl.accounting.noise_match import NoiseMatch
from dpfl.accounting.plan_values import PlanValues
from dpfl.accounting.sampling import kinds
from dpfl.mechanisms.discretization import Discretization
from dpfl.participation import Participation

# Fields with a JSON form of their own; those that may be None.
_PARTS: dict[str, type[_json.JsonFields]] = {
    'participation': Participation,
    'discretization': Discretization,
    'adaptive_clip': AdaptiveClip,
    'estimator': Estimator,
    'noise_match': NoiseMatch,
}
_OPTIONAL_PARTS = ('discretization', 'adaptive_clip', 'noise_match')
# Left out with these values, as `earlier` and `before` are if there are none.
_ONLY_IF_OTHER = {'noise_match': None, 'group_size': 1}


def to_dict(plan: PlanValues) -> dict[str, Any]:
    """All fields as JSON values, with a digest in place of the mechanism's parameters."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(plan):
        value = getattr(plan, field.name)
        if field.name in _ONLY_IF_OTHER and value == _ONLY_IF_OTHER[field.name]:
            continue
        if field.name == 'sampling':
            values[field.name] = plan.sampling_name
            values |= {'population': None} if value is None else value.to_dict()
        elif field.name == 'mechanism':
            values['mechanism_digest'] = value.digest()
        elif isinstance(value, _json.JsonFields):
            values[field.name] = value.to_dict()
        elif field.name == 'earlier':
            if value:
                values[field.name] = [_with_mechanism(each) for each in value]
        elif field.name == 'before':
            if value:
                values[field.name] = [each.to_dict() for each in value]
        elif field.name == 'clip_schedule':
            values[field.name] = [list(change) for change in value]
        else:
            values[field.name] = value
    return values


def fields(kind: type[PlanValues], values: Any, mechanism: mechanisms.Mechanism) -> dict[str, Any]:
    """The fields that `to_dict` wrote, without the mechanism; `earlier` still as JSON values.

    Args:
      kind: the class of the plan.
      values: JSON values.
      mechanism: the mechanism of the plan.

    Raises:
      ArgumentError: if a key is unknown or missing, a value is not allowed, or the mechanism is
        not the one that the plan was written with.
    """
    names = [field.name for field in dataclasses.fields(kind) if field.name != 'mechanism']
    found = dict(_json.checked_object('plan', values))
    of_sampling = {name: found.pop(name) for name in kinds.every_setting() if name in found}
    _json.refuse_unknown(found, ['mechanism_digest', *names], 'a plan')
    for name in ('mechanism_digest', *names):
        if name not in found and name not in (*_ONLY_IF_OTHER, 'earlier', 'before'):
            raise errors.ArgumentError(name, errors.NOT_SHOWN, 'must be given for a plan')
    if 'population' not in of_sampling:
        raise errors.ArgumentError('population', errors.NOT_SHOWN, 'must be given for a plan')
    found['sampling'] = kinds.from_settings(found['sampling'], of_sampling)
    digest = found.pop('mechanism_digest')
    if digest != mechanism.digest():
        raise errors.ArgumentError(
            'mechanism_digest', digest, "must be the digest of the mechanism's parameters"
        )
    for name, part in _PARTS.items():
        if name in found and (found[name] is not None or name not in _OPTIONAL_PARTS):
            found[name] = part.from_dict(found[name])
    if 'before' in found:
        found['before'] = _releases(found['before'])
    if 'clip_schedule' in found:
        found['clip_schedule'] = _json.pairs('clip_schedule', found['clip_schedule'])
    return found


def _with_mechanism(plan: Any) -> dict[str, Any]:
    """A plan as JSON values, with the parameters of its mechanism."""
    return {'mechanism': plan.mechanism.to_dict(), **plan.to_dict()}


def _releases(values: Any) -> tuple[ReleaseBefore, ...]:
    """`before` from its JSON form, a list of objects."""
    if not isinstance(values, list):
        raise errors.ArgumentError('before', values, 'must be a list of releases')
    return tuple(map(ReleaseBefore.from_dict, values))
