"""A run that continues from other runs: the guarantee of all of them together."""

import dataclasses
import itertools
import json
import math

import dp_accounting
import numpy as np
import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.errors import ArgumentError

_FIRST = accounting.PrivacyPlan(
    mechanism=mechanisms.Blt(5, [0.9], [0.3]),
    participation=Participation(5, 2),
    clip_norm=1.0,
    noise_multiplier=4.0,
    clients_per_round=10,
)
_SECOND = accounting.PrivacyPlan(
    mechanism=mechanisms.BinaryTree(4, released='prefix_sums'),
    participation=Participation(4, 3),
    clip_norm=0.5,
    noise_multiplier=6.0,
    clients_per_round=20,
    earlier=(_FIRST,),
)
_SAMPLED = accounting.PrivacyPlan(
    mechanism=mechanisms.Identity(30),
    participation=Participation(30),
    clip_norm=0.5,
    noise_multiplier=1.0,
    clients_per_round=10,
    sampling='poisson',
    population=1000,
)


def _patterns(schema):
    for pattern in itertools.product((0.0, 1.0), repeat=schema.rounds):
        rounds = np.flatnonzero(pattern)
        if (np.diff(rounds) >= schema.min_separation).all():
            yield np.array(pattern)


def _heaviest(plan):
    matrix = plan.mechanism.strategy_matrix()
    norms = [np.linalg.norm(matrix @ pattern) for pattern in _patterns(plan.participation)]
    return max(norms) / plan.noise_multiplier


def test_a_client_may_take_part_in_both_runs():
    """All patterns of both runs, one after the other, with the noise of each."""
    worst = math.sqrt(_heaviest(_FIRST) ** 2 + _heaviest(_SECOND) ** 2)
    assert _SECOND.mu == pytest.approx(worst, rel=1e-9) and _SECOND.mu >= worst
    assert _SECOND.rho == pytest.approx(
        _FIRST.rho + dataclasses.replace(_SECOND, earlier=()).rho, rel=1e-9
    )
    together = dp_accounting.ComposedDpEvent(
        [_FIRST.dp_event(), dataclasses.replace(_SECOND, earlier=()).dp_event()]
    )
    expected = accounting.epsilon_of_event(together, 1e-6)
    assert _SECOND.epsilon(1e-6) == pytest.approx(expected, rel=1e-6)
    assert _SECOND.epsilon(1e-6) > _FIRST.epsilon(1e-6)


def test_sampled_runs_are_composed_as_events():
    second = dataclasses.replace(_SAMPLED, noise_multiplier=0.8, earlier=(_SAMPLED,))
    alone = dataclasses.replace(second, earlier=())
    together = dp_accounting.ComposedDpEvent([alone.dp_event(), _SAMPLED.dp_event()])
    for method in ('pld', 'rdp', 'moments'):
        found = second.epsilon(1e-6, method)
        assert found == pytest.approx(accounting.epsilon_of_event(together, 1e-6, method))
        assert found > max(alone.epsilon(1e-6, method), _SAMPLED.epsilon(1e-6, method))
    twice = dataclasses.replace(_SAMPLED, earlier=(_SAMPLED,))
    long = dataclasses.replace(
        _SAMPLED, mechanism=mechanisms.Identity(60), participation=Participation(60)
    )
    assert twice.epsilon(1e-6) == pytest.approx(long.epsilon(1e-6), rel=1e-3)


def test_noise_is_calibrated_to_what_the_earlier_run_leaves():
    fields = {field.name: getattr(_SECOND, field.name) for field in dataclasses.fields(_SECOND)}
    fields.pop('noise_multiplier')
    target = _FIRST.epsilon(1e-6) * 1.5
    found = accounting.PrivacyPlan.calibrated(epsilon=target, delta=1e-6, **fields)
    assert target * 0.999 < found.epsilon(1e-6) <= target
    alone = f'{_FIRST.epsilon(1e-6):.4g}'
    with pytest.raises(ArgumentError, match=f'must be above {alone}, that of the earlier runs'):
        accounting.PrivacyPlan.calibrated(epsilon=_FIRST.epsilon(1e-6) * 0.9, delta=1e-6, **fields)


def test_plan_and_report_are_read_back():
    values = json.loads(json.dumps(_SECOND.to_dict()))
    again = accounting.PrivacyPlan.from_dict(values, _SECOND.mechanism)
    assert again == _SECOND and again.digest() == _SECOND.digest()
    assert 'earlier' not in _FIRST.to_dict()
    log = ParticipationLog([[0], [1], [2], [0]])
    report = accounting.PrivacyReport.from_plan(_SECOND, [1e-6], log)
    assert accounting.PrivacyReport.from_json(report.to_json()).plan == _SECOND
    assert 'together with the 1 earlier run(s)' in report.to_dict()['statement']
    assert report.observed_guarantee.mu == _SECOND.mu
    # Even a client that was in no round of this run may have been in all rounds of the earlier one.
    assert report.pattern_guarantee.mu > _FIRST.mu
    assert report.dp_event() == _SECOND.dp_event()


@pytest.mark.parametrize(
    'changes, message',
    [
        (dict(adjacency='replace_one'), 'adjacency=replace_one: must be zero_out, as in the'),
        (dict(noise='hardened'), 'noise=hardened: must be default, as in the earlier run'),
        (dict(earlier=(_SECOND,)), 'earlier: must be a flat list'),
        (dict(earlier=(_SAMPLED,)), 'sampling=none: must be poisson, as in the earlier run'),
    ],
)
def test_what_cannot_be_composed_is_refused(changes, message):
    with pytest.raises(ArgumentError, match=message):
        dataclasses.replace(_SECOND, **changes)


def test_without_noise_in_the_earlier_run_there_is_no_guarantee():
    silent = dataclasses.replace(_FIRST, noise_multiplier=0.0)
    plan = dataclasses.replace(_SECOND, earlier=(silent,))
    assert math.isinf(plan.epsilon(1e-6))
    report = accounting.PrivacyReport.from_plan(plan, [1e-6])
    assert report.guarantee.epsilons == (None,)
    assert report.to_dict()['statement'].startswith('No differential privacy: an earlier run')
