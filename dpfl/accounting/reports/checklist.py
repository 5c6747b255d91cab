"""The words of a privacy report's statement and checklist: what is guaranteed, and to whom."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpfl import _json
from dpfl.accounting import part
from dpfl.accounting.selection import Selected
from dpfl.mechanisms import rounding

if TYPE_CHECKING:
    from dpfl.accounting.reports.report import PrivacyReport

_ACCOUNTANT = {
    'pld': 'privacy loss distribution (dp_accounting), pessimistic by the width of its grid',
    'rdp': 'Renyi DP (dp_accounting), converted to epsilon, an upper bound',
    'analytic_gaussian': 'exact curve of the Gaussian mechanism (Balle and Wang 2018, theorem 8)',
    'monte_carlo': 'Monte Carlo estimate, an upper confidence bound',
    'moments': 'integer moments up to 32 with the classic conversion (McMahan et al. 2018), an '
    'upper bound and the loosest of the accountants',
}


def unit(report: 'PrivacyReport') -> str:
    """Whom the guarantee protects."""
    size = report.plan.group_size
    return 'each client' if size == 1 else f'every group of {size} clients'


def accountant(report: 'PrivacyReport') -> str:
    """How epsilon was computed."""
    used = dict.fromkeys(report.guarantee.accountants or (report.accountant,))
    how = ' and '.join(_ACCOUNTANT[name] for name in used)
    if report.accountant == 'best':
        return f'{how}; the smallest epsilon of all accountants that support the plan'
    if report.accountant not in used or len(used) > 1:
        return f'{how}; accountant={report.accountant} gives no value for these numbers'
    return how


def statement(report: 'PrivacyReport') -> str:
    """The formal statement, in one sentence; before it a second one if an audit refutes it."""
    if report.measured is None or not report.measured.refutations:
        return _statement(report)
    reasons = '; '.join(report.measured.refutations)
    return f'The audit of the run refutes what follows ({reasons}). {_statement(report)}'


def _statement(report: 'PrivacyReport') -> str:
    holds = report.guarantee
    if void := report.facts.bullets(part.VOID):
        return f'No differential privacy: {void[0]}.'
    revealed = report.plan.delta_before
    kind = f'{rounding.round_up(revealed)}-approximate ' if revealed else ''
    parts = [] if holds.rho is None else [f'{kind}{rounding.round_up(holds.rho)}-zCDP']
    parts += _in_words(report, holds.epsilons)
    without = [
        f'{delta:g}'
        for epsilon, delta in zip(holds.epsilons, report.deltas, strict=True)
        if epsilon is None
    ]
    if not parts:
        return f'No differential privacy: there is no epsilon at delta = {", ".join(without)}.'
    secrets = seeded_secrets(report)
    run = 'The run' if report.observed is not None else 'A run of this plan'
    if secrets:
        run = f'Simulation: with secret {" and ".join(secrets)} this run'
    run += ''.join(report.facts.bullets(part.COMPOSED))
    ended = early_end(report)
    run = f'{run.removesuffix(",")}, which ended {ended},' if ended else run
    verb = 'would satisfy' if secrets else 'satisfies'
    whom = f'for {unit(report)}{_exception([report])}'
    no_epsilon = f' There is no epsilon at delta = {", ".join(without)}.' if without else ''
    if report.so_far is None or None in report.so_far:
        return f'{run} {verb} {" and ".join(parts)} {whom}.{no_epsilon}'
    so_far = ' and '.join(_in_words(report, report.so_far))
    return (
        f'{run} {verb} {so_far} {whom}, if what ended it did not depend on the data. In any case '
        f'it {verb} {" and ".join(parts)}, the guarantee of all '
        f'{report.plan.participation.rounds} planned rounds.{no_epsilon}'
    )


def _in_words(report: 'PrivacyReport', epsilons: Sequence[float | None]) -> list[str]:
    return [
        f'({rounding.round_up(epsilon)}, {rounding.shown_delta(delta)})-DP'
        for epsilon, delta in zip(epsilons, report.deltas, strict=True)
        if epsilon is not None
    ]


def statement_together(reports: 'Sequence[PrivacyReport]', guarantee: str) -> str:
    """What several runs on the same clients satisfy together, in one sentence.

    Args:
      reports: one of each run.
      guarantee: in words; empty if there is none.
    """
    subject = f'This run and {len(reports) - 1} other(s) on the same clients together'
    if not guarantee:
        return f'{subject}: no differential privacy.'
    secrets = sorted({secret for report in reports for secret in seeded_secrets(report)})
    if secrets:
        subject = (
            f'Simulation: with secret {" and ".join(reversed(secrets))} this run and '
            f'{len(reports) - 1} other(s) on the same clients would together satisfy'
        )
    else:
        subject += ' satisfy'
    sampled = sum(report.uses_sampling for report in reports) > 1
    how = ', if the cohorts of each run were drawn independently' if sampled else ''
    return f'{subject} {guarantee} for {unit(reports[0])}{_exception(reports)}{how}.'


def statement_selected(report: 'PrivacyReport', selected: Selected) -> str:
    """What the best of several such runs satisfies, in one sentence."""
    subject = (
        f'The best of a random number of such runs, drawn from a {selected.selection.describe()}, '
        'of which only that one is released,'
    )
    parts = _in_words(report, [_json.finite(epsilon) for epsilon in selected.epsilons])
    if not parts:
        return f'{subject} has no differential privacy.'
    secrets = seeded_secrets(report)
    verb = f'would with secret {" and ".join(secrets)} satisfy' if secrets else 'satisfies'
    return f'{subject} {verb} {" and ".join(parts)} for {unit(report)}{_exception([report])}.'


def seeded_secrets(report: 'PrivacyReport') -> list[str]:
    """Which secrets of the guarantee come from a known seed: with any, the run is a simulation."""
    return [
        *(['noise'] if report.noise_is_seeded else []),
        *(['cohorts'] if report.sampling_is_seeded and report.uses_sampling else []),
    ]


def early_end(report: 'PrivacyReport') -> str:
    """After how many of the planned rounds the log ends, in words; empty if it has all of them."""
    if report.observed is None or not report.ended_early:
        return ''
    return f'after {report.observed.rounds} of {report.plan.participation.rounds} planned rounds'


def _exception(reports: 'Sequence[PrivacyReport]') -> str:
    text = ''
    if any(report.warm_start_is_public for report in reports):
        text = ', provided that the model that training began with is public, as was declared'
    if any(report.train_metrics_released for report in reports):
        text += (
            ', except for the metrics of the training clients, which were released without noise'
        )
    return text
