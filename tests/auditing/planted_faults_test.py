"""Aggregators with a fault: the audit finds each of them, and finds nothing without a fault.

Faults are planted by replacing a part from outside. docs/how_to/auditing.md has the table.
"""

import numpy as np
import pytest
import tensorflow as tf

from dpfl import Participation, accounting, mechanisms
from dpfl.aggregators import clipping, exact_sum
from dpfl.aggregators.noise import correlated, keys
from dpfl.auditing import aggregator_audit, aggregator_runs
from dpfl.auditing.config import AggregatorAuditConfig
from dpfl.mechanisms.sensitivities.common import Sensitivity
from tests import paths, redrawn

_ROUNDS = 8
_SCHEMA = Participation(_ROUNDS, 4)
_TRIALS = 2048


def _plan(mechanism=None, multiplier=1.0, **fields):
    """A plan with mu = 1 / multiplier."""
    mechanism = mechanism or mechanisms.Blt(_ROUNDS, [0.9, 0.4], [0.2, 0.3])
    values = dict(
        mechanism=mechanism,
        participation=_SCHEMA,
        clip_norm=1.0,
        noise_multiplier=mechanism.sensitivity(_SCHEMA) * multiplier,
        clients_per_round=_TRIALS,
    )
    return accounting.PrivacyPlan(**(values | fields))


def _restarted():
    return mechanisms.Restarted(mechanisms.BinaryTree(_ROUNDS), (4,), _ROUNDS)


def _audit(plan, seed=0, **how):
    config = AggregatorAuditConfig(trials=_TRIALS, seed=seed, **how)
    return aggregator_audit.audit(plan, config, 1e-6)


def _noise_of_the_beginning_after_a_resume(monkeypatch):
    """The counter of the noise stream is lost, so it starts again with the same key."""
    restored, of_round = aggregator_runs._restored, keys.of_round
    lost = []

    def restore(saved, structure):
        lost.append(True)
        return restored(saved, structure)

    def drawn(root, round_index, context):
        del context
        return of_round(root, round_index - 4 if lost else round_index, np.zeros(1))

    monkeypatch.setattr(aggregator_runs, '_restored', restore)
    monkeypatch.setattr(keys, 'of_round', drawn)
    return _audit(_plan(), resume_after=4)


class _ByRows(mechanisms.Banded):
    """Counts the norms of the rows of C, instead of those of its columns."""

    def _sensitivity(self, participation):
        rows = np.sort((self.strategy_matrix() ** 2).sum(axis=1))[-participation.count :]
        return Sensitivity(float(rows.sum()), is_exact=True)


def _sensitivity_of_rows(monkeypatch):
    matrix = np.eye(_ROUNDS)
    matrix[:4, 0] = matrix[4:, 4] = 1.5
    np.fill_diagonal(matrix, 1.0)
    return _audit(_plan(_ByRows.from_matrix(matrix, 4)))


def _clip_after_the_sum(monkeypatch):
    """The mean of the updates is clipped, not each update."""
    monkeypatch.setattr(aggregator_runs.aggregators, 'build_query', _changed(_ClippingOfTheMean))
    return _audit(_plan())


def _a_client_twice_in_a_round(monkeypatch):
    monkeypatch.setattr(aggregator_runs.aggregators, 'build_query', _changed(_Twice))
    return _audit(_plan())


def _noise_of_half_the_scale(monkeypatch):
    next_noise = correlated.next_noise

    def halved(*args, **context):
        noise, state = next_noise(*args, **context)
        return tf.nest.map_structure(lambda leaf: leaf / 2, noise), state

    monkeypatch.setattr(correlated, 'next_noise', halved)
    return _audit(_plan())


def _noise_on_the_first_tensor_only(monkeypatch):
    next_noise = correlated.next_noise

    def first_only(*args, **context):
        (first, *others), state = next_noise(*args, **context)
        return [first, *map(tf.zeros_like, others)], state

    monkeypatch.setattr(correlated, 'next_noise', first_only)
    return _audit(_plan())


def _a_key_again_after_a_restart(monkeypatch):
    of_round = keys.of_round
    monkeypatch.setattr(
        keys, 'of_round', lambda root, t, context: of_round(root, t % 4, np.zeros(1))
    )
    return _audit(_plan(_restarted()))


def _noise_of_a_round_is_missing(monkeypatch):
    next_noise = correlated.next_noise

    def without(kernel, rounds, state, specs, context):
        noise, following = next_noise(kernel, rounds, state, specs, context)
        kept = tf.cast(tf.not_equal(state.round, 4), tf.float64)
        return tf.nest.map_structure(lambda leaf: leaf * kept, noise), following

    monkeypatch.setattr(correlated, 'next_noise', without)
    return _audit(_plan())


