"""The study of data as they are, with a model of one's own; generators are not trained here."""

import collections
import json

import numpy as np
import pytest

from dpfl.debugging import page
from dpfl.debugging.images import clients as clients_lib
from dpfl.debugging.images import page as image_page
from dpfl.debugging.images import study
from dpfl.debugging.images.config import PrimaryConfig, StudyConfig
from dpfl.errors import ArgumentError
from dpfl.reporting import html_parts
from dpfl.simulation.training import GanConfig
from dpfl.tasks import federated_task
from dpfl.tasks.images import classifiers
from tests.tasks.images import emnist_files as small

_BASE = GanConfig().with_values(
    {
        'mechanism': 'gaussian',
        'noise_multiplier': 1.0,
        'rounds': 2,
        'population': 40,
        'clients_per_round': 2,
        'model': 'tiny',
        'eval_clients': 1,
    }
)


def _study(directory, seed=1, resume=False, **values):
    model = directory / 'model'
    model.mkdir(exist_ok=True)
    weights = classifiers.initial_weights(classifiers.PRESETS['tiny'], seed)
    np.savez(model / 'model.npz', **{str(i): weight for i, weight in enumerate(weights)})
    config = StudyConfig(
        primary=PrimaryConfig(primary_model=str(model), primary_clients=12),
        samples=40,
        realistic_population=40_000,
        **values,
    )
    return study.Study(config=config, base=_BASE, directory=directory / 'study', resume=resume)


@pytest.mark.standard
def test_ones_own_model_on_data_as_they_are(tmp_path, monkeypatch):
    trained = {}

    def train(training, config, directory, *, samples, not_covered, **others):
        """The images that a perfect generator would make."""
        trained[training.name] = not_covered
        pixels = np.concatenate([training.pixels(i, 10) for i in range(2)])
        return np.concatenate([pixels] * 2)[:samples]

    monkeypatch.setattr(study, 'train_gan', train)
    found = _study(tmp_path).run()
    results = found.results
    names = ['public', 'everyone', 'high_accuracy', 'low_accuracy']
    assert [each.subpopulation for each in results] == names
    assert list(trained) == [f'as_is/{name}' for name in names]
    # Nobody was selected for the first two.
    assert [bool(trained[f'as_is/{name}']) for name in names] == [False] * 2 + [True] * 2
    assert [len(each.guarantees) for each in results] == [0, 2, 2, 2]
    assert results[1].clients == 40
    path, numbers = page.write(tmp_path / 'study', image_page.render(found), found)
    summary = json.loads(numbers)
    assert path.with_suffix('.json').read_text() == f'{numbers}\n'
    assert set(summary['diagnoses']) == {'as_is'} and summary['fault_is_visible'] is False
    sheets = [path.name for path in (tmp_path / 'study' / 'sheets').iterdir()]
    assert len(sheets) == 4 and all(name.startswith('generated_') for name in sheets)
    # The features of a model with random weights tell no image from another.
    text = path.read_text()
    assert 'Cannot tell: inverted' in text
    assert 'No fault is seen' not in text and 'class="good"' not in text
    # What the larger run cannot have is refused before anything is trained.
    trained.clear()
    with pytest.raises(ArgumentError, match='must make whole cohorts'):
        _study(tmp_path, resume=True, scale=0.3).run()
    assert not trained
    # Another model at the same path is another study.
    with pytest.raises(ArgumentError, match='as in the study in') as raised:
        _study(tmp_path, seed=2, resume=True).run()
    assert raised.value.name == 'primary_model'


def test_a_fix_needs_a_fault(tmp_path):
    with pytest.raises(ArgumentError, match='must name a fault for compare=fix'):
        _study(tmp_path, compare='fix').run()


def test_every_other_client_of_public_images_is_learned_from():
    labels = np.arange(200, dtype=np.int32)
    images = clients_lib.PublicImages(np.zeros([200, 28, 28], np.float32), labels)
    dealt = [images.examples(int(i))[1] for i in images.half.clients]
    assert np.concatenate(dealt).tolist() == [*range(64), *range(128, 192)]
    assert images.examples(1, 3)[1].tolist() == [64, 65, 66]


# Images of a generator have this in their first pixel, and writers what `emnist.mark` says.
_GENERATED = 0.25


def _marks(pixels):
    first = np.asarray(pixels).reshape(-1, 28, 28)[:, 0, 0]
    return {*np.minimum(first, 1 - first).tolist()}  # Some devices invert their images.


def _looks(monkeypatch):
    """Marks of the images that something looks at, by who looks; generators are not trained."""
    looks = collections.defaultdict(set)

    def watch(module, name, who):
        watched = getattr(module, name)

        def call(*arguments, **others):
            looks[who] |= _marks(next(a for a in arguments if isinstance(a, np.ndarray)))
            return watched(*arguments, **others)

        monkeypatch.setattr(module, name, call)

    def train_gan(training, config, directory, *, heldout, samples, **others):
        looks['heldout'] |= _marks(heldout)
        seen = [training.pixels(i) for i in range(len(training.chosen))]
        looks[training.name] |= _marks(np.concatenate(seen))
        drawn = np.random.default_rng(0).random((samples, 28, 28)).astype(np.float32)
        drawn[:, 0, 0] = _GENERATED
        return drawn

    watch(html_parts, 'sheet', 'shown')
    watch(html_parts, 'write', 'shown')
    watch(classifiers, 'train_centrally', 'learned')
    monkeypatch.setattr(study, 'train_gan', train_gan)
    return looks


@pytest.mark.parametrize('compare', ['public', 'fix'])
@pytest.mark.standard
def test_only_images_of_held_out_writers_are_learned_from_and_shown(compare, tmp_path, monkeypatch):
    """[Augenstein20], appendix C: nobody may look at data of clients, who are all others."""
    path = small.write_sqlite(tmp_path / 'emnist.sqlite', {f'f{i:04}_00': 6 for i in range(1, 25)})
    clients, heldout = (
        set(map(small.mark, each))
        for each in federated_task.hold_out([f'f{i:04}_00' for i in range(1, 25)], 0.25)
    )
    assert len(heldout) == 6 and len(clients) == 18
    looks = _looks(monkeypatch)
    monkeypatch.setattr(clients_lib, '_PUBLIC_EACH', 6)
    base = _BASE.with_values(
        {
            'task': 'emnist',
            'data_path': str(path),
            'heldout_fraction': 0.25,
            'population': None,
            'clients_per_round': 1,
            **({'inject': ('inverted',)} if compare == 'fix' else {}),
        }
    )
    primary = PrimaryConfig(primary_model='tiny', primary_steps=2)
    config = StudyConfig(primary=primary, compare=compare, samples=8, realistic_population=9_000)
    found = study.Study(config=config, base=base, directory=tmp_path / 'study').run()
    image_page.render(found)
    shown = looks.pop('shown')
    assert looks.pop('learned') == heldout and looks.pop('heldout') <= heldout
    assert shown - {1.0, 0.0} <= heldout | {_GENERATED} and shown & heldout
    assert len(looks) == 4
    for name, seen in looks.items():
        assert seen and seen <= (heldout if '/public' in name else clients), name
    # All clients of the file are the population, and nobody else is.
    assert found.population == 18
    if compare == 'public':
        assert looks['as_is/everyone'] == clients
    too_many = base.with_values({'population': 19})
    with pytest.raises(ArgumentError, match='population=19: must be <= 18'):
        study.Study(config=config, base=too_many, directory=tmp_path / 'other').run()
