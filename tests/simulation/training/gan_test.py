"""A whole run that trains a GAN on a trivial data set, stopped and continued."""

import collections
import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf

from dpfl import errors, learning, mechanisms
from dpfl.runtime import contexts
from dpfl.simulation import checkpoint_folder, ledger, outputs, program, verification
from dpfl.simulation.training import (
    EvaluationConfig,
    ExecutionConfig,
    GanClients,
    GanConfig,
    PrivacyConfig,
    SamplingConfig,
    gan,
    run_model,
    train_gan,
)
from dpfl.tasks.images import saved_generator

_ROUNDS = 4
# Clients 3 and 7 have nothing to train on; the others have fewer images than a batch, or more.
_SIZES = {3: 0, 7: 0}
_SAME = ('model.npz', 'participation.npz', 'ledger.jsonl', 'privacy_report.json')
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


_SELECTED = GanConfig(evaluation=EvaluationConfig(eval_every=1, eval_clients=1))


class _CrashError(Exception):
    pass


def _client_batches(client, batch_size, epochs, max_batches):
    """Dark squares on paper, of which each client has its own size."""
    assert (batch_size, epochs, max_batches) == (4, 1, 2)
    pixels = np.ones((_SIZES.get(client, 2 + client), 28, 28, 1), np.float32)
    pixels[:, 4 : 8 + client, 4 : 8 + client] = 0
    return [
        collections.OrderedDict(x=part, y=np.zeros(len(part), np.int32))
        for part in (pixels[:4], pixels[4:8])
        if len(part)
    ]


def _clients():
    heldout = _client_batches(1, 4, 1, 2)[0]['x'][..., 0]
    return GanClients(client_batches=_client_batches, heldout=heldout, population=8)


def _experiment(path):
    """What `train_gan` runs in a directory."""
    plan = gan.gan_plan(_CONFIG, lambda: 8)
    return gan._experiment(_CONFIG, plan, _clients(), 8, path / 'plots')


@pytest.fixture(scope='module', name='runs')
def _runs(tmp_path_factory):
    """A run without a noise seed that crashed in its third round, and one that did not."""
    crashed, whole = (tmp_path_factory.mktemp(name) / 'run' for name in ('crashed', 'whole'))
    experiment = _experiment(crashed)
    third = set(experiment.sampler.cohort(2).tolist())
    asked = []

    def client_data(client):
        asked.append(int(client))
        if len(asked) > 8 and client in third:
            raise _CrashError
        return experiment.client_data(client)

    with pytest.raises(_CrashError):
        crashing = dataclasses.replace(experiment, client_data=client_data)
        program.run_training(crashing, outputs.RunDirectory(crashed))
    # Nothing but its first checkpoint has the noise key: both go on from there.
    shutil.copytree(crashed, whole)
    (whole / 'checkpoints' / '00000002.checkpoint').unlink(missing_ok=True)
    results = [_resume(experiment, path) for path in (crashed, whole)]
    return experiment, (crashed, whole), results


def _resume(experiment, path):
    start = checkpoint_folder.latest(path / 'checkpoints', pytest.fail)
    done = program.run_training(experiment, outputs.RunDirectory(path, resume=True), start)
    return start.rounds, done


@pytest.mark.exhaustive
@pytest.mark.tff
def test_a_run_that_was_stopped_ends_with_the_same_generator(runs):
    _, (crashed, whole), [(from_round, _), (from_start, _)] = runs
    assert (from_round, from_start) == (2, 0)
    for name in _SAME:
        assert (crashed / name).read_bytes() == (whole / name).read_bytes(), name


@pytest.mark.exhaustive
@pytest.mark.tff
def test_a_round_is_not_repeated_with_other_images(runs, tmp_path):
    """Where the last checkpoint is lost after the model was written."""
    experiment, (_, whole), _ = runs
    path = shutil.copytree(whole, tmp_path / 'run')
    (path / 'checkpoints' / '00000004.checkpoint').unlink()
    changed = next(client for client in experiment.sampler.cohort(2) if client not in _SIZES)

    def client_data(client):
        batches = experiment.client_data(client)
        if client == changed:
            batches = [{**batch, 'x': 1 - batch['x']} for batch in batches]
        return batches

    with pytest.raises(ledger.LedgerError, match='round 2 was released with other data'):
        _resume(dataclasses.replace(experiment, client_data=client_data), path)
    assert (path / 'model.npz').read_bytes() == (whole / 'model.npz').read_bytes()


@pytest.mark.exhaustive
@pytest.mark.tff
def test_what_a_run_leaves(runs):
    _, (path, _), [(_, result), _] = runs
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
    } == set(result.rows[-1]) - {'round'}
    sheets = sorted(file.name for file in (path / 'plots').glob('generated_*.png'))
    assert sheets == ['generated_000002.png', 'generated_000004.png']
    page = (path / 'privacy_report.md').read_text()
    assert all(sentence in page for sentence in (*_CONFIG.not_covered, *gan.NOT_COVERED))


