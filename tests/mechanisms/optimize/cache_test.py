import dataclasses
import os
import pathlib

import numpy as np
import pytest

from dpfl import Participation, _cache, mechanisms
from dpfl.mechanisms.optimize import driver
from dpfl.mechanisms.optimize.blt import optimize_blt

_BLT = mechanisms.Blt(7, [0.9, 1 / 3], [0.2, 0.1])
_OTHER = mechanisms.Blt(7, [0.8], [0.2])


@pytest.fixture(name='directory')
def _directory(monkeypatch, tmp_path):
    path = tmp_path / 'kept'
    monkeypatch.setenv('DPFL_CACHE_DIR', str(path))
    return path


class _Compute:
    def __init__(self, result=_BLT):
        self.result, self.calls = result, 0

    def __call__(self):
        self.calls += 1
        return self.result


def _entry(directory) -> pathlib.Path:
    (path,) = directory.iterdir()
    return path


def test_the_second_call_computes_nothing(directory):
    compute = _Compute()
    first = driver.cached('kind', mechanisms.Blt, {'n': 7}, compute)
    second = driver.cached('kind', mechanisms.Blt, {'n': 7}, compute)
    assert compute.calls == 1
    assert first is _BLT and second == _BLT and second.digest() == _BLT.digest()


def test_other_arguments_are_other_entries(directory):
    driver.cached('kind', mechanisms.Blt, {'n': 7, 'k': [1, 2]}, _Compute())
    for kind, fields in (
        ('other', {'n': 7, 'k': [1, 2]}),
        ('kind', {'n': 8, 'k': [1, 2]}),
        ('kind', {'n': 7, 'k': [1, 2], 'm': None}),
        ('kind', {'n': '7', 'k': [1, 2]}),
    ):
        assert driver.cached(kind, mechanisms.Blt, fields, _Compute(_OTHER)) == _OTHER
    # The order of fields does not matter.
    compute = _Compute(_OTHER)
    assert driver.cached('kind', mechanisms.Blt, {'k': [1, 2], 'n': 7}, compute) == _BLT
    assert not compute.calls


def test_a_damaged_entry_is_computed_again(directory):
    driver.cached('kind', mechanisms.Blt, {'n': 7}, _Compute())
    path = _entry(directory)
    content = path.read_bytes()
    for place in range(0, len(content), 23):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        # Some bytes of an archive mean nothing. What is read is right, or it is not read.
        assert driver.cached('kind', mechanisms.Blt, {'n': 7}, _Compute()) == _BLT
    for length in (0, 1, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        compute = _Compute()
        assert driver.cached('kind', mechanisms.Blt, {'n': 7}, compute) == _BLT
        assert compute.calls == 1
        assert path.read_bytes()[:2] == b'PK'


def test_an_entry_of_others_is_not_trusted(directory):
    driver.cached('kind', mechanisms.Blt, {'n': 7}, _Compute())
    path = _entry(directory)
    foreign = path.read_bytes()
    path.unlink()
    driver.cached('kind', mechanisms.Blt, {'n': 8}, _Compute(_OTHER))
    own = _entry(directory)
    own.write_bytes(foreign)
    compute = _Compute(_OTHER)
    assert driver.cached('kind', mechanisms.Blt, {'n': 8}, compute) == _OTHER and compute.calls == 1
    # Nor is a mechanism without a seal.
    mechanisms.save(_BLT, own)
    assert driver.cached('kind', mechanisms.Blt, {'n': 8}, compute) == _OTHER and compute.calls == 2


def test_a_directory_that_cannot_be_written_is_no_error(directory, monkeypatch, tmp_path):
    def full(*_):
        raise OSError('no space left')

    with monkeypatch.context() as patch:
        patch.setattr(os, 'replace', full)
        assert driver.cached('kind', mechanisms.Blt, {'n': 7}, _Compute()) == _BLT
    assert not list(directory.iterdir())  # Nothing unfinished is left.
    in_the_way = tmp_path / 'file'
    in_the_way.write_text('')
    monkeypatch.setenv('DPFL_CACHE_DIR', str(in_the_way))
    assert driver.cached('kind', mechanisms.Blt, {'n': 7}, _Compute()) == _BLT


def test_an_error_of_the_optimiser_is_not_hidden(directory):
    def fails():
        raise OSError('of the optimiser')

    with pytest.raises(OSError, match='of the optimiser'):
        driver.cached('kind', mechanisms.Blt, {'n': 7}, fails)


def test_where_results_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv('DPFL_CACHE_DIR', '')
    assert _cache.directory() is None
    compute = _Compute()
    driver.cached('kind', mechanisms.Blt, {}, compute)
    driver.cached('kind', mechanisms.Blt, {}, compute)
    assert compute.calls == 2
    monkeypatch.delenv('DPFL_CACHE_DIR')
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'xdg'))
    assert _cache.directory() == tmp_path / 'xdg' / 'dpfl'
    monkeypatch.delenv('XDG_CACHE_HOME')
    monkeypatch.setenv('HOME', str(tmp_path))
    assert _cache.directory() == tmp_path / '.cache' / 'dpfl'


def test_optimisers_keep_results_of_equal_schemas_and_of_workloads(directory):
    schema = Participation(40, 8)
    first = optimize_blt(schema, 2)
    assert optimize_blt(dataclasses.replace(schema, max_participations=5), 2) == first
    assert len(list(directory.iterdir())) == 1
    optimize_blt(schema, 2, workload=np.arange(1.0, 41))
    assert len(list(directory.iterdir())) == 2
    square, flat = np.ones((2, 2)), np.ones(4)
    assert _cache.array_key(flat) == _cache.array_key([1] * 4) != _cache.array_key(square)
