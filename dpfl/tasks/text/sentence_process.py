"""The random process behind the synthetic sentences, as tables of numbers, and the best accuracies.

A sentence is drawn as follows.

1. A theme is drawn from the client's mixture of themes. The first word is the *opener* of the
   theme: one word per theme, used nowhere else.
2. Every further word belongs to a word class. The classes form a ring in which small classes of
   frequent words (function words) alternate with large classes (content words). With probability
   `succession` the next class is the successor in the ring, else it is uniform over the ring. The
   successor of an opener is class 0; after a word outside the vocabulary the class is uniform.
3. With a fixed probability the word is outside the vocabulary (openers never are). Otherwise, with
   probability `agreement`, a content word is *the* word of the sentence's theme in that class,
   however long ago the theme was announced; with probability `following` a word is the follower,
   fixed for the language, of the previous token in that class; else it is drawn from the class by a
   Zipf law.
4. From `min_words` words on, the sentence ends after a word with probability `end_rate`; it is cut
   at `sentence_length` words.

So classes and followers reward a bigram model, agreement rewards a model that remembers the whole
sentence, and the mixtures of themes make clients differ. Given the theme, the tokens are a Markov
chain: (theme, previous token) is the whole state, and the sentence so far reveals it. This makes it
possible to compute the ceilings below exactly.

Word w of the process (0 <= w < vocabulary_size) is token w + NUM_SPECIAL_TOKENS: first the
openers, then class after class, each from its most to its least frequent word by the Zipf law.

The ceilings are in-vocabulary top-1 accuracies in the limit of many clients: the expected number of
correctly predicted vocabulary words, divided by the expected number of vocabulary words. They are
computed, not sampled, by a forward recursion over the positions of a sentence on the joint
distribution of (theme, token).
"""

import dataclasses
import functools

import numpy as np
from scipy import special

