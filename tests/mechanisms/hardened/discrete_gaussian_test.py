"""The sampler against integers of any length, its parts one by one, and against theory.

Its keystreams against the cipher itself; error bounds of exp(-x) against 400 digits.
"""

import fractions
import itertools

import mpmath
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from dpfl.mechanisms.hardened import discrete_gaussian
from dpfl.mechanisms.hardened.discrete_gaussian import TABLE_BITS, DiscreteGaussian, Keystream
from tests.sizes import standard


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(400):
        yield


def _exact(x: fractions.Fraction):
    return mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator)


def test_exponentials_in_float64_keep_their_bound():
    most = discrete_gaussian.MOST_EXPONENT
    x = np.append([0.0, 2.0**-40, 1.0, most], np.random.default_rng(0).uniform(0, most, 1000))
    errors = [
        abs(mpmath.mpf(value) / _exact(fractions.Fraction(at)) - 1)
        for value, at in zip(discrete_gaussian.negative_exp(x).tolist(), x.tolist(), strict=True)
    ]
    # Nor is it a bound of anything else.
    assert discrete_gaussian.ERROR / 2**12 < max(errors) <= discrete_gaussian.ERROR


def test_exponentials_in_integers_are_enclosed():
    rng = np.random.default_rng(1)
    pairs = [(0, 1), (1, 10**30), (1, 3), (355, 113), (2**80 + 1, 2**75), (499, 1), (10**6, 1)]
    cases = [*itertools.product(pairs, [1, 8, 62, 126, 700])]
    for _ in range(200):
        pair = int(rng.integers(0, 2**62)), int(rng.integers(2**52, 2**62))
        cases.append((pair, int(rng.integers(1, 300))))
    for pair, bits in cases:
        x = fractions.Fraction(*pair)
        lower, upper = discrete_gaussian.negative_exp_bounds(x, bits)
        assert 0 <= lower < upper <= lower + 2
        assert lower <= _exact(x) * 2**bits <= upper


def test_words_are_encrypted_counters_over_all_requests():
    """FIPS 197, SP 800-38A: word pairs are the encryption of block number and counter."""
    key, sizes = bytes(range(32)), (1, 7, 131_072, 0, 2)
    counters = b''.join((5 << 64 | count).to_bytes(16, 'big') for count in range(sum(sizes) // 2))
    expected = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(counters)
    stream = Keystream(key, 5)
    words = np.concatenate([stream.words(size) for size in sizes])
    assert words.dtype == np.uint64 and words.tobytes() == expected


def test_derived_keys_are_hmacs():
    """RFC 4231, test case 2."""
    assert discrete_gaussian.derive_key(b'Jefe', 'what do ya want for nothing?').hex() == (
        '5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843'
    )
    assert discrete_gaussian.seeded_key(0) != discrete_gaussian.seeded_key(1)


_KEY = discrete_gaussian.seeded_key(1)
# From a table of single integers to strips of 2^34; strips that leave something to the tail.
_SAMPLERS = {
    'tiny': DiscreteGaussian(0.3),
    'small': DiscreteGaussian(3.7),
    'one strip for each integer': DiscreteGaussian(300.0),
    'strips of four': DiscreteGaussian(1500.25),
    'production': DiscreteGaussian(2.0**40),
    'odd': DiscreteGaussian(2.0**40 / 0.7),
    'large': DiscreteGaussian(2.0**42 * 1.1),
    'tail': DiscreteGaussian(300.0, strips=700),
    'tail of strips': DiscreteGaussian(2.0**40, strips=520),
}


class _Words:
    """A stream of given words."""

    def __init__(self, *words):
        self.left = list(words)

    def words(self, size):
        taken, self.left = self.left[:size], self.left[size:]
        assert len(taken) == size
        return np.array(taken, np.uint64)


def _rho(sampler, k: int):
    return mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * mpmath.mpf(sampler.stddev) ** 2))


@pytest.fixture(name='sampler', params=_SAMPLERS.values(), ids=_SAMPLERS)
def _sampler(request):
    return request.param


