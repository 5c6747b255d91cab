"""Mechanisms by name, from files and dictionaries of others, and which of several is chosen."""

import re

import numpy as np
import pytest

from dpfl import Participation, errors, mechanisms, strategies
from dpfl.mechanisms import registry
from tests import mechanism_cases
from tests.attacks.hostile.refusals import refused

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
    needs = registry.ENTRIES['blt'].needs(lambda name: f'--blt_{name}')
    assert needs == '--blt_strategy, or --blt_decay and --blt_scale'
    assert registry.ENTRIES['tree'].accepts([]) and registry.ENTRIES['tree'].needs() == 'none'
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
    storage = mechanisms.choose_noise_storage(best.kernel(), 2_400_000, 0.03, 'hardened')
    assert storage.name == 'memory'
    without_memory, candidates = mechanisms.choose(_SCHEMA, dimension=2_400_000, memory_limit=0)
    # Independent noise can be drawn again, so it needs no memory.
    assert without_memory.name == 'banded_inverse'
    assert candidates[0].draws > 1 and candidates[0].gigabytes == candidates[0].buffers == 0


@pytest.mark.parametrize(
    'name, rounds, decay, scale',
    [
        (
            'blt_b100',
            2000,
            [0.989739971007307, 0.7352001759538236, 0.16776199983448145, 0.1677619998016191],
            [0.20502892852480875, 0.23357939425278557, 0.03479503245420878, 0.03479509876050538],
        ),
        (
            'blt_b400',
            4000,
            [0.9999999999921251, 0.9944453083640997, 0.8985923474607591, 0.4912001418098778],
            [0.0070314825502323835, 0.10613806907600574, 0.1898159060327625, 0.1966594748073734],
        ),
        (
            'blt_b1000',
            4000,
            [0.9999999999983397, 0.9973412136664378, 0.9584629472313878, 0.6581796870749317],
            [0.008657392263671862, 0.05890891298180163, 0.14548176930698697, 0.2770117005326523],
        ),
    ],
)
def test_production_strategies_are_those_of_mcmahan24_appendix_a(name, rounds, decay, scale):
    assert strategies.load(name) == mechanisms.Blt(rounds, decay, scale)


def test_a_file_that_exists_wins_over_a_packaged_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert mechanisms.load('blt_b400') == strategies.load('blt_b400')
    (tmp_path / 'blt_b100').mkdir()
    assert mechanisms.load('blt_b100').rounds > 0
    own = mechanisms.BinaryTree(4)
    mechanisms.save(own, 'blt_b400')
    assert mechanisms.load('blt_b400') == own


def test_an_unknown_name_lists_the_known_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.ArgumentError, match='must be a file or one of blt_b100, ') as error:
        mechanisms.load('blt_b4')
    assert str(error.value).startswith('path=blt_b4: ') and '\n' not in str(error.value)


_TREE = {'mechanism': 'tree', 'rounds': 4}


def _nested(depth):
    values = _TREE
    for _ in range(depth):
        values = {'mechanism': 'restarted', 'base': values, 'starts': [], 'rounds': 4}
    return values


