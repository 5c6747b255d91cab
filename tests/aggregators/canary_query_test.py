"""Canaries in a query: what they add to the sums, and what they leave as it is."""

import numpy as np
import pytest
import tensorflow as tf

from dpfl import Participation, accounting, aggregators, mechanisms
from dpfl.aggregators import audited_query
from dpfl.mechanisms import Discretization
from tests import redrawn
from tests.aggregators import rounds

_ROUNDS, _CLIENTS, _NORM = 4, 3, 0.5
_SPECS = (tf.TensorSpec([3, 4]), tf.TensorSpec([5]))
_SIZE = 17
_CANARIES = audited_query.Canaries(
    seed=9,
    cohorts=tuple(np.array(each, np.int64) for each in ([0, 2], [], [0, 4, 6], [2])),
    weights=np.array([[1.0, 0.5, 0.25, 0.0], [0.0, 0.0, 1.0, -1.0]]),
)


def _plan(mechanism=None, **changes):
    fields = dict(participation=Participation(_ROUNDS, 2), noise_multiplier=0.7)
    mechanism = mechanism or mechanisms.Blt(_ROUNDS, (0.9, 0.5), (0.1, 0.2))
    return rounds.plan(mechanism, _CLIENTS, **{**fields, **changes})


_PLANS = {
    'blt': _plan(),
    'independent': _plan(mechanism=mechanisms.Identity(_ROUNDS), noise_multiplier=0.0),
    'schedule': _plan(
        mechanism=mechanisms.Restarted(mechanisms.BinaryTree(_ROUNDS), (2,), _ROUNDS),
        clip_schedule=((2, 0.25),),
    ),
    'adaptive': _plan(
        mechanism=mechanisms.Restarted(mechanisms.BinaryTree(_ROUNDS), (2,), _ROUNDS),
        adaptive_clip=accounting.AdaptiveClip(count_stddev=2.0),
    ),
    'secagg': _plan(discretization=Discretization(scale=2.0**14, dimension=_SIZE, clip_norm=_NORM)),
}


def _run(plan, canaries):
    """Results, clip norms and metrics of all rounds, and the last state."""
    query = aggregators.build_query(plan, 5, record_specs=_SPECS, canaries=canaries)
    cohort = [(np.full([3, 4], 0.3, np.float32), np.zeros(5, np.float32))] * _CLIENTS
    state, results, norms, metrics = query.initial_global_state(), [], [], []
    for _ in range(_ROUNDS):
        norms.append(rounds.clip_norm(_sums(state)))
        (result,), state = rounds.run(query, state, [cohort], _SPECS)
        results.append(result)
        metrics.append({k: float(v) for k, v in query.derive_metrics(state).items()})
    return np.array(results), np.array(norms), metrics, state


def _sums(state):
    """The state of the query of the mean."""
    return state.inner if isinstance(state, audited_query.AuditedState) else state


@pytest.mark.standard
@pytest.mark.parametrize('name', _PLANS)
def test_sums_grow_by_the_canaries_of_the_round_and_by_nothing_else(name, monkeypatch):
    redrawn.ignore_context(monkeypatch)
    plan = _PLANS[name]
    with_them, norms, metrics, state = _run(plan, _CANARIES)
    without, same_norms, same_metrics, _ = _run(plan, None)
    # Noise, clip norms, and the counts of an adaptive clip norm are those of a run without them.
    assert np.array_equal(norms, same_norms)
    assert metrics == same_metrics
    directions = audited_query.directions(9, np.arange(7), _SIZE)
    added = np.array([directions[cohort].sum(axis=0) for cohort in _CANARIES.cohorts])
    expected = added * norms[:, None] / plan.denominator
    assert np.allclose(with_them - without, expected, atol=2e-4 if name == 'secagg' else 2e-5)
    assert not np.any(with_them[1] - without[1])
    # The sums of releases are in clip norms of their rounds.
    sums = _CANARIES.weights @ (with_them * plan.denominator / norms[:, None])
    part = _sums(state).numerator_state
    part = part.inner if name == 'adaptive' else part
    assert np.allclose(part.released, sums, rtol=1e-4, atol=1e-4)
    assert part.round == _ROUNDS
