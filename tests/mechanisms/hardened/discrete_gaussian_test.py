"""The sampler against integers of any length, its parts one by one, and against theory.

Its keystreams against the published vectors of the cipher; error bounds of exp(-x) against 100
digits.
"""

import fractions
import itertools

import mpmath
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from dpfl.mechanisms.hardened import discrete_gaussian
from dpfl.mechanisms.hardened.discrete_gaussian import TABLE_BITS, DiscreteGaussian


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(400):
        yield


def _exact(x: fractions.Fraction):
    return mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator)


def test_in_float64_it_keeps_its_bound():
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [
            [0.0, 2.0**-40, 1.0, discrete_gaussian.MOST_EXPONENT],
            rng.uniform(0, discrete_gaussian.MOST_EXPONENT, 1000),
        ]
    )
    found = discrete_gaussian.negative_exp(x)
    errors = [
        abs(mpmath.mpf(value) / _exact(fractions.Fraction(at)) - 1)
        for value, at in zip(found.tolist(), x.tolist(), strict=True)
    ]
    assert max(errors) <= discrete_gaussian.ERROR
    assert max(errors) > discrete_gaussian.ERROR / 2**12  # Not a bound of anything else.


_ARGUMENTS = [
    fractions.Fraction(0),
    fractions.Fraction(1, 10**30),
    fractions.Fraction(1, 3),
    fractions.Fraction(355, 113),
    fractions.Fraction(2**80 + 1, 2**75),
    fractions.Fraction(499),
    fractions.Fraction(10**6),
]


def test_in_integers_it_is_enclosed():
    rng = np.random.default_rng(1)
    cases = list(itertools.product(_ARGUMENTS, [1, 8, 62, 126, 700]))
    for _ in range(200):
        x = fractions.Fraction(int(rng.integers(0, 2**62)), int(rng.integers(2**52, 2**62)))
        cases.append((x, int(rng.integers(1, 300))))
    for x, bits in cases:
        lower, upper = discrete_gaussian.negative_exp_bounds(x, bits)
        assert 0 <= lower < upper <= lower + 2
        assert lower <= _exact(x) * 2**bits <= upper


_ROOT_KEY = bytes(range(32))


def test_the_cipher_gives_the_published_vectors():
    """NIST SP 800-38A, F.5.5: CTR-AES256.Encrypt."""
    key = bytes.fromhex('603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4')
    counter = bytes.fromhex('f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff')
    plain = bytes.fromhex(
        '6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51'
        '30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710'
    )
    expected = bytes.fromhex(
        '601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5'
        '2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6'
    )
    assert Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor().update(plain) == expected


def test_words_are_encrypted_counters():
    """FIPS 197, SP 800-38A: word pairs are the encryption of block number and counter."""
    words = discrete_gaussian.Keystream(_ROOT_KEY, 5).words(6)
    blocks = Cipher(algorithms.AES(_ROOT_KEY), modes.ECB()).encryptor()
    expected = b''.join(
        blocks.update((5 << 64 | counter).to_bytes(16, 'big')) for counter in range(3)
    )
    assert words.tobytes() == expected
    assert words.dtype == np.uint64


def test_a_stream_goes_on_where_the_last_request_ended():
    whole = discrete_gaussian.Keystream(_ROOT_KEY, 3).words(200_003)
    parts = discrete_gaussian.Keystream(_ROOT_KEY, 3)
    sizes = (1, 7, 131_072, 0, 2)
    np.testing.assert_array_equal(
        np.concatenate([parts.words(size) for size in sizes]), whole[: sum(sizes)]
    )


def test_blocks_and_keys_have_streams_of_their_own():
    streams = [
        discrete_gaussian.Keystream(key, block).words(64).tobytes()
        for key in (
            _ROOT_KEY,
            discrete_gaussian.derive_key(_ROOT_KEY, 'round 0'),
            discrete_gaussian.seeded_key(0),
        )
        for block in range(3)
    ]
    assert len(set(streams)) == 9


def test_derived_keys_are_hmacs():
    """RFC 4231, test case 2."""
    assert discrete_gaussian.derive_key(b'Jefe', 'what do ya want for nothing?').hex() == (
        '5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843'
    )


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
        self._left = list(words)

    def words(self, size):
        taken, self._left = self._left[:size], self._left[size:]
        assert len(taken) == size
        return np.array(taken, np.uint64)


def _rho(sampler, k: int):
    return mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * mpmath.mpf(sampler.stddev) ** 2))


@pytest.fixture(name='sampler', params=_SAMPLERS.values(), ids=_SAMPLERS)
def _sampler(request):
    return request.param


