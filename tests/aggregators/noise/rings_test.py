"""Noise supplied from outside of TFF: the rows that a state determines, always the same bits."""

import concurrent.futures
import itertools
import multiprocessing
import os
import threading
import time
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from dpfl import aggregators, mechanisms
from dpfl.accounting import hardened
from dpfl.aggregators.noise import hardened_ring, noise_ring
from dpfl.mechanisms import kernels
from dpfl.mechanisms.hardened import discrete_gaussian, stream
from tests import mechanism_cases, oracles, redrawn
from tests.aggregators import rounds

_ROUNDS = 7
_STEPS = {'default': kernels, 'hardened': stream}  # Modules of the function `step`.
# Several blocks of a ring, and a part of one; both types.
_SPECS = {
    'default': {'w': tf.TensorSpec([2, 2500]), 'b': tf.TensorSpec([3], tf.float64)},
    'hardened': {'w': tf.TensorSpec([2, 20_000]), 'b': tf.TensorSpec([3], tf.float64)},
}
_MECHANISMS = {
    'gaussian': mechanisms.Identity(_ROUNDS),
    'blt': rounds.blt(_ROUNDS),
    'honaker_tree': mechanisms.HonakerTree(_ROUNDS),
    'banded': mechanism_cases.FACTORIES['banded'](_ROUNDS),
    'banded_inverse': mechanisms.BandedInverse.square_root(_ROUNDS, 4),
    'restarted': mechanisms.Restarted(mechanisms.Blt(_ROUNDS, [0.9], [0.2]), (3,), _ROUNDS),
}
every_noise = pytest.mark.parametrize('noise', hardened.NOISES)


def _plan(noise, mechanism='blt', **changes):
    return rounds.plan(_MECHANISMS[mechanism], noise=noise, **changes)


def _query(plan, seed: int | None = 3, specs=None):
    specs = specs or _SPECS[plan.noise]
    return aggregators.build_query(plan, seed, record_specs=specs, supplied_noise=True)


def _run(query, state, number, ring=None, specs=_SPECS['default']):
    """Rows of the noise in rounds without clients, and the state after them."""
    return rounds.run(query, state, [()] * number, specs, ring)


class _Whole(NamedTuple):
    plan: Any
    query: Any
    rows: np.ndarray
    states: list[Any]  # Before each round, and after the last one.


def _each(noise, names=_MECHANISMS, marks=()):
    return [pytest.param((noise, name), id=f'{noise}-{name}', marks=marks) for name in names]


_DEFAULT = [
    *_each('default', ['blt', 'banded']),
    *_each('default', ['honaker_tree', 'banded_inverse'], pytest.mark.standard),
]
_HARDENED = _each('hardened')


@pytest.fixture(scope='module', name='whole', params=[*_DEFAULT, *_HARDENED])
def _whole_run(request):
    """A run with its plan, its query, and the noise that it releases."""
    plan = _plan(*request.param)
    query = _query(plan)
    rows, states = [], [query.initial_global_state()]
    with aggregators.build_noise_ring(plan) as ring:
        for _ in range(_ROUNDS):
            row, state = _run(query, states[-1], 1, ring)
            rows.append(row[0])
            states.append(state)
    return _Whole(plan, query, np.array(rows), states)


def test_rows_are_those_of_the_definition(whole):
    check = _check_solution if whole.plan.noise == 'default' else _check_replay
    check(whole.plan, whole.rows, whole.states[-1])


def _check_solution(plan, rows, end):
    z = redrawn.vectors(end, _SPECS['default'])
    exact = oracles.streamed_by_solving(plan.mechanism, z) * plan.stddev / 2
    scale = np.abs(exact).max()
    np.testing.assert_allclose(rows, exact, atol=1e-6 * scale)
    # The float64 coordinates come first, in the order of the names.
    np.testing.assert_allclose(rows[:, :3], exact[:, :3], atol=1e-14 * scale)


