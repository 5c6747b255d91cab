"""Simulated faults of text, to be found without looking at data ([Augenstein20], section 5).

A fault damages a share of the sentences, or of the clients. Which ones is a pure function of (seed,
client, index of the sentence), the same for every fault. Data that are damaged at one share are
damaged at every higher share, so runs at several shares differ in nothing else.
"""

from collections.abc import Callable, Iterator, Mapping

from dpfl import _random
from dpfl.tasks.text.word_clients import WordClients

# The fault of clients; the others are faults of sentences.
_DUPLICATED_CLIENT = 'duplicated_client'
_BYTE_ORDER_MARK = '\ufeff'


def _joined_words(words: list[str]) -> list[str]:
    """The first two words are one token: 'good day to you' is 'good day', 'to', 'you'."""
    return [' '.join(words[:2]), *words[2:]]


def _wrong_tokenizer(words: list[str]) -> list[str]:
    """Punctuation stays on the word before it: 'so', ',', 'go', '.' is 'so,', 'go.'."""
    joined: list[str] = []
    for word in words:
        if joined and not any(map(str.isalnum, word)):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _truncated(words: list[str]) -> list[str]:
    """The second half of the characters is missing; the word at the cut is cut too."""
    left = sum(map(len, words)) // 2
    kept = []
    for word in words:
        if left <= 0:
            break
        kept.append(word[:left])
        left -= len(word)
    return kept or words


def _encoding(words: list[str]) -> list[str]:
    """UTF-8 with a byte order mark, read as Latin-1: 'käse' at the beginning is 'ï»¿kã¤se'."""
    marked = [_BYTE_ORDER_MARK + words[0], *words[1:]]
    return [word.encode(errors='replace').decode('latin-1').lower() for word in marked]


# Functions from the words of a sentence, at least one, to those of the damaged sentence.
_OF_SENTENCES: Mapping[str, Callable[[list[str]], list[str]]] = {
    'joined_words': _joined_words,
    'wrong_tokenizer': _wrong_tokenizer,
    'truncated': _truncated,
    'encoding': _encoding,
}
NAMES = (*_OF_SENTENCES, _DUPLICATED_CLIENT)


def inject(clients: WordClients, fault: str, share: float, seed: int) -> WordClients:
    """Clients of which a share has a fault.

    Args:
      clients: clients without the fault.
      fault: one of `NAMES`. 'joined_words': the first two words are one token. 'wrong_tokenizer':
        punctuation stays on the word before it. 'truncated': the second half of the characters is
        missing. 'encoding': UTF-8 with a byte order mark is read as Latin-1. 'duplicated_client':
        all of these clients hold the text of the same client, which is one of them all.
      share: probability that a sentence, or with 'duplicated_client' a client, is affected, in
        [0, 1]. A sentence in which there is nothing to damage, such as one of one word with
        'joined_words', stays as it is.
      seed: integer in [0, 2**64).
    """
    if fault == _DUPLICATED_CLIENT:
        source = int(_random.generator('text.duplicated', seed).integers(clients.count))

    def sentences(client: int) -> Iterator[list[str]]:
        draws = _random.generator('text.bug', seed, client)
        if fault == _DUPLICATED_CLIENT:
            yield from clients.sentences(source if draws.random() < share else client)
            return
        for words in clients.sentences(client):
            is_affected = draws.random() < share and len(words) > 0
            yield _OF_SENTENCES[fault](words) if is_affected else words

    return WordClients(clients.count, sentences)
