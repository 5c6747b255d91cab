"""Audits of selections: what a release shows of a client inside of one, and of a client outside."""

import functools

import numpy as np
import pytest
import tensorflow_federated as tff

from dpfl import learning
from dpfl.auditing import lower_bounds
from dpfl.tasks import selection as selection_lib
from dpfl.tasks.config import TaskConfig, TextConfig
from dpfl.tasks.selection import SelectionConfig
from tests.accounting import plans

pytestmark = pytest.mark.tff

_TRIALS = 150
_CLIP = 0.01  # Every update is longer, so a client contributes as much as it may.
_CLIENT, _OTHERS = 0, (1, 2, 3)


def _plan(noise_multiplier, clients):
    fields = dict(noise_multiplier=noise_multiplier, clients_per_round=clients)
    return plans.independent(1, clip_norm=_CLIP, **fields)


_PLAN = _plan(0.5, 1 + len(_OTHERS))


@functools.cache
def _task():
    config = TaskConfig(model='micro', text=TextConfig(vocabulary_size=40, sentence_length=6))
    return config.open(0, lambda text: None).load()


@functools.cache
def _process(plan):
    """A process with secret noise, other noise from every initial state on."""
    return learning.build_dp_fedavg(
        _task().model,
        plan,
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
        server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
        train_metrics=False,
    )


def _batches(task, client):
    return task.client_batches(client, 16, 1, None)


def _released(cohort, plan=_PLAN):
    """The mean that one round releases of the data of a cohort, [d]."""
    process = _process(plan)
    before = process.initialize()
    after = process.next(before, learning.shard(cohort, 1)).state
    old, new = (
        np.concatenate([np.asarray(each).ravel() for each in state.global_model_weights.trainable])
        for state in (before, after)
    )
    return old - new


def _direction():
    """That of the client's update, from a release without noise."""
    update = _released([_batches(_task(), _CLIENT)], _plan(0.0, 1))
    assert np.linalg.norm(update) == pytest.approx(_CLIP, rel=1e-4)
    return update / np.linalg.norm(update)


def _statistics(selection, direction):
    """Projections of releases with the client's data, and of those without them."""
    task = selection_lib.select(selection, _task())
    others = [_batches(task, client) for client in _OTHERS]
    with_client = [_batches(task, _CLIENT), *others]
    without = [[], *others]
    return tuple(
        np.array([_released(cohort) @ direction for _ in range(_TRIALS)])
        for cohort in (with_client, without)
    )


@pytest.mark.exhaustive
def test_a_client_inside_shows_no_more_than_claimed_and_one_outside_nothing():
    direction = _direction()
    inside = SelectionConfig(select_examples=('length>=1',))
    outside = SelectionConfig(select_clients=('length>99',))
    present, absent = _statistics(inside, direction)
    # The whole update is selected, is clipped, and is where the attacker looks: nearly the claim.
    assert lower_bounds.mu_of_normal_statistics(present, absent, 1 - 1e-6) <= _PLAN.mu
    assert lower_bounds.mu_of_normal_statistics(present, absent, 0.99) >= 0.7 * _PLAN.mu
    present, absent = _statistics(outside, direction)
    # Both are noise alone; the bound is above 0 with probability 1e-6.
    assert lower_bounds.mu_of_normal_statistics(present, absent, 1 - 1e-6) == 0.0


def test_what_is_sent_of_a_client_outside_is_what_is_sent_without_it():
    task = selection_lib.select(SelectionConfig(select_clients=('length>99',)), _task())
    assert _batches(_task(), _CLIENT) and _batches(task, _CLIENT) == []
