"""Whoever is held out is no client: in all tasks, neither an id nor data are on both sides."""

import itertools
import json
import types

import numpy as np
import pytest

from dpfl.debugging.text.clients import OpenedText
from dpfl.errors import ArgumentError
from dpfl.tasks import config, federated_task, own_data
from dpfl.tasks.images import classifiers
from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS
from tests.tasks import sqlite_files
from tests.tasks.images import emnist_files
from tests.tasks.text import repositories

_PEOPLE = 12
_EACH = 5
_SYNTHETIC = 4
# A sentence of a person begins with a word of its own, so that its data say whose they are.
_WORDS = [f'person{person}' for person in range(_PEOPLE)] + ['writes', 'again']
# Rows of synthetic text are long enough that two people do not write the same by chance.
_LONG = 12


def _sentences(person):
    return [f'person{person} writes' + ' again' * (i % 3) for i in range(_EACH)]


def _stackoverflow(path, splits, also=()):
    """A file in TFF's format. Pairs in `also` put a person into a further split."""
    return sqlite_files.write(
        path / 'stackoverflow.sqlite',
        [
            (split, f'{person:02}', [*map(sqlite_files.of_sentence, _sentences(person))])
            for person, split in (*enumerate(splits), *also)
        ],
    )


def _user_text(path):
    file = path / 'texts.jsonl'
    rows = [{'client': str(i), 'text': text} for i in range(_PEOPLE) for text in _sentences(i)]
    file.write_text(''.join(f'{json.dumps(row)}\n' for row in rows))
    return file


def _git_log(path):
    commits = [
        repositories.Commit(f'author{i}@example.org', f'{text}\n')
        for i in range(_PEOPLE)
        for text in _sentences(i)
    ]
    return repositories.make(path / 'repository', commits)


def _opened(task, path, data_path):
    """The task as training opens it."""
    is_real_text = task in config.REAL_TASKS
    words = path / 'words'
    words.write_text('\n'.join(_WORDS))
    text = config.TextConfig(vocabulary_file=str(words)) if is_real_text else config.TextConfig()
    model = 'tiny' if task in config.IMAGE_TASKS else 'micro'
    data = config.DataConfig(data_path=data_path)
    given = config.TaskConfig(task=task, model=model, data=data, text=text)
    return given.open(3, lambda text: None).load()


def _own(clients, heldout):
    model = classifiers.build_image_classifier('tiny', 0)
    return own_data.from_arrays(model, clients, heldout)


def _arrays(client, size=4):
    rng = np.random.default_rng(client)
    return {'x': rng.random((size, 28, 28, 1), np.float32), 'y': np.zeros(size, np.int32)}


_SPLITS = ['train'] * 8 + ['heldout'] * 2 + ['test'] * 2
_IN_SEVERAL = [(0, 'heldout'), (1, 'test'), (8, 'test')]
# Task and a function that makes its file in a directory, or None without a file; by name.
_CASES = {
    'synthetic_text': ('synthetic_text', None),
    'stackoverflow': ('stackoverflow', lambda path: _stackoverflow(path, _SPLITS)),
    'stackoverflow with people in several splits': (
        'stackoverflow',
        lambda path: _stackoverflow(path, _SPLITS, _IN_SEVERAL),
    ),
    'stackoverflow without heldout': (
        'stackoverflow',
        lambda path: _stackoverflow(path, ['train'] * 10 + ['test'] * 2),
    ),
    'user_text': ('user_text', _user_text),
    'git_log': ('git_log', _git_log),
    'synthetic_glyphs': ('synthetic_glyphs', None),
    'emnist': ('emnist', lambda path: emnist_files.write_sqlite(path / 'emnist.sqlite')),
    'custom': ('custom', None),
}


def _people(task, batches):
    """Who wrote the rows of some batches: a mark in each row, or else the row itself."""
    found = set()
    for batch in batches:
        for x, y in zip(np.asarray(batch['x']), np.asarray(batch['y']), strict=True):
            if task == 'emnist':
                found.add(float(x[0, 0, 0]))
            elif task in config.REAL_TASKS:
                found |= {_WORDS[i] for i in y - NUM_SPECIAL_TOKENS if 0 <= i < _PEOPLE}
            elif task in config.IMAGE_TASKS or task == 'custom' or np.count_nonzero(y) >= _LONG:
                found.add(x.tobytes() + y.tobytes())
    return found


