"""Noise that clients add to their integers: how much, and what it guarantees.

The server sees the sum of noised integers under a modulus alone, so it need not be trusted to add
noise. Each client's share is small; that of `min_clients` clients together is the planned noise.

Sources of the bounds: Agarwal, Kairouz and Liu 2021, "The Skellam mechanism for differentially
private federated learning", corollary 4.1; Kairouz, Liu and Steinke 2021, "The distributed discrete
Gaussian mechanism", theorem 1 (tau); Canonne, Kamath and Steinke 2020, "The discrete Gaussian for
differential privacy" (its divergence and tails are at most those of the continuous one). Renyi
divergences of rounds add up; each client counts for those that it is in.
"""

import dataclasses
import functools
import math

import numpy as np
from dp_accounting import rdp
from scipy import optimize

from dpfl import _validate, accounting, errors, mechanisms

KINDS = ('skellam', 'discrete_gaussian')

# The bound for Skellam noise is for integer orders.
_ORDERS = (*range(2, 257), *(2**power for power in range(9, 17)))
# Of the probability that a coordinate of any round's sum leaves the range of the modulus.
_WRAP_PROBABILITY = 2.0**-40
_MAX_BITS = 62
# Of one client's noise in units of integers: the samplers count in 64 bits.
_MAX_STDDEV = 2.0**30


@dataclasses.dataclass(frozen=True)
class DistributedNoise:
    """Noise shares of clients for a privacy plan.

    Each client of a round adds to its rounded update, in every coordinate,

    - 'skellam': the difference of two Poisson variables. Sums of shares are Skellam variables too.
    - 'discrete_gaussian': a discrete Gaussian variable, whose standard deviation is rounded up to
      an integer as tensorflow-privacy draws no others. Sums of shares are only nearly discrete
      Gaussian, and the guarantee counts by how much.

    A share has the standard deviation of the planned noise over `sqrt(min_clients)`, so the sum has
    what the plan says if as many clients contribute, and more beyond. Rounds of fewer clients are
    refused; that many must also be honest, since whoever knows its own share can take it off.

    Noise is added before the sum is taken modulo M, so the guarantee holds whether or not a sum
    wraps around; with fresh shares in every round it does so in any round with probability 2^-40 at
    most.

    Attributes:
      plan: has a discretization and independent noise, and no sampling, adaptive clipping or
        weights. Its `noise_multiplier` is that of the noise in the sum; its own `epsilon` is that
        of continuous noise, slightly less than `epsilon` here.
      kind: one of `KINDS`.
      min_clients: number of shares that make up the planned noise; None for `clients_per_round`,
        at most that.

    Raises:
      ValueError: if a field is out of its range, or the plan has something that does not go with
        noise from clients.
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
        scale = self.plan.discretization.scale
        if self.local_stddev > _MAX_STDDEV:
            raise errors.ArgumentError(
                'scale',
                scale,
                f'must be smaller, for the noise of one client has the standard '
                f'deviation {self.local_stddev:g}, and not {_MAX_STDDEV:g} at most',
            )
        # Sums of the clients' values, each below the modulus, are taken before the remainder.
        bits = (self.modulus * clients).bit_length()
        if bits > _MAX_BITS:
            raise errors.ArgumentError(
                'scale',
                scale,
                f'must be smaller, for sums take {bits} bits and not {_MAX_BITS} at most',
            )

    @property
    def local_stddev(self) -> float:
        """Standard deviation of one client's share, in units of integers.

        That of the sum over the *root* of the number of shares.
        """
        # The norm of the discretization, not the one in use: scale times norm is constant.
        planned = self.plan.stddev * self.plan.discretization.scale
        share = planned / math.sqrt(self.min_clients)
        if self.kind == 'skellam':
            return share
        # Rounding of the quotient does not count as a reason for the next integer.
        return float(math.ceil(share * (1 - 1e-12)))

    @property
    def variance(self) -> float:
        """Variance of the sum of `min_clients` shares, in units of integers: what is counted."""
        return self.min_clients * self.local_stddev**2

    @property
    def l2_sensitivity(self) -> float:
        """How far one client moves the sum of a round, in units of integers."""
        settings = self.plan.discretization
        return self.plan.shift * settings.clip_norm * settings.scale

    @property
    def l1_sensitivity(self) -> float:
        """As `l2_sensitivity`, in the L1 norm: `|x|_1 <= |x|_2^2` where entries are integers."""
        l2 = self.l2_sensitivity
        return l2 * min(math.sqrt(self.plan.discretization.padded_dimension), l2)

    @property
    def closeness(self) -> float:
        """tau, a bound of `|log P/Q|` for a sum of discrete Gaussians P and one of its variance Q.

        `10 sum_{k=1}^{n-1} exp(-2 pi^2 sigma^2 k / (k+1))` for n shares of standard deviation
        sigma >= 1/2 (theorem 1); 0 for Skellam noise, of which sums are such noise again.
        """
        if self.kind == 'skellam' or not self.local_stddev:
            return 0.0
        k = np.arange(1, self.min_clients)
        return float(10 * np.exp(-2 * np.pi**2 * self.local_stddev**2 * k / (k + 1)).sum())

    def round_divergence(self, order: int) -> float:
        """Upper bound on the Renyi divergence of one round for a client that is in it.

        - Skellam (corollary 4.1): `a L2^2 / (2 v) + min(((2a - 1) L2^2 + 6 L1) / (4 v^2),
          3 L1 / (2 v))` for the order a and the variance v of the sum.
        - Discrete Gaussian: `a L2^2 / (2 v)` for one of variance v. Where densities are
          `exp(+-tau)` times those, the divergence is at most `(2a - 1) / (a - 1) tau` more in each
          coordinate that the client moves: at most `L2^2` of them, since entries are integers.

        Args:
          order: an integer, at least 2.

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
        moved = min(self.plan.discretization.padded_dimension, l2**2)
        return gaussian + (2 * order - 1) / (order - 1) * self.closeness * moved

    def epsilon(self, delta: float) -> float:
        """Epsilon of the whole run at `delta`: an upper bound, by Renyi divergences.

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
        """M of the sums: an odd number."""
        clients = self.plan.clients_per_round
        return 2 * (self.plan.discretization.linf_bound * clients + self._noise_bound()) + 1

    @property
    def bits_per_parameter(self) -> int:
        """ceil(log2 M)."""
        return (self.modulus - 1).bit_length()

    def _noise_bound(self) -> int:
        """What no coordinate of the noise of a full cohort exceeds in any round, very likely."""
        variance = self.plan.clients_per_round * self.local_stddev**2
        if not variance:
            return 0
        coordinates = self.plan.discretization.padded_dimension * self.plan.participation.rounds
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
            'discretization', 'None', 'must be given, for clients add noise to integers'
        )
    if not isinstance(plan.mechanism, mechanisms.Identity):
        raise errors.ArgumentError(
            'mechanism',
            plan.mechanism.name,
            'must be gaussian with noise from clients, for none '
            'of them knows the noise of other rounds that correlated noise would take back',
        )
    if plan.sampling != 'none':
        raise errors.ArgumentError(
            'sampling',
            plan.sampling,
            'must be none with noise from clients; no amplification is proven here for it',
        )
    if plan.adaptive_clip is not None:
        raise errors.ArgumentError(
            'adaptive_clip',
            errors.NOT_SHOWN,
            'must be None with noise from clients, for the clipped counts get their '
            'noise at the server',
        )
    if plan.estimator.example_cap is not None:
        raise errors.ArgumentError(
            'example_cap', plan.estimator.example_cap, 'must be None with noise from clients'
        )
