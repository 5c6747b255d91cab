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

Quantiles: every client has one value, or none. A binary search goes through a public, ascending
list of candidates. In each step the clients with a value at or below the candidate in the middle
are counted, with Gaussian noise.
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

CHOICES = ('frequent', 'uniform')
# The square of mu grows by this factor from round to round.
_GROWTH = 3.0
# How far the weights of two clients may be apart: both have norm 1 and no negative entries.
_REPLACED = math.nextafter(math.sqrt(2), 2)
_ROUNDING = 1e-12
# Steps of a search, so the number of candidates is 2 to their power.
STEPS = 10
_COUNT = 2**STEPS
# Candidates by measure. Values beyond the ends count as the ends.
CANDIDATES: Mapping[str, np.ndarray] = {
    'accuracy': np.linspace(0.0, 1.0, _COUNT),
    'oov_rate': np.linspace(0.0, 1.0, _COUNT),
    'length': np.arange(_COUNT) / 8,
    'loss': np.arange(_COUNT) / 50,
    'sentences': np.round(np.geomspace(1, 1e6, _COUNT)),
}


@dataclasses.dataclass(frozen=True)
class WordRelease:
    """The noise and the thresholds of the rounds that find words.

    Attributes:
      stddevs: standard deviation of the noise of each round; a client's weights have norm 1.
      thresholds: a word is found in a round if its noised sum is above.
      words_per_client: most words of a client in a round.
      delta: probability, of all rounds together, that a word of one client alone is found.
      choice: which of its words a client chooses. 'frequent': those that it uses most often, and
        random ones of those that it uses equally often. 'uniform': random ones.
    """

    stddevs: tuple[float, ...]
    thresholds: tuple[float, ...]
    words_per_client: int
    delta: float
    choice: str = 'frequent'

    @classmethod
    def of_guarantee(
        cls,
        epsilon: float,
        delta: float,
        *,
        words_per_client: int,
        rounds: int = 3,
        choice: str = 'frequent',
        adjacency: str = 'zero_out',
    ) -> 'WordRelease':
        """The least noise with which all rounds together are (`epsilon`, `delta`)-DP.

        One half of delta is for the noise, the other for the thresholds.

        Args:
          epsilon: above 0.
          delta: strictly between 0 and 1.
          words_per_client, choice: as in the class.
          rounds: number of rounds, at least 1.
          adjacency: as in `PrivacyPlan`.

        Raises:
          ArgumentError: if an argument is out of its range.
        """
        _validate.number('delta', delta, above=0, below=1)
        _validate.integer('words_per_client', words_per_client, minimum=1)
        _validate.integer('rounds', rounds, minimum=1)
        _validate.choice('choice', choice, CHOICES)
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
            choice,
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
            sums, is_used = clients.weights(is_new, self.words_per_client, self.choice)
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

    def weights(self, is_new: np.ndarray, most: int, choice: str) -> tuple[np.ndarray, np.ndarray]:
        """Sums of the clients' weights, float64 [words], and which words a client chose, bool.

        Args:
          is_new: the words that a client may choose, bool [words].
          most: most words of a client.
          choice: one of `CHOICES`.
        """
        pairs = np.flatnonzero(is_new[self.ids])
        if choice == 'frequent':
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


