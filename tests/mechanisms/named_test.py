"""Mechanisms by a short text, in comparisons."""

import pytest

from dpfl import Participation, errors, mechanisms
from dpfl.mechanisms.named import NamedMechanism

_BASE = Participation(40, 10, 3)


def _make(name, schema=_BASE, loss=None):
    return NamedMechanism.parse(name, 'mechanisms').make(schema, _BASE, loss)


def test_named_mechanisms_have_the_rounds_of_the_schema_if_they_have_as_many():
    schema, longer = Participation(30, 10), Participation(50, 10)
    assert _make('honaker_tree', schema) == mechanisms.HonakerTree(30)
    assert _make('full_honaker_tree', schema) == mechanisms.FullHonakerTree(30)
    assert _make('blt_b400', schema).rounds == 30
    assert _make('banded:4', longer) is None
    for name in ('banded:4@60/10', 'best_banded:4', 'blt:2'):
        assert _make(name, longer).rounds == 50
    named = NamedMechanism.parse('banded:4@80/20', 'mechanisms')
    assert named.design == Participation(80, 20) and named.design.count == 4


@pytest.mark.parametrize('loss', ['max', 'rms'])
def test_an_optimised_mechanism_is_for_its_loss_and_its_schema(loss):
    own = Participation(80, 20, 2)
    direct = mechanisms.optimize_blt(own, 2, loss=loss)
    for name, default in ((f'blt:2:{loss}@80/20/2', None), ('blt:2@80/20/2', loss)):
        made = _make(name, loss=default)
        assert made.rounds == 40
        assert made.with_rounds(80).max_loss(own) == direct.max_loss(own)
    other = {'max': 'rms', 'rms': 'max'}[loss]
    losses = [getattr(_make(f'blt:2:{each}'), f'{loss}_loss')(_BASE) for each in (loss, other)]
    assert losses[0] < losses[1]


@pytest.mark.parametrize(
    ('text', 'allowed'),
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
def test_bad_texts_are_refused_in_one_line(text, allowed):
    with pytest.raises(errors.ArgumentError) as refused:
        _make(text)
    assert refused.value.name == 'mechanisms' and '\n' not in str(refused.value)
    assert allowed in str(refused.value)
