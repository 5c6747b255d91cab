"""The two forms of text: clients with sentences of words, and rows of token ids, which train.

How the sentences of a client become the rows that a model trains on (NumPy only).

`sentences`: a row is one sentence, cut off at the end of the row or padded.

`windows`: the sentences are joined, each followed by the end-of-sentence token, and cut into
windows of equally many tokens, as in [McMahan18], section 3: 1600 tokens are 160 windows of 10,
which are 20 batches of 8 windows. Nothing is cut off, and only a client's last window has padding.
The first input of a window is the token before it: the last one of the window before, or begin of
sentence for the first window of a client. A model begins every window without a state.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dpfl.tasks import federated_task
from dpfl.tasks.text.tokenization import BOS_ID, EOS_ID, OOV_ID, PAD_ID

# Number of clients of a synthetic population.
ENDLESS = 2**64


def examples(tokens: np.ndarray) -> federated_task.Examples:
    """Inputs x and targets y of sentences; y is x one position later.

    Args:
      tokens: int32 [sentences, L + 1].

    Returns:
      Arrays x and y, int32 [sentences, L].
    """
    return {'x': tokens[:, :-1], 'y': tokens[:, 1:]}


@dataclasses.dataclass(frozen=True)
class WordClients:
    """Clients and their sentences.

    Attributes:
      count: number of clients; their ids are 0 to `count - 1`. `ENDLESS` if they are made when they
        are needed.
      sentences: maps a client id to the client's sentences, lists of words, in the order of the
        data. Callers may stop iterating early. May raise `errors.DataError`.
    """

    count: int
    sentences: Callable[[int], Iterable[list[str]]]


@dataclasses.dataclass(frozen=True)
class TextData:
    """The clients of a data set: some to train on, others held out, perhaps more for a test.

    Attributes:
      training: clients to train on.
      heldout: clients for evaluation, disjoint from the training clients.
      test: clients for a test of the final model, disjoint from the others; None if there are none.
      description: facts about the data, as in `FederatedTask`.
      fingerprints: digests of the files, as in `FederatedTask`.
    """

    training: WordClients
    heldout: WordClients
    test: WordClients | None = None
    description: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fingerprints: Mapping[str, str] = dataclasses.field(default_factory=dict)


def encode(
    sentences: Iterable[Sequence[str]],
    ids: Mapping[str, int],
    sentence_length: int,
    max_tokens: int | None = None,
    max_sentences: int | None = None,
) -> np.ndarray:
    """Encodes sentences as token ids.

    Args:
      sentences: lists of words; empty lists are skipped.
      ids: token ids of the words of the vocabulary.
      sentence_length: L, the most words of a sentence.
      max_tokens: total number of words at most; the sentence that exceeds it is cut. None for no
        bound.
      max_sentences: number of sentences at most; None for no bound.

    Returns:
      int32 [sentences, L + 1]: begin of sentence, at most L words, end of sentence (unless the
      sentence was cut or fills all positions), padding.
    """
    rows: list[list[int]] = []
    left = max_tokens
    for words in sentences:
        if not words:
            continue
        kept = words[: sentence_length if left is None else min(sentence_length, left)]
        row = [BOS_ID, *(ids.get(word, OOV_ID) for word in kept)]
        if len(kept) == len(words) < sentence_length:
            row.append(EOS_ID)
        rows.append(row + [PAD_ID] * (sentence_length + 1 - len(row)))
        if left is not None:
            left -= len(kept)
        if left == 0 or len(rows) == max_sentences:
            break
    return np.array(rows, np.int32).reshape(-1, sentence_length + 1)


def encode_joined(
    sentences: Iterable[Sequence[str]],
    ids: Mapping[str, int],
    length: int,
    max_tokens: int | None = None,
    max_windows: int | None = None,
) -> np.ndarray:
    """Encodes sentences as token ids, joined and cut into windows.

    Args:
      sentences: lists of words; empty lists are skipped.
      ids: token ids of the words of the vocabulary.
      length: L, the number of tokens of a window.
      max_tokens: number of tokens at most, the first ones, with the end-of-sentence token after
        each sentence; None for no bound.
      max_windows: number of windows at most; None for no bound.

    Returns:
      int32 [windows, L + 1]: the token before the window, or begin of sentence; its tokens, and
      padding in the last window.
    """
    if max_windows is not None:
        most = max_windows * length
        max_tokens = most if max_tokens is None else min(max_tokens, most)
    tokens: list[int] = []
    for words in sentences:
        if words:
            tokens += (ids.get(word, OOV_ID) for word in words)
            tokens.append(EOS_ID)
        if max_tokens is not None and len(tokens) >= max_tokens:
            break
    tokens = tokens[:max_tokens]
    count = -(-len(tokens) // length)
    padded = np.full(count * length + 1, PAD_ID, np.int32)
    padded[0] = BOS_ID
    padded[1 : len(tokens) + 1] = tokens
    starts = np.arange(count)[:, None] * length
    return padded[starts + np.arange(length + 1)]
