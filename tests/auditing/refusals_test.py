"""What audits refuse: numbers out of their range, and plans that have no such audit."""

import types

import numpy as np
import pytest
import tensorflow as tf

from dpfl import Participation, accounting, errors, mechanisms
from dpfl.auditing import aggregator_audit, aggregator_runs, canaries, lower_bounds, one_shot
from dpfl.auditing.config import AggregatorAuditConfig
from dpfl.auditing.lower_bounds import Counts
from tests.accounting import plans

_ROUNDS = 6
_SCHEMA = Participation(_ROUNDS, 2)


def _plan(**changes):
    fields = dict(participation=_SCHEMA, noise_multiplier=1.0, clients_per_round=4096)
    return plans.plan(**{**fields, **changes})


def _audit(**changes):
    config = AggregatorAuditConfig(trials=2048, seed=5)
    return aggregator_audit.audit(_plan(**changes), config, 1e-6)


def _released(resume_after=None, **changes):
    updates = np.ones((_ROUNDS, 3))
    return aggregator_runs.released(_plan(**changes), updates, seed=3, resume_after=resume_after)


def _designed(count=10, **changes):
    return canaries.design(_plan(**changes), count, 0, 100)


_WEIGHTS = types.SimpleNamespace(trainable=[])
_LONG = dict(mechanism=mechanisms.Identity(9000), participation=Participation(9000, 9000))
_MANY_GROUPS = dict(mechanism=mechanisms.Identity(20), participation=Participation(20, 5, 3))
_INDEPENDENT = dict(mechanism=mechanisms.Identity(6), participation=Participation(6))


@pytest.mark.parametrize(
    ('call', 'message'),
    [
        (lambda: lower_bounds.mu(Counts(0, 5, 0, 5), 1.0), 'confidence'),
        (lambda: lower_bounds.mu(Counts(0, 0, 0, 5), 0.9), 'trials'),
        (lambda: lower_bounds.epsilon(Counts(0, 5, 0, 5), 1.0, 0.9), 'delta'),
        (lambda: lower_bounds.mu_of_guesses(10, 11, 3, 0.9), 'guesses'),
        (lambda: lower_bounds.mu_of_guesses(10, 5, 6, 0.9), 'right'),
        (lambda: lower_bounds.mu_of_guesses(10, 5, 3, 1.0), 'confidence'),
        (lambda: lower_bounds.guessed(np.zeros(3), np.zeros(3, bool), 4), 'guesses'),
        (lambda: _audit(noise_multiplier=0.0), 'noise_multiplier'),
        (lambda: _audit(**_INDEPENDENT, sampling='poisson', population=10**6), 'sampling'),
        (lambda: _audit(earlier=(_plan(),)), 'earlier'),
        (
            lambda: _audit(discretization=mechanisms.Discretization(100.0, 3, 0.5)),
            'model_dimension=3: must be >= 4',
        ),
        (lambda: _released(clients_per_round=2), 'clients_per_round'),
        (lambda: _released(estimator=accounting.Estimator('clipped')), 'estimator'),
        (lambda: _released(resume_after=_ROUNDS), 'resume_after'),
        (lambda: _designed(**_LONG), '.*more than 8192 rounds'),
        (
            lambda: _designed(6 * 10**6, **_MANY_GROUPS),
            'audit_canaries=6000000: must be at most 5000000',
        ),
        (
            lambda: canaries.design(plans.sampled('poisson'), 10, 0, 100),
            'samplers=None: must be given for poisson',
        ),
        (
            lambda: one_shot.OneShotAudit(_designed()).scores(
                _WEIGHTS, _WEIGHTS, {'a': tf.zeros([])}, _plan()
            ),
            'state: must hold the sums',
        ),
    ],
)
def test_bad_values_and_plans_are_refused(call, message):
    with pytest.raises(errors.ArgumentError, match=f'^{message}'):
        call()
