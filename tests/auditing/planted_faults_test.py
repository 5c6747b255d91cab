"""Aggregators with a fault: the audit finds each of them, and finds nothing without a fault.

Faults are planted by replacing a part from outside. docs/reference/audits.md has the table.
"""

import numpy as np
import pytest
import tensorflow as tf

from dpfl import Participation, mechanisms
from dpfl.aggregators import clipping
from dpfl.aggregators.noise import correlated, draws
from dpfl.auditing import aggregator_audit, aggregator_runs
from dpfl.auditing.config import AggregatorAuditConfig
from dpfl.mechanisms.sensitivities.matrix_sensitivity import Sensitivity
from tests import paths, redrawn
from tests.accounting import plans

_ROUNDS = 8
_SCHEMA = Participation(_ROUNDS, 4)
_TRIALS = 2048
_BLT = mechanisms.Blt(_ROUNDS, [0.9, 0.4], [0.2, 0.3])
_RESTARTED = mechanisms.Restarted(mechanisms.BinaryTree(_ROUNDS), (4,), _ROUNDS)
_GROWING = ((4, 4.0),)  # The clip norm grows at the restart.


def _audit(mechanism=_BLT, resume_after=None, **changes):
    """The audit of a plan with mu = 1."""
    noise_multiplier = mechanism.sensitivity(_SCHEMA)
    fields = dict(participation=_SCHEMA, clip_norm=1.0, clients_per_round=_TRIALS, **changes)
    plan = plans.plan(mechanism=mechanism, noise_multiplier=noise_multiplier, **fields)
    config = AggregatorAuditConfig(trials=_TRIALS, seed=0, resume_after=resume_after)
    return aggregator_audit.audit(plan, config, 1e-6)


def _noise_of_the_beginning_after_a_resume(monkeypatch):
    """The counter of the noise stream is lost, so it starts again with the same key."""
    restored, of_round = aggregator_runs._restored, draws.of_round
    lost = []

    def restore(saved, structure):
        lost.append(True)
        return restored(saved, structure)

    def drawn(root, round_index, context):
        return of_round(root, round_index - 4 if lost else round_index, np.zeros(1))

    monkeypatch.setattr(aggregator_runs, '_restored', restore)
    monkeypatch.setattr(draws, 'of_round', drawn)
    return _audit(resume_after=4)


class _ByRows(mechanisms.Banded):
    """Counts the norms of the rows of C, instead of those of its columns."""

    def _sensitivity_of_first(self, participation):
        rows = np.sort((self.strategy_matrix() ** 2).sum(axis=1))[-participation.count :]
        return Sensitivity(float(rows.sum()), is_exact=True)


def _sensitivity_of_rows(monkeypatch):
    matrix = np.eye(_ROUNDS)
    matrix[1:4, 0] = matrix[5:, 4] = 1.5
    return _audit(_ByRows.from_matrix(matrix, 4))


def _a_key_again_after_a_restart(monkeypatch):
    of_round = draws.of_round
    monkeypatch.setattr(
        draws, 'of_round', lambda root, t, context: of_round(root, t % 4, np.zeros(1))
    )
    return _audit(_RESTARTED)


def _more_participations_than_planned(monkeypatch):
    monkeypatch.setattr(aggregator_runs, 'worst_pattern', lambda *_: np.tile([1.0, 0.0], 4))
    return _audit()


def _with_noise(change):
    """`change` maps the noise of a round, a list of tensors, and its number to other noise."""

    def fault(monkeypatch):
        next_noise = correlated.next_noise

        def changed(kernel, rounds, state, specs, context):
            noise, following = next_noise(kernel, rounds, state, specs, context)
            return change(noise, state.round), following

        monkeypatch.setattr(correlated, 'next_noise', changed)
        return _audit()

    return fault


class _Changed:
    """A query around another one; subclasses change one step."""

    def __init__(self, query, plan):
        self._query, self._plan = query, plan

    def __getattr__(self, name):
        return getattr(self._query, name)


