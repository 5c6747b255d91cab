"""The words of a privacy report: assumptions, what is not covered, and the readable page."""

import math

_ADJACENCY = {
    'zero_out': 'Zero-out: neighbouring runs differ in one client, whose update is replaced by '
                'zero in every round it takes part in; the planned cohort size stays.',
    'replace_one': 'Replace-one: neighbouring runs differ in one client, whose updates are any '
                   'others within the clip norm (this doubles the sensitivity).',
}
_ACCOUNTANT = {
    'pld': 'privacy loss distribution (dp_accounting), pessimistic by the width of its grid',
    'rdp': 'Renyi DP (dp_accounting) with its conversion, an upper bound',
    'analytic_gaussian': 'exact curve of the Gaussian mechanism (Balle and Wang 2018, theorem 8)',
}


def assumptions(report) -> list[str]:
    """What has to hold for the guarantee to hold, one sentence each."""
    holds = report.guarantee
    exactness = (
        'The sensitivity is exact: an admitted pattern of participations attains it.'
        if holds.sensitivity_is_exact
        else 'The sensitivity is a proven upper bound and may not be attained.'
    )
    if report.basis == 'log':
        source = 'The limits are those that the participation log shows, as the plan was not kept.'
    elif report.observed is None:
        source = 'The limits are the plan\'s; no participation log was compared with them.'
    else:
        source = 'The limits are the plan\'s, and the participation log keeps them.'
    return [
        f'Each client takes part in at most {holds.max_participations} of {holds.rounds} rounds, '
        f'any two of them at least {holds.min_separation} apart.',
        source,
        f'Each client\'s update has an L2 norm of at most {report.clip_norm:g} in every round '
        '(the aggregator clips it).',
        f'The noise of every round was drawn with standard deviation {report.noise_multiplier:g} '
        'times the clip norm, and no noise was used with two different cohorts.',
        report.mechanism.describe_release(),
        exactness,
        'The server is trusted to run the mechanism as described (central DP).',
        'Which clients take part does not depend on the data of other clients.',
    ]


def not_covered(report) -> list[str]:
    """What the guarantee says nothing about, one sentence each."""
    items = [
        'Tuning of hyperparameters on the same clients, and choosing a checkpoint by its metrics.',
        'Metrics computed on clients\' data without noise, such as the training loss shown during '
        'the run.',
        'Data used before the run, such as data for pre-training or for the vocabulary.',
        'Clients that do not follow the algorithm (the guarantee of the others still holds), and '
        'people with several devices beyond group privacy.',
        'Attacks on floating-point arithmetic and on the pseudo-random generator (Philox, not a '
        'cryptographic one).',
        'Amplification by sampling: none is claimed.',
    ]
    if report.noise_is_seeded:
        items.insert(0, 'This run is a simulation: its noise came from a given seed, so whoever '
                        'knows the seed can remove the noise.')
    if report.guarantee.rho is None:
        items.insert(0, 'There is no noise: the run has no privacy guarantee.')
    return items


def render(report) -> str:
    """The whole page as Markdown."""
    sections = [
        '# Privacy report',
        f'**{statement(report)}**',
        *([] if report.observed is None else [_log_section(report)]),
        '## Checklist',
        _checklist(report),
        '## Assumptions',
        _bullets(assumptions(report)),
        '## Not covered',
        _bullets(not_covered(report)),
        '## Numbers',
        _numbers(report),
    ]
    return '\n\n'.join(sections) + '\n'


def statement(report) -> str:
    """The formal statement in one or two sentences."""
    holds = report.guarantee
    if holds.rho is None:
        return 'No differential privacy: the run adds no noise.'
    epsilons = ' and '.join(
        f'({round_up(epsilon)}, {delta:g})-DP'
        for epsilon, delta in zip(holds.epsilons, report.deltas, strict=True)
    )
    subject = 'Simulation: with secret noise this run would satisfy' if report.noise_is_seeded \
        else 'The run satisfies'
    return f'{subject} {round_up(holds.rho)}-zCDP and {epsilons} for each client.'


def round_up(value: float | None, digits: int = 4) -> str:
    """`value` to so many significant digits, rounded up: a printed guarantee never understates."""
    if value is None:
        return 'none'
    if value == 0:
        return '0'
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    rounded = math.ceil(value / unit * (1 - 1e-12)) * unit
    return f'{rounded:.{digits}g}'


def _bullets(items) -> str:
    return '\n'.join(f'- {item}' for item in items)


def _checklist(report) -> str:
    holds = report.guarantee
    return '\n'.join([
        '1. **DP setting.** Central DP: the server sees clipped updates and is trusted to add the '
        'noise.',
        '2. **Definition**',
        '   - *Data accesses covered*: one training run, all clients that follow the algorithm.',
        '   - *Output of the mechanism*: the noised updates of all rounds, hence every model from '
        'the first to the last and all that is computed from them.',
        '   - *Unit of privacy*: a client, with all of its data.',
        f'   - *Adjacency*: {_ADJACENCY[report.adjacency]}',
        '3. **Accounting**',
        f'   - *Type*: zCDP; epsilon by {_ACCOUNTANT[report.accountant]}.',
        f'   - *Participation*: at most {holds.max_participations} rounds per client, at least '
        f'{holds.min_separation} apart, in {holds.rounds} rounds.',
        f'   - *Formal statement*: {statement(report)}',
        '   - *Verifiability*: `python -m experiments.report_privacy` recomputes these numbers '
        'from the parameters below.',
    ])


def _log_section(report) -> str:
    observed = report.observed
    verdict = (
        'The participation log **breaks the plan**; the statement above is for what happened.'
        if observed.violations
        else 'The participation log keeps the plan.'
    )
    return '\n\n'.join(
        ['## Participation', verdict]
        + ([_bullets(observed.violations)] if observed.violations else [])
        + [
            f'{observed.guarantee.rounds} rounds recorded, cohorts of {observed.smallest_cohort} '
            f'to {observed.largest_cohort} clients.'
        ]
    )


def _numbers(report) -> str:
    columns = [('plan', report.plan_guarantee)]
    if report.observed is not None:
        columns.append(('observed', report.observed.guarantee))
    rows = [
        ('rounds', lambda g: g.rounds),
        ('min separation', lambda g: g.min_separation),
        ('max participations', lambda g: g.max_participations),
        ('sensitivity (clip norm 1)', lambda g: round_up(g.sensitivity)),
        ('rho (zCDP)', lambda g: round_up(g.rho)),
        ('mu (Gaussian DP)', lambda g: round_up(g.mu)),
        *(
            (f'epsilon at delta = {delta:g}', lambda g, i=i: round_up(g.epsilons[i]))
            for i, delta in enumerate(report.deltas)
        ),
    ]
    table = [
        '| | ' + ' | '.join(name for name, _ in columns) + ' |',
        '|---' * (len(columns) + 1) + '|',
        *(
            f'| {label} | ' + ' | '.join(str(value(g)) for _, g in columns) + ' |'
            for label, value in rows
        ),
    ]
    run = _bullets([
        f'mechanism: {report.mechanism.name}, parameters with SHA-256 {report.mechanism.digest()}',
        f'noise multiplier: {report.noise_multiplier:g} (standard deviation / clip norm)',
        f'clip norm: {report.clip_norm:g}',
        f'planned clients per round: {report.clients_per_round} (not part of the guarantee)',
    ])
    return '\n'.join(table) + '\n\n' + run
