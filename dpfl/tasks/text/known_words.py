"""The most frequent words of a synthetic language, for models that know only these.

[McMahan18], appendix D, trains models with dictionaries of 10,000, 20,000 and 30,000 words on the
same text. Here a language has more words than the model knows; the others are outside its
vocabulary. The metric `accuracy_with_oov` compares such models fairly.
"""

import dataclasses

import numpy as np

from dpfl import _validate
from dpfl.tasks.text import accuracy_ceilings, synthetic_text
from dpfl.tasks.text.token_ids import NUM_SPECIAL_TOKENS, OOV_ID


@dataclasses.dataclass(frozen=True)
class KnownWords:
    """Token ids for a model that knows the most frequent words of a language.

    Attributes:
      words: the words that the model knows, the most frequent first.
      ids: the model's token id for each token id of the language, int32.
    """

    words: tuple[str, ...]
    ids: np.ndarray

    @property
    def num_tokens(self) -> int:
        """Number of token ids of the model: the words and the four special tokens."""
        return len(self.words) + NUM_SPECIAL_TOKENS


def most_frequent(language: synthetic_text.SyntheticText, count: int) -> KnownWords:
    """The `count` words that a sentence has most often, by their expected numbers.

    Raises:
      ArgumentError: if the language has fewer words; it names `vocabulary_size`.
    """
    _validate.integer('vocabulary_size', count, minimum=1, maximum=language.vocabulary_size)
    counts = accuracy_ceilings.word_counts(language.process)
    known = np.argsort(-counts, kind='stable')[:count]
    ids = np.full(language.num_tokens, OOV_ID, np.int32)
    ids[:NUM_SPECIAL_TOKENS] = np.arange(NUM_SPECIAL_TOKENS)
    ids[NUM_SPECIAL_TOKENS + known] = NUM_SPECIAL_TOKENS + np.arange(count)
    return KnownWords(tuple(language.vocabulary[word] for word in known), ids)
