"""Private releases about the clients that a run makes once, before it trains.

The guarantee of the run counts these releases. The run records each before it is made, and a run
that continues takes the results from its records: with fresh noise it would be another release.
docs/research/before_training.md has the theorems and their proofs.

Words that many clients use: a few rounds follow each other. In a round every client chooses words
of its own that have not been found yet, at most `words_per_client`, and gives each of its n words
the weight 1/sqrt(n), so its weights have norm 1. The words whose noised sum of weights exceeds a
threshold are found. The threshold makes it improbable that a word of one client alone is found.
Later rounds have less noise: frequent words are found early, and then use up no weights any more.
One round is the weighted Gaussian mechanism of [Gopi20]; several rounds are those of [Swanberg23].
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from scipy import special

from dpfl import _random, _validate, errors
from dpfl.accounting import ReleaseBefore, mu_from_epsilon
from dpfl.errors import RunError
from dpfl.tasks.config import WORDS

# The square of mu grows by this factor from round to round.
_GROWTH = 3.0
# How far the weights of two clients may be apart: both have norm 1 and no negative entries.
_REPLACED = math.nextafter(math.sqrt(2), 2)
_ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True)
class WordRelease:
    """The noise and the thresholds of the rounds that find words.

    Attributes:
      stddevs: standard deviation of the noise of each round; a client's weights have norm 1.
      thresholds: a word is found in a round if its noised sum is above.
      words_per_client: most words of a client in a round.
      delta: probability, of all rounds together, that a word of one client alone is found.
    """

    stddevs: tuple[float, ...]
    thresholds: tuple[float, ...]
    words_per_client: int
    delta: float

    @classmethod
    def of_guarantee(
        cls,
        epsilon: float,
        delta: float,
        *,
        words_per_client: int,
        rounds: int = 3,
        adjacency: str = 'zero_out',
    ) -> 'WordRelease':
        """The least noise with which all rounds together are (`epsilon`, `delta`)-DP.

        One half of delta is for the noise, the other for the thresholds.

        Args:
          epsilon: above 0.
          delta: strictly between 0 and 1.
          words_per_client: as in the class.
          rounds: number of rounds, at least 1.
          adjacency: as in `PrivacyPlan`.

        Raises:
          ArgumentError: if an argument is out of its range.
        """
        _validate.number('delta', delta, above=0, below=1)
        _validate.integer('words_per_client', words_per_client, minimum=1)
        _validate.integer('rounds', rounds, minimum=1)
        mu = mu_from_epsilon(epsilon, delta / 2, 'analytic_gaussian')
        shift = 1.0 if adjacency == 'zero_out' else _REPLACED
        shares = _GROWTH ** np.arange(rounds)
        stddevs = shift / (mu * np.sqrt(shares / shares.sum())) * (1 + _ROUNDING)
        delta_of_round = delta / 2 / rounds
        return cls(
            tuple(stddevs.tolist()),
            tuple(
                threshold(stddev, words_per_client, delta_of_round) for stddev in stddevs.tolist()
            ),
            words_per_client,
            math.nextafter(delta_of_round * rounds, 1.0),
        )

    def before(self) -> ReleaseBefore:
        """The cost of all rounds together."""
        precision = math.fsum(stddev**-2 for stddev in self.stddevs)
        noise = precision**-0.5 * (1 - _ROUNDING)
        return ReleaseBefore('a vocabulary', noise, _REPLACED, self.delta)

    def find(self, clients: 'WordCounts', noise: np.random.Generator) -> list[str]:
        """The words that are found: those of the first round first, largest noised sums first.

        Args:
          clients: the words of all clients.
          noise: must be secret and not be used for anything else.
        """
        ids: list[np.ndarray] = []
        is_new = np.ones(len(clients.words), bool)
        for stddev, least in zip(self.stddevs, self.thresholds, strict=True):
            sums, is_used = clients.weights(is_new, self.words_per_client)
            used = np.flatnonzero(is_used)
            noised = sums[used] + stddev * noise.standard_normal(used.size)
            is_found = noised > least
            ranked = np.argsort(-noised[is_found], kind='stable')
            ids.append(used[is_found][ranked])
            is_new[ids[-1]] = False
        return [clients.words[i] for i in np.concatenate(ids)]


def threshold(stddev: float, words: int, delta: float) -> float:
    """The least threshold that hides words of one client, except with probability `delta`.

    A client that chooses n words gives each 1/sqrt(n). If nobody else chooses them, one of them is
    found with probability 1 - Phi((threshold - 1/sqrt(n)) / stddev)^n.

    Args:
      stddev: of the noise, above 0.
      words: the most words that the client chooses, at least 1.
      delta: strictly between 0 and 1.
    """
    n = np.arange(1, words + 1)
    above = -np.expm1(np.log1p(-delta) / n)
    return float(np.max(1 / np.sqrt(n) - stddev * special.ndtri(above))) * (1 + _ROUNDING)


@dataclasses.dataclass(frozen=True, eq=False)
class WordCounts:
    """Which words each client uses, and in which order it prefers them.

    Memory grows with the number of pairs of a client and a word: about 16 bytes for each.

    Attributes:
      words: all distinct words.
      owners: client of each pair, int32 [pairs]; all pairs of a client stand together.
      ids: position of the word in `words`, int32 [pairs].
      counts: how often the client uses the word, int32 [pairs].
    """

    words: Sequence[str]
    owners: np.ndarray
    ids: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, clients: Iterable[Mapping[str, int]], seed: int) -> 'WordCounts':
        """The words of clients, in the order of the clients.

        Each client's words are in an order that is random, and a function of the seed, of the
        client's place and of its own words alone: its contribution must not depend on others.

        Args:
          clients: number of uses by word, of each client.
          seed: public.
        """
        places: dict[str, int] = {}
        owners, ids, counts = [], [], []
        for client, uses in enumerate(clients):
            own = sorted(uses)
            order = _random.generator('private_words', seed, client).permutation(len(own))
            own = [own[i] for i in order]
            owners.append(np.full(len(own), client, np.int32))
            ids.append(np.array([places.setdefault(word, len(places)) for word in own], np.int32))
            counts.append(np.array([uses[word] for word in own], np.int32))
        if not places:
            raise errors.ArgumentError(
                'vocabulary_size', errors.NOT_SHOWN, 'the data have no words'
            )
        return cls(tuple(places), *map(np.concatenate, (owners, ids, counts)))

    def weights(self, is_new: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Sums of the clients' weights, float64 [words], and which words a client chose, bool.

        Args:
          is_new: the words that a client may choose, bool [words].
          most: most words of a client; those that it uses most often, and random ones of those
            that it uses equally often.
        """
        pairs = np.flatnonzero(is_new[self.ids])
        # Stable: words that are used equally often stay in their random order.
        pairs = pairs[np.lexsort((-self.counts[pairs], self.owners[pairs]))]
        owners = self.owners[pairs]
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        sizes = np.diff(np.append(starts, owners.size))
        places = np.arange(owners.size) - np.repeat(starts, sizes)
        chosen = places < most
        weights = 1 / np.sqrt(np.repeat(np.minimum(sizes, most), sizes)[chosen])
        ids = self.ids[pairs[chosen]]
        count = len(self.words)
        sums = np.bincount(ids, weights, minlength=count)
        return sums, np.bincount(ids, minlength=count) > 0


