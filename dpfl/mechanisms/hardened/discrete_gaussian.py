"""Exact sampler of discrete Gaussian variables, and the keystream that it draws from.

Words come from AES-256 in counter mode (NIST SP 800-38A, section 6.5).

N_Z(0, sigma^2) gives an integer k the probability rho(k) / sum_i rho(i), with
rho(k) = exp(-k^2 / (2 sigma^2)) ([Canonne20], definition 1). This is a rejection sampler. Every
probability in it is a ratio of integers, except the acceptance probability. That one is compared
with a uniform variable, whose bits are drawn until the comparison is decided. So nothing is
rounded.

- |k| falls into a strip [j h, (j + 1) h) of h = 2^m integers with probability w_j / 2^64, where
  the integers w_j are at least S rho(j h) for an integer S. An alias table ([Walker77], [Vose91])
  of integers that add up to 2^64 draws the strip from one 64-bit word.
- From a second word, m bits give the place in the strip and one bit the sign. The remaining bits
  are the first bits of the uniform variable U.
- k is accepted if U < S rho(k) / w_j, which is at most 1. So the probability of each k is
  proportional to w_j / h * S rho(k) / w_j, that is, to rho(k). Minus zero is rejected, because
  zero would count twice.
- The tail beyond the strips, at 7.9 sigma, is one more entry of the table. It consists of strips
  of H integers; strip g is drawn with probability 2^-(g + 1), and k is accepted in the same way.
  Another entry stands for the rest of 2^64, which is rejected.

Few proposals need a comparison: the least acceptance probability of each strip is tabulated,
rounded down. The others are compared in float64 with a proven error bound. Those within the bound,
about one in 2^30, are compared in integers of growing length.
"""

import fractions
import hashlib
import hmac
import math
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpfl import _validate, errors

KEY_BYTES = 32
_ZEROS = np.zeros(1 << 19, np.uint8)
_ROOM = 15  # Extra output bytes that `cryptography` requires: one AES block minus one.
# Bound of the relative error of `negative_exp`.
ERROR = 2.0**-36
# Largest argument of `negative_exp`.
MOST_EXPONENT = 128.0
_HALVINGS = 10
_TERMS = 11
TABLE_BITS = 12
# Range of standard deviations for which two words have enough bits for the uniform variable.
LEAST, LARGEST = 2.0**-10, 2.0**50
# Bound of the relative error of an acceptance in float64: of exp, and of a few roundings.
_MARGIN = 2.0**-34


def derive_key(key: bytes, label: str) -> bytes:
    """Key derived from `key` for a purpose: HMAC-SHA256 of the label, [32] bytes."""
    return hmac.new(key, label.encode(), hashlib.sha256).digest()


def seeded_key(seed: int) -> bytes:
    """Root key of a simulation, derived from its seed by SHA-256, [32] bytes."""
    return hashlib.sha256(f'dpfl hardened noise seed {seed}'.encode()).digest()


class Keystream:
    """Pseudorandom words of one block of coordinates.

    Without the key they cannot be told from random bits. The first counter is `block * 2^64`, so
    the streams of different blocks do not overlap, and each can be made without the others. A
    stream is consumed from its beginning. The same requests in the same order give the same words.

    Args:
      key: key of one round, [32] bytes.
      block: index of the block, at least 0 and below 2^64.
    """

    def __init__(self, key: bytes, block: int):
        counter = block.to_bytes(8, 'big') + bytes(8)
        self._encryptor = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()

    def words(self, size: int) -> np.ndarray:
        """The next words, uint64 [size], each uniform and independent of all others."""
        # Encrypting zeros with AES-CTR gives its keystream.
        out = np.empty(8 * size + _ROOM, np.uint8)
        for begin in range(0, 8 * size, _ZEROS.size):
            length = min(8 * size - begin, _ZEROS.size)
            text: Any = _ZEROS[:length]
            room: Any = out[begin : begin + length + _ROOM]
            self._encryptor.update_into(text, room)
        return out[: 8 * size].view('<u8')


