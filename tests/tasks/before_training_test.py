"""Words that are found privately: results, and privacy profiles by brute force."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dpfl.accounting.losses.dominating_pairs import Neighbours
from dpfl.tasks import before_training
from dpfl.tasks.before_training import WordCounts, WordRelease


def _profile(p, q, epsilon):
    """The privacy profile of two distributions of outcomes."""
    return np.maximum(p - math.exp(epsilon) * q, 0).sum()


def _gaussian_profile(mu, epsilon):
    normal = stats.norm.cdf
    return normal(mu / 2 - epsilon / mu) - math.exp(epsilon) * normal(-mu / 2 - epsilon / mu)


class _Noise:
    """A generator whose normal numbers are given, one list for each round."""

    def __init__(self, *rounds):
        self._rounds = list(rounds)

    def standard_normal(self, size):
        found = np.array(self._rounds.pop(0), float)
        assert found.size == size
        return found


def _of(*clients):
    return WordCounts.of([dict(client) for client in clients], seed=0)


def _sums(counts, is_new=None, most=10):
    is_new = np.ones(len(counts.words), bool) if is_new is None else is_new
    sums, used = counts.weights(is_new, most)
    return {word: sums[i] for i, word in enumerate(counts.words) if used[i]}


def test_weights_of_a_client_have_norm_one():
    found = _sums(_of({'a': 3, 'b': 1}, {}, {'a': 1}, {'a': 1, 'b': 1, 'c': 9, 'd': 2}), most=3)
    half, third = 1 / math.sqrt(2), 1 / math.sqrt(3)
    # The last client has four words and may choose three: c, d, and one of a and b.
    assert found['c'] == found['d'] == pytest.approx(third)
    both = sorted([found['a'] - half - 1, found['b'] - half])
    assert both == pytest.approx([0, third], abs=1e-12)
    # Words that were found leave their weight to others.
    counts = _of({'a': 3, 'b': 1}, {'a': 5})
    assert _sums(counts, np.array([word != 'a' for word in counts.words])) == {'b': 1.0}


def test_a_client_chooses_without_looking_at_others():
    rng = np.random.default_rng(3)
    words = [f'w{i}' for i in range(40)]

    def client():
        return {word: int(rng.integers(1, 4)) for word in rng.choice(words, 12, replace=False)}

    clients = [client() for _ in range(30)]
    everyone = _sums(_of(*clients), most=5)
    for gone in (0, 11, 29):
        less = _sums(_of(*clients[:gone], {}, *clients[gone + 1 :]), most=5)
        change = [everyone.get(word, 0) - less.get(word, 0) for word in words]
        change = [each for each in change if abs(each) > 1e-9]
        assert change == pytest.approx([1 / math.sqrt(5)] * 5)


def test_frequent_words_come_first_and_ties_are_random():
    client = {f'w{i:02}': 1 for i in range(50)}
    found = _sums(WordCounts.of([client | {'often': 2}] * 40, seed=1), most=1)
    assert found == {'often': 40}
    assert len(_sums(WordCounts.of([client] * 40, seed=1), most=1)) > 20


def test_rounds_by_hand():
    release = WordRelease((2.0, 1.0), (3.0, 1.5), 2, 1e-3)
    counts = _of({'a': 2, 'b': 1}, {'a': 2, 'b': 1}, {'a': 1, 'c': 1}, {'c': 1})
    assert sorted(counts.words) == ['a', 'b', 'c']
    order = [counts.words.index(word) for word in 'abc']
    # Sums: a = 3/sqrt(2) = 2.12, b = 1.41, c = 1.71. Noise of 0.5 and 0.7 finds a alone.
    first = np.empty(3)
    first[order] = [0.5, 0.7, 0.5]
    # Then b = 2 and c = 2 with noise of -0.6 and -0.2: c has 1.8, b has 1.4 and is not found.
    place = [i for i in range(3) if counts.words[i] != 'a']
    second = [{'b': -0.6, 'c': -0.2}[counts.words[i]] for i in place]
    assert release.find(counts, _Noise(first, second)) == ['a', 'c']
    # In one round the largest noised sum is first.
    assert WordRelease((1.0,), (1.0,), 2, 1e-3).find(counts, _Noise(np.zeros(3))) == ['a', 'c', 'b']


@pytest.mark.parametrize('stddev, words, delta', [(5.0, 1, 1e-6), (0.3, 4, 0.1), (20.0, 300, 1e-9)])
def test_the_threshold_hides_words_of_one_client(stddev, words, delta):
    found = before_training.threshold(stddev, words, delta)
    n = np.arange(1, words + 1)
    hidden = stats.norm.logcdf((found - 1 / np.sqrt(n)) / stddev)
    shown = -np.expm1(n * hidden)
    assert shown.max() == pytest.approx(delta, rel=1e-6) and shown.max() <= delta


def _claimed(release, epsilon, adjacency='zero_out'):
    """The privacy profile of the theorem: revealed with probability delta, else Gaussian."""
    mu = release.before().mu(Neighbours(adjacency))
    return release.delta + (1 - release.delta) * _gaussian_profile(mu, epsilon)


def _of_word(total, release):
    """What one round shows of a word, as probabilities: bins of its noised sum, or nothing."""
    stddev, least = release.stddevs[0], release.thresholds[0]
    edges = np.linspace(least, least + 14 * stddev, 600)
    shown = np.diff(stats.norm.cdf((edges - total) / stddev))
    rest = stats.norm.sf((edges[-1] - total) / stddev)
    return np.array([*shown, rest, stats.norm.cdf((least - total) / stddev)])


def _shown(sums, words, release):
    """The distribution of what is shown of several words; an unused word is never shown."""
    found = np.ones(1)
    for word in words:
        if word in sums:
            one = _of_word(sums[word], release)
        else:
            one = np.zeros(601)
            one[-1] = 1
        found = np.multiply.outer(found, one).ravel()
    return found


_OTHERS = [{'a': 1}] * 3
_A, _B, _BOTH = {'a': 1}, {'b': 1}, {'a': 1, 'b': 1}


def _of_neighbours(pair, release):
    """What a round shows of two words, for each of two clients besides the others."""
    return (_shown(_sums(_of(*_OTHERS, own), most=2), 'ab', release) for own in pair)


@pytest.mark.parametrize(
    'adjacency, pair',
    [
        ('zero_out', (_B, {})),
        ('zero_out', (_A, {})),
        ('zero_out', (_BOTH, {})),
        ('replace_one', (_A, _B)),
        ('replace_one', (_BOTH, {'a': 2})),
        ('replace_one', (_B, _BOTH)),
    ],
)
def test_one_round_keeps_its_privacy_profile(adjacency, pair):
    """All that a round shows of two words, sums included, between neighbours in both orders."""
    release = WordRelease.of_guarantee(1.0, 0.2, words_per_client=2, rounds=1, adjacency=adjacency)
    one, other = _of_neighbours(pair, release)
    for epsilon in (-1.0, 0.0, 0.3, 1.0, 2.0):
        for p, q in ((one, other), (other, one)):
            if epsilon >= 0 or adjacency == 'zero_out':
                assert _profile(p, q, epsilon) <= _claimed(release, epsilon, adjacency) + 1e-12
    assert _claimed(release, 1.0, adjacency) <= 0.2


def test_the_profile_is_attained():
    """A client with one word of its own is shown with probability delta; less is not enough."""
    release = WordRelease.of_guarantee(1.0, 0.2, words_per_client=1, rounds=1)
    one, other = _of_neighbours((_B, {}), release)
    assert _profile(one, other, 5.0) == pytest.approx(release.delta, rel=1e-9)
    one, other = (_shown({'a': total}, 'a', release) for total in (11.0, 10.0))
    mu = release.before().mu(Neighbours())
    # Far above the threshold a shared word is a Gaussian release.
    assert _profile(one, other, 0.5) == pytest.approx(_gaussian_profile(mu, 0.5), rel=0.1)


def _found_sets(clients, release):
    """The probability of each outcome of two rounds: the sets of words that they find."""
    counts = _of(*clients)

    def chances(new, round_number):
        is_new = np.array([word in new for word in counts.words])
        sums = _sums(counts, is_new, release.words_per_client)
        stddev, least = release.stddevs[round_number], release.thresholds[round_number]
        chance = {word: stats.norm.sf((least - total) / stddev) for word, total in sums.items()}
        for are_found in itertools.product((False, True), repeat=len(sums)):
            found = frozenset(itertools.compress(sums, are_found))
            yield found, math.prod(p if word in found else 1 - p for word, p in chance.items())

    outcomes = {}
    for first, chance in chances({*counts.words}, 0):
        for second, then in chances({*counts.words} - first, 1):
            outcomes[first, second] = chance * then
    assert sum(outcomes.values()) == pytest.approx(1)
    return outcomes


@pytest.mark.parametrize('pair', [({'a': 2, 'b': 1, 'c': 1}, {}), ({'c': 1}, {})])
def test_two_rounds_keep_their_privacy_profile(pair):
    release = WordRelease.of_guarantee(1.0, 0.3, words_per_client=2, rounds=2)
    others = [{'a': 1}, {'a': 2, 'b': 1}]
    one, other = (_found_sets([*others, own], release) for own in pair)
    keys = {*one, *other}
    p, q = (np.array([each.get(key, 0.0) for key in keys]) for each in (one, other))
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        assert _profile(p, q, epsilon) <= _claimed(release, epsilon)
        assert _profile(q, p, epsilon) <= _claimed(release, epsilon)


def test_a_guarantee_is_split_among_the_rounds():
    release = WordRelease.of_guarantee(1.0, 1e-6, words_per_client=100, rounds=3)
    before = release.before()
    assert before.delta == release.delta == pytest.approx(5e-7)
    precisions = np.array(release.stddevs) ** -2
    assert precisions[1:] / precisions[:-1] == pytest.approx([3, 3])
    assert before.noise_multiplier == pytest.approx(precisions.sum() ** -0.5)
    assert before.noise_multiplier <= precisions.sum() ** -0.5
    assert (
        _claimed(release, 1.0) == pytest.approx(1e-6, rel=1e-3) and _claimed(release, 1.0) <= 1e-6
    )
    replaced = WordRelease.of_guarantee(
        1.0, 1e-6, words_per_client=100, rounds=3, adjacency='replace_one'
    )
    assert replaced.stddevs[0] == pytest.approx(math.sqrt(2) * release.stddevs[0])
    assert _claimed(replaced, 1.0, 'replace_one') <= 1e-6
