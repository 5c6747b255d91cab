"""Adaptive clipping against [Xu23], algorithm 1, and against known mistakes in other versions."""

import numpy as np
import pytest
import tensorflow as tf

from dpfl import accounting, aggregators, mechanisms
from dpfl.aggregators import adaptive_clip, clipping
from tests import oracles, redrawn
from tests.aggregators import rounds

_COUNT = tf.TensorSpec([], tf.float64)


def _plan(number, base=None, first=128, every=1024, clients=10, **changes):
    """A plan of `number` rounds, whose noise restarts."""
    base = base or mechanisms.BinaryTree(every)
    fields = dict(
        mechanism=mechanisms.Restarted.every(base, first, every, number),
        noise_multiplier=0.3,
        clients=clients,
        adaptive_clip=accounting.AdaptiveClip(),
    )
    return rounds.plan(**{**fields, **changes})


class _Run:
    """Rounds of a query over cohorts of vectors; its state may be set back."""

    def __init__(self, plan, size, seed=5):
        self._specs = tf.TensorSpec([size])
        self._query = aggregators.build_query(plan, seed, record_specs=self._specs)
        self.state = self._query.initial_global_state()

    def next(self, updates):
        cohorts = [np.float32(updates)]
        (result,), self.state = rounds.run(self._query, self.state, cohorts, self._specs)
        return result

    @property
    def metrics(self):
        return self._query.derive_metrics(self.state)

    @property
    def norms(self):
        return float(self.metrics['current_clip']), float(self.metrics['estimate_clip'])


class _PrivateSum:
    """Noised prefix sums; a restart keeps what was released and goes on with fresh noise."""

    def __init__(self, base, z, stddev):
        self._base, self._z = base, z
        self._released, self._round = 0.0, 0
        self.restart(stddev)

    def restart(self, stddev):
        self._stddev, self._before, self._true = stddev, self._released, 0.0
        z = self._z[self._round :][: self._base.rounds]
        segment = self._base.with_rounds(len(z))
        self._noise = iter(np.cumsum(oracles.streamed_by_solving(segment, z), axis=0))

    def add(self, value):
        self._true = self._true + value
        self._released = self._before + self._true + self._stddev * next(self._noise)
        self._round += 1
        return self._released


def _of_updates(run, size):
    return redrawn.vectors(run.state, tf.TensorSpec([size]))


def _of_counts(run):
    return np.array(redrawn.noise(run.state, _COUNT, stream=1))


def _algorithm_1(plan, base, restarts, client_updates, z_model, z_count):
    """[Xu23], algorithm 1, line by line, without momentum; yields the values of each round."""
    m, settings = plan.clients_per_round, plan.adaptive_clip
    sigma_b = settings.count_stddev or m / 20
    z_delta = (plan.noise_multiplier**-2 - (2 * sigma_b) ** -2) ** -0.5
    first_norm = norm = clip_norm = plan.clip_norm
    theta = np.zeros(z_model.shape[1])
    tree_model = _PrivateSum(base, z_model, z_delta * clip_norm)
    tree_count = _PrivateSum(base, z_count, sigma_b)
    for t in range(len(z_model)):
        deltas = client_updates(t, theta)
        lengths = np.linalg.norm(deltas, axis=1)
        bits = lengths <= norm
        # The code clips to 1e-5 below the norm.
        clipped = deltas * np.minimum(1, clip_norm * (1 - 1e-5) / lengths)[:, None]
        delta_bar = tree_model.add(clipped.sum(axis=0)) / m
        theta = 0.5 * delta_bar
        b_tilde = tree_count.add(bits.sum()) / m
        norm = first_norm * np.exp(
            -settings.learning_rate * (b_tilde - t * settings.target_quantile)
        )
        if t in restarts:
            clip_norm = norm
            if t + 1 < len(z_model):
                tree_model.restart(z_delta * clip_norm)
                tree_count.restart(sigma_b)
        yield delta_bar, clip_norm, norm


# Base, first and every of the restarts, number of rounds, and changes of the plan. They show the
# known mistakes: an inverted sign, a restart one round early, clamped fractions.
_CASES = {
    'restarts after rounds 3 and 7': (mechanisms.Blt(4, [0.9, 0.4], [0.1, 0.2]), 3, 4, 9, {}),
    'fractions beyond 0 and 1': (
        mechanisms.BinaryTree(5),
        4,
        5,
        8,
        {'adaptive_clip': accounting.AdaptiveClip(count_stddev=200.0, learning_rate=0.001)},
    ),
    'independent noise': (
        mechanisms.Identity(1),
        0,
        1,
        5,
        {
            'mechanism': mechanisms.Identity(6),
            'adaptive_clip': accounting.AdaptiveClip(target_quantile=0.8),
        },
    ),
}