def negative_exp(x: np.ndarray) -> np.ndarray:
    """exp(-x) for float64 x within [0, `MOST_EXPONENT`]; relative error at most `ERROR`.

    Only IEEE 754 additions and multiplications are used, so the bound does not depend on a math
    library. Proof: let y = x / 2^10 <= 1/8 (exact). The Taylor polynomial of degree 10 of exp(-y)
    is off by less than y^11 / 11! < 2^-58. Horner's rule adds at most 22 roundings of numbers of
    at most 1 + 1/8. So the relative error is less than 2^-47, for a value of at least 7/8. Squaring
    ten times multiplies it by 2^10 and adds less than 2^10 roundings: in all less than 2^-36.
    """
    y = np.asarray(x, np.float64) * -(2.0**-_HALVINGS)
    value = np.full_like(y, 1.0)
    for i in range(_TERMS - 1, 0, -1):
        value *= y * (1.0 / i)
        value += 1.0
    for _ in range(_HALVINGS):
        value *= value
    return value


def negative_exp_bounds(x: fractions.Fraction, bits: int) -> tuple[int, int]:
    """Integers `lower <= 2^bits exp(-x) <= upper` that differ by at most 2.

    It computes in integers only, in units of 2^-(bits + guard). Let y = x / 2^r <= 1/2. The terms
    of the Taylor series of exp(-y) decrease and alternate in sign, so the truncation error is less
    than the first omitted term. Each term is off by less than 2. Each squaring doubles the error
    and adds at most 2.

    Args:
      x: exponent, at least 0.
      bits: precision, at least 1.
    """
    if x > bits + 2:  # exp(-x) < 2^-bits.
        return 0, 1
    halvings = max(0, math.ceil(x).bit_length() + 1)
    guard = halvings + 2 * bits.bit_length() + 44
    one = 1 << (bits + guard)
    # The floor makes y too small by less than one unit, so exp(-y) too large by less than one.
    y = (x.numerator << (bits + guard)) // (x.denominator << halvings)
    total, term, count = one, one, 0
    while term:
        count += 1
        term = (term * y >> (bits + guard)) // count
        total += -term if count % 2 else term
    # Each term has two floors of its own, and at most a quarter of the error of the term before.
    # The omitted terms are less than 2, and the rounding of y changes exp(-y) by less than 1.
    error = 2 * count + 3
    for _ in range(halvings):
        # (a + e)^2 = a^2 + 2 a e + e^2 with a <= 1 and e < 2^-40, and one more for the floor.
        total = total * total >> (bits + guard)
        error = 2 * error + 2
    return max((total - error) >> guard, 0), -(-(total + error) >> guard)


