"""The first and the last lines of a privacy report: card, statement, glossary."""

import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms


def _plan(**changes):
    fields = dict(
        mechanism=mechanisms.Blt(6, [0.9, 0.4], [0.2, 0.3]),
        participation=Participation(6, 2, 3),
        clip_norm=0.5,
        noise_multiplier=4.0,
        clients_per_round=2,
    )
    return accounting.PrivacyPlan(**{**fields, **changes})


_KEPT = ParticipationLog([[0, 1], [2, 3], [4, 5], [0, 2], [1, 3], [4, 6]])


def test_the_card_says_which_run_it_is_and_what_came_of_it():
    about = accounting.About('2026-11-23', '0.1.0', 'user_text', 'small', 1_234_567)
    log = ParticipationLog([[0, 1], [2, 3], [0, 4]])
    report = accounting.PrivacyReport.from_plan(_plan(), [1e-6], log=log, about=about)
    card = report.render().split('\n\n')[1]
    assert '| begun | 2026-11-23, with dpfl 0.1.0 |' in card
    assert '| task | user_text |' in card
    assert '| model | small, 1,234,567 parameters |' in card
    assert '| rounds | 3 of 6 planned |' in card
    assert '| verdict | ended early; the log keeps the plan |' in card
    assert 'of the 3 rounds done, ' in card
    assert accounting.PrivacyReport.from_json(report.to_json()) == report
    whole = accounting.PrivacyReport.from_plan(_plan(), [1e-6], log=_KEPT).render()
    assert (
        '| rounds | 6 of 6 planned |' in whole and '| verdict | the log keeps the plan |' in whole
    )
    assert '| verdict | a plan, compared with no log |' in (
        accounting.PrivacyReport.from_plan(_plan(), [1e-6]).render()
    )


def test_a_rule_that_stops_the_run_leaves_the_epsilon_of_the_plan():
    log = ParticipationLog([[0, 1], [2, 3], [0, 4]])
    report = accounting.PrivacyReport.from_plan(_plan(), [1e-6], log=log, stops_by_rule=True)
    assert report.so_far is None and 'In any case' not in report.render()


@pytest.mark.parametrize('value', ['a | b', 'x' * 81, '<b>', 'a\nb', 7])
def test_the_identity_of_a_run_is_plain_text(value):
    with pytest.raises(ValueError, match='task=.*must be a short text'):
        accounting.About(task=value)


def test_every_symbol_of_the_page_is_in_its_glossary():
    page = accounting.PrivacyReport.from_plan(_plan(), [1e-6], log=_KEPT).render()
    text, _, glossary = page.partition('## Glossary')
    for term in ('rho', 'mu', 'zCDP', 'sensitivity', 'min separation', 'observed limits'):
        assert term in text and term in glossary
    assert '**C x**' in glossary


def test_a_plan_is_no_run():
    plan = accounting.PrivacyReport.from_plan(_plan(), [1e-6])
    run = accounting.PrivacyReport.from_plan(_plan(), [1e-6], log=_KEPT)
    assert plan.to_dict()['statement'].startswith('A run of this plan satisfies ')
    assert run.to_dict()['statement'].startswith('The run satisfies ')


def test_epsilon_of_the_card_has_more_digits_and_never_understates():
    report = accounting.PrivacyReport.from_plan(_plan(), [1e-6])
    (epsilon,) = report.guarantee.epsilons
    more = accounting.round_up(epsilon, 7)
    assert epsilon <= float(more) <= epsilon * (1 + 1e-6)
    shown = accounting.round_up(epsilon)
    assert f'| epsilon | {shown} at delta = 1e-06 ({more} to 7 digits) |' in report.render()
