import dataclasses
import json
import re

import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.accounting import selection
from dpfl.accounting.reports import two_reports, two_reports_page
from dpfl.accounting.selection import Selection
from tests import paths


def _report(deltas=(1e-6,), accountant='best', log=None, seeded=False, metrics=False, **changes):
    fields = dict(
        mechanism=mechanisms.Identity(9),
        participation=Participation(9),
        clip_norm=1.0,
        noise_multiplier=30.0,
        clients_per_round=10,
    )
    plan = accounting.PrivacyPlan(**{**fields, **changes})
    return accounting.PrivacyReport.from_plan(
        plan, deltas, log, accountant, seeded, train_metrics_released=metrics
    )


_SAMPLED = dict(sampling='poisson', population=100, noise_multiplier=0.5)
_ONE_ROUND = dict(mechanism=mechanisms.Identity(1), participation=Participation(1))


def _exact(mu, delta):
    return accounting.epsilon_from_mu(mu, delta, 'analytic_gaussian')


def _compared(first, second, mirrored=True):
    """The comparison as JSON values and as a page; its mirror image must be the same."""
    found = two_reports.compare(first, second)
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    page = two_reports_page.render(values)
    assert f'**{values["statement"]}**' in page
    if mirrored:
        swapped = {'first': 'second', 'second': 'first'}.get(found.verdict, found.verdict)
        assert two_reports.compare(second, first).verdict == swapped
    return values, page


def test_less_noise_is_less_private_and_the_reason_is_named():
    values, page = _compared(_report(), _report(noise_multiplier=15.0))
    assert values['comparable'] and values['more_private'] == 'first'
    # Nine rounds of sensitivity 1 each: mu is 3 over the noise multiplier.
    assert values['mu'] == {'first': pytest.approx(0.1), 'second': pytest.approx(0.2)}
    assert values['rho'] == {'first': pytest.approx(0.005), 'second': pytest.approx(0.02)}
    (row,) = values['epsilon']
    assert row['smaller'] == 'first'
    assert row['first'] == pytest.approx(_exact(0.1, 1e-6), rel=1e-9)
    assert row['second'] == pytest.approx(_exact(0.2, 1e-6), rel=1e-9)
    assert values['tradeoff'] == [{'start': 0.0, 'end': 1.0, 'lower': 'first'}]
    assert values['reasons'] == [
        'The first has the larger noise multiplier: 30 against 15.',
        'mu is sensitivity / noise multiplier: 3 / 30 = 0.1 (first), 3 / 15 = 0.2 (second).',
    ]
    differing = {name for name, pair in values['parameters'].items() if pair['differs']}
    assert differing == {'noise_multiplier'}
    assert '| noise multiplier | 30 | 15 |' in page
    assert 'deviation 30 times' in values['assumptions']['first'][0]
    assert values['not_covered'] == {'first': [], 'second': []}
    assert values['notes'] == []


def test_fewer_participations_weigh_against_less_noise():
    rare = _report(participation=Participation(9, 9, 1), noise_multiplier=15.0)
    values, page = _compared(_report(), rare)
    # Sensitivity 3 over 30, and 1 over 15.
    assert values['more_private'] == 'second'
    reasons = values['reasons']
    assert reasons[0] == 'The first has the larger noise multiplier: 30 against 15.'
    assert reasons[1] == 'The second has the smaller sensitivity: 1 against 3.'
    assert 'at most 9 of 9 rounds, at least 1 apart (first); in at most 1 of 9' in reasons[2]
    assert '| max participations | 9 | 1 |' in page


def test_mechanisms_are_named():
    values, _ = _compared(_report(), _report(mechanism=mechanisms.BinaryTree(9)))
    assert 'The mechanisms differ: gaussian (first), tree (second).' in values['reasons']
    blts = [_report(mechanism=mechanisms.Blt(9, [0.9], [scale])) for scale in (0.1, 0.2)]
    values, _ = _compared(*blts)
    assert 'The parameters of the mechanism, blt, differ.' in values['reasons']