class DiscreteGaussian:
    """Sampler of N_Z(0, stddev^2), where the float64 standard deviation is an exact number.

    Args:
      stddev: sigma, within 2^-10 .. 2^50.
      strips: number of strips in the table, before the tail.

    Raises:
      ArgumentError: if an argument is out of its range.
    """

    def __init__(self, stddev: float, strips: int = 2**TABLE_BITS - 2):
        self.stddev = _validate.number('stddev', stddev, minimum=LEAST, maximum=LARGEST)
        _validate.integer('strips', strips, minimum=2, maximum=2**TABLE_BITS - 2)
        # One standard deviation has 2^8 to 2^9 strips; if it has fewer integers, one for each.
        self._low_bits = max(0, math.frexp(self.stddev)[1] - 1 - (TABLE_BITS - 4))
        self._tail_bits = self._low_bits + TABLE_BITS - 4
        self._accept_bits = 63 - self._low_bits
        self._strips = strips
        self._doubled_variance = 2 * fractions.Fraction(self.stddev) ** 2
        width = 2.0**self._low_bits
        # Each strip of the tail must weigh at most half of the one before.
        if strips * width < 2 * self.stddev:
            raise errors.ArgumentError('strips', strips, 'must reach 2 standard deviations')
        first = np.arange(strips + 1) * width
        self._scale, self._weights = self._envelope(first)
        self._threshold, self._alias = _alias_table(self._weights)
        self._quick = self._surely_accepted(first[:-1] + (width - 1))

    def draw(self, stream: Keystream, size: int) -> np.ndarray:
        """Draws independent variables, int64 [size], from the next words of a stream."""
        values, rejected = self._propose(stream.words(2 * size), stream)
        while rejected.size:
            again, still = self._propose(stream.words(2 * rejected.size), stream)
            values[rejected] = again
            rejected = rejected[still]
        return values

    def _envelope(self, first: np.ndarray) -> tuple[int, np.ndarray]:
        """S, and the weights of strips, tail and rejection, which add up to 2^64, [table]."""
        upper = negative_exp(self._exponent(first)) * (1 + 2 * ERROR)
        # A strip of the tail has 2^(tail bits) integers, and the first strip is half the tail.
        upper[-1] *= 2.0 ** (self._tail_bits - self._low_bits + 1)
        # Leaves room for rounding up each weight, and for the roundings of this sum.
        scale = int((2.0**64 - 2.0**20) / upper.sum() * (1 - 2.0**-40))
        weights = [int(float(scale) * bound * (1 + 2.0**-50)) + 1 for bound in upper.tolist()]
        weights += [2**64 - sum(weights)]
        weights += [0] * (2**TABLE_BITS - len(weights))
        return scale, np.array(weights, np.uint64)

    def _exponent(self, k: np.ndarray) -> np.ndarray:
        """k^2 / (2 sigma^2), at most `MOST_EXPONENT`; relative error at most 3 * 2^-53."""
        return np.minimum(k * k / (2 * self.stddev * self.stddev), MOST_EXPONENT)

    def _surely_accepted(self, last: np.ndarray) -> np.ndarray:
        """First bits of U below which a whole strip is accepted, uint64 [table]; 0 for none.

        It is 0 where the exponent is cut off, because the acceptance would be too large.
        """
        exponent = self._exponent(last)
        ratio = negative_exp(exponent) * (
            float(self._scale) / self._weights[: last.size].astype(np.float64)
        )
        quick = np.zeros(self._weights.size, np.uint64)
        is_right = exponent < MOST_EXPONENT
        bound = np.floor(ratio * (1 - _MARGIN) * 2.0**self._accept_bits)
        quick[: last.size] = np.where(is_right, bound, 0.0).astype(np.uint64)
        return quick

    def _propose(self, words: np.ndarray, stream: Keystream) -> tuple[np.ndarray, np.ndarray]:
        """Proposed values, int64 [words / 2], and the indices of the rejected ones."""
        choice, place = words.reshape(2, -1)
        strip = (choice >> np.uint64(64 - TABLE_BITS)).view(np.int64)
        choice = choice & np.uint64(2 ** (64 - TABLE_BITS) - 1)
        is_alias = choice >= np.take(self._threshold, strip, mode='clip')
        np.copyto(strip, np.take(self._alias, strip, mode='clip'), where=is_alias)
        values = place & np.uint64(2**self._low_bits - 1)
        values = values.view(np.int64)
        values += strip << self._low_bits
        uniform = place >> np.uint64(self._low_bits + 1)
        is_open = uniform >= np.take(self._quick, strip, mode='clip')
        is_open |= values == 0
        minus = (place >> np.uint64(self._low_bits)).view(np.int64)
        minus &= 1
        rejected = np.zeros(0, np.int64)
        indices = np.flatnonzero(is_open)
        if indices.size:
            accepted = self._compare(values, indices, strip, uniform, minus, stream)
            rejected = indices[~accepted]
        # -k in two's complement.
        np.negative(minus, out=minus)
        values ^= minus
        values -= minus
        return values, np.asarray(rejected, np.int64)

    def _compare(
        self,
        values: np.ndarray,
        indices: np.ndarray,
        strip: np.ndarray,
        uniform: np.ndarray,
        minus: np.ndarray,
        stream: Keystream,
    ) -> np.ndarray:
        """Which proposals are accepted, bool [indices]; writes the values of the tail."""
        k, strip, uniform = values[indices], strip[indices], uniform[indices]
        exponent = self._exponent(k.astype(np.float64))
        weight = self._weights[strip].astype(np.float64)
        ratio = negative_exp(exponent) * (float(self._scale) / weight)
        below = uniform.astype(np.float64) * 2.0**-self._accept_bits
        above = (uniform.astype(np.float64) + 1) * 2.0**-self._accept_bits
        accepted = above <= ratio * (1 - _MARGIN)
        refused = below >= ratio * (1 + _MARGIN)
        unclear = ~accepted & ~refused | (exponent >= MOST_EXPONENT)
        unclear |= strip >= self._strips
        for i in np.flatnonzero(unclear):
            if strip[i] > self._strips:  # The entry for the rest of 2^64.
                accepted[i] = False
                continue
            scale = self._scale
            if strip[i] == self._strips:
                values[indices[i]], scale = self._tail(stream)
            accepted[i] = self.accepts(
                int(values[indices[i]]),
                scale,
                int(self._weights[strip[i]]),
                int(uniform[i]),
                stream,
            )
        # Minus zero would count zero twice.
        return accepted & ~((values[indices] == 0) & (minus[indices] == 1))

    def _tail(self, stream: Keystream) -> tuple[int, int]:
        """A value in strip g of the tail, and S 2^(g + 1) H / h, which replaces S for it."""
        number = 0  # Of ones before the first zero in the stream's bits.
        while (zeros := int(stream.words(1)[0]) ^ (2**64 - 1)) == 0:
            number += 64
        number += 64 - zeros.bit_length()
        offset = int(stream.words(1)[0]) & (2**self._tail_bits - 1)
        k = (self._strips << self._low_bits) + (number << self._tail_bits) + offset
        return k, self._scale << (self._tail_bits - self._low_bits + number + 1)

    def accepts(self, k: int, scale: int, weight: int, uniform: int, stream: Keystream) -> bool:
        """Whether U < scale rho(k) / weight, drawing further bits of U until that is certain.

        Args:
          k: the proposal.
          scale: positive integer.
          weight: positive integer.
          uniform: the first `63 - low bits` bits of U.
          stream: source of further bits of U.
        """
        exponent = k * k / self._doubled_variance
        bits = self._accept_bits
        while True:
            lower, upper = negative_exp_bounds(exponent, 2 * bits)
            # U is within [uniform, uniform + 1] / 2^bits.
            if (uniform + 1) * weight << bits <= scale * lower:
                return True
            if uniform * weight << bits >= scale * upper:
                return False
            uniform = uniform << 64 | int(stream.words(1)[0])
            bits += 64


def _alias_table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Exact alias table ([Vose91]): thresholds, uint64 [n], and other outcomes, int64 [n].

    A column is chosen uniformly. Its own outcome is taken if a uniform integer below 2^64 / n is
    below the threshold, else its other outcome. In all, outcome i has the weight weights[i].
    """
    capacity = 2**64 // weights.size
    left = [int(weight) for weight in weights]
    threshold, alias = [capacity] * len(left), list(range(len(left)))
    small = [i for i, weight in enumerate(left) if weight < capacity]
    large = [i for i, weight in enumerate(left) if weight > capacity]
    while small:
        column, giver = small.pop(), large[-1]
        threshold[column], alias[column] = left[column], giver
        left[giver] -= capacity - left[column]
        if left[giver] <= capacity:
            large.pop()
            if left[giver] < capacity:
                small.append(giver)
    return np.array(threshold, np.uint64), np.array(alias, np.int64)
