"""Mechanisms by a short text: what it says, what it makes, and what is refused."""

import pytest

from dpfl import Participation, errors, mechanisms
from dpfl.simulation.training.mechanism_names import NamedMechanism

_BASE = Participation(40, 10, 3)


def _make(name, schema=_BASE, loss=None):
    return NamedMechanism.parse(name, 'match').make(schema, _BASE, loss)


def test_mechanisms_without_parameters_have_the_rounds_of_the_schema():
    schema = Participation(30, 10)
    assert _make('honaker_tree', schema) == mechanisms.HonakerTree(30)
    assert _make('full_honaker_tree', schema) == mechanisms.FullHonakerTree(30)
    assert _make('blt_b400', schema).rounds == 30


@pytest.mark.parametrize('loss', ['max', 'rms'])
def test_an_optimised_mechanism_is_for_its_loss_and_its_schema(loss):
    own = Participation(80, 20, 2)
    direct = mechanisms.optimize_blt(own, 2, loss=loss)
    for name, default in ((f'blt:2:{loss}@80/20/2', None), ('blt:2@80/20/2', loss)):
        made = _make(name, loss=default)
        assert made.rounds == 40
        assert made.with_rounds(80).max_loss(own) == direct.max_loss(own)
    other = {'max': 'rms', 'rms': 'max'}[loss]
    assert getattr(_make(f'blt:2:{loss}'), f'{loss}_loss')(_BASE) < getattr(
        _make(f'blt:2:{other}'), f'{loss}_loss'
    )(_BASE)


def test_a_schema_without_participations_has_as_many_as_it_allows():
    named = NamedMechanism.parse('banded:4@80/20', 'match')
    assert named.design == Participation(80, 20) and named.design.count == 4


def test_a_mechanism_is_not_made_for_more_rounds_than_it_has():
    longer = Participation(50, 10)
    assert _make('banded:4', longer) is None
    assert _make('banded:4@60/10', longer).rounds == 50
    assert _make('best_banded:4', longer).rounds == 50
    assert _make('blt:2', longer).rounds == 50


@pytest.mark.parametrize(
    ('name', 'allowed'),
    [
        ('magic', 'must be one of gaussian'),
        ('blt:2@80', 'must be one of gaussian'),
        ('blt:2:mean', 'must have a loss of max, rms'),
        ('blt:2@0/20', 'rounds=0: must be'),
        ('blt:2@80/0', 'min_separation=0: must be'),
        ('best_blt:2@80/20', 'must have no schema of its own'),
        ('blt:0', 'must be'),
        ('no\nsuch.npz', 'must be a file'),
    ],
)
def test_bad_texts_are_refused_in_one_line(name, allowed):
    with pytest.raises(errors.ArgumentError) as refused:
        _make(name)
    assert refused.value.name == 'match' and '\n' not in str(refused.value)
    assert allowed in str(refused.value)
