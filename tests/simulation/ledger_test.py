"""The ledger: what is written stays, what is damaged is noticed, noise is used once."""

import hashlib
import json
import resource

import numpy as np
import pytest

from dpfl import errors
from dpfl.accounting.records import ledger_lines
from dpfl.simulation import ledger

_KEY = np.array([81985529216486895, -1], np.int64)


_PLAN = ledger_lines.digest([np.int64(2)])


def _entry(t, cohort=None, model=None, noise=None, data=None):
    return ledger_lines.Entry(
        cohort=ledger_lines.cohort_digest([t, 7] if cohort is None else cohort),
        model=ledger_lines.digest([np.float32(t if model is None else model)]),
        noise=ledger_lines.digest([_KEY, np.int64(t if noise is None else noise)]),
        data=ledger_lines.digest([np.int8(t if data is None else data)]),
    )


def _open(path):
    return ledger.Ledger(path, _PLAN)


@pytest.fixture(name='path')
def _path(tmp_path):
    """A ledger of three rounds."""
    path = tmp_path / 'ledger.jsonl'
    written = _open(path)
    for t in range(3):
        written.record(t, _entry(t))
    return path


def test_a_ledger_is_read_back(path):
    again = _open(path)
    assert again.rounds == 3
    assert again.cohort(1) == ledger_lines.cohort_digest([7, 1])
    assert len({again.position(rounds) for rounds in range(4)}) == 4
    first, *rounds = map(json.loads, path.read_text().splitlines())
    assert (first['format'], first['plan']) == (2, _PLAN)
    assert [each['round'] for each in rounds] == [0, 1, 2]


def test_a_round_that_is_run_again_leaves_the_file_as_it_is(path):
    before = path.read_bytes()
    again = _open(path)
    for t in range(3):
        again.record(t, _entry(t))
    assert path.read_bytes() == before
    again.record(3, _entry(3))
    assert path.read_bytes().startswith(before) and _open(path).rounds == 4


@pytest.mark.parametrize('changed', ['cohort', 'model', 'noise', 'data'])
def test_a_round_is_not_run_again_with_anything_else(path, changed):
    before = path.read_bytes()
    other = {'cohort': [1, 8], 'model': 9, 'noise': 9, 'data': 9}[changed]
    with pytest.raises(
        ledger.LedgerError, match=f'round 1 was released with (an)?other {changed}; the plan counts'
    ):
        _open(path).record(1, _entry(1, **{changed: other}))
    assert path.read_bytes() == before


def test_noise_is_not_used_in_two_rounds(path):
    with pytest.raises(ledger.LedgerError, match='the noise of round 3 was used before'):
        _open(path).record(3, _entry(3, noise=0))


def test_no_round_is_left_out(path):
    with pytest.raises(ledger.LedgerError, match='ends before round 4, at 3'):
        _open(path).record(4, _entry(4))


def test_a_last_line_that_was_cut_off_is_written_anew(path):
    whole = path.read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    for length in range(1, len(last)):
        for zeros in (b'', b'\0' * (len(last) - length)):
            path.write_bytes(whole[:-length] + zeros)
            cut = _open(path)
            assert cut.rounds == 2
            cut.record(2, _entry(2))
            assert path.read_bytes() == whole


def test_a_first_line_that_was_cut_off_is_written_anew(path):
    lines = path.read_bytes().splitlines(keepends=True)
    begin = lines[0] + lines[1]
    for length in range(len(begin)):
        path.write_bytes(begin[:length])
        cut = _open(path)
        assert cut.rounds == 0
        cut.record(0, _entry(0))
        assert path.read_bytes() == begin


def test_the_ledger_of_another_plan_is_refused(path):
    with pytest.raises(ledger.LedgerError, match='ledger.jsonl: is the ledger of another plan'):
        ledger.Ledger(path, '0' * 64)


def test_a_ledger_of_format_1_is_refused_with_the_version_that_reads_it(path):
    path.write_text('{"round": 0, "cohort": "c", "model": "m", "noise": "n", "chain": "d"}\n')
    with pytest.raises(ledger.LedgerError, match='jsonl: has format 1, which commit .* to read$'):
        _open(path)


@pytest.mark.parametrize('length', [0, 5])
def test_what_others_write_meanwhile_is_refused_and_not_dropped(path, length):
    cut = path.read_bytes()[:-5] if length else path.read_bytes()
    path.write_bytes(cut)
    ours = _open(path)
    more = cut + b'of another ledger, with more rounds\n'
    path.write_bytes(more)
    with pytest.raises(errors.StorageError, match=f'ledger.jsonl: has {len(more)} bytes, must hav'):
        ours.record(ours.rounds, _entry(ours.rounds))
    assert path.read_bytes() == more


def test_a_format_of_the_future_is_named():
    values = {'format': 3, 'plan': _PLAN}
    chain = hashlib.sha256(b'dpfl ledger').hexdigest()
    chain = hashlib.sha256((chain + json.dumps(values)).encode()).hexdigest()
    line = json.dumps({**values, 'chain': chain}) + '\n'
    with pytest.raises(ledger_lines.LineError, match='^has format 3, this version reads 2$'):
        ledger_lines.parse(line.encode())


def test_the_ledger_is_for_its_owner_only(path):
    assert path.stat().st_mode & 0o777 == 0o600


def test_reading_changes_nothing(path):
    cut = path.read_bytes()[:-5]
    path.write_bytes(cut)
    _open(path).record(0, _entry(0))
    assert path.read_bytes() == cut


def test_every_flipped_bit_is_noticed(path):
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    for i in range(len(whole)):
        damaged = bytearray(whole)
        damaged[i] ^= 1 << random.integers(8)
        path.write_bytes(damaged)
        with pytest.raises(ledger.LedgerError, match=r'ledger.jsonl: line \d is damaged'):
            _open(path)


def test_a_line_that_was_taken_out_is_noticed(path):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1] + lines[3])
    with pytest.raises(ledger.LedgerError, match='line 3 is damaged'):
        _open(path)


def test_the_key_is_not_in_the_file(path):
    data = path.read_bytes()
    for secret in (_KEY.tobytes(), _KEY.tobytes().hex().encode(), str(_KEY[0]).encode()):
        assert secret not in data


def test_digests_tell_arrays_apart():
    arrays = [np.zeros(2), np.zeros(2, np.float32), np.zeros((2, 1)), np.zeros(1), np.ones(2)]
    assert len({ledger_lines.digest([array]) for array in arrays}) == len(arrays)
    assert ledger_lines.digest([np.zeros(2)] * 2) != ledger_lines.digest([np.zeros(4)])
    other_order = ledger_lines.cohort_digest(np.array([1, 3], np.int32))
    assert ledger_lines.cohort_digest([3, 1]) == other_order


def test_a_full_disk_is_named_and_leaves_the_rounds_before(path):
    before = path.read_bytes()
    full = _open(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, hard))
    try:
        with pytest.raises(errors.StorageError, match='ledger.jsonl: File too large'):
            full.record(3, _entry(3))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    full.record(3, _entry(3))
    assert _open(path).rounds == 4


def test_a_folder_that_is_gone_is_named(tmp_path):
    with pytest.raises(errors.StorageError, match='gone/ledger.jsonl: No such file or directory'):
        _open(tmp_path / 'gone' / 'ledger.jsonl').record(0, _entry(0))