def _check_replay(plan, rows, end):
    """Rows are the integer stream of exact draws, redrawn here one block at a time."""
    kernel, size = plan.mechanism.kernel(), rows.shape[1]
    keys, block = redrawn.keys(end), hardened_ring._BLOCK
    buffers = np.zeros((2, kernel.buffers, block))
    unit = np.float64(np.float32(0.5)) / (hardened.STDDEV / 2.0)
    matrix, z_rows, w_rows = plan.mechanism.strategy_matrix(), [], []
    for t in range(_ROUNDS):
        step = stream.step(kernel, t)
        sampler = discrete_gaussian.DiscreteGaussian(hardened.STDDEV * step.stddev)
        round_key = keys[t].astype('<i8').tobytes()
        z = [sampler.draw(discrete_gaussian.Keystream(round_key, b), block) for b in (0, 1)]
        w = np.concatenate([step.apply(z[b], buffers[b]) for b in (0, 1)])[:size]
        z_rows.append(np.concatenate(z)[:size] * matrix[t, t])
        w_rows.append(w)
        expected = w.astype(np.float64) * unit / 2
        # Names in order: the float64 tensor first.
        np.testing.assert_array_equal(rows[t, :3], expected[:3])
        np.testing.assert_array_equal(rows[t, 3:], expected[3:].astype(np.float32))
    # And C w is the independent noise z.
    assert np.abs(matrix @ np.array(w_rows) - np.array(z_rows)).max() < 1e-9 * hardened.STDDEV
    assert abs(np.std(z_rows) / hardened.STDDEV - 1) < 0.01


def test_a_row_depends_on_the_state_alone(whole, tmp_path):
    """Whatever a ring has done before: it begins late, goes on, goes back, and supplies again."""
    for order in ([5, 6, 1, 2, 2], [1]):
        with aggregators.build_noise_ring(whole.plan, tmp_path) as ring:
            for t in order:
                row, _ = _run(whole.query, whole.states[t], 1, ring)
                np.testing.assert_array_equal(row[0], whole.rows[t])
    assert not list(tmp_path.iterdir())


def test_the_state_holds_one_row_before_a_round_and_none_after_it(whole):
    size = whole.rows.shape[1]
    with aggregators.build_noise_ring(whole.plan) as ring:
        supplied = ring.supply(whole.states[0], ())
    numbers = {_numbers(state) for state in whole.states}
    assert len(numbers) == 1 and max(numbers) < 20 + 4 * _ROUNDS  # A key for each round.
    assert _numbers(supplied) == max(numbers) + size


def _numbers(state):
    return sum(np.size(leaf) for leaf in tf.nest.flatten(state))


@every_noise
def test_a_row_that_is_missing_or_stale_is_an_error(noise):
    plan = _plan(noise)
    query = _query(plan)
    state = query.initial_global_state()
    with pytest.raises(tf.errors.InvalidArgumentError, match='through the supply of a ring'):
        _run(query, state, 1)
    with aggregators.build_noise_ring(plan) as ring:
        supplied = ring.supply(state, ())
        _, following = _run(query, supplied, 1)
        old = supplied.numerator_state.noise.past
        numerator = following.numerator_state
        noise_state = numerator.noise._replace(past=old)
        stale = following._replace(numerator_state=numerator._replace(noise=noise_state))
        with pytest.raises(tf.errors.InvalidArgumentError, match='is that of another round'):
            _run(query, stale, 1)
        _, end = _run(query, following, _ROUNDS - 1, ring)
        with pytest.raises(tf.errors.InvalidArgumentError, match='has 7 rounds, and all are done'):
            _run(query, end, 1, ring)


@every_noise
def test_runs_without_a_seed_have_noise_of_their_own(noise):
    query = _query(_plan(noise), seed=None)
    first, second = query.initial_global_state(), query.initial_global_state()
    keys = [state.numerator_state.noise.key.numpy() for state in (first, second)]
    assert not np.isin(*keys).any()
    with aggregators.build_noise_ring(_plan(noise)) as ring:
        rows = [_run(query, start, 1, ring)[0] for start in (first, second, first)]
    np.testing.assert_array_equal(rows[0], rows[2])
    assert not np.isin(rows[0][:, :3], rows[1][:, :3]).any()
    assert np.isin(rows[0], rows[1]).mean() < 0.01  # float32 has equal ones by chance.


