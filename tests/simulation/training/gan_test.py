"""A whole run that trains a GAN on a trivial data set, stopped and continued."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from dpfl import accounting, errors, mechanisms
from dpfl.reporting import gan_page
from dpfl.simulation import run_directory
from dpfl.simulation.training import (
    EvaluationConfig,
    ExecutionConfig,
    GanConfig,
    PrivacyConfig,
    SamplingConfig,
    dry_run,
    gan,
    run_model,
    train,
)
from dpfl.tasks import federated_task
from dpfl.tasks.config import TaskConfig
from dpfl.tasks.images import gan_models, image_clients
from tests.accounting import plans
from tests.simulation.training import small_config
from tests.sizes import standard, trains_long

_ROUNDS = 4
# Clients 3 and 7 have nothing to train on; the others have fewer images than a batch, or more.
_SIZES = {3: 0, 7: 0}
_CONFIG = GanConfig(
    optimization=gan.GanOptimizationConfig(model='tiny', client_batch_size=4, client_max_batches=2),
    privacy=PrivacyConfig(
        mechanism=mechanisms.Blt(_ROUNDS, [0.9], [0.2]),
        clip_norm=0.1,
        noise_multiplier=0.01,
        delta=1e-6,
    ),
    sampling=SamplingConfig(rounds=_ROUNDS, min_separation=2, population=8, clients_per_round=4),
    evaluation=EvaluationConfig(eval_every=2, release_train_metrics=True),
    execution=ExecutionConfig(checkpoint_every=2),
    seed=1,
    chosen_without_noise=('clip_norm',),
)


_ALL = 2**31 - 1


def _client_batches(client, batch_size, epochs, max_batches):
    """Dark squares on paper, of which each client has its own size."""
    # All examples are asked for; a task may still give them in parts.
    assert (batch_size, epochs, max_batches) == (_ALL, 1, None)
    pixels = np.ones((_SIZES.get(client, 2 + client), 28, 28, 1), np.float32)
    pixels[:, 4 : 8 + client, 4 : 8 + client] = 0
    return [
        collections.OrderedDict(x=part, y=np.zeros(len(part), np.int32))
        for part in (pixels[:4], pixels[4:8], pixels[8:])
        if len(part)
    ]


def _clients():
    return _task(_client_batches, _client_batches(1, _ALL, 1, None)[0])


def _task(client_batches, heldout=None):
    return federated_task.FederatedTask(
        model=None,
        population=8,
        client_batches=client_batches,
        heldout=lambda clients, batch_size: federated_task.dataset(heldout, batch_size),
    )


@trains_long
def test_a_finished_run_is_returned_and_its_generator_can_be_loaded(tmp_path):
    path, task = tmp_path / 'run', _clients()
    first = train(_CONFIG, path, task=task)
    assert {
        'loss',
        'accuracy',
        'generator_loss',
        'critic_gap',
        'intensity',
        'diversity',
        'epsilon',
        'train_discriminator_loss',
        'train_critic_gap',
        'seconds',
    } == set(first.metrics) - {'round'}
    sheets = sorted(file.name for file in (path / 'plots').glob('generated_*.png'))
    assert sheets == ['generated_000002.png', 'generated_000004.png']
    page = (path / 'privacy_report.md').read_text()
    assert all(sentence in page for sentence in _CONFIG.not_covered)
    other = dataclasses.replace(task, made_from={'trained_on': 'others'})
    with pytest.raises(ValueError, match='trained_on=others: must be None, as when the run began'):
        train(_CONFIG, path, task=other, resume=True)
    result = train(
        _CONFIG, path, task=task, resume=True
    )  # Its SavedModel takes the place of the first.
    generator = run_model.weights(path)
    for mine, kept in zip(result.weights, generator, strict=True):
        np.testing.assert_array_equal(mine, kept)
    model = gan.build_model(_CONFIG.optimization, _CONFIG.seed)
    assert all(
        (new != old).any() for new, old in zip(generator, model.initial_generator, strict=True)
    )
    saved = tf.saved_model.load(str(path / gan_models.IN_RUN)).signatures['generate']
    inputs = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
    expected = (model.generate(generator, inputs) + 1) / 2
    np.testing.assert_allclose(saved(inputs=tf.constant(inputs))['pixels'], expected, atol=1e-6)
    assert gan.sample(_CONFIG, generator, 5).shape == (5, 28, 28)


def test_clients_draw_their_images_anew_in_every_round():
    """By seed, round and client; at most two batches of 4, of all 20 images."""

    def batches(client, batch_size, epochs, max_batches):
        pixels = np.arange(100 * client, 100 * client + 20, dtype=np.float32).reshape(-1, 1, 1, 1)
        images = image_clients.named(np.broadcast_to(pixels, (20, 28, 28, 1)), np.zeros(20))
        return federated_task.batches(images, batch_size, epochs, max_batches)

    def drawn(t, client=3, seed=1):
        fields = gan.drawn_images(_CONFIG.with_values({'seed': seed}), _task(batches))
        parts = fields['drawn'](t, client, fields['client_data'](client))
        assert [part['x'].shape for part in parts] == [(4, 28, 28, 1)] * 2
        return np.concatenate([part['x'][:, 0, 0, 0] for part in parts]).tolist()

    rounds = [drawn(t) for t in range(12)]
    assert all(len(set(images)) == 8 for images in rounds)
    assert set().union(*rounds) == set(range(300, 320))
    assert rounds == [drawn(t) for t in range(12)]
    assert rounds != [drawn(t, seed=2) for t in range(12)]
    assert rounds != [[image - 100 for image in drawn(t, client=4)] for t in range(12)]


_OWN_TEXT = dataclasses.replace(small_config.BLT, task=TaskConfig())


@pytest.mark.parametrize(
    'config, changes, message',
    [
        standard(_CONFIG, {'population': 3}, 'population|clients_per_round'),
        # A task of one's own would ignore these.
        (_OWN_TEXT, {'select_examples': ('length<=5',)}, 'select_examples.*a task of your own'),
        (_OWN_TEXT, {'warm_start': 'model'}, 'warm_start.*with a task of your own'),
        (_OWN_TEXT, {'model': 'tiny'}, 'model.*with a task of your own'),
        (_OWN_TEXT, {'vocabulary_size': 12}, 'vocabulary_size.*with a task of your own'),
        (_OWN_TEXT, {'data_path': 'x'}, 'data_path.*with a task of your own'),
    ],
)
def test_settings_that_clients_of_ones_own_do_not_have_are_refused(
    tmp_path, config, changes, message
):
    with pytest.raises(errors.ArgumentError, match=message):
        train(config.with_values(changes), tmp_path / 'run', task=_clients())
    assert not (tmp_path / 'run').exists()


@trains_long
@pytest.mark.parametrize(
    'changes, mechanism, storage',
    [
        ({'noise': 'hardened', 'noise_multiplier': 2.0}, 'blt', 'memory'),
        ({'memory_limit': 0.0, 'noise': 'hardened', 'noise_multiplier': 2.0}, 'blt', 'file'),
        ({'mechanism': 'auto'}, 'banded', 'state'),
    ],
)
def test_noise_is_made_as_for_any_other_model(changes, mechanism, storage, tmp_path, capfd):
    config, path = _CONFIG.with_values(changes), tmp_path / 'run'
    shown = dry_run(config, task=_clients())
    assert not path.exists()
    result = train(config, path, task=_clients())
    said = capfd.readouterr().err
    guarantee = result.report.guarantee
    assert (shown.epsilon, shown.rho) == (guarantee.epsilons[0], guarantee.rho)
    assert (shown.mechanism, shown.noise_place) == (mechanism, storage)
    assert f'{shown.parameters:,} parameters' in said and 'noise of past rounds: ' in said
    assert run_directory.verify(path).differences == ()


@trains_long
def test_canaries_of_an_audit_are_looked_for_in_the_discriminator(tmp_path):
    changes = {'audit': True, 'audit_canaries': 400, 'noise_multiplier': 2.0, 'noise_seed': 3}
    result = train(_CONFIG.with_values(changes), tmp_path / 'run', task=_clients())
    found = result.report.measured
    assert (found.releases.observed, found.releases.unobserved) == (200, 200)
    # 200 scores of deviation 1: outside of these ends with probability below 1e-6.
    assert -0.37 < found.releases.null_mean < 0.37
    assert 0.0 < found.releases.mean < found.mu_of_canaries + 0.37
    assert found.final_model.mean > 0.0
    assert run_directory.verify(tmp_path / 'run').differences == ()


def test_the_page_of_a_generator_says_what_its_report_covers():
    plan = plans.independent(
        1000,
        clip_norm=0.1,
        noise_multiplier=0.01,
        clients_per_round=10,
        adjacency='replace_one_half_shift',
        sampling=accounting.WithoutReplacement(population=425),
    )
    report = accounting.PrivacyReport.from_plan(plan, [2.35e-3], accountant='moments')
    page = gan_page.render(report)
    assert 'post-processing' in page and 'Clipping alone ensures two' in page
    assert accounting.round_up(report.guarantee.epsilons[0]) in page