@pytest.mark.exhaustive
@pytest.mark.tff
def test_a_finished_run_is_returned_and_its_generator_can_be_loaded(runs):
    _, (path, _), _ = runs
    for _ in range(2):  # A second time its SavedModel takes the place of the first.
        result = train_gan(_CONFIG, path, clients=_clients(), resume=True, progress=False)
    generator = run_model.weights(path)
    for mine, kept in zip(result.weights, generator, strict=True):
        np.testing.assert_array_equal(mine, kept)
    model = gan.build_model(_CONFIG.optimization, _CONFIG.seed)
    assert all(
        (new != old).any() for new, old in zip(generator, model.initial_generator, strict=True)
    )
    saved = tf.saved_model.load(str(path / saved_generator.IN_RUN)).signatures['generate']
    inputs = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
    expected = (model.generate(generator, inputs) + 1) / 2
    np.testing.assert_allclose(saved(inputs=tf.constant(inputs))['pixels'], expected, atol=1e-6)
    assert gan.sample(_CONFIG, generator, 5).shape == (5, 28, 28)


@pytest.mark.exhaustive
@pytest.mark.tff
def test_a_run_is_continued_with_the_same_clients_only(runs):
    _, (path, _), _ = runs
    other = dataclasses.replace(_clients(), made_from={'trained_on': 'others'})
    with pytest.raises(ValueError, match='trained_on=others: must be None, as when the run began'):
        train_gan(_CONFIG, path, clients=other, resume=True, progress=False)


@pytest.mark.exhaustive
@pytest.mark.tff
def test_rounds_without_any_data_release_noise(runs):
    experiment, _, _ = runs
    with contexts.local_runtime():
        state = experiment.process.initialize()
        before = learning.gan_weights(experiment.process.get_model_weights(state))
        state = experiment.process.next(state, learning.shard([[]] * 4, 2)).state
        after = learning.gan_weights(experiment.process.get_model_weights(state))
    assert all(
        (new != old).any()
        for new, old in zip(after.discriminator, before.discriminator, strict=True)
    )


@pytest.mark.parametrize(
    'changes, message',
    [
        (dict(model='huge'), 'model=huge: must be one of'),
        (dict(client_learning_rate=0.0), 'client_learning_rate=0.0: must be'),
        (dict(generator_learning_rate=float('nan')), 'generator_learning_rate=nan: must be'),
        (dict(server_momentum=1.0), 'server_momentum=1.0: must be'),
        (dict(generator_optimizer='lion'), 'generator_optimizer=lion: must be one of sgd, adam'),
        (dict(client_batch_size=0), 'client_batch_size=0: must be'),
        (dict(client_max_batches=0), 'client_max_batches=0: must be'),
    ],
)
def test_bad_values_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        _CONFIG.with_values(changes)


@pytest.mark.parametrize(
    'changes, message',
    [
        (dict(noise='hardened'), 'noise=hardened: must be default for a GAN'),
        (dict(clip_schedule=((2, 0.2),)), 'clip_schedule'),
        (dict(population=3), 'population|clients_per_round'),
    ],
)
def test_what_a_gan_cannot_do_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        train_gan(_CONFIG.with_values(changes), tmp_path / 'run', clients=_clients())
    assert not (tmp_path / 'run').exists()


@pytest.mark.exhaustive
@pytest.mark.tff
def test_canaries_of_an_audit_are_looked_for_in_the_discriminator(tmp_path):
    changes = {'audit': True, 'audit_canaries': 400, 'noise_multiplier': 2.0, 'noise_seed': 3}
    result = train_gan(
        _CONFIG.with_values(changes), tmp_path / 'run', clients=_clients(), progress=False
    )
    found = result.report.measured
    assert (found.releases.observed, found.releases.unobserved) == (200, 200)
    # 200 scores of deviation 1: outside of these ends with probability below 1e-6.
    assert -0.37 < found.releases.null_mean < 0.37
    assert 0.0 < found.releases.mean < found.mu_of_canaries + 0.37
    assert found.final_model.mean > 0.0
    assert verification.verify(tmp_path / 'run').differences == ()


def test_what_an_audit_of_a_gan_cannot_have_is_refused():
    with pytest.raises(errors.ArgumentError, match='audit=True: cannot be combined with clipping'):
        _CONFIG.with_values({'audit': True, 'clipping': 'per_layer'})


def test_clients_of_a_configuration_send_what_is_selected():
    batches = {
        criterion: gan._clients(_SELECTED.with_values({'select_examples': (criterion,)}))
        for criterion in ('ink>2', 'label<10', 'ink>=0')
    }
    assert batches['ink>2'].client_batches(1, 8, 1, 1) == []
    (digits,) = batches['label<10'].client_batches(1, 8, 1, 1)
    assert (digits['y'] < 10).all() and len(digits['y']) == 8
    (plain,) = gan._clients(_SELECTED).client_batches(1, 8, 1, 1)
    (every,) = batches['ink>=0'].client_batches(1, 8, 1, 1)
    np.testing.assert_array_equal(every['x'], plain['x'])
    # All clients are the population, selected or not.
    assert batches['ink>2'].population is None and batches['ink>2'].not_covered == ()


def test_a_selection_that_would_be_ignored_is_refused(tmp_path):
    clients = GanClients(client_batches=_client_batches, heldout=np.ones([2, 28, 28], np.float32))
    config = _SELECTED.with_values({'select_examples': ('label<10',)})
    with pytest.raises(errors.ArgumentError, match='must not be given with a selection'):
        train_gan(config, tmp_path / 'run', clients=clients)
    assert not (tmp_path / 'run').exists()