def test_strips_weigh_at_least_their_share_and_are_accepted_quickly_only_if_always(sampler):
    weights, width = [int(weight) for weight in sampler._weights], 2**sampler._low_bits
    assert sum(weights) == 2**64
    for j in {0, 1, 2, 7, *range(0, sampler._strips, 31), sampler._strips - 1}:
        with mpmath.workdps(40):
            least = sampler._scale * _rho(sampler, j * width)
            assert least <= weights[j]
            if (j * width / sampler.stddev) ** 2 < 2 * discrete_gaussian.MOST_EXPONENT:
                assert weights[j] <= least * (1 + mpmath.mpf(2) ** -30) + 2
            always = sampler._scale * _rho(sampler, (j + 1) * width - 1) / weights[j]
            assert int(sampler._quick[j]) <= always * 2**sampler._accept_bits
    assert not sampler._quick[sampler._strips :].any()
    # Each strip of the tail: twice its part of the weight is reached by the first one only.
    many = 2**sampler._tail_bits // width
    for g in range(30):
        first = sampler._strips * width + g * 2**sampler._tail_bits
        least = sampler._scale * many * 2 ** (g + 1) * _rho(sampler, first)
        assert weights[sampler._strips] >= least
    assert weights[sampler._strips + 1] < 2**64 * 1e-9  # Hardly ever rejected for nothing.


def test_the_alias_table_is_exact(sampler):
    capacity = 2 ** (64 - TABLE_BITS)
    mass = [0] * 2**TABLE_BITS
    for column, (threshold, alias) in enumerate(
        zip(sampler._threshold.tolist(), sampler._alias.tolist(), strict=True)
    ):
        assert 0 <= threshold <= capacity
        mass[column] += threshold
        mass[alias] += capacity - threshold
    assert mass == sampler._weights.tolist()


@pytest.mark.parametrize('name', ['small', 'strips of four', 'production', 'odd'])
def test_decisions_next_to_the_acceptance_are_right(name):
    """Bits of U around S rho(k) / w, closer than float64 tells apart: the ambiguous band."""
    sampler, rng = _SAMPLERS[name], np.random.default_rng(3)
    bits = sampler._accept_bits
    asked = 0
    for _ in range(60):
        k = int(abs(rng.normal()) * sampler.stddev)
        weight = int(sampler._weights[k >> sampler._low_bits])
        ratio = sampler._scale * _rho(sampler, k) / weight
        assert ratio <= 1
        for more in (0, 64, 256):  # How many further bits agree with the acceptance.
            digits = int(mpmath.floor(ratio * mpmath.mpf(2) ** (bits + more + 64)))
            for off in (-1, 1):
                u = digits + off * 2**64 if more else digits + off * (2**64 + 1)
                if not 0 <= u < 2 ** (bits + more + 64):
                    continue
                words = [u >> shift & (2**64 - 1) for shift in range(more, -1, -64)]
                stream = _Words(*words)
                found = sampler.accepts(k, sampler._scale, weight, u >> (more + 64), stream)
                assert found == (u + 1 <= ratio * mpmath.mpf(2) ** (bits + more + 64))
                asked += len(words) - len(stream.left)
    assert asked > 100  # So further bits were needed, and were taken from the stream.


@pytest.mark.parametrize('name', ['strips of four', 'production'])
def test_comparisons_in_float64_agree_with_integers(name):
    """Proposals made up around the acceptance."""
    sampler, rng, size = _SAMPLERS[name], np.random.default_rng(4), 3000
    k = np.abs(rng.normal(size=size) * sampler.stddev).astype(np.int64)
    strip, most = k >> sampler._low_bits, 2.0**sampler._accept_bits
    ratio = discrete_gaussian.negative_exp(sampler._exponent(k.astype(np.float64)))
    ratio *= float(sampler._scale) / sampler._weights[strip].astype(np.float64)
    ratio *= 1 + rng.choice([-1, 1], size) * 2.0 ** rng.uniform(-36, -10, size)
    uniform = np.minimum(np.minimum(ratio, 1) * most, most - 2**11).astype(np.uint64)
    stream, minus = Keystream(_KEY, 0), np.zeros(size, np.int64)
    found = sampler._compare(k, np.arange(size), strip, uniform, minus, stream)
    certain = 0
    for i in range(size):
        exact = sampler._scale * _rho(sampler, int(k[i])) / int(sampler._weights[strip[i]])
        below = (int(uniform[i]) + 1) <= exact * 2**sampler._accept_bits
        above = int(uniform[i]) >= exact * 2**sampler._accept_bits
        assert not (below and not found[i])
        assert not (above and found[i])
        certain += below or above
    assert certain > 2000


