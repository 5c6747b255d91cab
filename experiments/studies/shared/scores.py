"""How well scores of clients tell members of a training from other clients.

A score is larger for clients that more probably took part, such as minus the client's loss. A test
calls a client a member if its score is at least a threshold. Its true positive rate is the share of
members it finds, its false positive rate the share of other clients that it calls members.

Thresholds are chosen on one half of the clients, and rates are measured on the other half, so that
their intervals by Clopper and Pearson are valid for scores that are independent from client to
client. Scores under one model are not exactly so; the intervals do not cover that.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats

from dpfl import _json, _random, _validate
from dpfl.errors import NOT_SHOWN, ArgumentError

# False positive rates at which attacks are compared ([Carlini22]).
RATES = (0.001, 0.01, 0.1)
# Least standard deviation of losses, so that equal ones do not divide by zero.
_LEAST_DEVIATION = 1e-6


@dataclasses.dataclass(frozen=True)
class Rate:
    """A share of clients, with the ends of its interval by Clopper and Pearson."""

    value: float
    lower: float
    upper: float

    @classmethod
    def of(cls, hits: int, count: int, confidence: float) -> 'Rate':
        """The share `hits / count`, with an interval of this confidence."""
        interval = stats.binomtest(hits, count).proportion_ci(confidence, method='exact')
        return cls(hits / count, float(interval.low), float(interval.high))


@dataclasses.dataclass(frozen=True)
class Test:
    """A test at a threshold.

    Attributes:
      target_fpr: false positive rate for which the threshold was chosen; None for the threshold
        with the largest advantage.
      threshold: the least score of clients that are called members.
      tpr, fpr: true and false positive rate on the clients that did not choose the threshold.
      allowed_tpr: largest true positive rate that the guarantee allows at the upper end of the
        false positive rate; None without a guarantee.
    """

    target_fpr: float | None
    threshold: float
    tpr: Rate
    fpr: Rate
    allowed_tpr: float | None = None

    @property
    def exceeds(self) -> bool:
        """Whether the test is better than the guarantee allows, beyond the intervals."""
        return self.allowed_tpr is not None and self.tpr.lower > self.allowed_tpr

    @property
    def advantage(self) -> Rate:
        """True less false positive rate, with the ends that their intervals give."""
        true, false = self.tpr, self.fpr
        return Rate(true.value - false.value, true.lower - false.upper, true.upper - false.lower)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            **dataclasses.asdict(self),
            'threshold': _json.finite(self.threshold),
            'advantage': dataclasses.asdict(self.advantage),
            'exceeds': self.exceeds,
        }


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How well scores tell members from others.

    Attributes:
      auc: probability that a member has a larger score than another client, ties as one half.
      p_value: of the hypothesis that all clients have the same distribution, against larger scores
        of members (Mann and Whitney; exact for few clients without ties).
      tests: tests for false positive rates, and last that with the largest advantage.
    """

    auc: float
    p_value: float
    tests: tuple[Test, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        *tests, best = (test.to_dict() for test in self.tests)
        return {'auc': self.auc, 'p_value': self.p_value, 'tests': tests, 'best': best}


def threshold(others: np.ndarray, rate: float) -> float:
    """Least threshold that at most this share of the scores reaches; infinity if none does."""
    reaching = int(math.floor(rate * others.size + 1e-9))
    descending = np.sort(others)[::-1]
    if reaching >= others.size:
        return float(-math.inf)
    # The next larger number keeps those that equal the first score that must not reach it out.
    return float(np.nextafter(descending[reaching], math.inf))


def best_threshold(members: np.ndarray, others: np.ndarray) -> float:
    """Threshold with the largest difference of true and false positive rate."""
    candidates = np.unique(np.concatenate([members, others]))
    true = 1 - np.searchsorted(np.sort(members), candidates) / members.size
    false = 1 - np.searchsorted(np.sort(others), candidates) / others.size
    return float(candidates[np.argmax(true - false)])


def evaluate(
    members: np.ndarray,
    others: np.ndarray,
    *,
    rates: Sequence[float] = RATES,
    allowed: Callable[[float], float] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Outcome:
    """Measures how well scores tell members from others.

    Args:
      members, others: scores of clients, at least two each; finite.
      rates: false positive rates for which thresholds are chosen.
      allowed: maps a false positive rate in (0, 1) to the largest true positive rate that a
        guarantee allows; None without a guarantee.
      confidence: of the intervals. All intervals of the outcome, two for each test, hold at the
        same time with this confidence (Bonferroni).
      seed: of the halves.

    Raises:
      ArgumentError: if there are too few scores, or one is not finite.
    """
    for name, values in (('members', members), ('others', others)):
        if values.ndim != 1 or values.size < 2 or not np.isfinite(values).all():
            raise ArgumentError(name, NOT_SHOWN, 'must be at least two finite scores')
    _validate.number('confidence', confidence, above=0, below=1)
    of_one = 1 - (1 - confidence) / (2 * (len(rates) + 1))
    (chosen_in, tested_in), (chosen_out, tested_out) = (
        _halves(values, seed, i) for i, values in enumerate((members, others))
    )
    thresholds: list[tuple[float | None, float]] = [
        (rate, threshold(chosen_out, rate)) for rate in rates
    ]
    thresholds.append((None, best_threshold(chosen_in, chosen_out)))
    tests = []
    for target, least in thresholds:
        true, false = (
            Rate.of(int(np.count_nonzero(values >= least)), values.size, of_one)
            for values in (tested_in, tested_out)
        )
        most = None
        if allowed is not None:
            most = allowed(false.upper) if false.upper < 1 else 1.0
        tests.append(Test(target, least, true, false, most))
    ordered = stats.mannwhitneyu(members, others, alternative='greater')
    auc = float(ordered.statistic) / members.size / others.size
    return Outcome(auc, float(ordered.pvalue), tuple(tests))


def against_references(
    losses: np.ndarray, reference: np.ndarray, took_part: np.ndarray
) -> np.ndarray:
    """Scores of clients by their losses under reference models that they did not train.

    The losses of a client under such models are taken as normal, with a mean of its own and one
    standard deviation for all clients; the score is by how many of these its loss is below the mean
    (the offline attack of [Carlini22]). Held-out clients train no model, so there is
    nothing to compare their losses with as members.

    Args:
      losses: of each client under the model, [clients].
      reference: of each client under each reference model, [models, clients].
      took_part: whether a client trained a reference model, bool [models, clients].

    Returns:
      Scores, NaN for clients that trained all reference models, [clients].
    """
    known = (~took_part).sum(axis=0)
    without = np.where(took_part, np.nan, reference)
    means = np.full(losses.shape, np.nan)
    np.divide(np.nansum(without, axis=0), known, out=means, where=known > 0)
    # One model alone says nothing of the deviation, which then only scales all scores.
    freedom = int(np.maximum(known - 1, 0).sum())
    squares = float(np.nansum((without - means) ** 2))
    deviation = math.sqrt(squares / freedom) if freedom else 1.0
    return (means - losses) / max(deviation, _LEAST_DEVIATION)


def _halves(values: np.ndarray, seed: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    order = _random.generator('membership.half', seed, number).permutation(values.size)
    return values[order[: values.size // 2]], values[order[values.size // 2 :]]
