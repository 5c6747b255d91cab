import subprocess
import sys

import numpy as np
import pytest

from dpfl import Participation, errors, mechanisms
from dpfl.mechanisms import registry
from tests import mechanism_cases, paths

_VALUES = {
    'decay': [0.9, 0.4],
    'scale': [0.2, 0.3],
    'bands': 3,
    'released': 'prefix_sums',
    'completed': True,
}
# An optimised mechanism of a more general kind.
_KINDS_OF_OTHER_NAMES = {
    'free_banded': 'banded',
    'scaled_blt': 'column_scaled',
    'scaled_lagged_blt': 'column_scaled',
    'block_blt': 'column_scaled',
}
every_entry = pytest.mark.parametrize('name', registry.ENTRIES)
_SCHEMA = Participation(12, 4)


def _value(entry, parameter, rounds):
    if parameter == registry.STRATEGY:
        return mechanism_cases.FACTORIES[_case(entry)](rounds)
    return _VALUES[parameter]


def _case(entry):
    """Name of a test case of the entry's class."""
    return next(
        case for case, make in mechanism_cases.FACTORIES.items() if type(make(2)) is entry.kind
    )


def _constructions():
    for entry in registry.ENTRIES.values():
        for way in entry.ways:
            for optional in sorted({(), entry.optional}):
                yield pytest.param(
                    entry, (*way, *optional), id='-'.join([entry.name, *way, *optional])
                )


@pytest.mark.parametrize('entry, parameters', _constructions())
def test_every_entry_is_made_saved_loaded_and_streamed(entry, parameters, tmp_path):
    given = {parameter: _value(entry, parameter, 12) for parameter in parameters}
    mechanism = entry.construct(12, **given)
    assert type(mechanism) is entry.kind and mechanism.rounds == 12
    assert registry.TYPES[mechanism.name] is entry.kind
    mechanisms.save(mechanism, tmp_path / 'strategy.npz')
    assert mechanisms.load(tmp_path / 'strategy.npz') == mechanism
    noise = np.random.default_rng(0).normal(size=(12, 2))
    np.testing.assert_allclose(
        mechanism.strategy_matrix() @ mechanisms.stream(mechanism.kernel(), noise), noise
    )
    assert mechanism.sensitivity(_SCHEMA) > 0
    assert entry.extends == mechanism.extends


@every_entry
def test_names_are_keys_and_published_kinds_are_named_as_their_files(name):
    entry = registry.ENTRIES[name]
    assert entry.name == name
    assert entry.kind.name in registry.ENTRIES
    if registry.STRATEGY in entry.parameters or entry.optimizer:
        assert entry.kind.name == _KINDS_OF_OTHER_NAMES.get(name, name)


@pytest.mark.parametrize('name', registry.OPTIMIZED)
def test_every_optimizer_minimises_each_of_its_losses(name):
    entry = registry.ENTRIES[name]
    optimizer = entry.optimizer
    for loss in optimizer.losses:
        found = optimizer.optimize(_SCHEMA, 2, loss=loss)
        assert type(found) is entry.kind and found.rounds == 12
        assert found.num_buffers() <= optimizer.num_buffers(2)
    assert optimizer.optimize(_SCHEMA, 2) == optimizer.optimize(
        _SCHEMA, 2, loss=optimizer.losses[0]
    )
    assert optimizer.optimize(_SCHEMA).num_buffers() <= optimizer.num_buffers(4)
    with pytest.raises(errors.ArgumentError, match='loss=mean: must be one of '):
        optimizer.optimize(_SCHEMA, 2, loss='mean')


@pytest.mark.parametrize(
    'name, given, message',
    [
        ('gaussian', {'strategy': 3}, 'strategy: mechanism=gaussian does not take this parameter'),
        ('tree', {'decay': [0.5]}, 'decay: mechanism=tree does not take this parameter'),
        ('banded', {}, 'mechanism=banded: needs strategy'),
        ('blt', {}, 'mechanism=blt: needs strategy, or decay and scale'),
        ('blt', {'decay': [0.5]}, 'mechanism=blt: needs strategy, or decay and scale'),
        (
            'blt',
            {'strategy': mechanisms.Blt(3, [0.5], [0.1]), 'decay': [0.5], 'scale': [0.1]},
            'mechanism=blt: needs strategy, or decay and scale',
        ),
        ('blt', {'strategy': mechanisms.Identity(3)}, 'strategy=gaussian: must be a blt mechanism'),
        ('square_root_banded_inverse', {}, 'mechanism=square_root_banded_inverse: needs bands'),
        ('fichtenberger_toeplitz', {'bands': 0}, 'bands=0: must be an integer >= 1'),
    ],
)
def test_other_parameters_are_refused(name, given, message):
    with pytest.raises(errors.ArgumentError, match=message):
        registry.ENTRIES[name].construct(3, **given)


def test_what_is_needed_can_be_shown_as_flags():
    entry = registry.ENTRIES['blt']
    assert entry.needs(lambda name: f'--blt_{name}') == (
        '--blt_strategy, or --blt_decay and --blt_scale'
    )
    assert entry.accepts(['scale', 'decay']) and not entry.accepts(['scale'])
    tree = registry.ENTRIES['tree']
    assert tree.accepts([]) and tree.accepts(['released']) and tree.needs() == 'none'


def test_parameters_that_are_none_are_not_given():
    entry = registry.ENTRIES['gaussian']
    assert entry.construct(3, strategy=None, decay=None) == mechanisms.Identity(3)


def test_fichtenberger_without_bands_is_the_square_root_of_the_prefix_sums():
    root = registry.ENTRIES['fichtenberger_toeplitz'].construct(6).strategy_matrix()
    np.testing.assert_allclose(root @ root, np.tril(np.ones((6, 6))))


def test_the_registry_does_not_load_tensorflow():
    code = 'import sys, dpfl.mechanisms.registry; print("tensorflow" in sys.modules)'
    done = subprocess.run(
        [sys.executable, '-c', code], cwd=paths.ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == 'False'