_NO_VALUES = 'must be the values of a mechanism'
_DICTIONARIES = [
    (3, f'mechanism=3: {_NO_VALUES}'),
    ([], rf'mechanism=\[\]: {_NO_VALUES}'),
    (None, f'mechanism=None: {_NO_VALUES}'),
    (_nested(500), f'mechanism=.*: {_NO_VALUES}'),
    (_nested(5000), f'mechanism=.*: {_NO_VALUES}'),
    ({**_nested(1), 'base': 3}, f'mechanism=3: {_NO_VALUES}'),
    ({**_nested(1), 'starts': [1.5]}, 'starts=1.5: must be an integer'),
    ({**_nested(1), 'starts': [float('inf')]}, 'starts=inf: must be an integer'),
    ({**_TREE, 'rounds': 10**12}, 'rounds=1000000000000: must be an integer >= 1 and <= 4194304'),
    ({**_TREE, 'a\nb': 1}, 'mechanism=tree: does not take the parameters a b, rounds'),
    ({**_TREE, 'mechanism': {}}, 'mechanism={}: must be one of gaussian, '),
    ({'mechanism': 'full_honaker_tree', 'rounds': 3, 'completed': 'no'}, 'completed=no: must be t'),
    ({'mechanism': 'banded', 'diagonals': [['1']]}, 'diagonals: must be a table of numbers'),
    (
        {'mechanism': 'blt', 'rounds': 3, 'decay': [0.5] * 2000, 'scale': [0.1] * 2000},
        'at most 1024',
    ),
    ({**_TREE, 'mechanism': 'magic'}, 'mechanism=magic: must be one of gaussian, '),
    ({**_TREE, 'mechanism': np.array(['tree', 'tree'])}, r'mechanism=\[.tree. .tree.\]: must be'),
    ({**_TREE, 'bands': 3}, 'mechanism=tree: does not take the parameters bands'),
]
for _name in registry.REMOVED:
    _removed, _message = {**_TREE, 'mechanism': _name}, f'is a {_name} mechanism, which commit '
    _DICTIONARIES += [(_removed, _message), ({**_nested(1), 'base': _removed}, _message)]


@pytest.mark.parametrize('values, message', _DICTIONARIES, ids=range(len(_DICTIONARIES)))
def test_dictionaries_of_other_things_are_refused_in_one_line(values, message):
    assert re.search(message, refused(lambda: mechanisms.from_dict(values)))


def _restarted(values):
    usual = dict(schema_version=1, mechanism='restarted', rounds=4, starts=[1])
    return lambda path: np.savez(path, **usual | values)


_NO_FILE = 'cannot be read as a mechanism'


@pytest.mark.parametrize(
    'write, message',
    [
        (lambda path: None, _NO_FILE),
        (lambda path: path.mkdir(), _NO_FILE),
        (lambda path: path.write_text('no strategy'), _NO_FILE),
        (lambda path: path.write_bytes(b'\x93NUMPY\x01\x00'), _NO_FILE),
        (lambda path: np.savez(path, weights=np.ones(3)), 'has schema version None: must be 1'),
        (_restarted({'base': 3, 'base/mechanism': 'tree'}), 'must not have two values'),
        (_restarted({'base/mechanism': 'tree', 'base': 3}), 'must not have two values'),
        (_restarted({'base/' * 500 + 'rounds': 3}), ''),
        (
            _restarted({'starts': [1.7], 'base/mechanism': 'tree', 'base/rounds': 4}),
            'starts=1.7: must be an integer',
        ),
    ],
    ids=['absent', 'folder', 'text', 'array', 'archive', 'both', 'both_turned', 'deep', 'starts'],
)
def test_files_of_other_things_are_refused_in_one_line(tmp_path, write, message):
    write(tmp_path / 'strategy.npz')
    assert re.search(message, refused(lambda: mechanisms.load(tmp_path / 'strategy.npz')))


_BLT = mechanisms.Blt(4, [0.5], [0.1])


def test_numbers_of_numpy_and_the_sign_of_zero_change_no_digest():
    for one, other in (
        (mechanisms.BinaryTree(4), mechanisms.BinaryTree(np.int64(4))),
        (
            mechanisms.ColumnScaled(_BLT, [1.0], 4, 2),
            mechanisms.ColumnScaled(_BLT, [1.0], np.int32(4), np.int32(2)),
        ),
        (mechanisms.Blt(4, [0.5], [0.0]), mechanisms.Blt(4, [0.5], [-0.0])),
        (mechanisms.Banded([[1.0, 0.0]] * 2), mechanisms.Banded([[1.0, 0.0], [1.0, -0.0]])),
    ):
        assert one == other and one.digest() == other.digest()
