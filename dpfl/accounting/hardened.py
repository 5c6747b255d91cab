"""What hardened noise changes in the accounting: integers, their rounding, discrete Gaussians.

docs/reference/hardened.md has the theorem and its proof. A run with `noise='hardened'` releases
integers with discrete Gaussian noise of standard deviation `STDDEV` per unit of the strategy. One
client's update is a vector of integers of norm at most `STDDEV / noise_multiplier`.
"""

import dataclasses
import functools
import math
from typing import TYPE_CHECKING

from dpfl import errors, mechanisms
from dpfl.accounting import part
from dpfl.accounting.part import ASSUMPTION, NOT_COVERED, Facts, Part, Run
from dpfl.mechanisms.hardened import stream
from dpfl.mechanisms.rounding import round_up

if TYPE_CHECKING:
    from dpfl.accounting.plan import PrivacyPlan
    from dpfl.accounting.reports.report import PrivacyReport

NOISES = ('default', 'hardened')
# Standard deviation of the integers z where the diagonal of C is 1.
STDDEV = 2.0**40
# Most coordinates of a model. A plan does not know its model, so rounding counts this many.
MOST_COORDINATES = 2**28
# Within these noise multipliers, an update has enough integers and float64 holds all of them.
_LEAST_NOISE, _MOST_NOISE = 2.0**-10, 2.0**20


@dataclasses.dataclass(frozen=True)
class Hardened(Part):
    """Discrete Gaussian noise on integer sums, from a cryptographic generator.

    It comes last: its rounding is added to the sensitivity of the whole run, and its slack is that
    of everything the run releases.
    """

    words = 'noise=hardened'
    is_attained = False

    def covers_hardened(self, plan: 'PrivacyPlan') -> bool:
        return True

    def check(self, plan: 'PrivacyPlan') -> None:
        """Checks that the plan holds only what the proof covers."""
        for other in plan.parts:
            if not other.covers_hardened(plan):
                raise errors.ArgumentError(
                    'noise', plan.noise, f'must be default with {other.words}'
                )
        if plan.noise_multiplier and not _LEAST_NOISE <= plan.noise_multiplier <= _MOST_NOISE:
            raise errors.ArgumentError(
                'noise_multiplier',
                plan.noise_multiplier,
                f'must be 0, or within {_LEAST_NOISE:g} and {_MOST_NOISE:g}, with noise=hardened',
            )

    def sensitivity(self, plan: 'PrivacyPlan', sensitivity: float) -> float:
        """The sensitivity with rounding; none is added to independent noise.

        Returns:
          Infinity where no bound is proven: if the noise is so small that a client moves the run by
          more than `rounding.LARGEST_MU` standard deviations, or grows beyond what float64 holds.
        """
        added = _shift(plan.mechanism, plan.participation.rounds)
        if not added:
            return sensitivity
        total = sensitivity * (1 + stream.COEFFICIENTS)
        if not plan.noise_multiplier:
            return total
        total += plan.noise_multiplier * added
        return total if total <= stream.LARGEST_MU * plan.noise_multiplier else math.inf

    def run(self, plan: 'PrivacyPlan', run: Run) -> Run:
        """The run with its slack; nothing bounds one beyond what `sensitivity` has a proof for."""
        is_correlated = _shift(plan.mechanism, plan.participation.rounds) > 0
        if is_correlated and run.reach > stream.LARGEST_MU:
            run = dataclasses.replace(run, reach=math.inf, mu=run.mu and math.inf)
        return dataclasses.replace(run, slack=slack(plan, run.reach))

    def target(self, plan: 'PrivacyPlan', epsilon: float, delta: float) -> tuple[float, float]:
        """Epsilon and delta of the Gaussian mechanism, with the slack of the largest shift."""
        most = slack(plan, stream.LARGEST_MU)
        if not epsilon > 2 * most:
            raise errors.ArgumentError(
                'epsilon', epsilon, f'must be above {2 * most:.3g} with noise=hardened'
            )
        return epsilon - most, part.discrete_delta(delta, most)

    def noise_of_mu(self, plan: 'PrivacyPlan', mu: float, noise_multiplier: float) -> float:
        added = _shift(plan.mechanism, plan.participation.rounds)
        if not mu > 2 * added:
            raise errors.ArgumentError(
                'mu', f'{mu:g}', f'must be above {2 * added:.3g} with noise=hardened'
            )
        sensitivity = plan.sensitivity * (1 + stream.COEFFICIENTS)
        return sensitivity / (mu - added) * (1 + 1e-12)

    def facts(self, report: 'PrivacyReport', facts: Facts) -> None:
        if not report.plan.noise_multiplier:
            return
        facts.put(
            ASSUMPTION,
            'hardened',
            'Hardened noise: each round releases an exact sum of integers plus exact discrete '
            "Gaussian noise. One client's integers have a norm of at most the clip norm. The noise "
            'comes from key streams of AES-256. The result is converted to floats only afterwards. '
            'The sensitivity counts the rounding of correlated noise. Epsilon counts that the '
            'discrete Gaussian is within {slack} of the Gaussian in every probability '
            '(docs/reference/hardened.md).',
            slack=round_up(report.plan.slack, 1),
        )
        facts.put(
            NOT_COVERED,
            'attacks',
            'Attacks on timing, caches and other side channels: how long noise and rounds take '
            'depends on noise and data. (Floating-point arithmetic and the generator are covered, '
            'as far as AES-256 is secure and the key stays secret.)',
        )


def slack(plan: 'PrivacyPlan', reach: float) -> float:
    """By how much epsilon may exceed that of the Gaussian mechanism: 2 tau of the theorem.

    Args:
      plan: of the run.
      reach: how far a release moves between neighbours, in standard deviations.
    """
    if not math.isfinite(reach):
        return math.inf
    rounds = plan.participation.rounds
    least = STDDEV * _least_stddev(plan.mechanism, rounds)
    reached = stream.TAIL**2 + (stream.TAIL + reach) ** 2
    return MOST_COORDINATES * rounds * reached / (24 * least**2) * (1 + 1e-6)


@functools.lru_cache
def _shift(mechanism: mechanisms.Mechanism, rounds: int) -> float:
    return stream.shift(mechanism.kernel(), rounds, MOST_COORDINATES, STDDEV)


@functools.lru_cache
def _least_stddev(mechanism: mechanisms.Mechanism, rounds: int) -> float:
    return float(stream.stddevs(mechanism.kernel(), rounds).min())
