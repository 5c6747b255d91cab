"""Findings of the study: numbers about what the models write, and the conclusion. NumPy only."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from dpfl.tasks.text.token_ids import EOS_ID, OOV_ID, PAD_ID

# Thresholds of the conclusion. The page states them.
CLEAR_DIFFERENCE = 0.02
CLEAR_DEVIATIONS = 5.0
MOST = 0.5

FOUND, SUSPECTED, NOT_SEEN = 'found', 'suspected', 'not seen'


@dataclasses.dataclass(frozen=True)
class PositionRates:
    """Share of words outside the vocabulary by position in a sentence.

    Attributes:
      outside: Number of sampled sentences with such a word at position 0, 1, ..., [L].
      words: Number of sampled sentences with any word at that position, [L].
    """

    outside: tuple[int, ...]
    words: tuple[int, ...]

    @classmethod
    def of(cls, tokens: np.ndarray) -> 'PositionRates':
        """Counts the words in sentences of the word model, token ids [N, L]."""
        is_word = (tokens != PAD_ID) & (tokens != EOS_ID)
        outside = (tokens == OOV_ID).sum(axis=0)
        return cls(tuple(map(int, outside)), tuple(map(int, is_word.sum(axis=0))))

    @property
    def rates(self) -> tuple[float, ...]:
        """Share at each position; 0 where no sentence has a word."""
        return tuple(
            outside / max(words, 1) for outside, words in zip(self.outside, self.words, strict=True)
        )

    @property
    def overall(self) -> float:
        """Share over all positions."""
        return sum(self.outside) / max(sum(self.words), 1)


@dataclasses.dataclass(frozen=True)
class Conclusion:
    """What a setting shows compared with the setting without the bug.

    Attributes:
      verdict: 'found' for both signs, 'suspected' for one of them, 'not seen' for neither.
      positions: Positions, from 1, where the rate is clearly higher than without the bug.
      first_rate, clean_first_rate: Rates at the first position, with the bug and without.
      joined_share, clean_joined_share: Shares of entries with two or more words in the rankings,
        with the bug and without.
      text: The conclusion in one or two sentences.
    """

    verdict: str
    positions: tuple[int, ...]
    first_rate: float
    clean_first_rate: float
    joined_share: float
    clean_joined_share: float
    text: str


def joined_share(words: Sequence[str]) -> float:
    """Share of the entries that have white space between two words; 0 if there are no entries."""
    return float(np.mean([len(word.split()) > 1 for word in words])) if words else 0.0


def clearly_higher(rates: PositionRates, clean: PositionRates) -> tuple[int, ...]:
    """Positions, from 1, where a rate exceeds the clean one by both thresholds of this file.

    The standard deviations are those of two independent samples of sentences. They do not include
    how models vary from one training to another.
    """
    found = []
    for i, (rate, other) in enumerate(zip(rates.rates, clean.rates, strict=True)):
        counts = rates.words[i], clean.words[i]
        if not min(counts):
            continue
        pooled = (rates.outside[i] + clean.outside[i]) / sum(counts)
        deviation = np.sqrt(pooled * (1 - pooled) * (1 / counts[0] + 1 / counts[1]))
        difference = rate - other
        if difference >= CLEAR_DIFFERENCE and difference >= CLEAR_DEVIATIONS * deviation:
            found.append(i + 1)
    return tuple(found)


def conclude(
    rates: PositionRates,
    clean: PositionRates,
    words: Sequence[str],
    clean_words: Sequence[str],
) -> Conclusion:
    """The conclusion from the sentences of the word models and the rankings of the others."""
    positions = clearly_higher(rates, clean)
    share, clean_share = joined_share(words), joined_share(clean_words)
    at_first, most = 1 in positions, share > MOST >= clean_share
    verdict = (NOT_SEEN, SUSPECTED, FOUND)[at_first + most]
    return Conclusion(
        verdict,
        positions,
        rates.rates[0],
        clean.rates[0],
        share,
        clean_share,
        _text(at_first, most, positions, rates, clean, share, clean_share),
    )


def _text(at_first, most, positions, rates, clean, share, clean_share) -> str:
    first = f'{rates.rates[0]:.1%}, against {clean.rates[0]:.1%} without the bug'
    ranked = (
        f'{share:.0%} of the most probable unknown words have a space, against {clean_share:.0%} '
        'without the bug'
    )
    if at_first and most:
        return (
            f'Sentences begin with unknown words too often ({first}), and {ranked}: the tokeniser '
            'joins the first two words of sentences.'
        )
    if at_first:
        return (
            f'Sentences begin with unknown words too often ({first}), but the unknown words do not '
            f'show why: {ranked}.'
        )
    elsewhere = (
        f' Unknown words are too frequent at position {", ".join(map(str, positions))}.'
        if positions
        else ''
    )
    if most:
        return (
            f'Words are joined: {ranked}. The beginning of sentences does not show it: {first}.'
            f'{elsewhere}'
        )
    return (
        f'Nothing is conspicuous: {first} of the sentences begin with an unknown word, and '
        f'{ranked}.{elsewhere}'
    )
