"""Noise that clients add to their integers: how much, and what it guarantees.

The server sees only the modular sum of noised integers, so it need not be trusted to add noise.
Each client's share is small; the shares of `min_clients` clients add up to the planned noise.

Sources of the bounds: [Agarwal21], corollary 4.1 (Skellam); [Kairouz21-discrete], theorem 1 (tau);
[Canonne20] (divergence and tails of the discrete Gaussian are at most those of the continuous one).
Renyi divergences of rounds add up, for each client over the rounds it takes part in.
"""

import dataclasses
import functools
import math

import numpy as np
from dp_accounting import rdp
from scipy import optimize

from dpfl import _validate, accounting, errors
from dpfl.aggregators.integers import discretized
from dpfl.mechanisms.discretization import Discretization

KINDS = ('skellam', 'discrete_gaussian')

# Integers only: the bound for Skellam noise holds for integer orders.
_ORDERS = (*range(2, 257), *(2**power for power in range(9, 17)))
# Bound on the probability that any coordinate of any round's sum wraps around.
_WRAP_PROBABILITY = 2.0**-40
_MAX_BITS = 62
# Largest standard deviation of one client's noise, in integers: the samplers count in 64 bits.
_MAX_STDDEV = 2.0**30


@dataclasses.dataclass(frozen=True)
class DistributedNoise:
    """Noise shares of clients for a privacy plan.

    Each client of a round adds to every coordinate of its rounded update

    - 'skellam': the difference of two Poisson variables. Sums of shares are Skellam variables too.
    - 'discrete_gaussian': a discrete Gaussian variable, with a standard deviation rounded up to an
      integer, as tensorflow-privacy draws no others. Sums of shares are only nearly discrete
      Gaussian; the guarantee accounts for the difference.

    A share has the planned standard deviation divided by `sqrt(min_clients)`. So the sum has the
    planned noise if `min_clients` clients contribute, and more with more clients. Rounds of fewer
    are refused. That many clients must also be honest, since a client can subtract its own share.

    Noise is added before the sum is taken modulo M, so the guarantee holds whether or not a sum
    wraps around. With fresh shares in every round, the probability that any round's sum wraps
    around is at most 2^-40.

    Attributes:
      plan: has a discretization and independent noise, and no sampling, adaptive clipping or
        weights. Its `noise_multiplier` is that of the noise in the sum. Its own `epsilon` is for
        continuous noise, and slightly below `epsilon` here.
      kind: one of `KINDS`.
      min_clients: number of shares that make up the planned noise, at most `clients_per_round`;
        None for `clients_per_round`.

    Raises:
      ValueError: if a field is out of range, or the plan has a feature that cannot be combined with
        noise from clients.

    Example:
      >>> rounding = mechanisms.Discretization.for_bits(
      ...     bits=16, clients_per_round=10, dimension=8, clip_norm=1.0)
      >>> plan = accounting.PrivacyPlan(
      ...     mechanism=mechanisms.Identity(4), participation=Participation(4, min_separation=4),
      ...     clip_norm=1.0, noise_multiplier=4.0, clients_per_round=10, discretization=rounding)
      >>> noise = DistributedNoise(plan)  # Each client adds a Skellam share.
      >>> plan.epsilon(1e-5) < noise.epsilon(1e-5) < 1.1 * plan.epsilon(1e-5)
      True
    """

    plan: accounting.PrivacyPlan
    kind: str = 'skellam'
    min_clients: int | None = None

    def __post_init__(self):
        _check_plan(self.plan)
        _validate.choice('kind', self.kind, KINDS)
        clients = self.plan.clients_per_round
        if self.min_clients is None:
            object.__setattr__(self, 'min_clients', clients)
        _validate.integer('min_clients', self.min_clients, minimum=1, maximum=clients)
        scale = self._settings.scale
        if self.local_stddev > _MAX_STDDEV:
            raise errors.ArgumentError(
                'scale',
                scale,
                f'must be smaller: the noise of one client has standard deviation '
                f'{self.local_stddev:g}, and at most {_MAX_STDDEV:g} is supported',
            )
        # The clients' values, each below the modulus, are summed before the remainder is taken.
        bits = (self.modulus * clients).bit_length()
        if bits > _MAX_BITS:
            raise errors.ArgumentError(
                'scale',
                scale,
                f'must be smaller: sums take {bits} bits, and at most {_MAX_BITS} are supported',
            )

    @property
    def _settings(self) -> Discretization:
        return discretized.settings_of(self.plan)

    @property
    def _shares(self) -> int:
        """`min_clients`, which is a number once the object is made."""
        return self.plan.clients_per_round if self.min_clients is None else self.min_clients

    @property
    def local_stddev(self) -> float:
        """Standard deviation of one client's share, in integers.

        That of the sum divided by the *root* of the number of shares.
        """
        # With the discretization's clip norm, whatever the current one: scale times norm is
        # constant.
        planned = self.plan.stddev * self._settings.scale
        share = planned / math.sqrt(self._shares)
        if self.kind == 'skellam':
            return share
        # A quotient that exceeds an integer only by rounding is not rounded up.
        return float(math.ceil(share * (1 - 1e-12)))

    @property
    def variance(self) -> float:
        """Variance of the sum of `min_clients` shares, in integers: what the guarantee counts."""
        return self._shares * self.local_stddev**2

    @property
    def l2_sensitivity(self) -> float:
        """How far one client moves the sum of a round in the L2 norm, in integers."""
        return self.plan.shift * self._settings.clip_norm * self._settings.scale

    @property
    def l1_sensitivity(self) -> float:
        """As `l2_sensitivity`, in the L1 norm: `|x|_1 <= |x|_2^2` for integer entries."""
        l2 = self.l2_sensitivity
        return l2 * min(math.sqrt(self._settings.padded_dimension), l2)

    @property
    def closeness(self) -> float:
        """Bound tau on `|log P/Q|`: P a sum of discrete Gaussians, Q one of the same variance.

        `10 sum_{k=1}^{n-1} exp(-2 pi^2 sigma^2 k / (k+1))` for n shares of standard deviation
        sigma >= 1/2 ([Kairouz21-discrete], theorem 1); 0 for Skellam noise, whose sums are Skellam.
        """
        if self.kind == 'skellam' or not self.local_stddev:
            return 0.0
        k = np.arange(1, self._shares)
        return float(10 * np.exp(-2 * np.pi**2 * self.local_stddev**2 * k / (k + 1)).sum())

    def round_divergence(self, order: int) -> float:
        """Upper bound on the Renyi divergence of one round for a client in it.

        - Skellam ([Agarwal21], corollary 4.1): `a L2^2 / (2 v) + min(((2a - 1) L2^2 + 6 L1) /
          (4 v^2), 3 L1 / (2 v))` for the order a and the variance v of the sum.
        - Discrete Gaussian: `a L2^2 / (2 v)` for one of variance v. Densities within a factor
          `exp(+-tau)` of it add at most `(2a - 1) / (a - 1) tau` for each coordinate that the
          client moves: at most `L2^2` of them, since entries are integers.

        Args:
          order: an integer >= 2.

        Raises:
          ValueError: if the order is not such a number.
        """
        _validate.integer('order', order, minimum=2)
        variance, l1, l2 = self.variance, self.l1_sensitivity, self.l2_sensitivity
        if not variance:
            return math.inf
        gaussian = order * l2**2 / (2 * variance)
        if self.kind == 'skellam':
            few = ((2 * order - 1) * l2**2 + 6 * l1) / (4 * variance**2)
            return gaussian + min(few, 3 * l1 / (2 * variance))
        moved = min(self._settings.padded_dimension, l2**2)
        return gaussian + (2 * order - 1) / (order - 1) * self.closeness * moved

    def epsilon(self, delta: float) -> float:
        """Epsilon of the whole run at `delta`: an upper bound by Renyi divergences.

        Raises:
          ValueError: if the delta is not strictly between 0 and 1.
        """
        _validate.number('delta', delta, above=0, below=1)
        count = self.plan.participation.count
        divergences = [count * self.round_divergence(order) for order in _ORDERS]
        if math.isinf(divergences[0]):
            return math.inf
        return float(rdp.compute_epsilon(_ORDERS, divergences, delta)[0])

    @functools.cached_property
    def modulus(self) -> int:
        """Modulus M of the sums, an odd number."""
        clients = self.plan.clients_per_round
        return 2 * (self._settings.linf_bound * clients + self._noise_bound()) + 1

    @property
    def bits_per_parameter(self) -> int:
        """ceil(log2 M)."""
        return (self.modulus - 1).bit_length()

    def _noise_bound(self) -> int:
        """Bound on all noise of full cohorts in all rounds, violated with `_WRAP_PROBABILITY`."""
        variance = self.plan.clients_per_round * self.local_stddev**2
        if not variance:
            return 0
        coordinates = self._settings.padded_dimension * self.plan.participation.rounds
        exponent = math.log(2 * coordinates / _WRAP_PROBABILITY)
        if self.kind == 'discrete_gaussian':  # Sub-Gaussian.
            return math.ceil(math.sqrt(2 * variance * exponent))

        def excess(t):  # Chernoff, by the moments exp(v (cosh s - 1)) at s = asinh(t / v).
            ratio = t / variance
            cosh_minus_1 = ratio**2 / (1 + math.hypot(1, ratio))
            return t * math.asinh(ratio) - variance * cosh_minus_1 - exponent

        # Bernstein's bound is a little weaker: this is above the root.
        upper = math.sqrt(2 * variance * exponent) + exponent
        return math.ceil(optimize.brentq(excess, 0.0, upper) * (1 + 1e-9))


def _check_plan(plan: accounting.PrivacyPlan) -> None:
    if plan.discretization is None:
        raise errors.ArgumentError(
            'discretization', 'None', 'must be given: clients add noise to integers'
        )
    if not plan.mechanism.is_independent:
        raise errors.ArgumentError(
            'mechanism',
            plan.mechanism.name,
            'must be gaussian with noise from clients: correlated noise cancels noise of earlier '
            'rounds, which clients do not know',
        )
    if plan.sampling is not None:
        raise errors.ArgumentError(
            'sampling',
            plan.sampling.name,
            'must be none with noise from clients: amplification by sampling is not proven for it',
        )
    if plan.adaptive_clip is not None:
        raise errors.ArgumentError(
            'adaptive_clip',
            errors.NOT_SHOWN,
            'must be None with noise from clients: the server adds the noise of the clipped counts',
        )
    if plan.estimator.example_cap is not None:
        raise errors.ArgumentError(
            'example_cap', plan.estimator.example_cap, 'must be None with noise from clients'
        )
