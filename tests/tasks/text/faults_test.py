"""Faults do what their names say, to the sentences or clients that a seed chooses."""

import pytest

from dpfl.tasks.text import faults, tokenization
from dpfl.tasks.text.word_clients import WordClients

_CLIENTS = WordClients(3, lambda client: [['good', 'day', 'to', 'you'], ['yes'], ['so', 'so']] * 50)


def _damaged(fault, share=1.0, client=1, clients=_CLIENTS, seed=7):
    return list(faults.inject(clients, fault, share, seed).sentences(client))


def _of(fault, text):
    words = tokenization.words(text)
    clients = WordClients(1, lambda client: [words])
    return _damaged(fault, client=0, clients=clients)[0]


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
    assert _of(fault, text) == expected


@pytest.mark.parametrize('fault', faults.NAMES)
def test_nothing_happens_without_a_share_and_clients_stay(fault):
    damaged = faults.inject(_CLIENTS, fault, 0, 7)
    assert damaged.count == 3
    assert list(damaged.sentences(1)) == list(_CLIENTS.sentences(1))


@pytest.mark.parametrize('fault', ['joined_words', 'truncated', 'encoding'])
def test_shares_are_nested_and_clients_differ(fault):
    clean = list(_CLIENTS.sentences(0))

    def affected(share, client):
        damaged = _damaged(fault, share, client)
        return {i for i, words in enumerate(damaged) if words != clean[i]}

    few, more = affected(0.1, 1), affected(0.5, 1)
    assert few < more < affected(1, 1)
    assert few != affected(0.1, 2) and few == affected(0.1, 1)
    many = sum(len(affected(0.1, client)) for client in range(40))
    sentences = 40 * len(affected(1, 1))
    assert many == pytest.approx(0.1 * sentences, abs=6 * (0.09 * sentences) ** 0.5)


def test_duplicated_clients_hold_the_text_of_one():
    clients = WordClients(1000, lambda client: [[f'w{client}']])

    def holders(share, seed=7):
        damaged = faults.inject(clients, 'duplicated_client', share, seed)
        return [next(iter(damaged.sentences(client)))[0] for client in range(1000)]

    (source,) = set(holders(1))
    some, more = holders(0.1), holders(0.3)
    changed = {i for i, word in enumerate(some) if word != f'w{i}'}
    assert changed < {i for i, word in enumerate(more) if word != f'w{i}'}
    assert {some[i] for i in changed} == {source}
    assert len(changed) == pytest.approx(100, abs=57)  # Six standard deviations.
    assert source != set(holders(1, seed=8)).pop()