class Draw(Protocol):
    """Makes a draw and records it: `prepared_task.draw` in the directory of a run."""

    def __call__(
        self,
        what: str,
        intent: Mapping[str, Any],
        data: Iterable[np.ndarray],
        find: Callable[[np.random.Generator], Any],
        noise_seed: int | None,
    ) -> Any: ...


@dataclasses.dataclass(frozen=True)
class BeforeTraining:
    """The releases before training, and how they are made.

    Attributes:
      words: finds the vocabulary; None if it is given.
      noise_seed: makes the noise repeatable, and the run a simulation; None for noise from the
        keys of the run.
      settings: the settings on which the words depend.
      draw: makes a draw; None where nothing may be released.
      kept: results of the draws of a finished run, by name.
    """

    words: WordRelease | None = None
    noise_seed: int | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    draw: Draw | None = None
    kept: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def releases(self) -> tuple[ReleaseBefore, ...]:
        """The costs of the releases, for the plan of the run."""
        return () if self.words is None else (self.words.before(),)

    def find(self, data: Iterable[np.ndarray], find: Callable[[np.random.Generator], Any]) -> Any:
        """The words.

        Args:
          data: arrays from which they are made.
          find: makes them from a source of noise.

        Raises:
          RunError: where nothing may be released, and nothing was drawn.
        """
        if WORDS in self.kept:
            return self.kept[WORDS]
        if self.draw is None:
            raise RunError(f'{WORDS} are drawn by a training run only, whose guarantee counts them')
        assert self.words is not None
        intent = {**self.settings, 'release': self.words.before().to_dict()}
        return self.draw(WORDS, intent, data, find, self.noise_seed)
