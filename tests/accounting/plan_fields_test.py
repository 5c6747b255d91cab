"""No field of a plan is left out of its digest, its file, its report or a checkpoint.

The fields are found by reflection. A field that is added later fails here until it is serialised,
and until `_ALTERED` says how to alter it.
"""

import dataclasses
import json
import math

import pytest

from dpfl import Participation, accounting, errors, mechanisms
from dpfl.accounting.records import archive
from tests import json_values, mechanism_cases
from tests.accounting import archives, plans

_PLAN = accounting.PrivacyPlan(
    mechanism=mechanisms.Restarted(mechanisms.BinaryTree(4), (3,), 6),
    participation=Participation(6, 2, 2),
    clip_norm=0.5,
    noise_multiplier=4.0,
    clients_per_round=10,
    adaptive_clip=accounting.AdaptiveClip(0.5, 0.2, 50.0),
    estimator=accounting.Estimator('clipped', 8.0, 100.0),
)
_DISCRETIZED = dataclasses.replace(
    _PLAN,
    adaptive_clip=None,
    estimator=accounting.Estimator(),
    discretization=accounting.Discretization(10.0, 100, 0.5),
)
_SAMPLED = plans.independent(
    6, sampling='poisson', population=100, clip_norm=0.5, noise_multiplier=4.0
)
_CYCLIC = plans.sampled('cyclic_poisson')
_TRUNCATED = plans.sampled('truncated_poisson')
# A plan for each field, or field of a part, and what differs in another one: the field's new value,
# or the new values of several fields of the plan where they change together.
_ALTERED = {
    'mechanism': (_PLAN, dict(mechanism=mechanisms.Restarted(mechanisms.BinaryTree(4), (4,), 6))),
    'participation': (_PLAN, dict(participation=Participation(5, 1, 1))),
    'participation.rounds': (_PLAN, 5),
    'participation.min_separation': (_PLAN, 3),
    'participation.max_participations': (_PLAN, 3),
    'clip_norm': (_PLAN, dict(clip_norm=0.75)),
    'noise_multiplier': (_PLAN, dict(noise_multiplier=4.5)),
    'clients_per_round': (_PLAN, dict(clients_per_round=11)),
    'adjacency': (_PLAN, dict(adjacency='replace_one')),
    'sampling': (_SAMPLED, dict(sampling=accounting.WithoutReplacement(population=100))),
    'sampling.population': (_SAMPLED, 101),
    'sampling.groups': (_CYCLIC, 4),
    'sampling.cohort_cap': (_TRUNCATED, 6),
    'discretization': (_DISCRETIZED, dict(discretization=None)),
    'discretization.scale': (_DISCRETIZED, 11.0),
    'discretization.dimension': (_DISCRETIZED, 101),
    'discretization.alpha': (_DISCRETIZED, 0.5),
    'discretization.clip_norm': (
        _DISCRETIZED,
        dict(clip_norm=0.75, discretization=accounting.Discretization(10.0, 100, 0.75)),
    ),
    'adaptive_clip': (_PLAN, dict(adaptive_clip=None)),
    'adaptive_clip.target_quantile': (_PLAN, 0.6),
    'adaptive_clip.learning_rate': (_PLAN, 0.3),
    'adaptive_clip.count_stddev': (_PLAN, 51.0),
    'clip_schedule': (_PLAN, dict(adaptive_clip=None, clip_schedule=((3, 0.25),))),
    'estimator': (_PLAN, dict(estimator=accounting.Estimator())),
    'estimator.kind': (_PLAN, 'fixed'),
    'estimator.weight': (_PLAN, 9.0),
    'estimator.example_cap': (_PLAN, 101.0),
    'group_size': (_PLAN, dict(group_size=2)),
    'before': (_SAMPLED, dict(before=(accounting.ReleaseBefore('a list', 3.0, 1.5, 1e-9),))),
    'earlier': (_SAMPLED, dict(earlier=(dataclasses.replace(_SAMPLED, noise_multiplier=9.0),))),
    'noise': (
        dataclasses.replace(_PLAN, adaptive_clip=None, estimator=accounting.Estimator()),
        dict(noise='hardened'),
    ),
}


def _paths(plan: accounting.PrivacyPlan) -> set[str]:
    """Names of all fields of a plan, and of those of its parts as `part.field`."""
    found = set()
    for field in dataclasses.fields(plan):
        found.add(field.name)
        part = getattr(plan, field.name)
        if field.name != 'mechanism' and dataclasses.is_dataclass(part):
            found |= {f'{field.name}.{inner.name}' for inner in dataclasses.fields(part)}
    return found


def _pair(path: str):
    """Two plans that differ in the field at `path`."""
    plan, change = _ALTERED[path]
    part, _, name = path.partition('.')
    if not isinstance(change, dict):
        change = {part: dataclasses.replace(getattr(plan, part), **{name: change})}
    return plan, dataclasses.replace(plan, **change)


def test_every_field_is_altered_here():
    altered = (_PLAN, _DISCRETIZED, _SAMPLED, _CYCLIC, _TRUNCATED)
    assert set(_ALTERED) == set().union(*map(_paths, altered))


