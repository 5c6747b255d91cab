"""Hostile .npz archives: false headers, bombs, pickles."""

import io
import pathlib
import zipfile

import numpy as np
import pytest

from dpfl import ParticipationLog, _npz, errors, mechanisms
from dpfl.simulation.training import run_model
from tests.attacks.hostile.files import npy_described, npy_header, npz_archive
from tests.attacks.hostile.refusals import refused


def _npy(array) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    'data, message',
    [
        (npy_described('(1000000000000,)'), 'not all there'),
        (npy_described('(4294967296, 4294967296)'), 'not all there'),
        (npy_described('(2,)'), 'longer than its header says'),
        (npy_described('(2,)', '|O'), 'not one of plain numbers'),
        (npy_described('(2,)', '<V0'), 'not one of plain numbers'),
        (npy_described('(' * 300 + ')' * 300), 'not one of plain numbers'),
        (npy_described('(-1,)'), 'not one of plain numbers'),
        (npy_header("{'descr': '<f8'"), 'not one of plain numbers'),
        (b'\x93NUMPY\3\0', 'no header'),
        (b'\x93NUMPY\2\0\xff\xff\xff\xff', 'too long'),
        (b'no array', 'no header'),
        (
            npy_header("{'descr': '<U1', 'fortran_order': False, 'shape': (), }", b'\xff' * 4),
            'no character',
        ),
    ],
)
def test_an_array_is_read_only_if_its_bytes_are_there(data, message, tmp_path):
    path = npz_archive(tmp_path / 'a.npz', [('a.npy', data)])
    assert message in refused(lambda: _npz.load(path))


def test_a_bomb_is_not_unpacked(tmp_path):
    size = 1 << 26
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({size},), }}"
    data = npy_header(header) + bytes(size)
    path = npz_archive(tmp_path / 'a.npz', [('a.npy', data)], zipfile.ZIP_DEFLATED)
    del data
    assert path.stat().st_size < 1 << 20
    assert 'unpacks to more than' in refused(lambda: _npz.load(path, beside=1 << 24))
    assert 'unpacks to more than' in refused(lambda: mechanisms.load(path))


@pytest.mark.filterwarnings('ignore:Duplicate name')
def test_other_compressions_and_arrays_of_one_name_are_refused(tmp_path):
    members = [('a.npy', _npy(np.ones(3)))]
    path = npz_archive(tmp_path / 'a.npz', members, zipfile.ZIP_LZMA)
    assert 'compressed in another way' in refused(lambda: _npz.load(path))
    path = npz_archive(tmp_path / 'b.npz', members * 2)
    assert 'two arrays' in refused(lambda: _npz.load(path))


def test_pickles_are_never_loaded(tmp_path):
    class Evil:
        def __reduce__(self):
            return (pathlib.Path(tmp_path / 'executed').touch, ())

    np.savez(tmp_path / 'a.npz', a=np.array([Evil()], dtype=object))
    (tmp_path / 'model.npz').write_bytes((tmp_path / 'a.npz').read_bytes())
    refused(lambda: _npz.load(tmp_path / 'a.npz'))
    refused(lambda: run_model.weights(tmp_path), errors.StorageError)
    assert not (tmp_path / 'executed').exists()


@pytest.mark.parametrize(
    'names',
    [
        ['base', 'base/rounds'],
        ['base/rounds', 'base'],
        ['base/' * 500 + 'rounds'],
    ],
)
def test_parameters_that_hide_each_other_are_refused(names, tmp_path):
    arrays = {'schema_version': np.array(1), 'mechanism': np.array('restarted')}
    arrays |= {name: np.array(3) for name in names}
    members = [(f'{name}.npy', _npy(array)) for name, array in arrays.items()]
    refused(lambda: mechanisms.load(npz_archive(tmp_path / 'a.npz', members)))


def test_offsets_whose_differences_overflow_are_refused(tmp_path):
    path = tmp_path / 'log.npz'
    offsets = np.array([0, 2**63 - 1, -(2**63), -1, 3])
    np.savez(path, clients=np.array([1, 2, 3]), offsets=offsets)
    assert 'offsets decrease' in refused(lambda: ParticipationLog.load(path))