@pytest.mark.parametrize('name', _CASES)
def test_no_person_is_on_two_sides(name, tmp_path, monkeypatch):
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path / 'cache'))
    task, make = _CASES[name]
    if task == config.CUSTOM:
        opened = _own([_arrays(i) for i in range(9)], [_arrays(i) for i in (9, 10)])
    else:
        opened = _opened(task, tmp_path, make and str(make(tmp_path)))
    assert (opened.population is None) == (task in config.SYNTHETIC_TASKS)
    clients = range(opened.population or _SYNTHETIC)
    sides = [
        _people(task, itertools.chain(*(opened.client_batches(i, 8, 1, None) for i in clients))),
        _people(task, opened.heldout(1_000 if opened.population else _SYNTHETIC, 8)),
    ]
    if opened.test is not None:
        number = opened.num_test_clients or _SYNTHETIC
        sides.append(_people(task, opened.test(number, 8)))
    assert all(sides) and len(set.union(*sides)) == sum(map(len, sides))
    if task in (*config.REAL_TASKS, 'emnist'):
        # Nobody is lost, and the run says how many are on either side.
        assert opened.description['clients'] == {
            'training': len(sides[0]),
            'heldout': len(sides[1]),
        }
        assert sum(map(len, sides)) == (len(emnist_files.SIZES) if task == 'emnist' else _PEOPLE)


def test_every_task_has_a_case():
    allowed = {*config.TEXT_TASKS, *config.IMAGE_TASKS, config.CUSTOM}
    assert {task for task, _ in _CASES.values()} == allowed


@pytest.mark.parametrize('task', ['synthetic_text', 'user_text'])
def test_text_of_studies_is_divided_too(task, tmp_path):
    """`debug_text` opens its text by itself."""
    values = {}
    if task == 'user_text':
        (tmp_path / 'words').write_text('\n'.join(_WORDS))
        values = {'data_path': _user_text(tmp_path), 'vocabulary_file': tmp_path / 'words'}
    given = config.TextTaskConfig(task=task).with_values({k: str(v) for k, v in values.items()})
    opened = OpenedText(given, 3).text.data
    sides = [
        {tuple(map(tuple, part.sentences(i))) for i in range(min(part.count, 20))}
        for part in (opened.training, opened.heldout)
    ]
    assert all(sides) and not sides[0] & sides[1]


@pytest.mark.parametrize('fraction', [0.1, 0.3, 0.9])
def test_who_is_held_out_depends_on_the_ids_alone(fraction):
    ids = [f'f{i:04}' for i in range(40)]
    training, held = federated_task.hold_out(ids, fraction)
    assert {*training} | {*held} == {*ids} and len(training) + len(held) == 40
    assert len(held) == federated_task.num_held_out(40, fraction) == round(40 * fraction)
    assert federated_task.hold_out(reversed(ids), fraction) == (training, held)
    # Somebody is held out, and somebody is not.
    numbers = {(2, 0.9): 1, (2, 0.01): 1, (10, 0.26): 3, (10, 0.99): 9, (3_400, 0.1): 340}
    assert {each: federated_task.num_held_out(*each) for each in numbers} == numbers
    # A smaller share is a part of a larger one, and others do not matter but for the number.
    assert federated_task.hold_out(ids, fraction / 2)[1] == held[: round(20 * fraction)]


def test_an_own_client_on_both_sides_is_refused():
    clients = [_arrays(i) for i in range(3)]
    with pytest.raises(ArgumentError, match=r'heldout\[1\]: must not have .* of clients\[2\]'):
        _own(clients, [_arrays(7), _arrays(2)])
    # The same examples in another type.
    with pytest.raises(ArgumentError, match=r'heldout\[0\]: must not have'):
        _own(clients, [{**clients[1], 'x': clients[1]['x'].astype(np.float64)}])
    # Clients without data are alike.
    _own([*clients, _arrays(0, size=0)], [_arrays(0, size=0)])


@pytest.mark.parametrize(
    'changes, message',
    [
        ({'x': np.zeros((4, 28, 28), np.float32)}, r"\['x'\]: must be float32 of shape"),
        ({'x': np.zeros((4, 28, 27, 1), np.float32)}, r"\['x'\]: must be float32"),
        ({'y': np.zeros(4)}, r"\['y'\]: must be int32 of shape .* is float64"),
        ({'y': np.int32(1)}, r"\['y'\]: must be int32"),
        ({'y': np.zeros(3, np.int32)}, ': must have arrays of one length'),
        ({'z': np.zeros(4)}, ': must have the arrays x, y'),
    ],
)
def test_own_arrays_must_fit_the_model(changes, message):
    with pytest.raises(ArgumentError, match=rf'^clients\[1\]{message}'):
        _own([_arrays(0), {**_arrays(1), **changes}], [_arrays(2)])


def test_own_arrays_get_the_types_of_the_model():
    examples = {'x': _arrays(0)['x'].astype(np.float64), 'y': np.zeros(4, np.int64)}
    (batch,) = _own([examples], [_arrays(2)]).client_batches(0, 4, 1, None)
    assert (batch['x'].dtype, batch['y'].dtype) == (np.float32, np.int32)
    for specs in (('x', 'y'), {'x': None, 'z': None}):
        model = types.SimpleNamespace(input_spec=specs)
        with pytest.raises(ArgumentError, match='^model: must have an input_spec with the keys x'):
            own_data.from_arrays(model, [], [])
    with pytest.raises(ArgumentError, match='^seed=-1'):
        own_data.from_arrays(model, [], [], seed=-1)
