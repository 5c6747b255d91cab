"""Simulated bug of a tokeniser, to be found without looking at data ([Augenstein20], section 5)."""

from collections.abc import Iterator

from dpfl import _random, _validate
from dpfl.tasks.text.word_clients import WordClients


def join_first_words(clients: WordClients, rate: float, seed: int) -> WordClients:
    """Clients whose tokeniser joins the first two words of some sentences into one token.

    'good day to you' becomes 'good day', 'to', 'you'. Whether a sentence is affected is a pure
    function of (seed, client, index of the sentence). A sentence that is affected at one rate is
    affected at every higher rate, so runs at several rates differ in nothing else. Sentences of one
    word do not change.

    Args:
      clients: clients without the bug.
      rate: probability that a sentence is affected, in [0, 1].
      seed: integer in [0, 2**64).

    Raises:
      ValueError: if the rate or the seed is outside its range.
    """
    _validate.number('rate', rate, minimum=0, maximum=1)
    _random.check_seed('seed', seed)

    def sentences(client: int) -> Iterator[list[str]]:
        draws = _random.generator('text.bug', seed, client)
        for words in clients.sentences(client):
            is_affected = draws.random() < rate and len(words) > 1
            yield [' '.join(words[:2]), *words[2:]] if is_affected else words

    return WordClients(clients.count, sentences)
