"""Tables of commands: guarantees as in the report, and no `None` or `inf`."""

import math

from dpfl import accounting
from dpfl.reporting import plain_text


def test_guarantees_are_rounded_up_as_in_the_report():
    rho = 0.028011
    shown = plain_text.table({'rho': rho, 'accuracy': rho, 'rounds': 7})
    assert shown.splitlines() == ['rho       0.02802', 'accuracy  0.02801', 'rounds    7']
    assert accounting.round_up(rho) == '0.02802'


def test_texts_stay_as_they_are():
    assert plain_text.table({'rho': '-', 'b': '0.1'}) == 'rho  -\nb    0.1'


def test_no_guarantee_is_said_in_words():
    for value in (None, math.inf):
        assert plain_text.table({'epsilon': value}) == 'epsilon  none: there is no guarantee'
    assert plain_text.columns([{'a': None, 'b': math.inf}]).split() == [
        'a',
        'b',
        'none',
        'infinite',
    ]


def test_a_guarantee_without_rho_is_one():
    rho, epsilon = plain_text.table({'rho': None, 'epsilon': 2.0}).splitlines()
    assert rho.endswith('none: the guarantee is known as epsilon only')
    assert epsilon.endswith(' 2')
    assert 'no guarantee' in plain_text.table({'rho': None, 'epsilon': None})
