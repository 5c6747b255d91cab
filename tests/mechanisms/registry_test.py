"""How mechanisms are made by their names, and which of several is chosen."""

import pytest

from dpfl import Participation, errors, mechanisms
from dpfl.mechanisms import registry
from tests import mechanism_cases

_VALUES = {
    'decay': [0.9, 0.4],
    'scale': [0.2, 0.3],
    'bands': 3,
    'released': 'prefix_sums',
}
# An optimised mechanism of a more general kind.
_KINDS_OF_OTHER_NAMES = {
    'free_banded': 'banded',
    'scaled_blt': 'column_scaled',
    'block_blt': 'column_scaled',
}


def _value(entry, parameter, rounds):
    if parameter != registry.STRATEGY:
        return _VALUES[parameter]
    makes = mechanism_cases.FACTORIES.values()
    return next(make(rounds) for make in makes if type(make(2)) is entry.kind)


@pytest.mark.parametrize('name', registry.ENTRIES)
def test_every_entry_makes_mechanisms_of_its_kind(name):
    entry = registry.ENTRIES[name]
    assert entry.name == name
    assert entry.kind.name in registry.ENTRIES
    # Published kinds are named as their files.
    if registry.STRATEGY in entry.parameters or entry.optimizer:
        assert entry.kind.name == _KINDS_OF_OTHER_NAMES.get(name, name)
    for way in entry.ways:
        for optional in {(), entry.optional}:
            given = {each: _value(entry, each, 12) for each in (*way, *optional)}
            mechanism = entry.construct(12, **given)
            assert type(mechanism) is entry.kind and mechanism.rounds == 12
            assert registry.TYPES[mechanism.name] is entry.kind
            assert entry.extends == mechanism.extends


@pytest.mark.standard
@pytest.mark.parametrize('name', registry.OPTIMIZED)
def test_sizes_and_losses_by_default(name):
    optimizer, schema = registry.ENTRIES[name].optimizer, Participation(6, 2)
    found = optimizer.optimize(schema)
    assert found == optimizer.optimize(schema, optimizer.default_size(schema))
    assert found.num_buffers() <= optimizer.num_buffers(optimizer.default_size(schema))
    assert found == optimizer.optimize(schema, loss=optimizer.losses[0])


def test_what_is_needed_can_be_shown_as_flags():
    entry = registry.ENTRIES['blt']
    assert entry.needs(lambda name: f'--blt_{name}') == (
        '--blt_strategy, or --blt_decay and --blt_scale'
    )
    assert entry.accepts(['scale', 'decay']) and not entry.accepts(['scale'])
    tree = registry.ENTRIES['tree']
    assert tree.accepts([]) and tree.accepts(['released']) and tree.needs() == 'none'
    # Parameters that are None are not given.
    gaussian = registry.ENTRIES['gaussian'].construct(3, strategy=None, decay=None)
    assert gaussian == mechanisms.Identity(3)


_SCHEMA = Participation(30, 10, 3)


@pytest.mark.standard
def test_the_least_loss_that_fits_is_chosen():
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
        closer = candidate.mechanism.max_loss(Participation(30, 5, 6))
        assert candidate.loss_if_closer == closer > candidate.loss
    draws = {candidate.name: candidate.draws for candidate in candidates}
    assert draws['blt with 2 buffers'] == draws['banded_inverse with 8 bands'] == 1


@pytest.mark.standard
def test_what_does_not_fit_is_left_with_the_reason():
    # 2.4 million coordinates: the bands do not fit, two buffers do.
    _, candidates = mechanisms.choose(_SCHEMA, dimension=2_400_000, memory_limit=0.05)
    (banded,) = (each for each in candidates if each.name.startswith('free_banded with'))
    assert banded.mechanism is None and banded.verdict == 'left: its state is larger than 0.05 GB'
    # Past noise is float64 if it is hardened, and is not drawn again.
    best, _ = mechanisms.choose(_SCHEMA, 2_400_000, memory_limit=0.03, noise='hardened')
    assert (
        mechanisms.choose_noise_storage(best.kernel(), 2_400_000, 0.03, 'hardened').name == 'memory'
    )
    without_memory, candidates = mechanisms.choose(_SCHEMA, dimension=2_400_000, memory_limit=0)
    # Independent noise can be drawn again, so it needs no memory.
    assert without_memory.name == 'banded_inverse'
    assert candidates[0].draws > 1 and candidates[0].gigabytes == candidates[0].buffers == 0


@pytest.mark.parametrize(
    'dimension, limit, message',
    [
        (0, 1, 'dimension=0: must be'),
        (10, -1, 'memory_limit=-1: must be'),
        (10, float('nan'), 'memory_limit=nan: must be'),
    ],
)
def test_bad_arguments_are_named(dimension, limit, message):
    kernel = mechanisms.Blt(20, [0.9], [0.2]).kernel()
    for take, first in (
        (mechanisms.choose, _SCHEMA),
        (mechanisms.choose_noise_storage, kernel),
    ):
        with pytest.raises(errors.ArgumentError, match=message):
            take(first, dimension, limit)
