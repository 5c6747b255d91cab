"""Schemas and logs against their definitions; logs from files that somebody else may have made."""

import collections
import itertools
import tracemalloc
import zipfile

import numpy as np
import pytest

from dpfl import Participation, ParticipationLog, errors
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
    assert not any(map(schema.admits, ([-1], [7], [2, 2])))
    assert Participation.from_rounds_between(7, 2, 2) == schema


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


@pytest.mark.parametrize(
    'make, arguments, message',
    [
        (Participation, (0,), 'rounds=0: must be an integer >= 1'),
        (Participation, (True,), 'rounds=True: must be'),
        (Participation, (5, 0), 'min_separation=0: must be an integer >= 1'),
        (Participation, (5, 1, 0), 'max_participations=0: must be an integer >= 1'),
        (Participation, (5, 1, 10**30), 'max_participations=1.*: must be .* <= 214748'),
        *(
            (ParticipationLog, ([cohort],), 'cohort')
            for cohort in ([-1], [0.5], [[1, 2]], ['a'], [True], [2**63], [2**70])
        ),
    ],
)
def test_bad_values_are_named(make, arguments, message):
    with pytest.raises(errors.ArgumentError, match=f'^{message}'):
        make(*arguments)


@pytest.mark.parametrize(
    'cohorts, observed',
    [
        # Reshuffling each epoch lets a client close one epoch and open the next.
        ([[0], [1], [1], [0]], Participation(4, 1, 2)),
        ([[1, 2], [3], [], [2, 3], [1]], Participation(5, 2, 2)),
        ([[1], [2], [3]], Participation(3, 3, 1)),
        ([[], []], Participation(2, 2, 1)),
        # Listed twice in a round: participations, but no separation of 0.
        ([[4], [7, 3, 7], [8], [7], [4]], Participation(5, 2, 3)),
        ([[2, 2]], Participation(1, 1, 2)),
    ],
)
def test_the_tightest_schema_of_a_log_by_hand(cohorts, observed):
    assert ParticipationLog(cohorts).observed() == observed


@pytest.mark.parametrize('scale', [1, 2**31, 2**61])
def test_a_log_is_counted_as_it_is_listed(scale):
    rng = np.random.default_rng(1)
    log = ParticipationLog()
    assert log.max_per_round == 1
    most, seen = 1, collections.defaultdict(list)
    for t in range(20):  # An appended round renews what was counted.
        cohort = (rng.integers(0, 4, size=rng.integers(0, 6)) * scale).tolist()
        log.append(cohort)
        assert log.cohort(t).tolist() == sorted(cohort)
        for client in cohort:
            seen[client].append(t)
        most = max(most, *map(cohort.count, cohort), 1)
        gaps = [j - i for rounds in seen.values() for i, j in itertools.pairwise(rounds) if j > i]
        lengths = [len(rounds) for rounds in seen.values()]
        statistics = log.statistics()
        assert statistics.clients == len(seen) and statistics.max_per_round == most
        assert statistics.participations == collections.Counter(lengths)
        assert statistics.separations == collections.Counter(gaps)
        schema = Participation(t + 1, min(gaps, default=t + 1), max(lengths, default=1))
        assert log.observed() == schema
        grouped = {
            client: rounds
            for clients, patterns in log.by_client().patterns()
            for client, rounds in zip(clients.tolist(), patterns.tolist(), strict=True)
        }
        assert grouped == seen
    assert most > 1


def test_log_round_trip(tmp_path):
    path = tmp_path / 'log'
    for log in (
        ParticipationLog(),
        ParticipationLog([[]]),
        ParticipationLog([[5, 1], [], [2, 2, 0]]),
        ParticipationLog([[1], [2**31], [2**62, 3]]),
    ):
        log.save(path)
        loaded = ParticipationLog.load(path)
        assert loaded == log and loaded.max_per_round == log.max_per_round
    ParticipationLog([[1, 2]]).save(path)
    with np.load(path) as data:
        assert (data['clients'].dtype, data['offsets'].dtype) == (np.int32, np.int64)
    # Logs with int64 clients are read.
    path = tmp_path / 'log.npz'
    np.savez_compressed(path, clients=np.array([3, 5, 1]), offsets=np.array([0, 2, 2, 3]))
    assert ParticipationLog.load(path) == ParticipationLog([[3, 5], [], [1]])


def _write_nonsense(path):
    with zipfile.ZipFile(path, 'w') as archive:
        archive.writestr('clients.npy', b'nothing of the kind')
        archive.writestr('offsets.npy', b'')


def _arrays(clients, offsets):
    return lambda path: np.savez_compressed(path, clients=clients, offsets=offsets)


@pytest.mark.parametrize(
    'write, message',
    [
        (lambda path: None, 'No such file'),
        (lambda path: path.mkdir(), ''),
        (lambda path: path.write_bytes(b'text'), ''),
        (lambda path: path.write_bytes(b'PK'), ''),
        (lambda path: path.write_bytes(b'\x93NUMPY\x01\x00'), 'is not an .npz file'),
        (lambda path: np.savez_compressed(path, clients=[1]), 'offsets'),
        (_write_nonsense, ''),
        (_arrays([1.0], [0, 1]), 'clients is float64'),
        (_arrays(np.array([1], np.int16), [0, 1]), 'clients is int16'),
        (_arrays([[1]], [0, 1]), 'clients is int64 of shape'),
        (_arrays([1], np.array([0, 1], np.int32)), 'offsets is int32'),
        (_arrays([1], np.array(1)), 'offsets is int64 of shape'),
        (_arrays([1], np.zeros(0, np.int64)), 'offsets start with'),
        (_arrays([1], [1, 1]), 'offsets start with [1]: must start with 0'),
        (_arrays([1, 2], [0, 2, 1, 2]), 'offsets decrease'),
        # Their differences overflow.
        (_arrays([1, 2, 3], [0, 2**63 - 1, -(2**63), -1, 3]), 'offsets decrease'),
        (_arrays([1, 2], [0, 1]), 'offsets end with 1, and there are 2 clients'),
        (_arrays([1, 2], [0, 3]), 'offsets end with 3, and there are 2 clients'),
        (_arrays([-1, 2], [0, 2]), 'it has client -1: must be >= 0'),
        (_arrays([1, 3, 2, 4], [0, 1, 4]), 'clients are not sorted within each round'),
    ],
)
def test_files_that_are_no_log_are_refused_in_one_line(tmp_path, write, message):
    path = tmp_path / 'log.npz'
    write(path)
    with pytest.raises(ValueError, match='not a participation log') as error:
        ParticipationLog.load(path)
    text = str(error.value)
    assert text.startswith(f'participation_log={path}: ') and message in text and '\n' not in text


def test_truncations_and_flipped_bits_are_seen_or_harmless(tmp_path):
    path = tmp_path / 'log.npz'
    log = ParticipationLog([[1, 2, 300], [], [70000, 5]])
    log.save(path)
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match='not a participation log'):
            ParticipationLog.load(path)
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
