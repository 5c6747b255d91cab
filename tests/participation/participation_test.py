import itertools
import tracemalloc
import zipfile

import numpy as np
import pytest

from dpfl import Participation, ParticipationLog
from tests import oracles


def test_count_is_the_longest_admitted_pattern():
    for rounds in range(1, 9):
        for schema in oracles.small_schemas(rounds) + [
            Participation(rounds, b) for b in range(1, rounds + 3)
        ]:
            assert schema.count == max(map(len, oracles.patterns(schema)))


def test_admits_is_the_definition():
    schema = Participation(7, 3, 2)
    admitted = {
        p for n in range(1, 8) for p in itertools.combinations(range(7), n) if schema.admits(p)
    }
    assert admitted == set(oracles.patterns(schema))
    assert schema.admits([])
    assert not schema.admits([-1])
    assert not schema.admits([7])
    assert not schema.admits([2, 2])


def test_the_least_population_fills_all_cohorts_and_no_smaller_one_can():
    for rounds, cohort in itertools.product(range(1, 8), range(1, 4)):
        for schema in oracles.small_schemas(rounds):
            clients = schema.least_population(cohort)
            places = np.arange(rounds * cohort).reshape(rounds, cohort) % clients
            observed = ParticipationLog(list(np.sort(places, axis=1))).observed()
            assert observed.max_participations <= schema.count
            assert observed.max_participations == 1 or observed.min_separation >= (
                schema.min_separation
            )
            apart = min(schema.min_separation, rounds)
            assert (clients - 1) < cohort * apart or (clients - 1) * schema.count < rounds * cohort


def test_rounds_between_is_one_less_than_the_separation():
    assert Participation.from_rounds_between(2000, 313, 6) == Participation(2000, 314, 6)


@pytest.mark.parametrize(
    'fields, message',
    [
        (dict(rounds=0), 'rounds=0: must be an integer >= 1'),
        (dict(rounds=2.0), 'rounds=2.0: must be'),
        (dict(rounds=True), 'rounds=True: must be'),
        (dict(rounds=float('nan')), 'rounds=nan: must be'),
        (dict(rounds=5, min_separation=0), 'min_separation=0: must be an integer >= 1'),
        (dict(rounds=5, max_participations=0), 'max_participations=0: must be an integer >= 1'),
        (dict(rounds=5, max_participations=10**30), 'max_participations=1.*: must be .* <= 214748'),
    ],
)
def test_bad_fields_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        Participation(**fields)


def test_separation_across_an_epoch_boundary_is_seen():
    # Reshuffling each epoch lets a client close one epoch and open the next.
    assert ParticipationLog([[0], [1], [1], [0]]).observed().min_separation == 1
    assert ParticipationLog([[1, 2], [3], [], [2, 3], [1]]).observed() == Participation(5, 2, 2)
    # Without repeats there is one participation.
    assert ParticipationLog([[1], [2], [3]]).observed() == Participation(3, 3, 1)


def test_a_client_listed_twice_in_a_round_is_recorded():
    log = ParticipationLog([[4], [7, 3, 7], [8], [7], [4]])
    assert log.cohort(1).tolist() == [3, 7, 7]
    assert log.max_per_round == 2
    # Three participations of client 7, and the round between two of them is no separation of 0.
    assert log.observed() == Participation(5, min_separation=2, max_participations=3)
    log.append([5, 5, 9, 5])
    assert log.max_per_round == 3
    assert ParticipationLog([[1, 2], [1]]).max_per_round == 1
    assert ParticipationLog().max_per_round == 1
    assert ParticipationLog([[2, 2]]).observed() == Participation(1, 1, 2)


def test_statistics_count_clients_participations_and_separations():
    statistics = ParticipationLog([[1, 2, 2], [3], [], [2, 3], [1, 4]]).statistics()
    assert statistics.clients == 4
    assert statistics.participations == {1: 1, 2: 2, 3: 1}
    assert statistics.separations == {2: 1, 3: 1, 4: 1}
    assert statistics.max_per_round == 2
    nothing = ParticipationLog([[], []]).statistics()
    assert (nothing.clients, nothing.participations, nothing.separations) == (0, {}, {})


@pytest.mark.parametrize('scale', [1, 2**31, 2**61])
def test_by_client_is_the_log_turned_around(scale):
    rng = np.random.default_rng(1)
    cohorts = [rng.integers(0, 4, size=rng.integers(0, 6)) * scale for _ in range(20)]
    seen = {}
    for t, cohort in enumerate(cohorts):
        for client in cohort.tolist():
            seen.setdefault(client, []).append(t)
    log = ParticipationLog(cohorts)
    observed = log.observed()
    gaps = [j - i for rounds in seen.values() for i, j in itertools.pairwise(rounds) if j > i]
    assert observed == Participation(20, min(gaps), max(map(len, seen.values())))
    grouped = {
        client: rounds
        for clients, patterns in log.by_client().patterns()
        for client, rounds in zip(clients.tolist(), patterns.tolist(), strict=True)
    }
    assert grouped == seen
    assert sorted(log.by_client().separations().tolist()) == sorted(gaps)
    assert [log.cohort(t).tolist() for t in range(20)] == [sorted(c.tolist()) for c in cohorts]
    assert list(ParticipationLog([[], []]).by_client().patterns()) == []
    # An appended round renews what was counted.
    log.append(cohorts[0])
    assert log.observed().max_participations >= observed.max_participations
    assert log.observed().rounds == 21 and log.statistics().clients == len(seen)