def _one_noise_for_all_coordinates(monkeypatch):
    next_noise = correlated.next_noise

    def repeated(*args, **context):
        noise, state = next_noise(*args, **context)
        first = tf.nest.flatten(noise)[0][:1]
        return tf.nest.map_structure(lambda leaf: first + tf.zeros_like(leaf), noise), state

    monkeypatch.setattr(correlated, 'next_noise', repeated)
    return _audit(_plan())


def _noise_not_scaled_with_the_clip_norm(monkeypatch):
    """The clip norm grows at a restart, and the noise stays."""
    redrawn.ignore_context(monkeypatch)
    monkeypatch.setattr(aggregator_runs.aggregators, 'build_query', _changed(_NoiseOfTheFirstNorm))
    return _audit(_plan(_restarted(), clip_schedule=((4, 4.0),)))


def _more_participations_than_planned(monkeypatch):
    monkeypatch.setattr(
        aggregator_audit.worst_pattern, 'worst_pattern', lambda *_: np.tile([1.0, 0.0], 4)
    )
    return _audit(_plan())


class _Changed:
    """A query around another one; subclasses change one step."""

    def __init__(self, query, plan):
        self._query, self._plan = query, plan

    def __getattr__(self, name):
        return getattr(self._query, name)


class _Twice(_Changed):
    def accumulate_record(self, params, total, record):
        for _ in range(2):
            total = self._query.accumulate_record(params, total, record)
        return total


class _ClippingOfTheMean(_Changed):
    """Sums are in units, of which the clip norm has a power of two."""

    def accumulate_record(self, params, total, record):
        units = exact_sum.units_per_clip_norm(self._plan.clients_per_round)
        return [
            part + tf.cast(leaf / params, tf.float64) * units
            for part, leaf in zip(total, record, strict=True)
        ]

    def get_noised_result(self, total, state):
        clients = self._plan.clients_per_round
        largest = clients * exact_sum.units_per_clip_norm(clients)
        total = clipping.clip_flat(total, tf.constant(largest, tf.float32))
        return self._query.get_noised_result(total, state)


class _NoiseOfTheFirstNorm(_Changed):
    def get_noised_result(self, total, state):
        silent = tf.nest.map_structure(tf.zeros_like, total)
        noised, following, event = self._query.get_noised_result(total, state)
        noise, _, _ = self._query.get_noised_result(silent, state)
        norm = self._query.derive_sample_params(state)
        changed = [
            one - other + other / norm * self._plan.clip_norm
            for one, other in zip(noised, noise, strict=True)
        ]
        return changed, following, event


def _changed(kind):
    build = aggregator_runs.aggregators.build_query
    return lambda plan, *args, **kwargs: kind(build(plan, *args, **kwargs), plan)


# What the table of docs/how_to/auditing.md says of each fault.
FAULTS = {
    'noise of the beginning again after a resume': _noise_of_the_beginning_after_a_resume,
    'sensitivity of a row in place of a column': _sensitivity_of_rows,
    'clipping of the mean in place of each update': _clip_after_the_sum,
    'a client twice in a round': _a_client_twice_in_a_round,
    'noise of half the scale': _noise_of_half_the_scale,
    'noise on the first tensor only': _noise_on_the_first_tensor_only,
    'a restarted mechanism that uses its keys again': _a_key_again_after_a_restart,
    'a round without noise': _noise_of_a_round_is_missing,
    'the same noise in all coordinates': _one_noise_for_all_coordinates,
    'noise that does not follow the clip norm': _noise_not_scaled_with_the_clip_norm,
    'more participations than planned': _more_participations_than_planned,
}


@pytest.mark.parametrize('name', FAULTS)
def test_a_fault_is_found(name, monkeypatch):
    found = FAULTS[name](monkeypatch)
    assert found.exceeds_claim
    assert found.verdict == 'refuted'
    assert found.mu_lower > 1.1 * found.plan.mu


@pytest.mark.parametrize(
    ('plan', 'how'),
    [
        (_plan(), {'resume_after': 4}),
        (_plan(_restarted(), clip_schedule=((4, 4.0),)), {}),
    ],
)
def test_nothing_is_found_without_a_fault(plan, how):
    found = _audit(plan, **how)
    assert not found.exceeds_claim
    assert found.mu_lower > 0.5 * found.plan.mu


def test_the_table_has_every_fault():
    text = (paths.ROOT / 'docs' / 'how_to' / 'auditing.md').read_text()
    rows = [line.split('|')[1].strip() for line in text.splitlines() if line.startswith('| ')]
    assert set(FAULTS) <= set(rows)