@pytest.mark.parametrize('whole', [*_DEFAULT, *_each('hardened', ['blt'])], indirect=True)
def test_a_round_that_failed_half_way_changes_no_bit_of_later_ones(whole, monkeypatch):
    module, calls = _STEPS[whole.plan.noise], itertools.count(1)  # Blocks run in threads.
    step = module.step

    class Failing:
        def __init__(self, inner):
            self._inner, self.stddev = inner, getattr(inner, 'stddev', None)

        def apply(self, *arrays):
            call = next(calls)
            applied = self._inner.apply(*arrays)
            if call == 2:  # Some blocks are done, others are not.
                raise MemoryError('in a block')
            return applied

    with aggregators.build_noise_ring(whole.plan) as ring:
        _run(whole.query, whole.states[3], 1, ring)
        with monkeypatch.context() as patched:
            patched.setattr(module, 'step', lambda *args: Failing(step(*args)))
            with pytest.raises(MemoryError, match='in a block'):
                _run(whole.query, whole.states[4], 1, ring)
            assert next(calls) > 2
        rest, _ = _run(whole.query, whole.states[4], _ROUNDS - 4, ring)
    np.testing.assert_array_equal(rest, whole.rows[4:])


def test_a_ring_serves_processes_of_other_sizes_with_one_key():
    plan = _plan('default')
    with aggregators.build_noise_ring(plan) as ring:
        for size in (5, 3000, 5):
            query = _query(plan, specs=tf.TensorSpec([size]))
            state = ring.supply(query.initial_global_state(), ())
            assert state.numerator_state.noise.past.float32.shape == (size,)


def test_a_ring_from_before_a_fork_is_refused(monkeypatch):
    plan = _plan('default')
    state = _query(plan, specs=tf.TensorSpec([3])).initial_global_state()
    with aggregators.build_noise_ring(plan) as ring:
        ring.supply(state, ())
        with monkeypatch.context() as patch:
            patch.setattr('os.getpid', lambda: -1)
            with pytest.raises(RuntimeError, match='NoiseRing: must be made in the process that'):
                ring.supply(state, ())
            ring.close()  # The fork's: the ring of its parent goes on.
        ring.supply(state, ())


@pytest.mark.standard
@every_noise
def test_threads_that_share_a_ring_get_the_rows_of_their_own_states(noise, monkeypatch):
    plan, run_all = _plan(noise), noise_ring.run_all
    monkeypatch.setattr(noise_ring, 'run_all', lambda *args: (time.sleep(1e-3), run_all(*args)))
    states = [_query(plan, seed).initial_global_state() for seed in range(4)]
    field = {'default': 'float32', 'hardened': 'values'}[noise]

    def row(state):
        return np.asarray(getattr(ring.supply(state, ()).numerator_state.noise.past, field))

    with (
        aggregators.build_noise_ring(plan) as ring,
        concurrent.futures.ThreadPoolExecutor(4) as threads,
    ):
        alone = list(map(row, states))
        for expected, other in zip(alone * 3, threads.map(row, states * 3), strict=True):
            np.testing.assert_array_equal(other, expected)


def _in_child(ring, state, connection):
    state = ring.supply(state, ())
    connection.send((os.getpid(), np.asarray(state.numerator_state.noise.past.values)))


def test_a_hardened_ring_starts_anew_in_a_fork_and_does_not_hang():
    query = _query(_plan('hardened'))
    with aggregators.build_noise_ring(_plan('hardened')) as ring:
        state = ring.supply(query.initial_global_state(), ())
        expected = np.asarray(state.numerator_state.noise.past.values)
        plain = tf.nest.map_structure(np.asarray, state)  # No tensors in the child.
        here, there = multiprocessing.Pipe()
        child = multiprocessing.get_context('fork').Process(
            target=_in_child, args=(ring, plain, there)
        )
        child.start()
        assert here.poll(60)
        process, row = here.recv()
        child.join(30)
        assert child.exitcode == 0
        assert process != os.getpid()
        np.testing.assert_array_equal(row, expected)
        again = ring.supply(state, ())
        np.testing.assert_array_equal(again.numerator_state.noise.past.values, row)