@pytest.mark.parametrize('cohort', [[-1], [0.5], [[1, 2]], ['a'], [True], [2**63], [2**70]])
def test_log_refuses_what_is_no_list_of_clients(cohort):
    with pytest.raises(ValueError, match='^cohort'):
        ParticipationLog([cohort])


def test_log_round_trip(tmp_path):
    for log in (
        ParticipationLog(),
        ParticipationLog([[]]),
        ParticipationLog([[5, 1], [], [2, 2, 0]]),
        ParticipationLog([[1], [2**31], [2**62, 3]]),
    ):
        log.save(tmp_path / 'log.npz')
        loaded = ParticipationLog.load(tmp_path / 'log.npz')
        assert loaded == log
        assert loaded.max_per_round == log.max_per_round
        assert loaded.rounds == 0 or loaded.observed() == log.observed()
    small = ParticipationLog([[1, 2]])
    small.save(tmp_path / 'log.npz')
    with np.load(tmp_path / 'log.npz') as data:
        assert (data['clients'].dtype, data['offsets'].dtype) == (np.int32, np.int64)
    # Logs with int64 clients are read.
    np.savez_compressed(
        tmp_path / 'log.npz', clients=np.array([3, 5, 1]), offsets=np.array([0, 2, 2, 3])
    )
    assert ParticipationLog.load(tmp_path / 'log.npz') == ParticipationLog([[3, 5], [], [1]])


def _damaged(path):
    with pytest.raises(ValueError, match='not a participation log') as error:
        ParticipationLog.load(path)
    message = str(error.value)
    assert message.startswith(f'{path}: ') and '\n' not in message
    return message


def test_damaged_log_is_refused_in_one_line(tmp_path):
    path = tmp_path / 'log.npz'
    ParticipationLog([[1, 2, 3]] * 50).save(path)
    path.write_bytes(path.read_bytes()[:-30])
    _damaged(path)
    assert 'No such file' in _damaged(tmp_path / 'absent.npz')
    _damaged(tmp_path)
    for content in (b'', b'text', b'PK', b'\x93NUMPY\x01\x00'):
        path.write_bytes(content)
        _damaged(path)
    np.save(tmp_path / 'array.npy', np.arange(3))
    assert 'is not an .npz file' in _damaged(tmp_path / 'array.npy')
    np.savez_compressed(path, clients=[1])
    assert 'offsets' in _damaged(path)
    with zipfile.ZipFile(path, 'w') as archive:
        archive.writestr('clients.npy', b'nothing of the kind')
        archive.writestr('offsets.npy', b'')
    _damaged(path)


def test_truncations_and_flipped_bits_are_seen_or_harmless(tmp_path):
    path = tmp_path / 'log.npz'
    log = ParticipationLog([[1, 2, 300], [], [70000, 5]])
    log.save(path)
    content = path.read_bytes()
    for size in range(0, len(content)):
        path.write_bytes(content[:size])
        _damaged(path)
    harmless = 0
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        try:
            # Time stamps and other fields of a zip file say nothing about the log.
            assert ParticipationLog.load(path) == log
            harmless += 1
        except ValueError as error:
            assert 'not a participation log' in str(error)
    # Two thirds of so small a file are headers.
    assert harmless < 0.5 * len(content)


@pytest.mark.parametrize(
    'clients, offsets, message',
    [
        ([1.0], [0, 1], 'clients is float64'),
        (np.array([1], np.int16), [0, 1], 'clients is int16'),
        ([[1]], [0, 1], 'clients is int64 of shape'),
        ([1], [0.0, 1.0], 'offsets is float64'),
        ([1], np.array([0, 1], np.int32), 'offsets is int32'),
        ([1], np.array(1), 'offsets is int64 of shape'),
        ([1], np.zeros(0, np.int64), 'offsets start with'),
        ([1], [1, 1], 'offsets start with [1]: must start with 0'),
        ([1, 2], [0, 2, 1, 2], 'offsets decrease'),
        ([1, 2], [0, 1], 'offsets end with 1, and there are 2 clients'),
        ([1, 2], [0, 3], 'offsets end with 3, and there are 2 clients'),
        ([-1, 2], [0, 2], 'it has client -1: must be >= 0'),
        ([1, 3, 2, 4], [0, 1, 4], 'clients are not sorted within each round'),
    ],
)
def test_arrays_that_are_no_log_are_refused(tmp_path, clients, offsets, message):
    path = tmp_path / 'log.npz'
    np.savez_compressed(path, clients=clients, offsets=offsets)
    assert message in _damaged(path)


def test_memory_is_linear_in_the_log(tmp_path):
    rng = np.random.default_rng(2)
    # 400,000 listings of clients anywhere within int64.
    ids = rng.integers(0, 2**62, 200_000)
    log = ParticipationLog(rng.choice(ids, 1000) for _ in range(400))
    tracemalloc.start()
    log.save(tmp_path / 'log.npz')
    loaded = ParticipationLog.load(tmp_path / 'log.npz')
    assert loaded.observed().min_separation == 1
    assert sum(loaded.statistics().participations.values()) == loaded.statistics().clients
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 80 * 400_000
