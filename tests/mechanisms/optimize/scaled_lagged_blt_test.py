import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.mechanisms.optimize.scaled_lagged_blt import optimize_scaled_lagged_blt
from tests import oracles


@pytest.mark.parametrize('loss, most', [('max', 9.84), ('rms', 8.84)])
def test_losses_of_the_paper_setting(loss, most):
    schema = Participation(2052, 342, 6)
    found = optimize_scaled_lagged_blt(schema, 2, loss)
    assert getattr(found, f'{loss}_loss')(schema) < most
    assert (found.num_buffers(), found.kernel().draws) == (2, 2)


@pytest.mark.parametrize('loss', ['max', 'rms'])
@pytest.mark.parametrize('name', ['prefix_sums', 'momentum'])
def test_it_is_never_worse_than_its_parts_and_its_loss_is_proven(loss, name):
    schema = Participation(12, 4, 3)
    workload = None if name == 'prefix_sums' else mechanisms.workload.momentum(12, 0.8)
    arguments = schema, 1, loss
    losses = [
        getattr(optimizer(*arguments, workload=workload), f'{loss}_loss')(schema, workload)
        for optimizer in (
            mechanisms.optimize_scaled_blt,
            mechanisms.optimize_lagged_blt,
            optimize_scaled_lagged_blt,
        )
    ]
    assert losses[2] <= min(losses[:2]) * (1 + 1e-12)
    found = optimize_scaled_lagged_blt(*arguments, workload=workload)
    truth = oracles.squared_sensitivity(found.strategy_matrix(), schema)
    assert found.sensitivity(schema) >= np.sqrt(truth) * (1 - 1e-12)


def test_progress_and_bad_arguments(capsys):
    schema = Participation(12, 4, 3)
    optimize_scaled_lagged_blt(schema, 1, progress=True)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith('optimize_scaled_lagged_blt: scaled: max loss ')
    with pytest.raises(ValueError, match='draws=0: must be an integer >= 1'):
        optimize_scaled_lagged_blt(schema, 1, draws=0)
