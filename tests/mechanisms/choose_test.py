import pytest

from dpfl import Participation, mechanisms

_SCHEMA = Participation(100, 25, 4)


def test_the_least_loss_that_fits_is_taken():
    mechanism, candidates = mechanisms.choose(_SCHEMA, dimension=1000, memory_limit=1.0)
    losses = [candidate.loss for candidate in candidates]
    assert losses == sorted(losses)
    assert mechanism.max_loss(_SCHEMA) == losses[0]
    assert candidates[0].mechanism is mechanism
    assert candidates[0].verdict == 'taken: the least loss'
    assert all(candidate.verdict.startswith('left: ') for candidate in candidates[1:])
    for candidate in candidates:
        assert candidate.buffers >= candidate.mechanism.kernel().buffers
        assert candidate.gigabytes == candidate.buffers * 1000 * 4 / 1e9


def test_what_does_not_fit_is_left_with_the_reason():
    # 2.4 million coordinates: 24 copies of the model do not fit, 4 do.
    mechanism, candidates = mechanisms.choose(_SCHEMA, dimension=2_400_000, memory_limit=0.05)
    assert mechanism.name == 'blt'
    (banded,) = (
        candidate for candidate in candidates if candidate.name.startswith('free_banded with')
    )
    assert banded.mechanism is None and banded.verdict == 'left: its state is larger than 0.05 GB'
    without_memory, _ = mechanisms.choose(_SCHEMA, dimension=2_400_000, memory_limit=0)
    assert without_memory == mechanisms.Identity(100)


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
        mechanisms.choose(_SCHEMA, dimension, limit)
