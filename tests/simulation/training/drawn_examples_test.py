"""The random batch of a FedSGD client: a pure function of seed, round and client."""

import collections

import numpy as np
import pytest

from dpfl.simulation.training import drawn_examples, execution
from tests.simulation.training import small_config
from tests.sizes import trains

_ROWS = 6
_DATA = [{'x': np.arange(4), 'y': -np.arange(4)}, {'x': np.arange(4, 6), 'y': -np.arange(4, 6)}]


def _drawn(t, client=3, seed=0, size=2):
    (batch,) = drawn_examples.DrawnExamples(seed, size)(t, client, _DATA)
    assert (batch['x'] == -batch['y']).all()
    return tuple(batch['x'].tolist())


def test_a_draw_is_of_a_seed_a_round_and_a_client():
    draws = [_drawn(t) for t in range(40)]
    assert draws == [_drawn(t) for t in range(40)]
    assert draws != [_drawn(t, client=4) for t in range(40)]
    assert draws != [_drawn(t, seed=1) for t in range(40)]
    assert drawn_examples.DrawnExamples(0, 2)(0, 3, []) == []
    for size in (_ROWS, 99):
        assert _drawn(0, size=size) == tuple(range(_ROWS))


def test_every_batch_of_different_examples_is_equally_likely():
    counts = collections.Counter(_drawn(t) for t in range(1500))
    pairs = {(i, j) for j in range(_ROWS) for i in range(j)}
    assert set(counts) == pairs
    # Chi-square of 14 degrees of freedom; a fair draw is above with probability 1e-6.
    assert sum((counts[pair] - 100) ** 2 for pair in pairs) / 100 < 55


@trains
@pytest.mark.parametrize('client_update', ['fedavg', 'fedsgd'])
def test_an_experiment_draws_for_fedsgd_alone(client_update):
    config = small_config.GAUSSIAN.with_values(
        {'client_update': client_update, 'client_batch_size': 3}
    )
    run = execution.Run(config=config)
    task, population = run.load()
    experiment = run.experiment(task, population)
    (every,) = task.client_batches(1, 99, 1, None)
    assert len(every['y']) > 6
    rounds = [list(experiment.data_in_turn((t, 1))) for t in (0, 1, 0)]
    sizes = [[len(batch['y']) for batch in batches] for batches in rounds]
    first, second, again = (np.concatenate([batch['y'] for batch in each]) for each in rounds)
    np.testing.assert_array_equal(first, again)
    if client_update == 'fedsgd':
        assert sizes == [[3]] * 3
        assert not np.array_equal(first, second)
        assert {row.tobytes() for row in second} <= {row.tobytes() for row in every['y']}
    else:
        np.testing.assert_array_equal(first, every['y'])
        np.testing.assert_array_equal(second, every['y'])
    turns = list(experiment.turns([2, 0]))
    assert [[t for t, _ in turn] for turn in turns] == [[2] * 4, [0] * 4]
    assert [client for _, client in turns[1]] == list(experiment.sampler.cohort(0))
