"""Two reports side by side: which run is more private, why, and what the numbers do not say."""

import json
import re

import pytest

from dpfl import Participation, accounting
from dpfl.accounting.reports import two_reports
from dpfl.accounting.selection import Selection
from dpfl.reporting import comparison_page
from tests import paths
from tests.accounting import plans
from tests.sizes import standard


def _report(deltas=(1e-6,), accountant='best', log=None, rounds=9, values=(), **changes):
    plan = plans.independent(rounds, **{'noise_multiplier': 30.0, **changes})
    return plans.report(plan, deltas, log, accountant, **dict(values))


_POISSON = dict(sampling='poisson', population=100, noise_multiplier=0.5)
_ONE = dict(rounds=1, **_POISSON)
_SILENT = dict(noise_multiplier=0.0)
_CYCLIC = dict(rounds=4, **{**_POISSON, 'sampling': 'cyclic_poisson'}, accountant='pld', groups=2)


def _exact(mu, delta):
    return accounting.epsilon_from_mu(mu, delta, 'analytic_gaussian')


def _compared(first, second, mirrored=True):
    """The comparison as JSON values and as a page; its mirror image must be the same."""
    values = json.loads(json.dumps(two_reports.compare(first, second), allow_nan=False))
    page = comparison_page.render(values)
    assert f'**{values["statement"]}**' in page
    assert values['statements'] == {
        'first': first.to_dict()['statement'],
        'second': second.to_dict()['statement'],
    }
    if mirrored:
        verdict = values['more_private']
        swapped = {'first': 'second', 'second': 'first'}.get(verdict, verdict)
        assert two_reports.compare(second, first)['more_private'] == swapped
    return values, page


_LESS = dict(noise_multiplier=15.0)
_NOISE = 'The first has the larger noise multiplier: 30 against 15.'
_SENSITIVITY = 'The second has the smaller sensitivity: 1 against 3.'
_SHARE = 'The first has the smaller share of clients in a round: 0.1 against 0.2.'
_RUNS = 'The first has the smaller number of earlier runs: 0 against 1.'
_HARDENED = dict(noise='hardened')


@pytest.mark.parametrize(
    'first, second, verdict, reasons',
    [
        ({}, {'clip_norm': 2.0}, 'equal', []),
        standard(_ONE, {'clip_norm': 2.0, **_ONE}, 'equal', []),
        (_HARDENED, {'clip_norm': 2.0, **_HARDENED}, 'equal', []),
        ({}, _LESS, 'first', [_NOISE]),
        # Fewer participations weigh against less noise.
        (
            {},
            {'participation': Participation(9, 9, 1), **_LESS},
            'second',
            [_NOISE, _SENSITIVITY],
        ),
        standard(_ONE, {**_ONE, 'clients_per_round': 20}, 'first', [_SHARE]),
        # A client that another one replaces moves the sum by two clip norms instead of one.
        standard(_ONE, {**_ONE, 'sampling': 'without_replacement'}, 'first', []),
        # Twice the probability in half the rounds is less amplification.
        standard(_CYCLIC, {**_CYCLIC, 'sampling': 'poisson', 'groups': None}, 'second', []),
        (_SILENT, {'noise_multiplier': 1e-3}, 'second', None),
        (_SILENT, {**_POISSON, **_SILENT}, 'equal', None),
        standard(_SILENT, _POISSON, 'second', None),
        ({'group_size': 2}, {'group_size': 2, 'noise_multiplier': 31.0}, 'second', None),
        ({}, {'earlier': (plans.independent(9, noise_multiplier=30.0),)}, 'first', [_RUNS]),
        # A delta that is spent before training leaves a guarantee at larger ones.
        (
            {'before': (accounting.ReleaseBefore('words', 50.0, delta=1e-6),)},
            {'noise_multiplier': 0.3},
            'first',
            ['The first has the larger noise multiplier: 30 against 0.3.'],
        ),
    ],
)
def test_which_is_more_private_and_why(first, second, verdict, reasons):
    mirrored = 'sampling' not in first and 'sampling' not in second
    values, page = _compared(_report(**first), _report(**second), mirrored)
    assert values['more_private'] == verdict and values['obstacles'] == []
    assert reasons is None or reasons == values['reasons']
    if verdict == 'equal':
        assert values['tradeoff'] == []
        assert 'clip_norm' not in second or '| clip norm | 1.0 | 2.0 |' in page