from dpfl import _random, _validate
from dpfl.tasks.text.tokenization import BOS_ID, EOS_ID, NUM_SPECIAL_TOKENS, OOV_ID, PAD_ID


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextProcess:
    """Parameters of the process described at the top of this module.

    Attributes:
      vocabulary_size: number of words, without the four special tokens.
      sentence_length: L, the most words of a sentence.
      seed: integer in [0, 2**64) that decides the followers (the language).
      num_themes: K, the number of themes and of openers.
      num_class_pairs: pairs (function class, content class) in the ring of C = 2 pairs classes.
      function_share: share of the words, openers aside, that are function words.
      zipf_exponent: the word of rank r = 1, 2, ... in its class, and the theme of rank r, have
        weight r**-zipf_exponent.
      theme_concentration: sum of the Dirichlet parameters of a client's mixture of themes. If it is
        small a client writes about one theme; if it is large all clients are alike.
      succession: probability that the next class is the successor in the ring.
      agreement: probability that a content word in the vocabulary is the theme's word.
      following: probability that a word in the vocabulary is the previous token's follower.
      oov_rate: expected share of all words that are outside the vocabulary.
      min_words: fewest words of a sentence.
      end_rate: probability that a sentence of at least min_words words ends after a word.

    Raises:
      ValueError: if seed or a size is outside its range; the message names it.
    """

    vocabulary_size: int = 9_996
    sentence_length: int = 20
    seed: int = 0
    num_themes: int = 10
    num_class_pairs: int = 2
    function_share: float = 0.1
    zipf_exponent: float = 1.0
    theme_concentration: float = 2.0
    succession: float = 0.85
    agreement: float = 0.5
    following: float = 0.2
    oov_rate: float = 0.065
    min_words: int = 4
    end_rate: float = 0.1

    def __post_init__(self):
        _random.check_seed('seed', self.seed)
        least = max(self.min_words, 2)
        _validate.integer('sentence_length', self.sentence_length, minimum=least)
        fewest_words = self.num_themes + self.num_class_pairs * (self.num_themes + 1)
        _validate.integer('vocabulary_size', self.vocabulary_size, minimum=fewest_words)

    @property
    def num_classes(self) -> int:
        """C, the size of the ring. Even classes hold function words, odd classes content words."""
        return 2 * self.num_class_pairs

    @functools.cached_property
    def survival(self) -> np.ndarray:
        """Probability that a sentence has a word at position t = 0 .. L-1, float64 [L]."""
        chances_to_end = np.maximum(np.arange(self.sentence_length) - self.min_words + 1, 0)
        return (1.0 - self.end_rate) ** chances_to_end

    @functools.cached_property
    def later_oov_rate(self) -> float:
        """Probability that a word after the opener is outside the vocabulary."""
        words = self.survival.sum()
        return float(self.oov_rate * words / (words - 1))

    @functools.cached_property
    def theme_prior(self) -> np.ndarray:
        """The mean mixture of themes over all clients (a Zipf law), float64 [K]."""
        return _zipf(self.num_themes, self.zipf_exponent)

    @functools.cached_property
    def class_starts(self) -> np.ndarray:
        """int64 [C + 1]: the words of class c are class_starts[c] .. class_starts[c + 1] - 1."""
        words = self.vocabulary_size - self.num_themes
        num_pairs = self.num_class_pairs
        content_words = words - max(num_pairs, round(self.function_share * words))
        # Every content class needs a word for each theme.
        content_words = max(content_words, num_pairs * self.num_themes)
        sizes = np.empty(self.num_classes, np.int64)
        sizes[0::2] = _split(words - content_words, num_pairs)
        sizes[1::2] = _split(content_words, num_pairs)
        return np.concatenate([[0], np.cumsum(sizes)]) + self.num_themes

    @functools.cached_property
    def state_class(self) -> np.ndarray:
        """Row of `class_transitions` for each word; last: outside the vocabulary. int64 [V + 1]."""
        rows = np.empty(self.vocabulary_size + 1, np.int64)
        rows[: self.num_themes] = self.num_classes
        rows[self.num_themes : -1] = np.repeat(
            np.arange(self.num_classes), np.diff(self.class_starts)
        )
        rows[-1] = self.num_classes + 1
        return rows

    @functools.cached_property
    def class_transitions(self) -> np.ndarray:
        """Probabilities of the next class, float64 [C + 2, C].

        Rows: after a word of class 0 .. C-1, after an opener, after a word outside the vocabulary.
        """
        num_classes = self.num_classes
        rows = np.full((num_classes + 2, num_classes), (1 - self.succession) / num_classes)
        ring = np.arange(num_classes)
        rows[ring, (ring + 1) % num_classes] += self.succession
        rows[num_classes, 0] += self.succession
        rows[num_classes + 1] = 1 / num_classes
        return rows

    @functools.cached_property
    def class_words(self) -> np.ndarray:
        """Zipf probability of each word within its class (openers: 0), float64 [V]."""
        parts = [_zipf(size, self.zipf_exponent) for size in np.diff(self.class_starts)]
        return np.concatenate([np.zeros(self.num_themes), *parts])

    @functools.cached_property
    def class_agreement(self) -> np.ndarray:
        """`agreement` for content classes, 0 for function classes, float64 [C]."""
        return np.where(np.arange(self.num_classes) % 2 == 1, self.agreement, 0.0)

    @functools.cached_property
    def theme_words(self) -> np.ndarray:
        """The word of each theme in each content class (function classes: -1), int64 [K, C].

        Theme k takes the word of rank k: frequent themes have frequent words.
        """
        words = self.class_starts[:-1] + np.arange(self.num_themes)[:, None]
        return np.where(np.arange(self.num_classes) % 2 == 1, words, -1)

    @functools.cached_property
    def followers(self) -> np.ndarray:
        """Each word's follower in each class; last: outside the vocabulary. int64 [V + 1, C]."""
        rng = _random.generator('text.followers', self.seed)
        draws = rng.random((self.vocabulary_size + 1, self.num_classes))
        classes = np.broadcast_to(np.arange(self.num_classes), draws.shape)
        return self.draw_class_words(classes, draws)

    @functools.cached_property
    def _cumulative_words(self) -> np.ndarray:
        """Cumulative sums of `class_words` plus the class number: one table for all classes."""
        parts = []
        for number, start in enumerate(self.class_starts[:-1]):
            cumulative = np.cumsum(self.class_words[start : self.class_starts[number + 1]])
            parts.append(number + cumulative)
        return np.concatenate(parts)

    @functools.cached_property
    def _cumulative_transitions(self) -> np.ndarray:
        cumulative = np.cumsum(self.class_transitions, axis=1)
        cumulative[:, -1] = 1.0  # A sum rounded below 1 would let a draw pass the last class.
        return cumulative

    def draw_class_words(self, classes: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Words of `classes` by the Zipf law, from uniform `draws` in [0, 1) of the same shape."""
        words = np.searchsorted(self._cumulative_words, classes + draws, side='right')
        # Rounding may move a draw close to 1 past the end of its class.
        return np.minimum(words + self.num_themes, self.class_starts[classes + 1] - 1)

    def sample(self, rng: np.random.Generator, mixture: np.ndarray, count: int) -> np.ndarray:
        """Draws sentences.

        Args:
          rng: source of randomness.
          mixture: probabilities of the themes, [K].
          count: number of sentences.

        Returns:
          int32 [count, L + 1] tokens: begin of sentence, words, end of sentence (unless the
          sentence fills all positions), padding.
        """
        cumulative = np.cumsum(mixture)
        themes = np.searchsorted(cumulative / cumulative[-1], rng.random(count), side='right')
        # Position is the first axis, so each step of the loops works on contiguous memory.
        draws = rng.random((5, self.sentence_length, count))
        class_draws, kind_draws, word_draws, oov_draws, end_draws = draws
        outside = oov_draws < self.later_oov_rate
        outside[0] = False
        classes = self._draw_classes(class_draws, outside)

        words = self.draw_class_words(classes, word_draws)
        agreement = self.class_agreement[classes]
        words = np.where(kind_draws < agreement, self.theme_words[themes, classes], words)
        words[0] = themes
        words[outside] = self.vocabulary_size
        follows = (kind_draws >= agreement) & (kind_draws < agreement + self.following) & ~outside
        for position in range(1, self.sentence_length):
            chosen = np.flatnonzero(follows[position])
            previous = words[position - 1, chosen]
            words[position, chosen] = self.followers[previous, classes[position, chosen]]
        return self._with_special_tokens(words.T, end_draws.T)

    def _draw_classes(self, draws: np.ndarray, outside: np.ndarray) -> np.ndarray:
        """Classes [L, count] of the words; 0 at position 0, the opener."""
        classes = np.zeros(draws.shape, np.int64)
        rows = np.full(draws.shape[1], self.num_classes)
        for position in range(1, self.sentence_length):
            bounds = self._cumulative_transitions[rows]
            classes[position] = (bounds <= draws[position, :, None]).sum(axis=1)
            rows = np.where(outside[position], self.num_classes + 1, classes[position])
        return classes

    def _with_special_tokens(self, words: np.ndarray, end_draws: np.ndarray) -> np.ndarray:
        """Tokens [count, L + 1] of words [count, L]; word V is any word outside the vocabulary."""
        count, length = words.shape
        ends = end_draws < self.end_rate
        ends[:, : self.min_words - 1] = False
        num_words = np.where(ends.any(axis=1), ends.argmax(axis=1) + 1, length)
        ids = np.where(words == self.vocabulary_size, OOV_ID, words + NUM_SPECIAL_TOKENS)
        tokens = np.full((count, length + 1), BOS_ID, np.int32)
        tokens[:, 1:] = np.where(np.arange(length) < num_words[:, None], ids, PAD_ID)
        short = np.flatnonzero(num_words < length)
        tokens[short, num_words[short] + 1] = EOS_ID
        return tokens


def _zipf(size: int, exponent: float) -> np.ndarray:
    weights = np.arange(1, size + 1, dtype=np.float64) ** -exponent
    return weights / weights.sum()


def _split(total: int, parts: int) -> np.ndarray:
    """Splits `total` into `parts` sizes that differ by at most one."""
    return total // parts + (np.arange(parts) < total % parts)


@dataclasses.dataclass(frozen=True)
class Ceilings:
    """Best in-vocabulary top-1 accuracies, in [0, 1], by the knowledge of the predictor.

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


def compute(process: TextProcess) -> Ceilings:
    """The exact ceilings of a process. Takes time O(L K C V)."""
    visits, words = expected_visits(process)
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


def expected_visits(process: TextProcess) -> tuple[np.ndarray, np.ndarray]:
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


def _advance(process: TextProcess, state: np.ndarray) -> np.ndarray:
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


def _largest_counts(process: TextProcess, visits: np.ndarray, themes: np.ndarray) -> float:
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