@pytest.mark.parametrize('case', _CASES)
def test_every_round_is_that_of_algorithm_1(case):
    (base, first, every, number, changes), size = _CASES[case], 3
    plan, clients = _plan(number, base, first, every, clients=4, **changes), 4
    rng = np.random.default_rng(0)
    targets = rng.normal(size=(number, clients, size)) * rng.lognormal(size=(number, clients, 1))

    def client_updates(t, theta):
        return (0.8 + 0.1 * t) * (targets[t] - theta)

    run, theta, total, released = _Run(plan, size), np.zeros(size), np.zeros(size), []
    for t in range(number):
        total = total + run.next(client_updates(t, theta))
        theta = 0.5 * total
        released.append((total, *run.norms))
    restarts = set(range(first, number, every))
    expected = _algorithm_1(
        plan, base, restarts, client_updates, _of_updates(run, size), _of_counts(run)
    )
    delta_bars, clip_norms, estimates = (np.array(each) for each in zip(*released, strict=True))
    expected = [np.array(each) for each in zip(*expected, strict=True)]
    np.testing.assert_allclose(delta_bars, expected[0], rtol=1e-4, atol=2e-4)
    np.testing.assert_allclose(clip_norms, expected[1], rtol=1e-5)
    np.testing.assert_allclose(estimates, expected[2], rtol=1e-5)
    assert len(set(clip_norms)) == len(restarts) + (first > 0)


def test_the_estimate_of_algorithm_1_converges_to_the_true_quantile():
    number, clients, base = 250, 400, mechanisms.BinaryTree(250)
    adaptive = accounting.AdaptiveClip(target_quantile=0.8)
    plan = _plan(number, base, 128, 100, clients, adaptive_clip=adaptive)
    rng = np.random.default_rng(1)
    updates = 3.0 * rng.lognormal(sigma=0.5, size=(number, clients, 1))
    z = rng.normal(size=(2, number, 1))
    replay = _algorithm_1(plan, base, {128, 228}, lambda t, _: updates[t], z[0], z[1, :, 0])
    *_, (_, *norms) = replay
    # The quantile of the standard normal is 0.8416.
    assert norms == pytest.approx([3.0 * np.exp(0.5 * 0.8416212)] * 2, rel=0.1)


@pytest.mark.parametrize('seeds', [(1, 2), (None, None)])
def test_counts_of_each_run_have_noise_of_their_own(seeds):
    # A known mistake: an unseeded tree for the counts, so every run has the same noise, or none.
    runs = [_Run(_plan(9), 1, seed) for seed in seeds]
    for run in runs:
        run.next(np.zeros((5, 1)))
    assert runs[0].norms[1] != runs[1].norms[1]
    assert not np.isin(redrawn.keys(runs[0].state, 0), redrawn.keys(runs[0].state, 1)).any()


def test_one_count_of_two_cohorts_has_independent_noise():
    run = _Run(_plan(9), 1)
    start, counts = run.state, []
    for length in (0.01, 0.01, 0.02):  # Within the estimate, all of them.
        run.state = start
        run.next(np.full((10, 1), length))
        counts.append(redrawn.keys(run.state, stream=1)[0])
    np.testing.assert_array_equal(counts[0], counts[1])
    assert (counts[0] != counts[2]).all()


def test_no_noise_makes_a_norm_vanish_or_overflow():
    adaptive = accounting.AdaptiveClip(count_stddev=1e9, learning_rate=10.0)
    run = _Run(_plan(8, mechanism=mechanisms.Identity(8), adaptive_clip=adaptive), 1)
    for _ in range(8):
        result = run.next(np.full((3, 1), 3.0))
        assert np.isfinite(result).all()
        assert clipping.SMALLEST_NORM * 0.999 <= run.norms[0] <= clipping.LARGEST_NORM * 1.001


def test_a_client_moves_both_sums_by_what_theorem_1_counts():
    plan = _plan(5)
    query = aggregators.build_query(plan, 0, record_specs=tf.TensorSpec([2]))
    params = query.derive_sample_params(query.initial_global_state())
    # A zero update moves neither sum.
    for length, half in ((0.1, 1), (7.0, -1), (0.0, 0), (np.nan, 0)):
        sample = query.preprocess_record(params, tf.constant([length, 0.0]))
        assert np.linalg.norm(sample.sum) <= plan.clip_norm
        assert sample.within == half  # Halved at the server.


def test_metrics_of_a_round_are_the_noised_count_and_the_norm_in_use():
    number, clients = 5, 4
    plan = _plan(number, mechanisms.Identity(3), first=2, every=3, clients=clients)
    run = _Run(plan, 2)
    rng = np.random.default_rng(0)
    for _ in range(number):
        before, (norm, estimate) = run.metrics, run.norms
        updates = rng.normal(size=(clients, 2))
        run.next(updates)
        found = adaptive_clip.round_metrics(before, run.metrics)
        within = (np.linalg.norm(updates.astype(np.float32), axis=1) <= estimate).sum()
        noise = plan.count_stddev * _of_counts(run)[-1]
        assert found['clip_count'].numpy() == pytest.approx(within + noise, abs=1e-9)
        assert float(found['clip_norm']) == norm
        assert float(found['clip_norm_estimate']) == run.norms[1]
    assert adaptive_clip.round_metrics({}, {}) == {}  # Of other queries.
