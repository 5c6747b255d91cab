"""An endless population of synthetic clients that write sentences; no download needed.

Every client is a pure function of (seed, client index); nothing is stored. `sentence_process`
defines the random process, and computes the accuracies that can be reached.

Token ids: 0 pad, 1 begin of sentence, 2 end of sentence, 3 word outside the vocabulary, then the
words. `vocabulary_size` counts the words only; models have `num_tokens = vocabulary_size + 4`
tokens, the V of the size formula in `models.recurrent`. So vocabulary_size=9996 is the "10K
vocabulary" of [Xu23].

Words are pronounceable: vowels and consonants mostly alternate in a Markov chain of letters. The
transition matrix is drawn once per seed, so every seed spells a language of its own. The same chain
spells the vocabulary (distinct words, short ones first) and the words outside it.
"""

import dataclasses
import functools
import string

import numpy as np

from dpfl import _random, _validate
from dpfl.tasks.text import sentence_process
from dpfl.tasks.text.tokenization import OOV_ID

_LETTERS = np.array(list(string.ascii_lowercase))
_IS_VOWEL = np.isin(_LETTERS, list('aeiou'))
_MIN_LENGTH = 2
_MAX_LENGTH = 10
_KIND_CHANGE = 0.85  # Probability that a vowel follows a consonant, or a consonant a vowel.
_VOWEL_FIRST = 0.3  # Probability that a word begins with a vowel.
_END_RATE = 0.22  # Probability that a word of at least _MIN_LENGTH letters ends after a letter.
_MAX_CLIENT = 2**64 - 1