@pytest.mark.parametrize('name', [field.name for field in dataclasses.fields(_PLAN)])
def test_a_value_of_another_type_is_refused_by_the_name_of_its_field(name):
    plan = _PLAN
    for value in (object(), {}, True, b'', [1], (1,), [], math.nan, -(10**400), 'another\none'):
        with pytest.raises(errors.ArgumentError) as refused:
            dataclasses.replace(plan, **{name: value})
        assert refused.value.name == name and str(refused.value).isprintable()
    if getattr(plan, name) is not None and name not in ('discretization', 'adaptive_clip'):
        with pytest.raises(errors.ArgumentError, match=f'{name}=None'):
            dataclasses.replace(plan, **{name: None})


def test_a_plan_that_says_how_its_noise_was_chosen_names_who_reads_it():
    values = {**_PLAN.to_dict(), 'noise_match': {'quantity': 'rho'}}
    with pytest.raises(errors.ArgumentError) as refused:
        accounting.PrivacyPlan.from_dict(values, _PLAN.mechanism)
    assert str(refused.value) == (
        'noise_match: says how the noise multiplier was chosen, which commit fabb35a5 of dpfl was '
        'the last to read'
    )


def _record(plan) -> archive.PlanRecord:
    return archive.PlanRecord(
        plan, (1e-6,), 'rdp', noise_is_seeded=False, noise_key_digest=archives.NOISE_KEY
    )


@pytest.mark.parametrize('path', list(_ALTERED))
def test_plans_that_differ_in_a_field_are_told_apart(path):
    plan, other = _pair(path)
    assert plan.digest() != other.digest()
    assert plan.to_dict() != other.to_dict()
    assert json.loads(_record(plan).to_json()) != json.loads(_record(other).to_json())
    reports = [_record(each).report(None) for each in (plan, other)]
    assert reports[0].to_dict()['plan'] != reports[1].to_dict()['plan']
    for each, report in zip((plan, other), reports, strict=True):
        values = json.loads(json.dumps(each.to_dict()))
        again = accounting.PrivacyPlan.from_dict(values, each.mechanism)
        assert again.to_dict() == each.to_dict() and again.digest() == each.digest()
        read = plans.read(report)
        assert read.plan.digest() == each.digest()


@mechanism_cases.every
def test_no_parameter_of_a_mechanism_is_left_out_of_its_digest(make):
    mechanism = make(9)
    fields = [field.name for field in dataclasses.fields(mechanism) if field.init]
    kept = {name for name in fields if getattr(mechanism, name) is not None}
    assert set(mechanism.to_dict()) == {'mechanism', *kept}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _LaterPlan(accounting.PrivacyPlan):
    later: str = 'as before'


@dataclasses.dataclass(frozen=True)
class _LaterPart(accounting.Estimator):
    later: str = 'as before'


def test_a_field_that_is_added_later_is_in_digest_and_file():
    values = plans.fields(_PLAN, noise_multiplier=_PLAN.noise_multiplier)
    one, other = (_LaterPlan(**values, later=later) for later in ('as before', 'anew'))
    assert one.digest() != other.digest()
    assert other.to_dict()['later'] == 'anew'
    assert _LaterPlan.from_dict(other.to_dict(), other.mechanism).later == 'anew'
    one, other = (
        dataclasses.replace(_PLAN, estimator=_LaterPart(later=later))
        for later in ('as before', 'anew')
    )
    assert one.digest() != other.digest()
    assert other.to_dict()['estimator']['later'] == 'anew'


@pytest.mark.parametrize(
    'path, value, name',
    [
        ('clip', 1.0, 'clip'),
        ('participation.gap', 1, 'gap'),
        ('adaptive_clip.gap', 1, 'gap'),
        ('estimator.gap', 1, 'gap'),
        ('adjacency', ..., 'adjacency'),
        ('noise', ..., 'noise'),
        ('mechanism_digest', ..., 'mechanism_digest'),
        ('mechanism_digest', '0' * 64, 'mechanism_digest'),
        ('participation.rounds', ..., 'rounds'),
        ('participation', None, 'Participation'),
        ('estimator', None, 'Estimator'),
        ('adaptive_clip', [0.5], 'AdaptiveClip'),
        ('clip_schedule', [[1]], 'clip_schedule'),
        ('clip_schedule', '12', 'clip_schedule'),
        ('clip_schedule', None, 'clip_schedule'),
    ],
)
def test_what_is_no_plan_is_refused_by_name(path, value, name):
    values = json_values.changed(json.loads(json.dumps(_PLAN.to_dict())), path, value)
    with pytest.raises(errors.ArgumentError) as refused:
        accounting.PrivacyPlan.from_dict(values, _PLAN.mechanism)
    assert refused.value.name == name


def test_a_number_is_no_plan():
    with pytest.raises(errors.ArgumentError, match='plan=12: must be an object'):
        accounting.PrivacyPlan.from_dict(12, _PLAN.mechanism)


def test_digests_are_those_of_earlier_versions():
    # Ledgers and checkpoints hold them: runs that began with an earlier version must continue.
    made = (_PLAN, _DISCRETIZED, _SAMPLED, _pair('clip_schedule')[1])
    begin = ['25c4b3912b48', 'b247088adab6', 'b73901e49486', 'cd9bc8dce558']
    assert [plan.digest()[:12] for plan in made] == begin
