"""How much of the text a vocabulary covers, measured on held-out clients.

Training clients are not read. The numbers are exact, like the metrics of held-out clients: no
guarantee covers them, and they are for the one who trains. They are shown and not kept.
"""

import collections
import dataclasses
from collections.abc import Iterable, Sequence

from dpfl.tasks.text.vocabulary import Vocabulary
from dpfl.tasks.text.word_clients import WordTask

# Held-out clients that are read at the start of a run.
_CLIENTS = 50
# Unknown words are shown only if so many clients use them: others may identify a client.
LEAST_CLIENTS = 5
# How many unknown words are shown.
_SHOWN = 10
# Share of unknown tokens above which there is a warning.
MOST_UNKNOWN = 0.1
_WARNING = (
    'warning: {unknown:.0%} of the tokens are unknown. The model learns to predict the unknown '
    'word, and accuracy counts that as a miss (accuracy_known does not). Give more words: '
    'vocabulary_file with the words and marks of such text, vocabulary_text with public text of '
    'the kind, or vocabulary=private'
)


@dataclasses.dataclass(frozen=True)
class Coverage:
    """The share of the tokens of some clients that a vocabulary has.

    Attributes:
      clients: number of clients that were read.
      tokens: their tokens.
      known: those that are in the vocabulary.
      frequent: the most frequent of the others, each used by at least `LEAST_CLIENTS` clients.
    """

    clients: int
    tokens: int
    known: int
    frequent: tuple[str, ...] = ()

    @classmethod
    def of(cls, clients: Iterable[Iterable[Sequence[str]]], vocabulary: Vocabulary) -> 'Coverage':
        """Counts the sentences of clients, lists of tokens."""
        tokens, num_clients = 0, 0
        unknown: collections.Counter[str] = collections.Counter()
        users: collections.Counter[str] = collections.Counter()
        for sentences in clients:
            num_clients += 1
            own: collections.Counter[str] = collections.Counter()
            for sentence in sentences:
                tokens += len(sentence)
                own.update(token for token in sentence if token not in vocabulary.ids)
            unknown.update(own)
            users.update(own.keys())
        ranked = sorted(unknown, key=lambda token: (-unknown[token], token))
        shown = [token for token in ranked if users[token] >= LEAST_CLIENTS]
        return cls(num_clients, tokens, tokens - unknown.total(), tuple(shown[:_SHOWN]))

    @property
    def unknown_share(self) -> float:
        """Share of the tokens that the vocabulary lacks; 0 if there are no tokens."""
        return 1 - self.known / self.tokens if self.tokens else 0.0

    def sentences(self) -> list[str]:
        """What a run says at its start; a warning if too many tokens are unknown."""
        text = (
            f'vocabulary: has {1 - self.unknown_share:.1%} of the tokens of {self.clients} '
            'held-out clients (exact; for the one who trains)'
        )
        if self.frequent:
            text += (
                f'; the most frequent others, each used by {LEAST_CLIENTS} clients or more: '
                + ' '.join(self.frequent)
            )
        if self.unknown_share <= MOST_UNKNOWN:
            return [text]
        return [text, _WARNING.format(unknown=self.unknown_share)]


def of_heldout(task: WordTask) -> Coverage:
    """The coverage of the first held-out clients of a task."""
    clients = range(min(_CLIENTS, task.heldout.count))
    return Coverage.of(map(task.heldout.sentences, clients), task.vocabulary)
