"""A loop of one's own never uses noise twice: what is run again is the same, or it is refused."""

import asyncio
import collections
import threading
import types
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree

from dpfl import Participation, _storage, accounting, aggregators, errors, mechanisms
from dpfl.accounting.records import archive, journal
from dpfl.aggregators.noise import correlated
from dpfl.simulation import guard, run_directory, run_journal
from tests.simulation.toy_experiment import Output, State

_ROUNDS, _CLIENTS = 10, 4
_ACCOUNTANT = 'analytic_gaussian'


def _plan(noise_multiplier=2.0):
    return accounting.PrivacyPlan(
        mechanism=mechanisms.Blt(_ROUNDS, [0.9], [0.2]),
        participation=Participation(_ROUNDS, 5),
        clip_norm=1.0,
        noise_multiplier=noise_multiplier,
        clients_per_round=_CLIENTS,
    )


class _Process:
    """Adds the sum of the data, and the noise of key and round. `drift` makes it unrepeatable."""

    def __init__(self, drift=0.0, dies=False, first_key=0):
        self.drift, self.dies, self.keys = drift, dies, iter(range(first_key, 100))

    def initialize(self):
        key = np.array([next(self.keys), 7], np.int64)
        return State(np.zeros(1), correlated.NoiseState(key, np.int64(0), (), ()))

    def next(self, state, clients):
        if self.dies:
            raise _KilledError
        key, t, _, past = state.noise
        noise = np.random.default_rng([*key, t]).normal()
        total = sum(np.sum(batch, initial=0.0) for client in clients for batch in client)
        self.drift *= 2
        weights = state.global_model_weights + total + noise + self.drift
        return Output(State(weights, correlated.NoiseState(key, t + 1, (), past)), {})


class _KilledError(Exception):
    pass


def _guarded(folder, process=None, plan=None):
    plan = plan or _plan()
    return guard.GuardedProcess(process or _Process(), plan, folder, accountant=_ACCOUNTANT)


_DATA = [[[np.ones(2)], [np.zeros(1), np.ones(1)]], [[np.ones(2)], [np.ones(1), np.zeros(1)]]]


def _after(guarded, rounds):
    """The states after some rounds, the first one before them."""
    states = [guarded.initialize()]
    for _ in range(rounds):
        states.append(guarded.next(states[-1], _DATA[0]).state)
    return states


@pytest.mark.parametrize(
    'ids, others',
    [
        (['a', 'b'], ['a', 'c']),
        ([b'a', b'a\0'], [b'a', b'a']),
        ([np.str_('a'), tf.constant('b')], ['b', 'a']),
        ([3, np.int64(4)], [4, 3]),
    ],
)
def test_ids_of_clients_are_recorded_and_passed_on(tmp_path, ids, others):
    passed, length = [], [1.0]

    class Reading(_Process):
        def next(self, state, clients):
            passed[:] = clients
            return super().next(state, [[np.array(length)] for _ in clients])

    guarded = _guarded(tmp_path, Reading())
    start = guarded.initialize()
    first = guarded.next(start, ids).state
    assert all(one is other for one, other in zip(passed, ids, strict=True))
    with pytest.raises(errors.RunError, match='round 1 was released before with other clients'):
        guarded.next(start, others)
    again = guarded.next(start, ids).state
    np.testing.assert_array_equal(again.global_model_weights, first.global_model_weights)
    length.append(2.0)  # The journal cannot know: the state that comes out shows it.
    with pytest.raises(errors.RunError, match='round 1 gave another result'):
        guarded.next(start, ids)


