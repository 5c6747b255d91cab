"""The first lines of a privacy report: which run it is about, and in short what it says."""

from dpfl.accounting.reports import checklist
from dpfl.accounting.reports.report_values import ReportValues
from dpfl.mechanisms import rounding

# Digits of epsilon, for comparisons with published numbers; also rounded up.
_DIGITS = 7


def render(report: ReportValues) -> str:
    """The card, a table of Markdown."""
    rows = [
        *([] if report.about is None else report.about.rows()),
        ('rounds', _rounds(report)),
        ('epsilon', _epsilon(report)),
        ('verdict', '; '.join(_verdict(report))),
    ]
    return '\n'.join(['| Run | |', '|---|---|', *(f'| {name} | {value} |' for name, value in rows)])


def _rounds(report: ReportValues) -> str:
    planned = report.plan.participation.rounds
    if report.observed is None:
        return f'{planned} planned'
    return f'{report.observed.rounds} of {planned} planned'


def _epsilon(report: ReportValues) -> str:
    at = f'at delta = {report.deltas[0]:g}'
    whole = report.guarantee.epsilons[0]
    if whole is None:
        return 'none: there is no guarantee'
    if report.so_far is None or report.so_far[0] is None:
        shown, exact = rounding.round_up(whole), rounding.round_up(whole, _DIGITS)
        return f'{shown} {at}' + ('' if exact == shown else f' ({exact} to {_DIGITS} digits)')
    rounds = 0 if report.observed is None else report.observed.rounds
    return (
        f'{rounding.round_up(report.so_far[0])} of the {rounds} rounds done, '
        f'{rounding.round_up(whole)} of all planned rounds, {at}'
    )


def _verdict(report: ReportValues) -> list[str]:
    """What the reader has to know first."""
    found = []
    if report.measured is not None and report.measured.refutations:
        found.append('**the audit of the run refutes the guarantee**')
    if not report.plan.noise_multiplier:
        found.append('no differential privacy: the run adds no noise')
    elif secrets := checklist.seeded_secrets(report):
        found.append(f'a simulation: {" and ".join(secrets)} from a known seed')
    if report.observed is None:
        return [*found, 'a plan, compared with no log']
    if report.observed.violations:
        return [*found, '**the log breaks the plan**: the numbers are those of the log']
    if checklist.early_end(report):
        found.append('ended early')
    return [*found, 'the log keeps the plan']
