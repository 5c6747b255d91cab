"""Updates as integers for secure aggregation: how rounding changes the sensitivity.

See [Xu23], section 2.4 and algorithm 2, and [Kairouz21-discrete], proposition 26 and lemmas 28
and 29 (the distributed discrete Gaussian mechanism). A client's update is clipped to norm C,
scaled by s, rotated by a random Hadamard transform, clipped in each coordinate, rounded at random
to integers until the norm is small enough, and summed modulo M. The noise is added to the sum.

Throughout, d is the *padded* dimension: the transform needs a power of two, and all padded
coordinates are rounded.
"""

import dataclasses
import math
from typing import Annotated

from dpfl import _json, _validate, errors
from dpfl._validate import Limits, Norm, Probability

# Sums are held in 64-bit integers.
_MAX_BITS = 62
_MAX_DIMENSION = 2**48


@dataclasses.dataclass(frozen=True)
class Discretization(_json.JsonFields):
    """[Xu23], algorithm 2: the norm of a rounded update, and the integers it needs.

    Attributes:
      scale: s, the factor before rounding, within [1e-60, 1e60]. A larger scale inflates the norm
        less and takes more bits per parameter.
      dimension: number of coordinates of the model, at least 2.
      clip_norm: C, the L2 bound of an update before rounding, within [1e-30, 1e30].
      alpha: rounding is repeated until the norm is at most a bound that a single rounding exceeds
        with probability at most alpha; strictly between 0 and 1. exp(-1/2) in production ([Xu23]).

    Raises:
      ArgumentError: if a field is out of its range.

    Example:
      >>> rounding = Discretization.for_bits(
      ...     bits=16, clients_per_round=100, dimension=10**6, clip_norm=1.0)
      >>> rounding.inflated_norm > rounding.clip_norm
      True
    """

    # Within these limits no square overflows or underflows.
    scale: Annotated[float, Limits(minimum=1e-60, maximum=1e60)]
    dimension: Annotated[int, Limits('parameters', minimum=2, maximum=_MAX_DIMENSION)]
    clip_norm: Norm
    alpha: Probability = math.exp(-0.5)

    @classmethod
    def for_bits(
        cls,
        bits: int,
        clients_per_round: int,
        dimension: int,
        clip_norm: float,
        alpha: float = math.exp(-0.5),
    ) -> 'Discretization':
        """The largest scale, and so the least inflated norm, whose modulus fits into `bits`.

        Args:
          bits: number of bits for one parameter of the sum, at least 1 and at most 62.
          clients_per_round: m, the number of summed updates, at least 1.
          dimension, clip_norm, alpha: as in the class.

        Raises:
          ArgumentError: if an argument is out of its range, or there are too few bits for the
            smallest L-infinity bound, 1.
        """
        _validate.integer('bits', bits, minimum=1, maximum=_MAX_BITS)
        _validate.integer('clients_per_round', clients_per_round, minimum=1)
        one = cls(1.0, dimension, clip_norm, alpha)
        linf_bound = (2**bits - 1) // (2 * clients_per_round)
        if linf_bound < 1:
            least = (2 * clients_per_round).bit_length()
            raise errors.ArgumentError(
                'bits', bits, f'must be at least {least} for clients_per_round={clients_per_round}'
            )
        scale = linf_bound / one._linf_norm
        # The quotient may be off by some units in the last place. The bound grows with the scale.
        while dataclasses.replace(one, scale=scale).linf_bound > linf_bound:
            scale = math.nextafter(scale, 0)
        while True:
            longer = math.nextafter(scale, math.inf)
            if dataclasses.replace(one, scale=longer).linf_bound > linf_bound:
                return dataclasses.replace(one, scale=scale)
            scale = longer

    @property
    def padded_dimension(self) -> int:
        """d: `dimension` padded to a power of two, the length of the vectors that are rounded."""
        return 1 << (self.dimension - 1).bit_length()

    @property
    def inflated_norm(self) -> float:
        """L2 bound of one rounded update, scaled back: it replaces C in the sensitivity.

        This is the smaller of two bounds. Both hold for every rounded update that is sent:

        - The square root of `C^2 + d/(4 s^2) + sqrt(2 log(1/alpha)) (C/s + sqrt(d)/(2 s^2))`: a
          rounding with a larger norm is repeated ([Xu23], equation 2).
        - `C + sqrt(d)/s`: rounding moves each coordinate by less than 1/s. It is smaller only for
          tiny alpha, and every rounding is then accepted.

        Rotation preserves the norm, and the L-infinity clip does not raise it.
        """
        c, unit, d = self.clip_norm, 1 / self.scale, self.padded_dimension
        root = math.sqrt(d)
        spread = math.sqrt(-2 * math.log(self.alpha))
        added = d / 4 * unit * unit + spread * (c * unit + root / 2 * unit * unit)
        return min(math.sqrt(c * c + added), c + root * unit)

    @property
    def linf_bound(self) -> int:
        """C_inf, bound of each coordinate before and after rounding, in units of 1/s.

        It is `ceil(2 s C log(d) / sqrt(d))`: an integer, so rounding stays in [-C_inf, C_inf].
        """
        return math.ceil(self._linf_norm)

    @property
    def _linf_norm(self) -> float:
        d = self.padded_dimension
        return 2 * self.scale * self.clip_norm * math.log(d) / math.sqrt(d)

    def modulus(self, clients_per_round: int) -> int:
        """M = 2 C_inf m + 1 for sums of at most `clients_per_round` updates.

        The sum of m vectors within [-C_inf, C_inf] is within [-m C_inf, m C_inf], which contains M
        integers. So with the L-infinity clip no sum ever wraps around. Each client sends its
        vector shifted by C_inf, so the server subtracts m C_inf from the sum.
        """
        _validate.integer('clients_per_round', clients_per_round, minimum=1)
        return 2 * self.linf_bound * clients_per_round + 1

    def bits_per_parameter(self, clients_per_round: int) -> int:
        """Bits of one parameter of the sum: ceil(log2 M)."""
        return (self.modulus(clients_per_round) - 1).bit_length()

    def clip_probability(self) -> float:
        """Upper bound on the probability that the L-infinity clip changes one client's update.

        Each coordinate of the rotated update y is a sum of independent signs times x_i / sqrt(d):
        sub-Gaussian with sigma^2 = |x|^2 / d <= (s C)^2 / d ([Xu23], section 2.4), for any
        update that does not depend on the signs. By a union bound over d coordinates,
        `P(some |y_j| > C_inf) <= 2 d exp(-C_inf^2 d / (2 s^2 C^2))`.
        """
        ratio = self.linf_bound / (self.scale * self.clip_norm)
        exponent = ratio * ratio * self.padded_dimension / 2
        log_bound = math.log(2 * self.padded_dimension) - exponent
        # A relative error of the exponent is an absolute one of the logarithm. Never rounded to 0.
        slack = 1e-14 * (100 + abs(log_bound))
        return min(1.0, math.nextafter(math.exp(min(log_bound + slack, 0.0)), math.inf))