def test_values_of_a_program_are_given_after_their_release_was_recorded(tmp_path):
    class Later(tff.program.MaterializableValueReference):
        def __init__(self, value):
            self._value = value

        @property
        def type_signature(self):
            return tff.to_type(np.float32)

        async def get_value(self):
            return self._value

    class Program(_Process):
        def initialize(self):
            return tree.map_structure(Later, super().initialize())

        def next(self, state, clients):
            return tree.map_structure(Later, super().next(state, clients))

    async def run(process, rounds, state=None):
        guarded = _guarded(tmp_path, process)
        states = [await tff.program.materialize_value(state or guarded.initialize())]
        for _ in range(rounds):
            output = guarded.next(states[-1], _DATA[0])
            weights = await tff.program.materialize_value(output.state.global_model_weights)
            lines = _releases(tmp_path)
            assert len(lines) == guarded.rounds
            states.append(await tff.program.materialize_value(output.state))
            assert states[-1].global_model_weights is weights
        return states

    states = asyncio.run(run(Program(), 3))
    assert int(states[-1].noise.round) == 3
    with pytest.raises(errors.RunError, match='round 3 gave another result'):
        asyncio.run(run(Program(drift=1e-9), 1, states[2]))


@pytest.mark.parametrize(
    'change, message',
    [
        (
            'data',
            '/ledger.jsonl: round 3 was released before with other clients or other data of theirs;'
            ' the plan counts one release of a round$',
        ),
        ('cohort', 'round 3 was released before with another cohort'),
        ('noise key', 'round 1 .* another noise key, .* count both$'),
        ('key of a later round', 'round 4 has another noise key than round 3'),
        ('model', 'round 2 was released before from another model'),
        ('result', 'round 3 gave another result than before'),
        ('plan', 'is the journal of another plan .noise_multiplier'),
        ('directory', 'ends before round 3'),
    ],
)
def test_a_round_is_run_again_as_it_was_or_refused(tmp_path, change, message):
    process = _Process(drift=1e-9 if change == 'result' else 0.0)
    states = _after(_guarded(tmp_path, process), 3)
    data = {'data': _DATA[1], 'cohort': _DATA[0][:1]}.get(change, _DATA[0])
    folder = tmp_path / 'other' if change == 'directory' else tmp_path
    state = {
        'noise key': _Process(first_key=9).initialize(),
        'key of a later round': states[3]._replace(
            noise=states[3].noise._replace(key=np.array([9, 7]))
        ),
        'model': states[1]._replace(global_model_weights=np.ones(1)),
    }.get(change, states[2])
    with pytest.raises(errors.RunError, match=message):
        plan = _plan(noise_multiplier=3.0) if change == 'plan' else None
        _guarded(folder, process, plan).next(state, data)
    again = _guarded(tmp_path, process)
    assert again.rounds == 3
    if change != 'result':
        repeated = again.next(states[2], _DATA[0]).state
        assert repeated.global_model_weights == states[3].global_model_weights
    # Beyond the last round, any data may come.
    assert again.next(states[3], _DATA[1]).state.noise.round == 4


@pytest.mark.parametrize(
    'number, multiplier, message',
    [
        (1, 2.0, None),
        (1, 5.0, '^plan: has another noise_multiplier than the aggregator of the process$'),
        (2, 2.0, 'one aggregator with noise, has 2: the plan'),
    ],
)
def test_the_plan_is_that_of_the_one_aggregator(tmp_path, number, multiplier, message):
    query = aggregators.build_query(_plan(), record_specs=tf.TensorSpec([3]))
    state = State(np.zeros(1), [query.initial_global_state() for _ in range(number)])
    process = types.SimpleNamespace(initialize=lambda: state)
    guarded = _guarded(tmp_path, process, _plan(multiplier))
    if message is None:
        assert guarded.initialize() is state
        return
    for call in (guarded.initialize, lambda: guarded.next(state, _DATA[0])):
        with pytest.raises(errors.ArgumentError, match=message):
            call()
    assert guarded.rounds == 0


def test_a_round_that_was_recorded_and_not_released_is_run_again(tmp_path):
    start = _guarded(tmp_path).initialize()
    with pytest.raises(_KilledError):
        _guarded(tmp_path, _Process(dies=True)).next(start, _DATA[0])
    assert _guarded(tmp_path).rounds == 1
    with pytest.raises(errors.RunError, match='round 1 was released before with other clients'):
        _guarded(tmp_path).next(start, _DATA[1])
    assert _guarded(tmp_path).next(start, _DATA[0]).state.noise.round == 1


def _releases(path):
    return [each.state for each in archive.read_journal(path).of_kind(journal.Released)]