def test_the_numbers_of_a_comparison():
    values, page = _compared(_report((1e-6, 1e-9)), _report((1e-7,), noise_multiplier=15.0))
    # Nine rounds of sensitivity 1 each: mu is 3 over the noise multiplier.
    assert [row['delta'] for row in values['epsilon']] == [1e-6, 1e-7, 1e-9]
    for row in values['epsilon']:
        assert row['first'] == pytest.approx(_exact(0.1, row['delta']), rel=1e-9)
        assert row['second'] == pytest.approx(_exact(0.2, row['delta']), rel=1e-9)
    assert values['tradeoff'] == [{'start': 0.0, 'end': 1.0, 'lower': 'first'}]
    assert values['parameters'] == {'noise_multiplier': {'first': 30.0, 'second': 15.0}}
    assert '| noise multiplier | 30.0 | 15.0 |' in page
    assert 'deviation 30 times' in values['assumptions']['first'][0]
    assert values['not_covered'] == {'first': [], 'second': []}
    table = (paths.ROOT / 'docs' / 'reference' / 'files.md').read_text()
    table = table.partition('| key of the comparison |')[2].partition('\n\n')[0]
    rows = re.findall(r'^\| (`.*?) \|', table, re.MULTILINE)
    assert [name for row in rows for name in re.findall('`(\\w+)`', row)] == list(values)


def test_a_report_by_a_looser_accountant_is_not_taken_for_a_less_private_run():
    loose = _report(accountant='rdp')
    values, _ = _compared(_report(), loose)
    assert values['more_private'] == 'equal'
    assert loose.guarantee.epsilons[0] > 1.01 * values['epsilon'][0]['second']


def test_curves_that_cross_are_not_decided():
    plain = _report(rounds=1, noise_multiplier=10 / 3)
    values, page = _compared(_report(**_ONE), plain, mirrored=False)
    assert values['more_private'] == 'crossing'
    # As tests/accounting/tradeoff_test.py computes from the formulas.
    ends = [stretch['end'] for stretch in values['tradeoff']]
    assert ends[:2] == pytest.approx([0.10986, 0.82312], rel=2e-3)
    assert [each['lower'] for each in values['tradeoff']] == ['second', 'first', 'second']
    assert 'their trade-off curves cross' in page
    assert 'less from 1e-09 on against the second, from 0.11 on' in page
    assert 'upper bounds' in values['statement']
    assert values['epsilon'][0]['second'] < values['epsilon'][0]['first']
    assert 'Only the guarantee of the first is amplified by sampling.' in values['reasons']
    assert values['parameters']['population'] == {'first': 100, 'second': None}


@pytest.mark.parametrize(
    'changes, words',
    [
        ({'adjacency': 'replace_one'}, 'The reports have adjacency=zero_out and adjacency=repl'),
        ({'group_size': 2}, 'The reports have group_size=1 and group_size=2'),
    ],
)
def test_other_adjacencies_and_units_are_not_compared(changes, words):
    # However different the noise is.
    values, page = _compared(_report(), _report(noise_multiplier=3e3, **changes))
    assert values['more_private'] == 'not_comparable'
    assert len(values['obstacles']) == 1 and values['obstacles'][0].startswith(words)
    assert values['tradeoff'] == values['reasons'] == values['epsilon'] == []
    assert 'cannot be compared' in page and words in page


def test_the_best_of_several_runs_has_no_curve():
    several = _report().selected_from(Selection('geometric', 5.0))
    values = two_reports.compare(_report(), several)
    assert values['more_private'] == 'not_comparable'
    page = comparison_page.render(values)
    assert 'The second is the best of several runs: no trade-off curve' in page
    assert values['statements']['second'] == several.to_dict()['selection']['statement']


def test_a_simulation_and_a_broken_plan_are_seen():
    broken = _report(log=[[0], [0]], participation=Participation(9, 3))
    values, page = _compared(_report(values=dict(noise_is_seeded=True)), broken)
    assert values['statements']['first'].startswith('Simulation: with secret noise')
    assert values['statements']['first'] in page and values['statements']['second'] in page
    assert 'because the run did not keep the plan' in ' '.join(values['assumptions']['second'])
    # Seven planned rounds may still come: rounds 4 and 7 of the client of the first two.
    assert values['epsilon'][0]['second'] == pytest.approx(_exact(4**0.5 / 30, 1e-6), rel=1e-6)