def test_the_tail_begins_where_the_strips_end():
    sampler = _SAMPLERS['tail of strips']
    ones = 2**64 - 1
    edge, width = sampler._strips << sampler._low_bits, 2**sampler._tail_bits
    assert sampler._tail(_Words(0, 0)) == (edge, sampler._scale * width >> sampler._low_bits - 1)
    k, scale = sampler._tail(_Words(ones, 7 << 61, 5))
    assert k == edge + 67 * width + 5
    assert scale == sampler._scale << (sampler._tail_bits - sampler._low_bits + 68)
    assert sampler._tail(_Words(0, ones))[0] == edge + width - 1


def test_zero_does_not_count_twice():
    sampler = DiscreteGaussian(0.3)
    place = np.uint64(1) << np.uint64(sampler._low_bits)  # A minus, all else zero.
    choice = np.uint64(0)  # The column of strip 0, whose own part is not empty.
    assert sampler._threshold[0] > 0
    for minus, expected in ((0, 0), (1, 1)):
        words = np.array([choice, place * np.uint64(minus)], np.uint64)
        values, rejected = sampler._propose(words, Keystream(_KEY, 0))
        assert values[0] == 0
        assert rejected.size == expected


@pytest.mark.parametrize('stddev, strips', [(0.3, 4094), (2.5, 4094), standard(2.5, 7)])
def test_probabilities_of_small_deviations(stddev, strips):
    """Chi-square with a fixed seed, with and without a tail."""
    # What comes from the tail takes integers in Python.
    sampler, size = DiscreteGaussian(stddev, strips), 400_000 if strips == 4094 else 30_000
    reach = int(12 * stddev) + 3
    drawn = sampler.draw(Keystream(_KEY, 1), size)
    counts = np.bincount(drawn + reach, minlength=2 * reach + 1)

    def p_value(deviation):
        weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * deviation**2))
        expected = weights * (size / weights.sum())
        often = expected >= 5
        rest = expected[~often].sum()
        assert counts[~often].sum() <= rest + 6 * np.sqrt(rest) + 3
        statistic = ((counts - expected)[often] ** 2 / expected[often]).sum()
        return stats.chi2(often.sum() - 1).sf(statistic)

    assert 1e-4 < p_value(stddev) < 1 - 1e-4
    # The same must notice a deviation that is a little too large.
    assert p_value(stddev * (1.02 if size == 400_000 else 1.08)) < 1e-4


@pytest.mark.parametrize(
    'name',
    ['strips of four', 'production', standard('tail of strips')],
)
def test_moments_and_distribution_of_wide_ones(name):
    sampler, size = _SAMPLERS[name], 60_000 if 'tail' in name else 300_000
    drawn = sampler.draw(Keystream(_KEY, 2), size)
    unit = drawn / sampler.stddev
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)):
        deviation = ((unit**power).mean() - moment) / np.sqrt(variance / size)
        assert abs(deviation) < 4.5, power
    assert stats.kstest(unit, 'norm').pvalue > 1e-3
    assert 3.7 < np.abs(unit).max() < 7
    # Every low bit is as often 1 as 0, and that of negative and of positive ones.
    if sampler.stddev > 1e6:
        for bit in range(40):
            assert abs((drawn >> bit & 1).mean() - 0.5) < 4.5 * 0.5 / np.sqrt(size), bit


def test_the_known_answer_stays():
    """The first variables of key and block 0: another version must give the same bits."""
    drawn = _SAMPLERS['production'].draw(Keystream(bytes(32), 0), 4)
    assert drawn.tolist() == [-585143199694, 570488606215, -952576991346, -599398916817]