_RESTARTED = mechanisms.Restarted(rounds.blt(60), range(9, 60, 9), 60)


@pytest.mark.parametrize(
    'noise, mechanism, needed',
    [
        ('default', mechanisms.BandedInverse.square_root(60, 4), 4),
        ('default', _RESTARTED, 2),  # Round 9 begins anew.
        ('hardened', _RESTARTED, 2),
        ('default', mechanisms.Blt(60, [0.9], [0.2]), 11),
    ],
)
def test_a_new_ring_computes_only_the_rounds_that_its_first_row_depends_on(
    noise, mechanism, needed, monkeypatch
):
    plan, spec = rounds.plan(mechanism, noise=noise), tf.TensorSpec([5])
    query, module, computed = _query(plan, specs=spec), _STEPS[noise], []
    step = module.step

    def counted(kernel, t, *args):
        computed.append(t)
        return step(kernel, t, *args)

    monkeypatch.setattr(module, 'step', counted)
    state = query.initial_global_state()
    with aggregators.build_noise_ring(plan) as ring:
        for t in range(10):
            _, state = _run(query, state, 1, ring, spec)
            assert computed == [*range(t + 1)]  # And a type without coordinates takes no part.
    computed.clear()
    with aggregators.build_noise_ring(plan) as another:
        another.supply(state, ())
    assert computed == [*range(11 - needed, 11)]


def _check_refused(ring_type, plan, state, message, context=()):
    with pytest.raises(ValueError, match=message):
        with ring_type(plan) as ring:
            ring.supply(state, context)


def test_states_and_contexts_that_a_ring_cannot_serve_are_refused():
    default, hard = _plan('default'), _plan('hardened')
    held = aggregators.build_query(default, record_specs=_SPECS['default']).initial_global_state()
    _check_refused(hardened_ring.HardenedRing, hard, held, 'state: holds 0 hardened noises, must')
    _check_refused(
        noise_ring.NoiseRing, default, held, 'state: holds 0 noises to be supplied, must'
    )
    for noise in hardened.NOISES:
        state, other = _query(_plan(noise)).initial_global_state(), _plan(noise, 'banded_inverse')
        _check_refused(
            aggregators.build_noise_ring,
            other,
            state,
            'was made under a plan with another mechanism',
        )
    state = _query(default).initial_global_state()
    for context in (object(), [None], {'data': tf.data.Dataset.range(3)}):
        message = 'context: must be arrays, numbers, texts or bytes'
        _check_refused(noise_ring.NoiseRing, default, state, message, context)


def test_a_state_that_tff_cannot_carry_is_refused_when_it_is_built():
    specs = tf.TensorSpec([70_000_000])
    plan = rounds.plan(mechanisms.BandedToeplitz.fichtenberger(_ROUNDS, 7))
    with pytest.raises(ValueError, match='supplied_noise=False: .* for 1.68 GB'):
        aggregators.build_query(plan, record_specs=specs)
    aggregators.build_query(plan, record_specs=specs, supplied_noise=True)
    product = mechanisms.BandedInverse.square_root(_ROUNDS, 7)  # Keeps nothing.
    aggregators.build_query(rounds.plan(product), record_specs=specs)


def test_no_part_is_worked_on_any_more_when_another_one_has_failed():
    begun, failed, still_working = threading.Event(), threading.Event(), []

    def work(part):
        if part == 0:
            begun.wait(10)
            failed.set()
            raise MemoryError('in a block')
        begun.set()
        failed.wait(10)
        time.sleep(0.2)
        still_working.append(part)

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        with pytest.raises(MemoryError, match='in a block'):
            noise_ring.run_all(threads, work, range(2))
        assert still_working == [1]
