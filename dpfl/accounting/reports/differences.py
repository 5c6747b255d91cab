"""What two privacy reports differ in: parameters, and which of the runs they make more private."""

from collections.abc import Callable
from typing import Any

from dpfl.accounting.plan import FOLD, PrivacyPlan
from dpfl.accounting.reports import checklist
from dpfl.accounting.reports.report import PrivacyReport

# Keys of a report, and of the plan in it, that a comparison shows. Some plans lack some of them.
_REPORT_KEYS = (
    'basis',
    'mechanism',
    'mechanism_digest',
    'sampling',
    'clients_per_round',
    'population',
    'groups',
    'cohort_cap',
    'rounds',
    'min_separation',
    'max_participations',
    'noise_multiplier',
    'clip_norm',
    'sensitivity',
    'sensitivity_is_exact',
    'accountant',
    'adjacency',
)
# Parts whose fields in a plan are compared; sampling and earlier runs are compared otherwise.
_PLAN_PARTS = [name for name in FOLD if name not in ('sampling', 'earlier')]
_FLAGS = ('noise_is_seeded', 'sampling_is_seeded', 'train_metrics_released')
SIDES = ('first', 'second')
# Relative: of a quotient that was computed, and of one that is rounded upwards.
_TOLERANCE = 1e-6


def parameters(first: PrivacyReport, second: PrivacyReport) -> dict[str, tuple[Any, Any]]:
    """The values of both by name; a value that a report does not have is None."""
    one, other = first.to_dict(), second.to_dict()
    found = {name: (one.get(name), other.get(name)) for name in (*_REPORT_KEYS, *_FLAGS)}
    found['group_size'] = (first.plan.group_size, second.plan.group_size)
    for name in _PLAN_PARTS:
        found[name] = (one['plan'].get(name), other['plan'].get(name))
    found['earlier_runs'] = (len(first.plan.earlier), len(second.plan.earlier))
    return {name: pair for name, pair in found.items() if pair != (None, None)}


def reasons(first: PrivacyReport, second: PrivacyReport) -> tuple[str, ...]:
    """Which parameters make one run more private than the other, one sentence each.

    A parameter counts alone, with the others as they are; only the guarantee says what all of them
    amount to.
    """
    if not all(report.plan.noise_multiplier for report in (first, second)):
        return tuple(
            f'The {side} has no noise.'
            for side, report in zip(SIDES, (first, second), strict=True)
            if not report.plan.noise_multiplier
        )
    kinds = [report.uses_sampling for report in (first, second)]
    found = [_more(first, second, 'noise multiplier', lambda r: r.plan.noise_multiplier, 'larger')]
    if not any(kinds):
        found.append(
            _more(first, second, 'sensitivity', lambda r: r.guarantee.sensitivity, 'smaller')
        )
        found += [_of_participations(first, second), _of_mechanisms(first, second)]
        found.append(_quotients(first, second))
    elif all(kinds):
        found += _of_samples(first, second)
    else:
        sampled = SIDES[kinds.index(True)]
        found.append(f'Only the guarantee of the {sampled} is amplified by sampling.')
    found.append(_more(first, second, 'number of earlier runs', _earlier, 'smaller'))
    return tuple(sentence for sentence in found if sentence)


def _kind(plan: PrivacyPlan) -> str:
    if plan.sampling is None:
        return plan.sampling_name
    turn = plan.sampling.turn
    return plan.sampling_name + (f' with {turn} groups' if turn > 1 else '')


def _share(report: PrivacyReport) -> float:
    assert report.plan.population is not None  # As plans with sampling have it.
    return report.plan.clients_per_round / report.plan.population


def _earlier(report: PrivacyReport) -> int:
    return len(report.plan.earlier)


