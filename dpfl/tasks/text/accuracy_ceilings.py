"""Exact accuracies that predictors of the synthetic text can reach (NumPy and SciPy only).

All values are in-vocabulary top-1 accuracies in the limit of many clients: the expected number of
correctly predicted vocabulary words, divided by the expected number of vocabulary words. They are
computed, not sampled, by a forward recursion over the positions of a sentence on the joint
distribution of (theme, token).
"""

import dataclasses

import numpy as np
from scipy import special

from dpfl.tasks.text import sentence_process


@dataclasses.dataclass(frozen=True)
class Ceilings:
    """Best in-vocabulary top-1 accuracies, in [0, 1], by what the predictor knows.

    Attributes:
      unigram: of a predictor that knows nothing and always guesses the most frequent word.
      bigram: of one that knows the previous token.
      without_client: of one that knows the process and the sentence so far, but not the client. In
        expectation no model shared by all clients does better; a model that has learnt the process
        reaches it.
      best: of one that also knows the client's mixture of themes. In expectation no model does
        better.
    """

    unigram: float
    bigram: float
    without_client: float
    best: float


def compute(process: sentence_process.TextProcess) -> Ceilings:
    """The exact ceilings of a process. Takes time O(L K C V)."""
    visits, words = _expected_visits(process)
    in_vocabulary = words[:-1].sum()
    all_themes = np.arange(process.num_themes)
    # The first word is the opener of a theme. The best guess is the opener of the most common
    # theme: of all clients or, if the client is known, of that client.
    common_opener = process.theme_prior.max()
    own_opener = expected_largest_share(process.theme_concentration * process.theme_prior)
    keep = 1 - process.later_oov_rate
    from_previous = keep * _largest_counts(process, visits, all_themes)
    from_state = keep * sum(
        _largest_counts(process, visits[[theme]], np.array([theme])) for theme in all_themes
    )
    return Ceilings(
        unigram=float(words[:-1].max() / in_vocabulary),
        bigram=float((common_opener + from_previous) / in_vocabulary),
        without_client=float((common_opener + from_state) / in_vocabulary),
        best=float((own_opener + from_state) / in_vocabulary),
    )


def word_counts(process: sentence_process.TextProcess) -> np.ndarray:
    """Expected number of occurrences of each word of the language in a sentence, float64 [V]."""
    return _expected_visits(process)[1][:-1]


def expected_largest_share(concentrations: np.ndarray) -> float:
    """E[max_k p_k] for p ~ Dirichlet(concentrations), by quadrature.

    With independent G_k ~ Gamma(a_k) of sum S, p = G / S is independent of S, so that
    E[max p] = E[max G] / E[S] = (integral over x > 0 of 1 - prod_k P(G_k <= x)) / sum_k a_k.

    Args:
      concentrations: positive parameters, [K], with a sum of at most 1e4.
    """
    total = concentrations.sum()
    # In log x the integrand is smooth and vanishes at both ends: the trapezoidal rule then
    # converges faster than any power of the step.
    grid = np.linspace(np.log(total) - 40, np.log(total + 12 * np.sqrt(total) + 60), 40_001)
    values = np.exp(grid)
    above = 1 - np.prod([special.gammainc(a, values) for a in concentrations], axis=0)
    return float(np.trapezoid(above * values, grid) / total)


def _expected_visits(process: sentence_process.TextProcess) -> tuple[np.ndarray, np.ndarray]:
    """Expected counts per sentence.

    Returns:
      visits: number of words drawn in state (theme, previous token), [K, V + 1].
      words: number of occurrences of each word (last: words outside the vocabulary), [V + 1].
    """
    themes = np.arange(process.num_themes)
    state = np.zeros((process.num_themes, process.vocabulary_size + 1))
    state[themes, themes] = process.theme_prior
    visits = np.zeros_like(state)
    words = state.sum(axis=0)
    for survival in process.survival[1:]:
        visits += survival * state
        state = _advance(process, state)
        words += survival * state.sum(axis=0)
    return visits, words


def _advance(process: sentence_process.TextProcess, state: np.ndarray) -> np.ndarray:
    """Joint distribution [K, V + 1] of (theme, token), one position later."""
    size = process.vocabulary_size
    keep = 1 - process.later_oov_rate
    transitions = process.class_transitions[process.state_class]
    free = 1 - process.class_agreement - process.following
    # Openers have Zipf probability 0, so their class does not matter.
    word_class = np.minimum(process.state_class[:size], process.num_classes - 1)
    new_state = np.empty_like(state)
    for before, after, theme_words in zip(state, new_state, process.theme_words, strict=True):
        class_mass = before @ transitions
        followed = process.following * before[:, None] * transitions
        words = np.bincount(process.followers.ravel(), followed.ravel(), minlength=size)
        words += (class_mass * free)[word_class] * process.class_words
        content = theme_words >= 0
        words[theme_words[content]] += (process.class_agreement * class_mass)[content]
        after[:size] = keep * words
        after[size] = (1 - keep) * before.sum()
    return new_state


def _largest_counts(
    process: sentence_process.TextProcess, visits: np.ndarray, themes: np.ndarray
) -> float:
    """Expected hits per sentence of the best predictor from the previous token, if no word is OOV.

    This is the sum over previous tokens o of max_w sum_k visits[k, o] p(w | k, o). Within a class
    only three kinds of words can attain the maximum: the most frequent word, the word of a theme,
    and the follower of o.

    Args:
      process: the process.
      visits: weights of the states, [T, V + 1].
      themes: the theme of each row of visits, [T].
    """
    totals = visits.sum(axis=0)
    largest = np.zeros_like(totals)
    for number in range(process.num_classes):
        agreement = process.class_agreement[number]
        free = 1 - agreement - process.following
        followers = process.followers[:, number]
        theme_words = process.theme_words[themes, number]

        candidates = [followers, process.class_starts[number]]
        if agreement > 0:
            candidates += list(theme_words)
        for word in candidates:
            count = free * process.class_words[word] * totals
            count += process.following * (word == followers) * totals
            for row, theme_word in zip(visits, theme_words, strict=True):
                count += agreement * (word == theme_word) * row
            transitions = process.class_transitions[process.state_class, number]
            largest = np.maximum(largest, transitions * count)
    return float(largest.sum())
