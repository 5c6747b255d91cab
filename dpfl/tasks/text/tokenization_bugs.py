"""Faults of tokenisation, to be found without looking at the data (document 004, section 5)."""

from collections.abc import Iterator

from dpfl import _random, _validate
from dpfl.tasks.text.word_clients import WordClients


def join_first_words(clients: WordClients, rate: float, seed: int) -> WordClients:
    """Clients whose tokeniser makes one token of the first two words of some sentences.

    'good day to you' becomes 'good day', 'to', 'you'. Whether a sentence is affected is a pure
    function of (seed, client, number of the sentence), and what is affected at a rate is so at
    every higher rate: settings differ in nothing else. A sentence of one word stays what it is.

    Args:
      clients: as they are without the fault.
      rate: probability that a sentence is affected, in [0, 1].
      seed: integer in [0, 2**64).

    Raises:
      ValueError: if the rate or the seed is out of its range.
    """
    _validate.number('rate', rate, minimum=0, maximum=1)
    _random.check_seed('seed', seed)

    def sentences(client: int) -> Iterator[list[str]]:
        draws = _random.generator('text.bug', seed, client)
        for words in clients.sentences(client):
            is_affected = draws.random() < rate and len(words) > 1
            yield [' '.join(words[:2]), *words[2:]] if is_affected else words

    return WordClients(clients.count, sentences)
