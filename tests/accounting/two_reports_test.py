"""Two reports side by side: which run is more private, why, and what the numbers do not say."""

import json
import re

import pytest

from dpfl import Participation, accounting, mechanisms
from dpfl.accounting import selection
from dpfl.accounting.reports import two_reports
from dpfl.accounting.selection import Selection
from dpfl.reporting import comparison_page
from tests import paths
from tests.accounting import plans


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
    if mirrored:
        verdict = values['more_private']
        swapped = {'first': 'second', 'second': 'first'}.get(verdict, verdict)
        assert two_reports.compare(second, first)['more_private'] == swapped
    return values, page


_LESS = dict(noise_multiplier=15.0)
_SLOW = pytest.mark.standard  # The curves of samples take seconds.
_NOISE = 'The first has the larger noise multiplier: 30 against 15.'
_MU = 'mu is sensitivity / noise multiplier: 3 / 30 = 0.1 (first), 3 / 15 = 0.2 (second).'
_SAMPLINGS = 'The samplings differ: '
_HARDENED = dict(noise='hardened')


@pytest.mark.parametrize(
    'first, second, verdict, reasons',
    [
        ({}, {'clip_norm': 2.0}, 'equal', []),
        pytest.param(_ONE, {'clip_norm': 2.0, **_ONE}, 'equal', [], marks=_SLOW),
        (_HARDENED, {'clip_norm': 2.0, **_HARDENED}, 'equal', []),
        ({}, _LESS, 'first', [_NOISE, _MU]),
        # Fewer participations weigh against less noise.
        (
            {},
            {'participation': Participation(9, 9, 1), **_LESS},
            'second',
            [_NOISE, 'The second has the smaller sensitivity: 1 against 3.'],
        ),
        (
            {},
            {'mechanism': mechanisms.BinaryTree(9)},
            'first',
            ['The mechanisms differ: gaussian (first), tree (second).'],
        ),
        (
            {'mechanism': mechanisms.Blt(9, [0.9], [0.1])},
            {'mechanism': mechanisms.Blt(9, [0.9], [0.2])},
            'first',
            ['The parameters of the mechanism, blt, differ.'],
        ),
        pytest.param(
            _ONE,
            {**_ONE, 'clients_per_round': 20},
            'first',
            ['The first has the smaller share of clients in a round: 0.1 against 0.2.'],
            marks=_SLOW,
        ),
        # A client that another one replaces moves the sum by two clip norms instead of one.
        pytest.param(
            _ONE,
            {**_ONE, 'sampling': 'without_replacement'},
            'first',
            [f'{_SAMPLINGS}poisson (first), without_replacement (second).'],
            marks=_SLOW,
        ),
        # Twice the probability in half the rounds is less amplification.
        pytest.param(
            _CYCLIC,
            {**_CYCLIC, 'sampling': 'poisson', 'groups': None},
            'second',
            [f'{_SAMPLINGS}cyclic_poisson with 2 groups (first), poisson (second).'],
            marks=_SLOW,
        ),
        (_SILENT, {'noise_multiplier': 1e-3}, 'second', ['The first has no noise.']),
        (_SILENT, {**_POISSON, **_SILENT}, 'equal', []),
        pytest.param(_SILENT, _POISSON, 'second', ['The first has no noise.'], marks=_SLOW),
        ({'group_size': 2}, {'group_size': 2, 'noise_multiplier': 31.0}, 'second', []),
        (
            {},
            {'earlier': (plans.independent(9, noise_multiplier=30.0),)},
            'first',
            ['The first has the smaller number of earlier runs: 0 against 1.'],
        ),
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
    assert values['more_private'] == verdict
    assert values['comparable'] and values['obstacles'] == []
    assert set(reasons) <= set(values['reasons'])
    if verdict == 'equal':
        assert values['tradeoff'] == [] and values['epsilon'][0]['smaller'] == 'equal'
        assert 'clip_norm' not in second or '| clip norm | 1 | 2 |' in page
        assert first.get('noise_multiplier') == 0 or values['reasons'] == []


def test_the_numbers_of_a_comparison():
    values, page = _compared(_report((1e-6, 1e-9)), _report((1e-7,), noise_multiplier=15.0))
    # Nine rounds of sensitivity 1 each: mu is 3 over the noise multiplier.
    assert values['mu'] == {'first': pytest.approx(0.1), 'second': pytest.approx(0.2)}
    assert values['rho'] == {'first': pytest.approx(0.005), 'second': pytest.approx(0.02)}
    assert [row['delta'] for row in values['epsilon']] == [1e-6, 1e-7, 1e-9]
    for row in values['epsilon']:
        assert row['smaller'] == 'first'
        assert row['first'] == pytest.approx(_exact(0.1, row['delta']), rel=1e-9)
        assert row['second'] == pytest.approx(_exact(0.2, row['delta']), rel=1e-9)
    assert values['tradeoff'] == [{'start': 0.0, 'end': 1.0, 'lower': 'first'}]
    differing = {name for name, pair in values['parameters'].items() if pair['differs']}
    assert differing == {'noise_multiplier', 'deltas'} & set(values['parameters'])
    assert '| noise multiplier | 30 | 15 |' in page
    assert 'deviation 30 times' in values['assumptions']['first'][0]
    assert values['not_covered'] == {'first': [], 'second': []} and values['notes'] == []
    table = (paths.ROOT / 'docs' / 'reference' / 'files.md').read_text()
    table = table.partition('| key of the comparison |')[2].partition('\n\n')[0]
    rows = re.findall(r'^\| (`.*?) \|', table, re.MULTILINE)
    assert [name for row in rows for name in re.findall('`(\\w+)`', row)] == list(values)


def test_a_report_by_a_looser_accountant_is_not_taken_for_a_less_private_run():
    loose = _report(accountant='rdp')
    values, _ = _compared(_report(), loose)
    assert values['more_private'] == 'equal'
    assert loose.guarantee.epsilons[0] > 1.01 * values['epsilon'][0]['second']
    (note,) = values['notes']
    assert note.startswith('The report of the second states epsilon ') and 'rdp' in note


def test_curves_that_cross_are_not_decided():
    plain = _report(rounds=1, noise_multiplier=10 / 3)
    values, page = _compared(_report(**_ONE), plain, mirrored=False)
    assert values['more_private'] == 'crossing'
    # As tests/accounting/tradeoff_test.py computes from the formulas.
    ends = [stretch['end'] for stretch in values['tradeoff']]
    assert ends[:2] == pytest.approx([0.10986, 0.82312], rel=2e-3)
    assert [each['lower'] for each in values['tradeoff']] == ['second', 'first', 'second']
    assert 'their trade-off curves cross' in page and 'less against the second from 1e-09' in page
    assert 'upper bounds' in values['statement']
    # Epsilon at a small delta and the advantage disagree, as they must.
    assert values['epsilon'][0]['smaller'] == 'second'
    assert values['advantage']['first'] < values['advantage']['second']
    assert 'relies on who took part being secret' in values['notes'][0]
    assert 'Only the guarantee of the first is amplified by sampling.' in values['reasons']


@pytest.mark.parametrize(
    'changes, words',
    [
        ({'adjacency': 'replace_one'}, 'The adjacencies differ: zero_out and replace_one.'),
        ({'group_size': 2}, 'The units of privacy differ: each client, and every group of 2'),
    ],
)
def test_other_adjacencies_and_units_are_not_compared(changes, words):
    # However different the noise is.
    values, page = _compared(_report(), _report(noise_multiplier=3e3, **changes))
    assert not values['comparable'] and values['more_private'] == 'not_comparable'
    assert len(values['obstacles']) == 1 and values['obstacles'][0].startswith(words)
    assert values['tradeoff'] == [] and values['reasons'] == []
    assert [row['smaller'] for row in values['epsilon']] == [None]
    assert 'cannot be compared' in page and words in page


def test_the_best_of_several_runs_is_compared_by_epsilon():
    one = _report((1e-6, 1e-9), noise_multiplier=28.0)
    chosen = Selection('geometric', 5.0)
    several = _report((1e-6, 1e-9)).selected_from(chosen)
    values, page = _compared(one, several)
    # A single run of the second has more noise, but the best of several is less private.
    assert values['mu']['second'] < values['mu']['first']
    assert values['more_private'] == 'first' and 'no trade-off curve is known' in page
    for row in values['epsilon']:
        assert row['second'] == selection.epsilon(several.dp_event(), chosen, row['delta'])
    assert values['selection'] == {'first': None, 'second': 'geometric distribution with mean 5'}
    assert any('The second is the best of several runs' in note for note in values['notes'])
    assert two_reports.compare(several, several)['more_private'] == 'equal'


def test_what_is_not_in_the_numbers_is_noted():
    broken = _report(
        log=[[0], [0]],
        participation=Participation(9, 3),
        values=dict(train_metrics_released=True),
    )
    values, page = _compared(_report(values=dict(noise_is_seeded=True)), broken)
    text = ' '.join(values['notes'])
    assert 'The first is a simulation: its noise came from a known seed' in text
    assert 'The second released metrics of its training clients without noise' in text
    assert 'The second broke its plan' in text
    # Seven planned rounds may still come: rounds 4 and 7 of the client of the first two.
    assert values['mu']['second'] == pytest.approx(4**0.5 / 30)
    assert values['parameters']['basis'] == {'first': 'plan', 'second': 'log', 'differs': True}
    assert '## Before choosing' in page
    odd = mechanisms.BandedInverse(9, [1, -0.9, 0.6, -0.1])
    values, _ = _compared(_report(), _report(mechanism=odd, participation=Participation(9, 2)))
    assert any('sensitivity of the second is an upper bound' in note for note in values['notes'])