def _more(
    first: PrivacyReport,
    second: PrivacyReport,
    name: str,
    value: Callable[[PrivacyReport], float],
    better: str,
) -> str:
    """A sentence about the run with the better value; empty if the values are equal."""
    one, other = value(first), value(second)
    if one == other:
        return ''
    is_first = (one > other) == (better == 'larger')
    values = (one, other) if is_first else (other, one)
    return (
        f'The {SIDES[not is_first]} has the {better} {name}: {values[0]:.6g} against '
        f'{values[1]:.6g}.'
    )


def _of_samples(first: PrivacyReport, second: PrivacyReport) -> list[str]:
    """What the guarantees of two runs that rely on sampling follow from, besides the noise."""
    found = [_of_mechanisms(first, second)]
    one, other = first.plan, second.plan
    kinds = [_kind(each) for each in (one, other)]
    if kinds[0] != kinds[1]:
        return [*found, f'The samplings differ: {kinds[0]} (first), {kinds[1]} (second).']
    return [
        *found,
        _more(first, second, 'number of rounds', lambda r: r.guarantee.rounds, 'smaller'),
        _more(first, second, 'share of clients in a round', _share, 'smaller'),
    ]


def _of_participations(first: PrivacyReport, second: PrivacyReport) -> str:
    """A sentence about the limits that the sensitivity follows from; empty if they are equal."""
    limits = [
        f'at most {each.max_participations} of {each.rounds} rounds, at least '
        f'{each.min_separation} apart'
        for each in (first.guarantee, second.guarantee)
    ]
    if limits[0] == limits[1]:
        return ''
    return f'A client takes part in {limits[0]} (first); in {limits[1]} (second).'


def _of_mechanisms(first: PrivacyReport, second: PrivacyReport) -> str:
    """A sentence about the mechanisms; empty if they are equal."""
    one, other = first.plan.mechanism, second.plan.mechanism
    if one.digest() == other.digest():
        return ''
    if one.name == other.name:
        return f'The parameters of the mechanism, {one.name}, differ.'
    return f'The mechanisms differ: {one.name} (first), {other.name} (second).'


def _quotients(first: PrivacyReport, second: PrivacyReport) -> str:
    """Mu as sensitivity over noise multiplier; empty where it is not only that, or is the same."""
    if first.guarantee.mu == second.guarantee.mu:
        return ''
    texts = []
    for report in (first, second):
        holds, noise = report.guarantee, report.plan.noise_multiplier
        if holds.mu is None or abs(holds.mu * noise / holds.sensitivity - 1) > _TOLERANCE:
            return ''
        texts.append(f'{holds.sensitivity:.6g} / {noise:.6g} = {holds.mu:.6g}')
    return f'mu is sensitivity / noise multiplier: {texts[0]} (first), {texts[1]} (second).'


def notes(first: PrivacyReport, second: PrivacyReport) -> list[str]:
    """What else to know before choosing one of two runs, one sentence each; the gravest first."""
    found = []
    both = tuple(zip(SIDES, (first, second), strict=True))
    for side, report in both:
        if report.train_metrics_released:
            found.append(
                f'The {side} released metrics of its training clients without noise: its '
                'guarantee does not hold for its directory as a whole.'
            )
        secrets = checklist.seeded_secrets(report)
        if secrets:
            found.append(
                f'The {side} is a simulation: its {" and ".join(secrets)} came from a known seed. '
                'What is compared is what it would guarantee if they were secret.'
            )
        if report.basis == 'log':
            found.append(f'The {side} broke its plan; its numbers follow from its log.')
        if report.selected is not None:
            found.append(
                f'The {side} is the best of several runs: epsilon is that of the selection, rho, '
                'mu and what membership tests reach are those of a single run.'
            )
    sampled = [side for side, report in both if report.uses_sampling]
    if len(sampled) == 1:
        found.append(
            f'The guarantee of the {sampled[0]} relies on who took part being secret; that of the '
            'other one does not.'
        )
    for side, report in both:
        if not report.guarantee.sensitivity_is_exact:
            found.append(
                f'The sensitivity of the {side} is an upper bound: it may be more private than '
                'these numbers say.'
            )
    return found
