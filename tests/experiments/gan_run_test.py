"""A whole run that trains a GAN on a trivial data set, stopped and continued."""

import collections
import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf

from dpfl import Participation, accounting, learning, mechanisms
from dpfl.runtime import contexts
from dpfl.simulation import checkpoint, ledger, outputs, program, sampling
from experiments import gan_run, run_model

_ROUNDS = 4
# Clients 3 and 7 have nothing to train on; the others have fewer images than a batch, or more.
_SIZES = {3: 0, 7: 0}
_SAME = ('model.npz', 'participation.npz', 'ledger.jsonl', 'privacy_report.json')
_TRAINING = gan_run.Training(model='tiny', client_batch_size=4, client_max_batches=2, seed=1)


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


def _experiment(sheets, client_batches=_client_batches):
    schema = Participation(_ROUNDS, 2)
    plan = accounting.PrivacyPlan(
        mechanism=mechanisms.Blt(_ROUNDS, [0.9], [0.2]),
        participation=schema,
        clip_norm=0.1,
        noise_multiplier=0.01,
        clients_per_round=4,
    )
    return gan_run.experiment(
        _TRAINING,
        plan,
        sampler=sampling.MinSeparationSampler(schema, 8, 4),
        client_batches=client_batches,
        heldout=_client_batches(1, 4, 1, 2)[0]['x'][..., 0],
        sheets=sheets,
        train_metrics=True,
        delta=1e-6,
        eval_every=2,
        checkpoint_every=2,
    )


@pytest.fixture(scope='module', name='runs')
def _runs(tmp_path_factory):
    """A run without a noise seed that crashed in its third round, and one that did not."""
    crashed, whole = (tmp_path_factory.mktemp(name) / 'run' for name in ('crashed', 'whole'))
    experiment = _experiment(crashed / 'plots')
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
    start = checkpoint.latest(path / 'checkpoints', pytest.fail)
    done = program.run_training(experiment, outputs.RunDirectory(path, resume=True), start)
    return start.rounds, done


@pytest.mark.tff
def test_a_run_that_was_stopped_ends_with_the_same_generator(runs):
    _, (crashed, whole), [(from_round, _), (from_start, _)] = runs
    assert (from_round, from_start) == (2, 0)
    for name in _SAME:
        assert (crashed / name).read_bytes() == (whole / name).read_bytes(), name


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
    } == set(result.metrics)
    sheets = sorted(file.name for file in (path / 'plots').glob('generated_*.png'))
    assert sheets == ['generated_000002.png', 'generated_000004.png']
    page = (path / 'privacy_report.md').read_text()
    assert all(sentence in page for sentence in gan_run.NOT_COVERED)


@pytest.mark.tff
def test_the_generator_can_be_loaded(runs):
    _, (path, _), _ = runs
    generator = run_model.weights(path)
    before = _TRAINING.build_model().initial_generator
    assert all((new != old).any() for new, old in zip(generator, before, strict=True))
    for _ in range(2):  # A second time it takes the place of the first.
        gan_run.save_generator(_TRAINING, path)
    generate = tf.saved_model.load(str(path / gan_run.SAVED_MODEL)).signatures['generate']
    inputs = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
    pixels = generate(inputs=tf.constant(inputs))['pixels']
    model = _TRAINING.build_model()
    expected = (model.generate(generator, inputs) + 1) / 2
    np.testing.assert_allclose(pixels, expected, atol=1e-6)
    assert gan_run.sample(_TRAINING, generator, 5).shape == (5, 28, 28)


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


@pytest.mark.parametrize('selected', [[], [4, 5]])
def test_too_few_clients_are_one_line(selected):
    with pytest.raises(ValueError, match=f'population={len(selected)}: .* nothing can be trained'):
        gan_run.require_clients(selected, 3)
    gan_run.require_clients([1, 2, 3], 3)


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
        gan_run.Training(**changes)
