"""Faults of images and of text do what their names say, to those that a seed chooses."""

import numpy as np
import pytest

from dpfl.debugging.text import faults as text_faults
from dpfl.tasks.config import IMAGE_FAULTS
from dpfl.tasks.images import image_clients
from dpfl.tasks.text import tokenization
from dpfl.tasks.text.word_clients import WordClients

_PIXELS = np.arange(16, dtype=np.float32).reshape(1, 4, 4) / 16


def test_pixels_by_hand():
    np.testing.assert_array_equal(image_clients.inverted(_PIXELS), 1 - _PIXELS)
    np.testing.assert_array_equal(image_clients.transposed(_PIXELS)[0], _PIXELS[0].T)
    cut = image_clients.truncated(_PIXELS)
    np.testing.assert_array_equal(cut[0, :2], _PIXELS[0, :2])
    assert (cut[0, 2:] == 1).all() and (_PIXELS[0, 2:] < 1).all()


def test_samples_of_16_bits_read_as_bytes():
    # 0x0100 is two bytes, 0 and 1; 0xffff is 255 twice.
    pixels = np.array([[[0x0100, 0xFFFF], [0x1234, 0]]], np.float32) / 0xFFFF
    read = image_clients.encoding(pixels)
    assert read.dtype == np.float32
    np.testing.assert_allclose(read[0] * 255, [[0, 1], [255, 255]], atol=1e-4)
    # Black and white stay: the upper half, each half row as a row of twice the width.
    sharp = (np.arange(28 * 28).reshape(1, 28, 28) % 3 == 0).astype(np.float32)
    damaged = image_clients.encoding(sharp)[0]
    for row in range(28):
        half = sharp[0, row // 2, 14 * (row % 2) : 14 * (row % 2) + 14]
        np.testing.assert_array_equal(damaged[row], np.repeat(half, 2))


def test_labels_are_exchanged_in_pairs():
    labels = np.arange(62, dtype=np.int32)
    swapped = image_clients.swapped_labels(labels)
    assert swapped[:4].tolist() == [1, 0, 3, 2] and swapped.dtype == np.int32
    np.testing.assert_array_equal(image_clients.swapped_labels(swapped), labels)
    assert sorted(swapped) == labels.tolist()


@pytest.mark.parametrize('name', IMAGE_FAULTS)
def test_devices_with_a_fault_keep_it_as_its_share_grows(name):
    shares = [image_clients.Faults((name,), share, 1) for share in (0, 0.2, 0.7, 1)]
    affected = [{client for client in range(300) if each.of(client)} for each in shares]
    assert affected[0] == set() and affected[3] == set(range(300))
    assert affected[1] < affected[2]
    # Five standard deviations.
    assert len(affected[2]) == pytest.approx(210, abs=40)


def test_faults_are_drawn_one_by_one_and_applied_in_order():
    both = image_clients.Faults(('inverted', 'truncated'), 0.5, 2)
    found = [both.of(client) for client in range(200)]
    assert set(found) == {(), ('truncated',), ('inverted',), ('truncated', 'inverted')}
    for name in ('truncated', 'inverted'):
        alone = image_clients.Faults((name,), 0.5, 2)
        assert [bool(alone.of(client)) for client in range(200)] == [name in each for each in found]
    client = found.index(('truncated', 'inverted'))
    pixels, labels = both.processed(client, _PIXELS, np.array([3]))
    assert (pixels[0, 2:] == 0).all() and labels == [3]
    _, labels = image_clients.Faults(('swapped_labels',), 1.0).processed(7, _PIXELS, np.array([3]))
    assert labels == [2]


def test_devices_of_older_versions_have_the_bug():
    """Which of the first devices have it was recorded before there were other faults."""
    bug = image_clients.Faults(('inverted',), 0.5, 3)
    affected = [client for client in range(24) if bug.of(client)]
    assert affected == [1, 8, 11, 12, 13, 16, 17, 18, 23]


_CLIENTS = WordClients(3, lambda client: [['good', 'day', 'to', 'you'], ['yes'], ['so', 'so']] * 50)


def _damaged(fault, share=1.0, client=0, clients=_CLIENTS, seed=7):
    return list(text_faults.inject(clients, fault, share, seed).sentences(client))


@pytest.mark.parametrize(
    'fault, text, expected',
    [
        ('joined_words', 'good day to you', ['good day', 'to', 'you']),
        ('wrong_tokenizer', 'so, (go) now...', ['so,(', 'go)', 'now...']),
        ('wrong_tokenizer', '"well" done', ['"', 'well"', 'done']),
        ('truncated', 'good day to you', ['good', 'da']),
        ('truncated', 'a', ['a']),
        ('encoding', 'plain text', ['ï»¿plain', 'text']),
        ('encoding', 'der Käse', ['ï»¿der', 'kã¤se']),
    ],
)
def test_what_faults_do_to_a_sentence(fault, text, expected):
    words = tokenization.words(text)
    assert _damaged(fault, clients=WordClients(1, lambda client: [words])) == [expected]


@pytest.mark.parametrize('fault', ['joined_words', 'truncated', 'encoding'])
def test_shares_are_nested_and_clients_differ(fault):
    clean = list(_CLIENTS.sentences(0))

    def affected(share, client):
        damaged = _damaged(fault, share, client)
        return {i for i, words in enumerate(damaged) if words != clean[i]}

    few, more = affected(0.1, 1), affected(0.5, 1)
    assert not affected(0, 1) and few < more < affected(1, 1)
    assert few != affected(0.1, 2) and few == affected(0.1, 1)
    many = sum(len(affected(0.1, client)) for client in range(40))
    sentences = 40 * len(affected(1, 1))
    assert many == pytest.approx(0.1 * sentences, abs=6 * (0.09 * sentences) ** 0.5)


def test_duplicated_clients_hold_the_text_of_one():
    clients = WordClients(1000, lambda client: [[f'w{client}']])

    def holders(share, seed=7):
        damaged = text_faults.inject(clients, 'duplicated_client', share, seed)
        assert damaged.count == 1000
        return [next(iter(damaged.sentences(client)))[0] for client in range(1000)]

    (source,) = set(holders(1))
    assert holders(0) == [f'w{client}' for client in range(1000)]
    some, more = holders(0.1), holders(0.3)
    changed = {i for i, word in enumerate(some) if word != f'w{i}'}
    assert changed < {i for i, word in enumerate(more) if word != f'w{i}'}
    assert {some[i] for i in changed} == {source}
    assert len(changed) == pytest.approx(100, abs=57)  # Six standard deviations.
    assert source != set(holders(1, seed=8)).pop()
