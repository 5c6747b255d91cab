"""What must hold of a run of every kind: its records agree, and an interruption changes no bit."""

import json

import pytest

from dpfl.accounting.sampling import monte_carlo
from dpfl.simulation import run_directory
from dpfl.simulation.training import GanConfig, train
from dpfl.tasks.before_training import WordRelease
from tests import runs, text_files
from tests.repository import threat_model
from tests.simulation.training import small_config
from tests.sizes import exhaustive, standard

pytestmark = pytest.mark.tff

_GAUSSIAN = {'mechanism': 'gaussian', **small_config.NO_BUFFERS, 'min_separation': 1}
_BANDED = {'mechanism': 'fichtenberger_toeplitz', **small_config.NO_BUFFERS, 'min_separation': 1}
_KINDS = {
    'correlated noise': {},
    'correlated noise that is restarted': {'restart_first': 1, 'restart_every': 2},
    'restarted tree': {**small_config.TREE, 'restart_first': 1, 'restart_every': 2},
    'hardened noise': {'noise': 'hardened'},
    'noise in a file': {'memory_limit': 0.0},
    'adaptive clip': {
        **small_config.TREE,
        'adaptive_clip': True,
        'restart_first': 1,
        'restart_every': 2,
        'count_stddev': 2.0,
    },
    'a clip norm for each layer': {
        'clipping': 'per_layer',
        'sampling': 'uniform',
        'min_separation': 1,
    },
    'secure aggregation': {'secagg': True, 'secagg_bits': 20},
    'algorithm 1 of [McMahan18]': {
        **_GAUSSIAN,
        'packing': 'windows',
        'client_max_tokens': 80,
        'client_min_tokens': 30,
        'estimator': 'clipped',
        'cohort_weight': 2.5,
        'example_cap': 12.0,
        'client_batch_size': 8,
        'clip_each_batch': True,
    },
    'Poisson sampling and Adam': {
        **_GAUSSIAN,
        'accountant': 'moments',
        'sampling': 'poisson',
        'client_update': 'fedsgd',
        'client_batch_size': 3,
        'server_learning_rate': 0.05,
        'server_optimizer': 'adam',
        'server_schedule': 'linear',
    },
    'sampling without replacement': {**_GAUSSIAN, 'sampling': 'without_replacement'},
    'cyclic Poisson sampling': {**_BANDED, 'bands': 2, 'sampling': 'cyclic_poisson'},
    'b-min-sep sampling': {**_BANDED, 'bands': 2, 'sampling': 'b_min_sep'},
    'balls in bins': {**_BANDED, 'bands': 4, 'sampling': 'balls_in_bins'},
    'audit': {'audit': True, 'audit_canaries': 40},
    'test of the final model': {'test_clients': 3},
    'selected clients': {
        **_GAUSSIAN,
        'select_clients': ('length<=5',),
        'select_examples': ('oov_rate<0.5', 'length>1'),
    },
    'words found privately': {
        **_GAUSSIAN,
        **small_config.PRIVATE_WORDS,
        'data_path': '{folder}/data.jsonl',
    },
    'warm start': {
        'noise_seed': 6,
        'warm_start': '{folder}/origin',
        'audit': True,
        'audit_canaries': 40,
    },
    'a GAN': {
        'model': 'tiny',
        'client_batch_size': 4,
        'client_max_batches': 2,
        'rounds': 4,
        'population': 8,
        'clients_per_round': 4,
        'noise_multiplier': 1.0,
        'eval_every': 2,
    },
}
_STANDARD = ('correlated noise that is restarted',)
# Of some kinds only; the same bits after an interruption.
_FILES = ('audit.npz', 'test_metrics.json', 'before_training.json')


def _config(kind, folder):
    """The configuration of a kind of runs; what it needs is in the folder then."""
    changes = {
        name: value.format(folder=folder) if isinstance(value, str) else value
        for name, value in _KINDS[kind].items()
    }
    if 'data_path' in changes:
        text_files.write_clients(folder / 'data.jsonl', clients=90, sentences=4)
    if 'warm_start' in changes:
        small_config.copied(folder / 'origin')
    return (GanConfig() if kind == 'a GAN' else small_config.BLT).with_values(changes)


def _assert_records_agree(config, path, result):
    found = run_directory.verify(path)
    assert found.differences == () and found.report == result.report
    assert threat_model.shared_by_mistake(path) == []
    assert type(config).from_dict(json.loads((path / 'config.json').read_text())) == config
    shown = [float(row['epsilon']) for row in runs.metrics(path)]
    assert shown == sorted(shown) and shown[-1] == result.report.guarantee.epsilons[0]


@pytest.mark.parametrize(
    'kind',
    [standard(each) if each in _STANDARD else exhaustive(each) for each in _KINDS],
)
def test_records_agree_and_an_interruption_changes_no_bit(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(monte_carlo, 'MOST_SAMPLES', 20_000)
    config, whole, path = _config(kind, tmp_path), tmp_path / 'whole', tmp_path / 'run'
    config = config.with_values({'checkpoint_every': 1})
    result = small_config.copied_when_killed(config, whole, path, 3)
    _assert_records_agree(config, whole, result)
    # What was released before training is not drawn again.
    monkeypatch.setattr(WordRelease, 'find', lambda *_: pytest.fail('drawn twice'))
    continued = train(config, path, resume=True)
    assert runs.differences(path, whole) == []
    assert {each.name for each in path.iterdir()} == {each.name for each in whole.iterdir()}
    for name in _FILES:
        assert not (whole / name).exists() or (
            (path / name).read_bytes() == (whole / name).read_bytes()
        )

    before = runs.contents(path)
    again = train(config, path, resume=True)
    assert again.report == continued.report and again.last == continued.last
    assert runs.contents(path) == before
