"""Audits of selections: what a release shows of a client whose update is all selected."""

import functools

import numpy as np
import pytest
import tensorflow_federated as tff

from dpfl import learning
from dpfl.tasks import selection
from dpfl.tasks.config import TaskConfig, TextConfig
from tests.accounting import plans

pytestmark = [pytest.mark.tff, pytest.mark.exhaustive]

_TRIALS = 150
_CLIP = 0.01  # Every update is longer, so a client contributes as much as it may.
_CLIENT, _OTHERS = 0, (1, 2, 3)


def _plan(noise_multiplier, clients):
    fields = dict(noise_multiplier=noise_multiplier, clients_per_round=clients)
    return plans.independent(1, clip_norm=_CLIP, **fields)


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


def _batches(client, **criteria):
    """A client's batches; those of a client that is not selected are none."""
    config = selection.SelectionConfig(**criteria)
    return selection.select(config, _task()).client_batches(client, 16, 1, None)


def _released(cohort, plan):
    """The mean that one round releases of the data of a cohort, [d]."""
    process = _process(plan)
    before = process.initialize()
    after = process.next(before, learning.shard(cohort, 1)).state
    old, new = (
        np.concatenate([np.asarray(each).ravel() for each in state.global_model_weights.trainable])
        for state in (before, after)
    )
    return old - new


def test_a_client_inside_shows_no_more_than_claimed_and_one_outside_sends_nothing():
    assert _batches(_CLIENT, select_clients=('length>99',)) == []
    everything = dict(select_examples=('length>=1',))
    # From a release without noise: the attacker looks where the client's update is.
    update = _released([_batches(_CLIENT)], _plan(0.0, 1))
    assert np.linalg.norm(update) == pytest.approx(_CLIP, rel=1e-4)
    plan, others = _plan(0.5, 1 + len(_OTHERS)), [_batches(i, **everything) for i in _OTHERS]
    present, absent = (
        np.array([_released([first, *others], plan) @ update / _CLIP for _ in range(_TRIALS)])
        for first in (_batches(_CLIENT, **everything), [])
    )
    # The whole update is selected, and is clipped: nearly the claim, but for five deviations.
    noise = np.hypot(present.std(), absent.std()) / 2**0.5
    distance = (present.mean() - absent.mean()) / noise
    assert 0.7 * plan.mu + 0.3 <= distance <= plan.mu + 5 * (2 / _TRIALS) ** 0.5
