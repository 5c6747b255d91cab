"""Secrets in the text of clients: who holds which, that no other text changes, and refusals."""

import numpy as np
import pytest

from dpfl.simulation.training import TextConfig
from dpfl.tasks.config import TaskConfig
from dpfl.tasks.text.tokenization import BOS_ID, EOS_ID, NUM_SPECIAL_TOKENS, PAD_ID
from experiments.studies.shared import planting
from tests import text_files
from tests.simulation.training import small_config

pytestmark = pytest.mark.standard

_PLANTING = planting.PlantingConfig(
    secrets=3, secret_copies=(1, 4), secret_holders=(0, 2), secret_choices=5
)


def _synthetic(**changes):
    text = TextConfig(vocabulary_size=40, sentence_length=6)
    return TaskConfig(model='micro', text=text).with_values(changes)


def _user_text(folder, **changes):
    text_files.write_clients(folder / 'texts.jsonl', 60, sentences=2)
    text_files.write_words(folder / 'words.txt')
    values = {
        'task': 'user_text',
        'data_path': str(folder / 'texts.jsonl'),
        'vocabulary_file': str(folder / 'words.txt'),
        'vocabulary_size': None,
        'sentence_length': 12,
    }
    return _synthetic(**{**values, **changes})


def _loaded(config, population):
    task = config.open(1, lambda text: None).load()
    words = task.language_model[1]
    return task, planting.plant(_PLANTING, task, 1, words, population), words


def _rows(task, client):
    batches = task.client_batches(client, 4, 1, None)
    return np.concatenate([np.concatenate([b['x'][:, :1], b['y']], axis=1) for b in batches])


def test_secrets_are_drawn_by_kind_with_holders_of_their_own():
    secrets = planting.draw(_PLANTING, 1, 40, 100)
    assert [(each.copies, len(each.holders)) for each in secrets] == [
        pair for pair in ((1, 0), (1, 2), (4, 0), (4, 2)) for _ in range(3)
    ]
    holders = [client for each in secrets for client in each.holders]
    assert len({*holders}) == len(holders) == _PLANTING.num_holders == 12
    assert all(0 <= client < 100 for client in holders)
    for each in secrets:
        assert len({*each.alphabet}) == 5 and len(each.tokens) == 5
        assert {*each.alphabet, *each.prefix} <= {*range(NUM_SPECIAL_TOKENS, 44)}
    assert secrets == planting.draw(_PLANTING, 1, 40, 100)
    assert secrets != planting.draw(_PLANTING, 2, 40, 100)


def test_random_words_are_uniform():
    config = planting.PlantingConfig(secrets=4000, secret_holders=(0,), secret_choices=4)
    values = np.array([each.value for each in planting.draw(config, 0, 4, 1)])
    counts = np.bincount(values @ [4, 1], minlength=16)
    # 250 of each pair on average; the standard deviation is 15.3.
    assert abs(counts - 250).max() < 6 * 15.3


@pytest.mark.parametrize(
    'make, population, length',
    [
        (lambda folder: _synthetic(), 30, 6),
        (lambda folder: _synthetic(language_size=60), 30, 6),
        (_user_text, 54, 12),
    ],
    ids=['synthetic', 'a larger language', 'a file'],
)
def test_clients_have_their_secrets_first_and_no_other_client_changes(
    make, population, length, tmp_path
):
    task, planted, words = _loaded(make(tmp_path), population)
    assert planted.not_covered == task.not_covered
    assert {**task.description, 'planted': 0} == {**planted.description, 'planted': 0}
    np.testing.assert_array_equal(
        *[np.concatenate([b['y'] for b in each.heldout(5, 8)]) for each in (task, planted)]
    )
    secrets = planting.draw(_PLANTING, 1, len(words), population)
    held = {client: each for each in secrets for client in each.holders}
    for client in range(population):
        rows = []
        if client in held:
            row = [BOS_ID, *held[client].tokens, EOS_ID]
            rows = [row + [PAD_ID] * (length + 1 - len(row))] * held[client].copies
        after = _rows(planted, client)
        assert after[: len(rows)].tolist() == rows
        np.testing.assert_array_equal(after[len(rows) :], _rows(task, client))
    assert planted.description['planted'] == {
        'secrets': 6,
        'clients': 12,
        'sentences': 3 * (2 * 1 + 2 * 4),
        'population': population,
    }


def test_planted_sentences_count_as_text_of_the_client(tmp_path):
    # A client has 18 words, and 5 more for each copy of a secret: six have 4 copies.
    _, planted, words = _loaded(_user_text(tmp_path, client_min_tokens=30), 54)
    secrets = planting.draw(_PLANTING, 1, len(words), 54)
    with_text = {client for client in range(54) if planted.client_batches(client, 4, 1, None)}
    assert with_text == {client for each in secrets if each.copies == 4 for client in each.holders}


def test_windows_have_the_secrets_first(tmp_path):
    _, planted, words = _loaded(_user_text(tmp_path, packing='windows', sentence_length=6), 54)
    secret = next(each for each in planting.draw(_PLANTING, 1, len(words), 54) if each.holders)
    row = _rows(planted, secret.holders[0])[0]
    assert row.tolist() == [BOS_ID, *secret.tokens, EOS_ID]


def _run(changes=(), **secrets):
    planted = _PLANTING.with_values(secrets)
    config = small_config.GAUSSIAN.with_values(dict(changes))
    planting.train(config, planted, 'nowhere', progress=False)


_IMAGES = {'task': 'emnist', 'model': None, 'vocabulary_size': None, 'sentence_length': 20}


@pytest.mark.parametrize(
    'make, message',
    [
        (lambda: _run(secret_copies=(2, 2)), 'secret_copies='),
        (lambda: _run(secret_holders=()), 'secret_holders='),
        (lambda: planting.PlantingConfig(secret_words=3), 'secret_words=3: needs secrets'),
        (lambda: _run({'sentence_length': 4}), 'sentence_length=4: must be >= 5, for a secret'),
        (lambda: _run({'client_max_tokens': 23}), 'client_max_tokens=23: must be >= 24, for 4'),
        (lambda: _run(_IMAGES), 'task=emnist: must be one of'),
        (lambda: _run({'select_examples': ('length<=5',)}), 'task=.*with a selection or'),
        (lambda: _run({'client_max_batches': 1, 'client_batch_size': 3}), 'secret_copies='),
        (lambda: planting.draw(_PLANTING, 1, 40, 11), 'secret_holders='),
        (lambda: planting.draw(_PLANTING, 1, 4, 100), 'secret_choices='),
    ],
)
def test_what_is_refused(make, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f'^{message}'):
        make()
    assert not list(tmp_path.iterdir())
