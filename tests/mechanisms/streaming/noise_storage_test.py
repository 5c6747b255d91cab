import pytest

from dpfl import mechanisms

_BLT = mechanisms.Blt(2000, [0.99, 0.9, 0.7, 0.2], [0.1] * 4).kernel()
_BANDED = mechanisms.BandedToeplitz.fichtenberger(2000, 342).kernel()
_PRODUCT = mechanisms.BandedInverse.square_root(2000, 32).kernel()


@pytest.mark.parametrize(
    'kernel, dimension, limit, name, gigabytes',
    [
        (mechanisms.Identity(2000).kernel(), 10**9, 0.0, 'state', 0.0),
        (_BLT, 10_000, 1.0, 'state', 160e-6),
        (_BLT, 1_000_000, 1.0, 'state', 0.016),
        (_BLT, 1_000_001, 1.0, 'memory', 0.016),
        (_BLT, 10_000, 0.0001, 'file', 160e-6),
        (_BANDED, 2_400_000, 4.0, 'memory', 3.2736),
        (_BANDED, 2_400_000, 1.0, 'file', 3.2736),
        (_PRODUCT, 10_000, 1.0, 'regenerated', 0.0),
        (_PRODUCT, 2_400_000, 1.0, 'memory', 0.2976),
        (_PRODUCT, 2_400_000, 0.1, 'regenerated', 0.0),
    ],
)
def test_storage_follows_from_the_bytes(kernel, dimension, limit, name, gigabytes):
    storage = mechanisms.choose_noise_storage(kernel, dimension, limit)
    assert storage.name == name
    assert storage.gigabytes == pytest.approx(gigabytes, rel=1e-3, abs=1e-12)
    assert storage.is_supplied == (name in ('memory', 'file'))
    assert str(storage).startswith('noise of past rounds: ') and '\n' not in str(storage)


@pytest.mark.parametrize(
    'dimension, limit, message',
    [
        (0, 1, 'dimension=0: must be'),
        (10, -1, 'memory_limit=-1: must be'),
        (10, float('nan'), 'memory_limit=nan: must be'),
    ],
)
def test_bad_arguments_are_named(dimension, limit, message):
    with pytest.raises(ValueError, match=message):
        mechanisms.choose_noise_storage(_BLT, dimension, limit)


@pytest.mark.parametrize('limit, name', [(1.0, 'memory'), (0.01, 'file')])
def test_hardened_noise_is_never_in_the_state(limit, name):
    kernel = mechanisms.Blt(20, [0.9, 0.4], [0.2, 0.3]).kernel()
    storage = mechanisms.choose_hardened_noise_storage(kernel, 1_000_000, limit)
    assert (storage.name, storage.gigabytes, storage.is_supplied) == (name, 0.016, True)
    independent = mechanisms.choose_hardened_noise_storage(mechanisms.Identity(3).kernel(), 10, 0.0)
    assert (independent.name, independent.gigabytes) == ('memory', 0.0)
    with pytest.raises(ValueError, match='dimension=0: must be an integer >= 1'):
        mechanisms.choose_hardened_noise_storage(kernel, 0, 1.0)
