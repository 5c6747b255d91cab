"""Texts by client: their order, memory, and what no text may change."""

import random
import tracemalloc

import pytest

from dpfl.tasks.text.client_texts import ClientTexts


def _all(texts):
    return [list(texts.of_client(client)) for client in range(texts.num_clients)]


def test_texts_are_grouped_by_client_in_the_order_in_which_they_came():
    rng = random.Random(0)
    records = [(f'c{rng.randrange(40)}', f'text {i}') for i in range(500)]
    expected = {}
    for client, text in records:
        expected.setdefault(client, []).append(text)
    texts = ClientTexts(records)
    assert texts.num_texts == 500 and texts.num_clients == len(expected)
    grouped = _all(texts)
    assert sorted(grouped) == sorted(expected.values())
    # The order of the clients does not depend on the order of the records.
    rng.shuffle(records)
    owner = dict(map(reversed, records))
    again = _all(ClientTexts(records))
    assert [owner[each[0]] for each in again] == [owner[each[0]] for each in grouped]


def test_the_order_of_clients_is_that_of_their_digests():
    # BLAKE2b with 16 bytes of 'a', '7' and '': 27c3.., 9e28.., cae6..
    texts = ClientTexts([('7', 'of 7'), ('a', 'of a'), ('', 'of nobody')])
    assert _all(texts) == [['of a'], ['of 7'], ['of nobody']]


@pytest.mark.parametrize('text', ['', 'caf\u00e9', 'half a pair: \ud800', 'line\r\nbreaks\n', '\0'])
def test_any_text_stays_as_it_is(text):
    assert _all(ClientTexts([('\udc00', text), ('\udc00', 'next')])) == [[text, 'next']]


def test_no_texts_are_no_clients():
    texts = ClientTexts([])
    assert (texts.num_clients, texts.num_texts) == (0, 0)


def test_a_text_takes_few_bytes_of_memory():
    peaks = []
    for count in (2_000, 8_000):
        tracemalloc.start()
        ClientTexts((f'c{i % 97}', f'text {i} ' * 20) for i in range(count))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 64 * 6_000  # Lists grow in steps.