def test_weights_are_an_envelope_and_add_up(sampler):
    weights = [int(weight) for weight in sampler._weights]
    assert sum(weights) == 2**64
    width = 2**sampler._low_bits
    for j in (0, 1, 2, 7, sampler._strips // 2, sampler._strips - 1):
        assert weights[j] >= sampler._scale * _rho(sampler, j * width)
    # Each strip of the tail: twice its part of the weight is reached by the first one only.
    many = 2**sampler._tail_bits // width
    for g in range(30):
        first = sampler._strips * width + g * 2**sampler._tail_bits
        assert weights[sampler._strips] >= (
            sampler._scale * many * 2 ** (g + 1) * _rho(sampler, first)
        )
    assert weights[sampler._strips + 1] < 2**64 * 1e-9  # Hardly ever rejected for nothing.


def test_every_weight_of_a_table_is_above_its_strip():
    sampler = _SAMPLERS['strips of four']
    with mpmath.workdps(40):
        for j in range(0, sampler._strips, 5):
            least = sampler._scale * _rho(sampler, j << sampler._low_bits)
            assert least <= int(sampler._weights[j]) <= least * (1 + mpmath.mpf(2) ** -30) + 2


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


def test_quick_acceptance_is_never_wrong(sampler):
    width, bits = 2**sampler._low_bits, sampler._accept_bits
    for j in [*range(0, sampler._strips, 97), sampler._strips - 1]:
        least = sampler._scale * _rho(sampler, (j + 1) * width - 1) / int(sampler._weights[j])
        assert int(sampler._quick[j]) <= least * 2**bits
    assert not sampler._quick[sampler._strips :].any()


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
                asked += len(words) - len(stream._left)
    assert asked > 100  # So further bits were needed, and were taken from the stream.


@pytest.mark.parametrize('name', ['strips of four', 'production'])
def test_comparisons_in_float64_agree_with_integers(name):
    """Proposals made up around the acceptance."""
    sampler, rng = _SAMPLERS[name], np.random.default_rng(4)
    k = np.abs(rng.normal(size=3000) * sampler.stddev).astype(np.int64)
    strip = k >> sampler._low_bits
    weight = sampler._weights[strip].astype(np.float64)
    x = sampler._exponent(k.astype(np.float64))
    ratio = discrete_gaussian.negative_exp(x) * float(sampler._scale) / weight
    uniform = (
        np.minimum(ratio * (1 + rng.choice([-1, 1], 3000) * 2.0 ** rng.uniform(-36, -10, 3000)), 1)
        * 2.0**sampler._accept_bits
    )
    uniform = np.minimum(uniform, 2.0**sampler._accept_bits - 2**11).astype(np.uint64)
    found = sampler._compare(
        k,
        np.arange(3000),
        strip,
        uniform,
        np.zeros(3000, np.int64),
        discrete_gaussian.Keystream(_KEY, 0),
    )
    certain = 0
    for i in range(3000):
        exact = sampler._scale * _rho(sampler, int(k[i])) / int(weight[i])
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


@pytest.mark.parametrize(
    'stddev, strips',
    [
        (0.3, 4094),
        (2.5, 4094),
        pytest.param(2.5, 7, marks=pytest.mark.standard),
        pytest.param(40.0, 90, marks=pytest.mark.standard),
    ],
)
def test_probabilities_of_small_deviations(stddev, strips):
    """Chi-square with a fixed seed, against sums of 300 digits; with and without a tail."""
    # What comes from the tail takes integers in Python.
    sampler, size = DiscreteGaussian(stddev, strips), 400_000 if strips == 4094 else 30_000
    reach = int(12 * stddev) + 3
    support = range(-reach, reach + 1)
    with mpmath.workdps(30):
        total = sum(_rho(sampler, k) for k in support)
        expected = np.array([float(_rho(sampler, k) / total) for k in support]) * size
    drawn = sampler.draw(discrete_gaussian.Keystream(_KEY, 1), size)
    counts = np.bincount(drawn + reach, minlength=len(support))
    assert counts.sum() == size
    often = expected >= 5
    rest = [counts[~often].sum()], [expected[~often].sum()]
    statistic = ((counts - expected)[often] ** 2 / expected[often]).sum()
    assert 1e-4 < stats.chi2(often.sum() - 1).sf(statistic) < 1 - 1e-4
    assert rest[0][0] <= rest[1][0] + 6 * np.sqrt(rest[1][0]) + 3
    # The same must notice a deviation that is a little too large.
    other = stddev * (1.02 if size == 400_000 else 1.08)
    wrong = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * other**2))
    wrong *= size / wrong.sum()
    statistic = ((counts - wrong)[often] ** 2 / wrong[often]).sum()
    assert stats.chi2(often.sum() - 1).sf(statistic) < 1e-4


@pytest.mark.parametrize(
    'name',
    [
        'strips of four',
        'production',
        pytest.param('odd', marks=pytest.mark.standard),
        pytest.param('tail', marks=pytest.mark.standard),
        pytest.param('tail of strips', marks=pytest.mark.standard),
    ],
)
def test_moments_and_distribution_of_wide_ones(name):
    sampler, size = _SAMPLERS[name], 60_000 if 'tail' in name else 300_000
    drawn = sampler.draw(discrete_gaussian.Keystream(_KEY, 2), size)
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


def test_zero_does_not_count_twice():
    sampler = DiscreteGaussian(0.3)
    place = np.uint64(1) << np.uint64(sampler._low_bits)  # A minus, all else zero.
    choice = np.uint64(0)  # The column of strip 0, whose own part is not empty.
    assert sampler._threshold[0] > 0
    for minus, expected in ((0, 0), (1, 1)):
        words = np.array([choice, place * np.uint64(minus)], np.uint64)
        values, rejected = sampler._propose(words, discrete_gaussian.Keystream(_KEY, 0))
        assert values[0] == 0
        assert rejected.size == expected


def test_the_known_answer_stays():
    """The first variables of key and block 0: another version must give the same bits."""
    drawn = _SAMPLERS['production'].draw(discrete_gaussian.Keystream(bytes(32), 0), 4)
    assert drawn.tolist() == [-585143199694, 570488606215, -952576991346, -599398916817]