def test_the_same_run_is_equally_private():
    for fields in ({}, {**_SAMPLED, **_ONE_ROUND}, {'noise': 'hardened'}):
        values, page = _compared(_report(**fields), _report(clip_norm=2.0, **fields))
        assert values['more_private'] == 'equal' and values['tradeoff'] == []
        assert [row['smaller'] for row in values['epsilon']] == ['equal']
        assert values['reasons'] == []
        assert '| clip norm | 1 | 2 |' in page


def test_epsilons_at_the_deltas_of_both():
    values, _ = _compared(_report((1e-6, 1e-9)), _report((1e-7,), noise_multiplier=15.0))
    assert [row['delta'] for row in values['epsilon']] == [1e-6, 1e-7, 1e-9]
    for row in values['epsilon']:
        assert row['first'] == pytest.approx(_exact(0.1, row['delta']), rel=1e-9)
    assert values['notes'] == []


def test_a_report_by_a_looser_accountant_is_not_taken_for_a_less_private_run():
    loose = _report(accountant='rdp')
    values, _ = _compared(_report(), loose)
    assert values['more_private'] == 'equal'
    assert loose.guarantee.epsilons[0] > 1.01 * values['epsilon'][0]['second']
    (note,) = values['notes']
    assert note.startswith('The report of the second states epsilon ') and 'rdp' in note


def test_curves_that_cross_are_not_decided():
    sampled = _report(**{**_ONE_ROUND, **_SAMPLED})
    plain = _report(**_ONE_ROUND, noise_multiplier=10 / 3)
    values, page = _compared(sampled, plain, mirrored=False)
    assert values['more_private'] == 'crossing'
    # As tests/accounting/curve_order_test.py computes from the formulas.
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


def test_more_samples_are_less_private():
    twice = _report(**{**_ONE_ROUND, **_SAMPLED, 'clients_per_round': 20})
    values, _ = _compared(_report(**{**_ONE_ROUND, **_SAMPLED}), twice, mirrored=False)
    assert values['more_private'] == 'first'
    assert values['reasons'] == [
        'The first has the smaller share of clients in a round: 0.1 against 0.2.'
    ]
    assert 'from 1e-09 to 1 - 1e-06' in values['statement']


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


def test_groups_of_the_same_size_are_compared():
    values, _ = _compared(_report(group_size=2), _report(group_size=2, noise_multiplier=31.0))
    assert values['more_private'] == 'second'
    assert values['mu']['first'] == pytest.approx(0.2)


def test_without_noise_there_is_nothing_to_choose():
    none = _report(noise_multiplier=0.0)
    values, page = _compared(none, _report(noise_multiplier=1e-3))
    assert values['more_private'] == 'second' and values['epsilon'][0]['first'] is None
    assert 'the first has no guarantee' in values['statement']
    assert values['reasons'] == ['The first has no noise.'] and '| none | ' in page
    sampled = _report(**{**_SAMPLED, 'noise_multiplier': 0.0})
    values, _ = _compared(none, sampled)
    assert values['more_private'] == 'equal' and values['statement'].startswith('Neither is')
    values, _ = _compared(none, _report(**_SAMPLED))
    assert values['more_private'] == 'second'


def test_the_best_of_several_runs_is_compared_by_epsilon():
    one = _report((1e-6, 1e-9), noise_multiplier=28.0)
    several = _report((1e-6, 1e-9)).selected_from(Selection('geometric', 5.0))
    values, page = _compared(one, several)
    # A single run of the second has more noise, but the best of several is less private.
    assert values['mu']['second'] < values['mu']['first']
    assert values['more_private'] == 'first' and 'no trade-off curve is known' in page
    for row in values['epsilon']:
        assert row['second'] == selection.epsilon(
            several.dp_event(), Selection('geometric', 5.0), row['delta']
        )
    assert values['selection'] == {
        'first': None,
        'second': 'geometric distribution with mean 5',
    }
    assert any('The second is the best of several runs' in note for note in values['notes'])
    same = two_reports.compare(several, several)
    assert same.verdict == 'equal'