@dataclasses.dataclass(frozen=True)
class Spelling:
    """A Markov chain over the letters a-z.

    Attributes:
      seed: integer in [0, 2**64) that decides the letter transitions.

    Raises:
      ValueError: if the seed is outside its range.
    """

    seed: int

    def __post_init__(self):
        _random.check_seed('seed', self.seed)

    @functools.cached_property
    def transition_matrix(self) -> np.ndarray:
        """Probabilities of the next letter by letter; last row: first letter. float64 [27, 26]."""
        rng = _random.generator('spelling.chain', self.seed)
        # Gamma weights of shape 0.6 are uneven: each letter has a few common successors.
        weights = rng.gamma(0.6, size=(_LETTERS.size + 1, _LETTERS.size)) + 1e-3
        vowels = weights * _IS_VOWEL
        consonants = weights * ~_IS_VOWEL
        vowel_rate = np.append(np.where(_IS_VOWEL, 1 - _KIND_CHANGE, _KIND_CHANGE), _VOWEL_FIRST)
        vowels *= (vowel_rate / vowels.sum(axis=1))[:, None]
        consonants *= ((1 - vowel_rate) / consonants.sum(axis=1))[:, None]
        return vowels + consonants

    @functools.cached_property
    def _cumulative(self) -> np.ndarray:
        cumulative = np.cumsum(self.transition_matrix, axis=1)
        cumulative[:, -1] = 1.0  # A sum rounded below 1 would let a draw pass the last letter.
        return cumulative

    def sample(self, rng: np.random.Generator, count: int) -> list[str]:
        """Draws `count` words of 2 to 10 letters with `rng`; words may repeat."""
        draws = rng.random((_MAX_LENGTH, count))
        ends = rng.random((_MAX_LENGTH, count)) < _END_RATE
        letters = np.empty((_MAX_LENGTH, count), np.int64)
        current = np.full(count, _LETTERS.size)
        for position in range(_MAX_LENGTH):
            current = (self._cumulative[current] <= draws[position, :, None]).sum(axis=1)
            letters[position] = current
        ends[: _MIN_LENGTH - 1] = False
        ends[-1] = True
        lengths = ends.argmax(axis=0) + 1
        rows = _LETTERS[letters.T]
        return [''.join(row[:length]) for row, length in zip(rows, lengths, strict=True)]

    def vocabulary(self, size: int) -> list[str]:
        """Returns `size` distinct words, short ones first. A pure function of seed and size."""
        rng = _random.generator('spelling.words', self.seed)
        words: dict[str, None] = {}
        while len(words) < size:
            words.update(dict.fromkeys(self.sample(rng, 2 * size)))
        return sorted(list(words)[:size], key=len)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyntheticText(sentence_process.TextProcess):
    """A population of clients that write sentences of a synthetic language.

    Attributes:
      median_sentences: median number of sentences of a client; the distribution is log-normal.
      sentences_spread: standard deviation of the logarithm of the number of sentences.
      min_sentences: least number of sentences of a client.
      max_sentences: largest number of sentences of a client.
      lexicon_size: number of distinct words outside the vocabulary that a client uses.
    """

    median_sentences: float = 30.0
    sentences_spread: float = 0.6
    min_sentences: int = 4
    max_sentences: int = 256
    lexicon_size: int = 12

    @functools.cached_property
    def ceilings(self) -> sentence_process.Ceilings:
        """Best values of the metric `accuracy` of `models.metrics`: exact, not estimated."""
        return sentence_process.compute(self)

    def tokens(self, client: int, part: str = 'train') -> np.ndarray:
        """The sentences of a client as token ids.

        Args:
          client: index in [0, 2**64).
          part: 'train', 'heldout' or 'test'. The clients of each part are others: each part has a
            domain of `_random.generator` of its own, so no two have the same random stream.

        Returns:
          int32 [sentences, L + 1]: begin of sentence, words, end of sentence (unless the sentence
          was cut), padding.

        Raises:
          ValueError: if the index is outside its range.
        """
        return self.sample(*self._client(f'text.{part}', client))

    def sentences(self, tokens: np.ndarray) -> list[list[str]]:
        """Lists of words of sentences as token ids; every word outside the vocabulary is `UNK`."""
        lengths = (tokens >= OOV_ID).sum(axis=1).tolist()
        rows = self._words[tokens[:, 1:]].tolist()
        return [row[:length] for row, length in zip(rows, lengths, strict=True)]

    def text(self, client: int) -> list[str]:
        """The sentences of `tokens(client)` as words separated by spaces.

        Each word of the vocabulary has one spelling. Words outside it come from a small lexicon of
        the client, spelled by the same Markov chain but different from all vocabulary words.
        """
        tokens = self.tokens(client)
        outside = tokens == OOV_ID
        rng = _random.generator('text.lexicon', self.seed, client)
        lexicon: list[str] = []
        while len(lexicon) < self.lexicon_size:
            drawn = self._spelling.sample(rng, self.lexicon_size)
            lexicon += [word for word in drawn if word not in self._vocabulary_set]
        # The product of two uniform draws favours small indices: clients have favourite words.
        chosen = rng.random((2, outside.sum())).prod(axis=0) * self.lexicon_size
        words = self._words[tokens]
        words[outside] = [lexicon[index] for index in chosen.astype(np.int64)]
        return [' '.join(filter(None, row)) for row in words]

    @functools.cached_property
    def vocabulary(self) -> list[str]:
        """The words by token id, from id 4 on. All differ; frequent words tend to be short."""
        starts = np.concatenate([[0], self.class_starts])
        ranks = np.concatenate([np.arange(size) for size in np.diff(starts)])
        vocabulary = np.empty(self.vocabulary_size, dtype=object)
        # Short spellings come first, and go to the most frequent words of each class.
        vocabulary[np.argsort(ranks, kind='stable')] = self._spelling.vocabulary(len(ranks))
        return vocabulary.tolist()

    def most_frequent(self, count: int) -> tuple[str, ...]:
        """The `count` words that a sentence has most often, by their expected numbers.

        Raises:
          ArgumentError: if the language has fewer words; it names `vocabulary_size`.
        """
        _validate.integer('vocabulary_size', count, minimum=1, maximum=self.vocabulary_size)
        _, words = sentence_process.expected_visits(self)
        known = np.argsort(-words[:-1], kind='stable')[:count]
        return tuple(self.vocabulary[word] for word in known)

    @functools.cached_property
    def _words(self) -> np.ndarray:
        """The word of each token id; empty for special tokens."""
        return np.array([*[''] * OOV_ID, 'UNK', *self.vocabulary], dtype=object)

    @functools.cached_property
    def _spelling(self) -> Spelling:
        return Spelling(self.seed)

    @functools.cached_property
    def _vocabulary_set(self) -> frozenset[str]:
        return frozenset(self.vocabulary)

    def _client(self, domain: str, client: int) -> tuple[np.random.Generator, np.ndarray, int]:
        """A client's generator (after these draws), theme mixture and number of sentences."""
        _validate.integer('client', client, minimum=0, maximum=_MAX_CLIENT)
        rng = _random.generator(domain, self.seed, client)
        prior = self.theme_prior
        only_theme = rng.choice(len(prior), p=prior)
        weights = rng.standard_gamma(self.theme_concentration * prior)
        if not weights.any():  # Tiny parameters underflow; in the limit there is a single theme.
            weights[only_theme] = 1.0
        number = self.median_sentences * np.exp(rng.normal(0, self.sentences_spread))
        number = int(np.clip(round(number), self.min_sentences, self.max_sentences))
        return rng, weights / weights.sum(), number
