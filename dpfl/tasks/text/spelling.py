"""Pronounceable words from a Markov chain of letters (NumPy only).

Vowels and consonants mostly alternate, which makes the words pronounceable. The transition matrix
is drawn once per seed, so every seed spells a language of its own. The same chain spells the
vocabulary (distinct words, short ones first) and the words outside it.
"""

import dataclasses
import functools
import string

import numpy as np

from dpfl import _random

_LETTERS = np.array(list(string.ascii_lowercase))
_IS_VOWEL = np.isin(_LETTERS, list('aeiou'))
_MIN_LENGTH = 2
_MAX_LENGTH = 10
_KIND_CHANGE = 0.85  # Probability that a vowel follows a consonant, or a consonant a vowel.
_VOWEL_FIRST = 0.3  # Probability that a word begins with a vowel.
_END_RATE = 0.22  # Probability that a word of at least _MIN_LENGTH letters ends after a letter.


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