@pytest.mark.usefixtures('undrawn')
@pytest.mark.parametrize('has_ids', [True, False])
def test_a_finished_run_is_verified_and_says_what_nobody_knows(tmp_path, has_ids):
    process = _Process()
    guarded = _guarded(tmp_path, process)
    state = guarded.initialize()
    for t in range(_ROUNDS):
        ids = {'client_ids': [2 * (t % 5), 2 * (t % 5) + 1]} if has_ids else {}
        if t == _ROUNDS - 1:  # A round that was begun is not one that was released.
            process.dies = True
            with pytest.raises(_KilledError):
                guarded.next(state, _DATA[0], **ids)
            with pytest.raises(errors.RunError, match='has 9 of 10 rounds; report.. gives'):
                guarded.finish()
            process.dies = False
        state = guarded.next(state, _DATA[0], **ids).state
        if not t:
            early = guarded.report()
            assert run_directory.verify(tmp_path).is_verified
    report = guarded.finish()
    found = run_directory.verify(tmp_path)
    assert found.is_verified, found.differences
    assert found.report.to_dict() == report.to_dict()
    assert archive.OWN_LOOP in report.also_not_covered
    assert report.guarantee.rho == pytest.approx(_plan().rho)
    assert (report.observed is None) != has_ids
    if has_ids:
        assert early.observed.rounds == 1 and not report.observed.violations
        (tmp_path / 'cohorts.bin').unlink()
        assert not run_directory.verify(tmp_path).is_verified
    with pytest.raises(errors.RunError, match='round 11 is beyond the 10 of the plan'):
        guarded.next(state, _DATA[0], **ids)


@pytest.mark.standard
def test_a_process_that_ends_before_its_first_round_begins_with_another_key(tmp_path, monkeypatch):
    process = _Process()
    with monkeypatch.context() as patched, pytest.raises(_KilledError):
        patched.setattr(run_journal.RunJournal, 'begin', mock.Mock(side_effect=_KilledError))
        _after(_guarded(tmp_path, process), 1)
    _guarded(tmp_path, process)
    guarded = _guarded(tmp_path, process)
    _after(guarded, 1)
    guarded.report()
    assert run_directory.verify(tmp_path).is_verified


@pytest.mark.parametrize(
    'ids', [[-1, 2], [1.5, 2.5], ['a', 'b'], [2**63, 1], [True, False], [None, 1], [[1], [2]], 3]
)
def test_ids_that_are_no_clients_are_refused_before_anything_is_recorded(tmp_path, ids):
    guarded = _guarded(tmp_path)
    start = guarded.initialize()
    with pytest.raises(errors.ArgumentError, match='^client_ids'):
        guarded.next(start, _DATA[0], client_ids=ids)
    with pytest.raises(errors.RunError, match='no round was released'):
        guarded.report()
    state = guarded.next(start, _DATA[0], client_ids=[1, 2]).state
    assert guarded.report().observed.clients == 2
    for others, message in ((None, 'given in every round'), ([1], '2, one for each client')):
        with pytest.raises(errors.ArgumentError, match=f'client_ids: must be {message}'):
            guarded.next(state, _DATA[0], client_ids=others)


def test_a_report_that_cannot_be_made_is_refused_before_the_first_round(tmp_path):
    for changes in ({'deltas': []}, {'deltas': [2.0]}, {'accountant': 'none'}):
        with pytest.raises(errors.ArgumentError, match='^(delta|accountant)'):
            guard.GuardedProcess(_Process(), _plan(), tmp_path / 'run', **changes)
    assert not (tmp_path / 'run').exists()
    _after(_guarded(tmp_path / 'begun'), 1)
    with pytest.raises(errors.RunError, match='of another plan .deltas.'):
        guard.GuardedProcess(
            _Process(), _plan(), tmp_path / 'begun', deltas=[1e-5], accountant=_ACCOUNTANT
        )


