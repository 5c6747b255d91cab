"""A dry run says of a run what the run says of itself, and leaves nothing behind."""

import dataclasses
import json
import types

import numpy as np
import pytest

from dpfl.errors import DataError
from dpfl.simulation import state as state_lib
from dpfl.simulation.training import cost, dry_run, timing
from dpfl.tasks.text.models import saved_models
from tests import forked_binaries
from tests.accounting import plans
from tests.simulation.training import small_config

_CONFIG = small_config.BLT.with_values({'eval_every': 3})


@pytest.fixture(scope='module', name='found')
def _found(tmp_path_factory):
    """The cost, from a call in an empty directory, which stays empty."""
    path, real = tmp_path_factory.mktemp('empty'), timing.measure

    def measure(experiment, *arguments):
        # With a seed, every initial state is the same.
        first, second = (state_lib.leaves(experiment.process.initialize()) for _ in range(2))
        different = [not np.array_equal(*pair) for pair in zip(first, second, strict=True)]
        assert sum(different) == 1  # The key: noise of a seeded run is not used.
        assert not experiment.noise_is_seeded
        return real(experiment, *arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(path)
        patched.setattr(timing, 'measure', measure)
        found = dry_run(_CONFIG, progress=False)
    assert not list(path.iterdir())
    return found


@pytest.mark.standard
@pytest.mark.tff
def test_numbers_are_those_of_the_run(found):
    done = small_config.finished()
    guarantee, plan = done.report.guarantee, done.report.plan
    assert found.parameters == sum(weight.size for weight in done.weights)
    assert found.parameters == saved_models.ALL['micro'].num_parameters(44)
    assert (found.epsilon, found.rho) == (guarantee.epsilons[0], guarantee.rho)
    assert (found.rounds, found.clients_per_round, found.population) == (4, 4, 16)
    assert (found.mechanism, found.noise_place) == (plan.mechanism.name, done.noise_storage)
    assert (found.noise_multiplier, found.delta) == (3.0, 1e-3)
    assert found.noise_stddev == pytest.approx(3.0 * 0.3)
    assert found.mean_noise_stddev == pytest.approx(3.0 * 0.3 / 4)


@pytest.mark.standard
@pytest.mark.tff
def test_averages_are_those_of_all_clients_of_a_small_population(found):
    task = _CONFIG.task.open(0, lambda text: None).load()
    clients = [task.client_batches(client, 16, 1, None) for client in range(16)]
    batches = [batch for client in clients for batch in client]
    assert found.clients_sampled == 16
    assert found.batches_per_client == pytest.approx(len(batches) / 16)
    assert found.rows_per_client == pytest.approx(sum(len(b['x']) for b in batches) / 16)
    assert found.tokens_per_client == pytest.approx(sum((b['y'] > 0).sum() for b in batches) / 16)
    size = sum(b['x'].nbytes + b['y'].nbytes for b in batches) / 16
    assert found.cohort_gigabytes == pytest.approx(4 * 4 * size / 1e9)


@pytest.mark.standard
@pytest.mark.tff
def test_estimates_are_made_as_they_say(found):
    parts = found.process_gigabytes + found.cohort_gigabytes + found.checkpoint_gigabytes
    assert found.memory_gigabytes == pytest.approx(parts) and found.process_gigabytes > 0.1
    # Model, momentum and two buffers of noise, in float32, and a little more.
    assert 4 * 4 * found.parameters < found.checkpoint_gigabytes * 1e9 < 8 * 4 * found.parameters
    assert 1 <= found.shards <= 2 and found.slowdown >= 1 and found.client_seconds > 0
    shard = found.server_seconds + found.client_seconds * (4 / found.shards)
    expected = max(found.slowdown * shard, 4 * found.data_seconds)
    assert found.round_seconds == pytest.approx(expected)
    # Evaluations after rounds 3 and 4.
    seconds = 4 * found.round_seconds + 2 * found.evaluation_seconds
    assert found.hours == pytest.approx(seconds / 3600)
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert values.pop('how') == cost.HOW
    lists = {'not_measured': [], 'advice': list(found.advice)}
    assert {**dataclasses.asdict(found), **lists} == values


def test_a_line_through_two_rounds():
    assert timing.split((4, 1.5), (12, 2.5)) == pytest.approx((0.125, 1.0))
    # Times of nearly nothing: neither part is below 0, and nothing is lost.
    assert timing.split((4, 1.0), (12, 0.9)) == pytest.approx((0.075, 0.0))
    assert timing.split((4, 0.1), (12, 1.2)) == pytest.approx((0.1, 0.0))


@pytest.mark.parametrize('num_shards', [1, 4, 8])
def test_shards_that_do_not_hinder_each_other_have_no_slowdown(num_shards, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(timing.time, 'monotonic', lambda: clock[0])

    def train(state, cohort):
        longest = max(sum(len(batch['x']) > 0 for batch in shard) for shard in cohort)
        clock[0] += 2.0 + 3.0 * longest
        return types.SimpleNamespace(state=state)

    process = types.SimpleNamespace(
        initialize=lambda: np.zeros(1), next=train, get_model_weights=lambda state: state
    )
    experiment = types.SimpleNamespace(
        process=process, evaluate=lambda weights: {}, noise_storage=None, plan=plans.independent(9)
    )
    found = timing.measure(experiment, [[{'x': np.ones(1)}]] * 3, num_shards)
    assert (found.server_seconds, found.batch_seconds, found.slowdown) == (2.0, 3.0, 1.0)


@pytest.mark.standard
@pytest.mark.tff
def test_data_of_no_client_are_refused():
    with pytest.raises(DataError, match='none of the 16 clients that were looked at has data'):
        dry_run(_CONFIG.with_values({'client_min_tokens': 10**6}), progress=False)


@pytest.mark.standard
@pytest.mark.tff
def test_the_binary_prints_and_writes_nothing(tmp_path):
    flags = ('--dry_run', f'--output_dir={tmp_path}/run', *small_config.flags(_CONFIG))
    values = forked_binaries.printed('train', *flags)
    assert values['mechanism'] == 'blt' and values['parameters'] > 0
    assert 'are estimates' in forked_binaries.run('train', *flags, check=True).stdout
    assert not list(tmp_path.iterdir())