class _Twice(_Changed):
    def accumulate_record(self, params, total, record):
        once = self._query.accumulate_record(params, total, record)
        return self._query.accumulate_record(params, once, record)


class _ClippingOfTheMean(_Changed):
    def accumulate_record(self, params, total, record):
        return [part + tf.cast(leaf, tf.float64) for part, leaf in zip(total, record, strict=True)]

    def get_noised_result(self, total, state):
        largest = self._plan.clients_per_round * self._plan.clip_norm
        total = clipping.clip_flat(total, tf.constant(largest, tf.float32))
        return self._query.get_noised_result(total, state)


class _NoiseOfTheFirstNorm(_Changed):
    def get_noised_result(self, total, state):
        silent = tf.nest.map_structure(tf.zeros_like, total)
        noised, following, event = self._query.get_noised_result(total, state)
        noise, _, _ = self._query.get_noised_result(silent, state)
        share = self._plan.clip_norm / self._query.derive_sample_params(state)
        changed = [one - other + other * share for one, other in zip(noised, noise, strict=True)]
        return changed, following, event


def _with_query(kind, **changes):
    def fault(monkeypatch):
        build = aggregator_runs.aggregators.build_query
        monkeypatch.setattr(
            aggregator_runs.aggregators,
            'build_query',
            lambda plan, *args, **kwargs: kind(build(plan, *args, **kwargs), plan),
        )
        return _audit(**changes)

    return fault


def _noise_not_scaled_with_the_clip_norm(monkeypatch):
    redrawn.ignore_context(monkeypatch)
    changes = dict(mechanism=_RESTARTED, clip_schedule=_GROWING)
    return _with_query(_NoiseOfTheFirstNorm, **changes)(monkeypatch)


# What the table of docs/reference/audits.md says of each fault; the first four are quick.
FAULTS = {
    'noise of the beginning again after a resume': _noise_of_the_beginning_after_a_resume,
    'clipping of the mean in place of each update': _with_query(_ClippingOfTheMean),
    'noise of half the scale': _with_noise(lambda noise, t: [leaf / 2 for leaf in noise]),
    'a restarted mechanism that uses its keys again': _a_key_again_after_a_restart,
    'sensitivity of a row in place of a column': _sensitivity_of_rows,
    'a client twice in a round': _with_query(_Twice),
    'noise on the first tensor only': _with_noise(
        lambda noise, t: [noise[0], *map(tf.zeros_like, noise[1:])]
    ),
    'a round without noise': _with_noise(
        lambda noise, t: [leaf * tf.cast(t != 4, tf.float64) for leaf in noise]
    ),
    'the same noise in all coordinates': _with_noise(
        lambda noise, t: [noise[0][:1] + tf.zeros_like(leaf) for leaf in noise]
    ),
    'noise that does not follow the clip norm': _noise_not_scaled_with_the_clip_norm,
    'more participations than planned': _more_participations_than_planned,
}


@pytest.mark.parametrize(
    'name',
    [*[*FAULTS][:4], *(pytest.param(name, marks=pytest.mark.standard) for name in [*FAULTS][4:])],
)
def test_a_fault_is_found(name, monkeypatch):
    found = FAULTS[name](monkeypatch)
    assert found.exceeds_claim
    assert found.verdict == 'refuted'
    assert found.mu_lower > 1.1 * found.plan.mu


@pytest.mark.parametrize(
    'changes',
    [
        pytest.param(dict(resume_after=4), marks=pytest.mark.standard),
        dict(mechanism=_RESTARTED, clip_schedule=_GROWING),
    ],
)
def test_nothing_is_found_without_a_fault(changes):
    found = _audit(**changes)
    assert not found.exceeds_claim
    assert found.mu_lower > 0.5 * found.plan.mu


def test_the_table_has_every_fault():
    text = (paths.ROOT / 'docs' / 'reference' / 'audits.md').read_text()
    rows = [line.split('|')[1].strip() for line in text.splitlines() if line.startswith('| ')]
    assert set(FAULTS) <= set(rows)
