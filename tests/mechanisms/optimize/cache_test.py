import dataclasses
import os

import numpy as np
import pytest

from dpfl import Participation, _cache, mechanisms
from dpfl.mechanisms.optimize import driver

_BLT = mechanisms.Blt(7, [0.9, 1 / 3], [0.2, 0.1])
_OTHER = mechanisms.Blt(7, [0.8], [0.2])
_SCHEMA = Participation(7)


@pytest.fixture(name='directory')
def _directory(monkeypatch, tmp_path):
    path = tmp_path / 'kept'
    monkeypatch.setenv('DPFL_CACHE_DIR', str(path))
    return path


def _cached(result=_BLT, kind='kind', **fields):
    """What is kept for the fields, or else the result; and whether that was computed."""
    calls, problem = [], driver.Problem(kind, _SCHEMA, 'max', None)
    found = problem.solve(
        mechanisms.Blt, lambda: calls.append(kind) or [result], version=1, **fields
    )
    return found, bool(calls)


def _entry(directory):
    (path,) = directory.iterdir()
    return path


def test_what_is_kept_is_known_by_all_of_its_arguments(directory):
    assert _cached(n=7, k=[1, 2]) == (_BLT, True)
    assert _cached(_OTHER, k=[1, 2], n=7) == (_BLT, False)  # The order of fields does not matter.
    assert _cached(_OTHER, 'other', n=7, k=[1, 2]) == (_OTHER, True)
    for fields in (dict(n=8, k=[1, 2]), dict(n=7, k=[1, 2], m=None), dict(n='7', k=[1, 2])):
        assert _cached(_OTHER, **fields) == (_OTHER, True)


def test_a_damaged_entry_is_computed_again(directory):
    _cached()
    path = _entry(directory)
    content = path.read_bytes()
    for place in range(0, len(content), 23):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        # Some bytes of an archive mean nothing. What is read is right, or it is not read.
        assert _cached()[0] == _BLT
    for length in (0, 1, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        assert _cached() == (_BLT, True)
        assert path.read_bytes()[:2] == b'PK'


def test_an_entry_of_others_is_not_trusted(directory):
    _cached(n=7)
    foreign = _entry(directory).read_bytes()
    _entry(directory).unlink()
    _cached(_OTHER, n=8)
    own = _entry(directory)
    own.write_bytes(foreign)
    assert _cached(_OTHER, n=8) == (_OTHER, True)
    mechanisms.save(_BLT, own)  # Nor is a mechanism without a seal.
    assert _cached(_OTHER, n=8) == (_OTHER, True)


def test_a_directory_that_cannot_be_written_is_no_error(directory, monkeypatch, tmp_path):
    def full(*_):
        raise OSError('no space left')

    with monkeypatch.context() as patch:
        patch.setattr(os, 'replace', full)
        assert _cached() == (_BLT, True)
    assert not list(directory.iterdir())  # Nothing unfinished is left.
    with pytest.raises(OSError, match='no space left'):  # Of an optimiser it is not hidden.
        driver.Problem('other', _SCHEMA, 'max', None).solve(mechanisms.Blt, full, version=1)
    in_the_way = tmp_path / 'file'
    in_the_way.write_text('')
    monkeypatch.setenv('DPFL_CACHE_DIR', str(in_the_way))
    assert _cached() == (_BLT, True)


def test_where_results_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv('DPFL_CACHE_DIR', '')
    assert _cache.directory() is None
    assert _cached() == _cached() == (_BLT, True)
    monkeypatch.setenv('DPFL_CACHE_DIR', '~nobody.here/dpfl')  # No such user.
    assert _cache.directory() is None
    monkeypatch.delenv('DPFL_CACHE_DIR')
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'xdg'))
    assert _cache.directory() == tmp_path / 'xdg' / 'dpfl'
    monkeypatch.delenv('XDG_CACHE_HOME')
    monkeypatch.setenv('HOME', str(tmp_path))
    assert _cache.directory() == tmp_path / '.cache' / 'dpfl'


def test_optimisers_keep_results_of_equal_schemas_and_of_workloads(directory):
    schema = Participation(40, 8)
    first = mechanisms.optimize_blt(schema, 2)
    same = dataclasses.replace(schema, max_participations=5)
    assert mechanisms.optimize_blt(same, 2) == first
    assert len(list(directory.iterdir())) == 1
    mechanisms.optimize_blt(schema, 2, workload=np.arange(1.0, 41))
    assert len(list(directory.iterdir())) == 2
    square, flat = np.ones((2, 2)), np.ones(4)
    assert _cache.array_key(flat) == _cache.array_key([1] * 4) != _cache.array_key(square)