def test_a_selection_is_read_back_and_must_not_promise_more():
    several = _report().selected_from(Selection(0.5, 9.0))
    text = several.to_json()
    assert accounting.PrivacyReport.from_json(text, with_selection=True) == several
    with pytest.raises(ValueError, match='must be missing'):
        accounting.PrivacyReport.from_json(text)
    for change, message in (
        ({'epsilons': [0.01]}, 'must be at least'),
        ({'epsilons': []}, 'selection.epsilons'),
        ({'epsilons': ['x']}, 'selection.epsilons'),
        ({'mean': 0}, 'mean'),
        ({'distribution': 'cauchy'}, 'distribution'),
        ({'distribution': None}, 'distribution'),
    ):
        values = json.loads(text)
        values['selection'].update(change)
        with pytest.raises(ValueError, match=message):
            accounting.PrivacyReport.from_json(json.dumps(values), with_selection=True)
    for value in (None, [], {}):
        broken = json.dumps({**json.loads(text), 'selection': value})
        with pytest.raises(ValueError, match='not a privacy report'):
            accounting.PrivacyReport.from_json(broken, with_selection=True)


def test_what_is_not_in_the_numbers_is_noted():
    broken = _report(
        log=ParticipationLog([[0], [0]]), participation=Participation(9, 3), metrics=True
    )
    values, page = _compared(_report(seeded=True), broken)
    text = ' '.join(values['notes'])
    assert 'The first is a simulation: its noise came from a known seed' in text
    assert 'The second released metrics of its training clients without noise' in text
    assert 'The second broke its plan' in text
    # Seven planned rounds may still come: three rounds of a client, as planned, but one apart.
    assert values['mu']['second'] == pytest.approx(3**0.5 / 30)
    assert values['parameters']['basis'] == {'first': 'plan', 'second': 'log', 'differs': True}
    assert '## Before choosing' in page


def test_an_earlier_run_counts():
    early = _report()
    later = dataclasses.replace(early.plan, earlier=(early.plan,))
    report = accounting.PrivacyReport.from_plan(later, (1e-6,), accountant='best')
    values, _ = _compared(early, report)
    assert values['more_private'] == 'first'
    assert values['reasons'] == ['The first has the smaller number of earlier runs: 0 against 1.']
    assert values['parameters']['earlier_runs'] == {'first': 0, 'second': 1, 'differs': True}


def test_the_page_has_every_key_of_a_comparison():
    values, _ = _compared(_report(), _report(noise_multiplier=15.0))
    page = (paths.ROOT / 'docs' / 'reference' / 'report_schema.md').read_text()
    table = page.partition('| key of the comparison |')[2].partition('\n\n')[0]
    rows = re.findall(r'^\| (`.*?) \|', table, re.MULTILINE)
    assert [name for row in rows for name in re.findall('`(\\w+)`', row)] == list(values)


def test_a_bound_is_called_a_bound():
    odd = _report(
        mechanism=mechanisms.Blt(9, [0.8, 0.3], [0.2, -0.9]), participation=Participation(9, 2)
    )
    values, _ = _compared(_report(), odd)
    assert any('sensitivity of the second is an upper bound' in note for note in values['notes'])


def test_samplings_of_different_kinds_are_named():
    fixed = _report(**{**_ONE_ROUND, **_SAMPLED, 'sampling': 'without_replacement'})
    values, _ = _compared(_report(**{**_ONE_ROUND, **_SAMPLED}), fixed, mirrored=False)
    assert values['reasons'] == [
        'The samplings differ: poisson (first), without_replacement (second).'
    ]
    # A client that another one replaces moves the sum by two clip norms instead of one.
    assert values['more_private'] == 'first'


def test_groups_that_take_turns_are_named():
    cyclic = {**_SAMPLED, 'mechanism': mechanisms.Identity(4), 'sampling': 'cyclic_poisson'}
    two = _report(**cyclic, participation=Participation(4, 2), groups=2, accountant='pld')
    values, page = _compared(two, two, mirrored=False)
    assert values['more_private'] == 'equal'
    assert values['parameters']['groups'] == {'first': 2, 'second': 2, 'differs': False}
    plain = _report(
        **{**cyclic, 'sampling': 'poisson'}, participation=Participation(4), accountant='pld'
    )
    values, _ = _compared(two, plain, mirrored=False)
    assert (
        'The samplings differ: cyclic_poisson with 2 groups (first), poisson (second).'
        in values['reasons']
    )
    # Twice the probability in half the rounds is less amplification.
    assert values['more_private'] == 'second'
    assert values['parameters']['groups']['second'] is None