@dataclasses.dataclass(frozen=True)
class QuantileRelease:
    """The noise of the searches for several quantiles.

    Attributes:
      shares: of which quantiles, by the text of the criterion; each strictly between 0 and 1.
      noise_multiplier: standard deviation of the noise of one count divided by how far one client
        moves it between zero-out neighbours.
    """

    shares: Mapping[str, float]
    noise_multiplier: float

    @classmethod
    def of_guarantee(
        cls,
        epsilon: float,
        delta: float,
        shares: Mapping[str, float],
        adjacency: str = 'zero_out',
    ) -> 'QuantileRelease':
        """The least noise with which all searches together are (`epsilon`, `delta`)-DP.

        Args:
          epsilon: above 0.
          delta: strictly between 0 and 1.
          shares: as in the class, at least one.
          adjacency: as in `PrivacyPlan`.

        Raises:
          ArgumentError: if an argument is out of its range.
        """
        if not shares:
            raise errors.ArgumentError('shares', errors.NOT_SHOWN, 'must not be empty')
        for share in shares.values():
            _validate.number('share', share, above=0, below=1)
        mu = mu_from_epsilon(epsilon, delta, 'analytic_gaussian')
        shift = 1.0 if adjacency == 'zero_out' else _replaced(shares)
        counts = STEPS * len(shares)
        return cls(shares, shift * math.sqrt(counts) / mu * (1 + _ROUNDING))

    def before(self) -> ReleaseBefore:
        """The cost of all searches together."""
        counts = STEPS * len(self.shares)
        noise = self.noise_multiplier / math.sqrt(counts) * (1 - _ROUNDING)
        return ReleaseBefore('the thresholds of the selection', noise, _replaced(self.shares))

    def find(
        self,
        values: Mapping[str, np.ndarray],
        candidates: Mapping[str, np.ndarray],
        noise: np.random.Generator,
    ) -> dict[str, float]:
        """The quantiles: of each the least candidate with a share of values at or below it.

        Args:
          values: of each quantile the values of the clients, float64 [clients]; not a number for a
            client without a value.
          candidates: of each quantile ascending numbers, 2**STEPS of them.
          noise: must be secret and not be used for anything else.
        """
        return {
            name: self._search(values[name], candidates[name], share, noise)
            for name, share in self.shares.items()
        }

    def _search(
        self, values: np.ndarray, candidates: np.ndarray, share: float, noise: np.random.Generator
    ) -> float:
        if candidates.shape != (_COUNT,) or (np.diff(candidates) < 0).any():
            raise errors.ArgumentError(
                'candidates', errors.NOT_SHOWN, f'must be {_COUNT} ascending numbers'
            )
        known = values[~np.isnan(values)]
        stddev = self.noise_multiplier * _norm(share)
        low, high = 0, _COUNT - 1
        for _ in range(STEPS):
            middle = (low + high) // 2
            # A client adds 1 - share at or below the candidate, -share above it.
            count = np.count_nonzero(known <= candidates[middle]) - share * known.size
            if count + stddev * noise.standard_normal() >= 0:
                high = middle
            else:
                low = middle + 1
        return float(candidates[high])


def _norm(share: float) -> float:
    """The most that one client adds to a count."""
    return max(share, 1 - share)


def _replaced(shares: Mapping[str, float]) -> float:
    """How far replacing a client moves a count, in units of a client's largest contribution.

    A client contributes -share, 0 or 1 - share, so any two of these are at most 1 apart.
    """
    return min(2.0, max(1 / _norm(share) for share in shares.values()) * (1 + _ROUNDING))


class Draw(Protocol):
    """Makes a draw and records it: `execution.Run.draw`."""

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
      quantiles: finds the thresholds of the selection; None if they are given.
      noise_seed: makes the noise repeatable, and the run a simulation; None for noise from the
        keys of the run.
      settings: the settings on which each of them depends, by its name.
      draw: makes a draw; None where nothing may be released.
      kept: results of the draws of a finished run, by name.
    """

    words: WordRelease | None = None
    quantiles: QuantileRelease | None = None
    noise_seed: int | None = None
    settings: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    draw: Draw | None = None
    kept: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def releases(self) -> tuple[ReleaseBefore, ...]:
        """The costs of the releases, for the plan of the run."""
        made = (self.words, self.quantiles)
        return tuple(release.before() for release in made if release is not None)

    def find(
        self,
        what: str,
        data: Iterable[np.ndarray],
        find: Callable[[np.random.Generator], Any],
    ) -> Any:
        """The result of one of the releases.

        Args:
          what: `config.WORDS` or `selection.THRESHOLDS`.
          data: arrays from which it is made.
          find: makes it from a source of noise.

        Raises:
          RunError: where nothing may be released, and nothing was drawn.
        """
        if what in self.kept:
            return self.kept[what]
        if self.draw is None:
            raise RunError(f'{what} are drawn by a training run only, whose guarantee counts them')
        release = self.words if what == WORDS else self.quantiles
        assert release is not None
        intent = {**self.settings.get(what, {}), 'release': release.before().to_dict()}
        return self.draw(what, intent, data, find, self.noise_seed)