def test_two_processes_cannot_use_a_directory(tmp_path):
    first, second = _guarded(tmp_path), _guarded(tmp_path)
    start = first.initialize()
    with _storage.locked(tmp_path), pytest.raises(errors.StorageError, match='in use by another'):
        first.next(start, _DATA[0])
    first.next(start, _DATA[0])
    for name in ('ledger.jsonl', 'checkpoints/keys'):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0, name
    # It read the journal before the other one wrote to it.
    with pytest.raises(errors.RunError, match='round 1 was released before with other clients'):
        second.next(start, _DATA[1])


def test_two_threads_cannot_run_rounds_at_once(tmp_path):
    refused = []

    def meanwhile():
        with pytest.raises(errors.StorageError, match='in use by another') as caught:
            guarded.next(start, _DATA[1])
        refused.append(caught.value)

    class Slow(_Process):
        def next(self, state, clients):
            thread = threading.Thread(target=meanwhile)
            thread.start()
            thread.join()
            return super().next(state, clients)

    guarded = _guarded(tmp_path, Slow())
    start = guarded.initialize()
    guarded.next(start, _DATA[0])
    assert len(refused) == 1 and len(_releases(tmp_path)) == 1


@pytest.mark.parametrize('seed', range(20))
def test_no_two_releases_of_a_round_differ_whatever_is_tried(tmp_path, monkeypatch, seed):
    """Random calls with old and new states, data and keys, restarts and crashes."""
    random = np.random.default_rng(seed)
    released = collections.defaultdict(set)
    process, append, cut = _Process(), _storage.append, []

    def dies_while_it_writes(path, data, *args, **kwargs):
        if cut and path.name == 'ledger.jsonl':
            append(path, data[: cut.pop()], *args, **kwargs)
            raise _KilledError
        append(path, data, *args, **kwargs)

    monkeypatch.setattr(_storage, 'append', dies_while_it_writes)
    states, guarded = [process.initialize()], _guarded(tmp_path, process)
    refused = 0
    for _ in range(60):
        match random.integers(8):
            case 0:
                guarded = _guarded(tmp_path, process)
            case 1:
                states.insert(0, process.initialize())
            case 2:
                process.dies = True
            case 3:
                cut.append(random.integers(65))
            case _:
                process.dies = False
        if random.random() < 0.1:
            process.drift = 1e-6
        state = states[random.integers(len(states))] if random.random() < 0.4 else states[-1]
        try:
            after = guarded.next(state, _DATA[int(random.random() < 0.3)]).state
        except (errors.RunError, _KilledError):
            refused += 1
            continue
        finally:
            process.drift = 0.0
        states.append(after)
        noise = tuple(state.noise.key), int(state.noise.round)
        released[noise].add(after.global_model_weights.tobytes())
    assert len(released) >= 2 and refused
    assert max(map(len, released.values())) == 1


def test_a_data_set_is_read_once(tmp_path):
    """A data set that shuffles gives another order each time: what is recorded is what is used."""
    rows = tf.data.Dataset.range(10).batch(4).shuffle(3)
    seen = []

    class Watching(_Process):
        def next(self, state, clients):
            seen.append([batch.tolist() for batch in clients[0].as_numpy_iterator()])
            assert clients[0].element_spec.shape.rank == 1
            assert not list(clients[1])
            return super().next(state, [[]])

    start = _guarded(tmp_path, Watching()).initialize()
    for _ in range(20):
        clients = [rows, rows.take(0)]
        try:
            _guarded(tmp_path, Watching()).next(start, clients)
        except errors.RunError as error:
            assert 'other data of theirs' in str(error)
    assert all(order == seen[0] for order in seen) and len(seen) < 20
    assert sorted(seen[0]) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_strings_of_a_data_set_keep_zeros_at_their_end(tmp_path):
    """Serialized examples may end with one."""
    strings, passed = [b'a\0', b'a', b'', b'\0\0'], []

    class Watching(_Process):
        def next(self, state, clients):
            passed.extend(clients[0].as_numpy_iterator())
            return super().next(state, [[]])

    guarded = _guarded(tmp_path, Watching())
    guarded.next(guarded.initialize(), [tf.data.Dataset.from_tensor_slices({'text': strings})])
    assert [row['text'] for row in passed] == strings
