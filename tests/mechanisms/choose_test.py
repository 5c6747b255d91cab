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
    bound = mechanisms.loss_lower_bound(_SCHEMA, loss='max')
    for candidate in candidates:
        assert candidate.buffers >= candidate.mechanism.kernel().buffers
        assert candidate.gigabytes == candidate.buffers * 1000 * 4 / 1e9
        assert candidate.above_bound == pytest.approx(candidate.loss / bound - 1) and bound > 0
        assert candidate.above_bound > 0
        closer = candidate.mechanism.max_loss(Participation(100, 12, 8))
        assert candidate.loss_if_closer == closer > candidate.loss
    draws = {candidate.name: candidate.draws for candidate in candidates}
    assert draws['blt with 2 buffers'] == draws['banded_inverse with 8 bands'] == 1
    assert draws['lagged_blt with 2 buffers'] > 1


def test_what_does_not_fit_is_left_with_the_reason():
    # 2.4 million coordinates: 24 copies of the model do not fit, 4 do.
    mechanism, candidates = mechanisms.choose(_SCHEMA, dimension=2_400_000, memory_limit=0.05)
    assert mechanism.name == 'column_scaled'
    (banded,) = (
        candidate for candidate in candidates if candidate.name.startswith('free_banded with')
    )
    assert banded.mechanism is None and banded.verdict == 'left: its state is larger than 0.05 GB'
    without_memory, candidates = mechanisms.choose(_SCHEMA, dimension=2_400_000, memory_limit=0)
    # Independent noise can be drawn again, so it needs no memory.
    assert without_memory.name == 'banded_inverse'
    assert candidates[0].draws == 32 and candidates[0].gigabytes == candidates[0].buffers == 0


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
