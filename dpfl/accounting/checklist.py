"""The words of a privacy report: the statement, the assumptions, and what is not covered."""

import math

_ADJACENCY = {
    'zero_out': 'Zero-out: neighbouring runs differ in one client, whose update is replaced by '
    'zero in every round it takes part in; the planned cohort size stays.',
    'replace_one': 'Replace-one: neighbouring runs differ in one client, whose updates are any '
    'others within the clip norm (this doubles the sensitivity).',
    'replace_one_half_shift': 'Replace-one, counting that replacing a client moves the sum of a '
    'round by one clip norm (the convention of document 004).',
}
_ACCOUNTANT = {
    'pld': 'privacy loss distribution (dp_accounting), pessimistic by the width of its grid',
    'rdp': 'Renyi DP (dp_accounting) with its conversion, an upper bound',
    'analytic_gaussian': 'exact curve of the Gaussian mechanism (Balle and Wang 2018, theorem 8)',
    'moments': 'integer moments up to 32 with the classic conversion (document 001), an upper '
    'bound and the loosest of the accountants',
}


def adjacency(report) -> str:
    """What neighbouring runs are."""
    text = _ADJACENCY[report.plan.adjacency]
    if report.plan.sampling == 'poisson':
        text += ' With Poisson sampling that is the same as adding or removing the client.'
    return text


def accountant(report) -> str:
    """How epsilon was computed."""
    used = dict.fromkeys(report.guarantee.accountants or (report.accountant,))
    how = ' and '.join(_ACCOUNTANT[name] for name in used)
    if report.accountant == 'best':
        return f'{how}; the least of all accountants that know the plan'
    if report.accountant not in used or len(used) > 1:
        return f'{how}; accountant={report.accountant} has no value for these numbers'
    return how


def statement(report) -> str:
    """The formal statement in one or two sentences."""
    holds = report.guarantee
    if not report.plan.noise_multiplier:
        return 'No differential privacy: the run adds no noise.'
    parts = [] if holds.rho is None else [f'{round_up(holds.rho)}-zCDP']
    parts += [
        f'({round_up(epsilon)}, {delta:g})-DP'
        for epsilon, delta in zip(holds.epsilons, report.deltas, strict=True)
    ]
    secrets = known_secrets(report)
    run = 'The run' if not secrets else f'Simulation: with secret {" and ".join(secrets)} this run'
    ended = early_end(report)
    run += f', which ended {ended},' if ended else ''
    verb = 'would satisfy' if secrets else 'satisfies'
    return f'{run} {verb} {" and ".join(parts)} for each client{_exception([report])}.'


def statement_together(reports, guarantee: str) -> str:
    """What several runs on the same clients satisfy together, in one sentence.

    Args:
      reports: of the runs.
      guarantee: in words, or an empty string where there is none.
    """
    subject = f'This run and {len(reports) - 1} other(s) on the same clients together'
    if not guarantee:
        return f'{subject}: no differential privacy.'
    secrets = sorted({secret for report in reports for secret in known_secrets(report)})
    if secrets:
        subject = (
            f'Simulation: with secret {" and ".join(reversed(secrets))} this run and '
            f'{len(reports) - 1} other(s) on the same clients would together satisfy'
        )
    else:
        subject += ' satisfy'
    return f'{subject} {guarantee} for each client{_exception(reports)}.'


def known_secrets(report) -> list[str]:
    """What of a run is known that the guarantee takes as secret: then it is a simulation."""
    return [
        *(['noise'] if report.noise_is_seeded else []),
        *(['cohorts'] if report.sampling_is_seeded and uses_sampling(report) else []),
    ]


def early_end(report) -> str:
    """After how many of the planned rounds the log ends; empty if it has all of them."""
    planned = report.plan.participation.rounds
    if report.observed is None or report.observed.guarantee.rounds >= planned:
        return ''
    return f'after {report.observed.guarantee.rounds} of {planned} planned rounds'


def _exception(reports) -> str:
    if not any(report.train_metrics_released for report in reports):
        return ''
    return ', but for the metrics of training clients, which were released without noise'


def assumptions(report) -> list[str]:
    """What has to hold for the guarantee to hold, one sentence each."""
    plan = report.plan
    return [
        *_participation(report),
        _log(report),
        _clip_norm(plan),
        *_discretization(plan),
        _noise(plan),
        *_hardened(plan),
        *([] if uses_sampling(report) else [plan.mechanism.describe_release()]),
        *_exactness(report),
        'The server is trusted to run the mechanism as described (central DP).',
        'Which clients take part does not depend on the data of other clients.',
    ]


def uses_sampling(report) -> bool:
    """Whether the guarantee that holds rests on random sampling."""
    sampled = report.plan.sampling != 'none'
    return sampled and (report.basis == 'plan' or report.observed.guarantee.mu is None)


def _participation(report) -> list[str]:
    plan, holds = report.plan, report.guarantee
    if not uses_sampling(report):
        planned = '' if report.basis == 'log' else 'planned '
        return [
            f'Each client takes part in at most {holds.max_participations} of {holds.rounds} '
            f'{planned}rounds, any two of them at least {holds.min_separation} apart.'
        ]
    if plan.sampling == 'poisson':
        how = (
            f'every client takes part in each of {holds.rounds} rounds with probability '
            f'{plan.clients_per_round}/{plan.population}, independently of all others and of '
            'other rounds'
        )
    else:
        how = (
            f'the cohort of each of {holds.rounds} rounds is a uniformly random set of '
            f'{plan.clients_per_round} of {plan.population} clients, drawn independently of other '
            'rounds'
        )
    return [
        f'Sampling: {how}.',
        'Who took part is secret, and the random numbers that chose the cohorts are too: with the '
        'participation log at hand the guarantee does not hold. A log cannot show that the '
        'sampling was random.',
    ]


def _log(report) -> str:
    if report.basis == 'log':
        return 'The limits are those that the participation log shows, as the plan was not kept.'
    if report.observed is None:
        return "The limits are the plan's; no participation log was compared with them."
    return "The limits are the plan's, and the participation log keeps them."


def _clip_norm(plan) -> str:
    if plan.adaptive_clip is not None:
        return (
            "Each client's update has an L2 norm of at most the clip norm in use (the aggregator "
            f'clips it): {plan.clip_norm:g} at first, and from each restart of the noise on a '
            'private estimate of a quantile of the norms (document 000, algorithm 1). The clipped '
            f'counts have noise of standard deviation {plan.count_stddev:g} and are a part of the '
            'guarantee (theorem 1); a client that is zeroed out is left out of them.'
        )
    changes = ''.join(f', {norm:g} from round {first} on' for first, norm in plan.clip_schedule)
    return (
        f"Each client's update has an L2 norm of at most {plan.clip_norm:g}"
        f'{changes or " in every round"} (the aggregator clips it).'
    )


def _noise(plan) -> str:
    unit = 'the clip norm'
    if plan.adaptive_clip is not None or plan.clip_schedule:
        unit += ' in use'
    if plan.estimator.kind == 'clipped':
        unit += (
            f' over {plan.denominator:g}, which is how far one client moves the mean (clipped '
            'denominator; document 001, lemma 1)'
        )
    return (
        'The noise of every round was drawn with standard deviation '
        f'{plan.update_noise_multiplier:g} times {unit}, and no noise was used with two different '
        'cohorts.'
    )


def _hardened(plan) -> list[str]:
    if plan.noise == 'default':
        return []
    return [
        "Hardened noise: what is released of a round is the exact sum of integers, one client's "
        'of norm at most the clip norm, plus exact discrete Gaussian noise whose key streams are '
        'those of AES-256; floats are made of that afterwards. The sensitivity counts the rounding '
        f'of correlated noise, and epsilon that the discrete Gaussian is within {plan.slack:.1g} '
        'of the Gaussian in every probability (docs/hardened.md).'
    ]


def _discretization(plan) -> list[str]:
    if plan.discretization is None:
        return []
    return [
        'Updates are rounded to integers for secure aggregation (document 000, algorithm 2): the '
        f'sensitivity counts the inflated norm {plan.discretization.inflated_norm:g}.'
    ]


def _exactness(report) -> list[str]:
    plan = report.plan
    if uses_sampling(report):
        if plan.sampling == 'poisson':
            return ['Each round is accounted for as a Gaussian release of the sum over its sample.']
        text = (
            'The bound for samples without replacement is theorem 27 of Wang, Balle and '
            'Kasiviswanathan 2018; a cohort without the client holds another one in its place, so '
        )
        if plan.adjacency == 'replace_one_half_shift':
            return [
                text + 'the sum of a round may move by two clip norms, but ONE IS COUNTED: this '
                'holds only if any two updates are at most one clip norm apart, which clipping '
                'does not ensure.'
            ]
        return [text + 'the sum of a round moves by up to two clip norms, as counted here.']
    if report.guarantee.sensitivity_is_exact:
        return ['The sensitivity is exact: an admitted pattern of participations attains it.']
    return ['The sensitivity is a proven upper bound and may not be attained.']


def not_covered(report) -> list[str]:
    """What the guarantee says nothing about, one sentence each."""
    plan = report.plan
    items = [
        'Tuning of hyperparameters on the same clients, and choosing a checkpoint by its metrics.',
        "Metrics computed on clients' data without noise, such as the training loss shown during "
        'the run.',
        'How long rounds took, such as `seconds` in metrics.csv: it depends on single clients.',
        'Data used before the run, such as data for pre-training or for the vocabulary.',
        'Clients that do not follow the algorithm (the guarantee of the others still holds), and '
        'people with several devices beyond group privacy.',
        _attacks(plan),
        'Other runs on the same clients: guarantees of several runs add up (composition).',
        *report.also_not_covered,
    ]
    if not uses_sampling(report):
        items.append('Amplification by sampling: none is claimed.')
    if report.observed is not None:
        items.append(
            'The participation log itself, and the numbers taken from it: which clients took part '
            'is neither noised nor secret by this guarantee.'
        )
    if report.noise_is_seeded:
        items.insert(
            0,
            'This run is a simulation: its noise came from a given seed, so whoever '
            'knows the seed can remove the noise.',
        )
    if report.sampling_is_seeded and uses_sampling(report):
        items.insert(
            0,
            'This run is a simulation: its cohorts came from a given seed, so whoever '
            'knows the seed knows who took part.',
        )
    if report.train_metrics_released:
        items.insert(
            0,
            'The metrics of the training clients: they were released with this run, without '
            'noise. The guarantee is for the models alone, and does not hold for the directory of '
            'the run as a whole.',
        )
    if not report.plan.noise_multiplier:
        items.insert(0, 'There is no noise: the run has no privacy guarantee.')
    return items


def _attacks(plan) -> str:
    if plan.noise == 'default':
        return (
            'Attacks on floating-point arithmetic and on the pseudo-random generator (Philox, not '
            'a cryptographic one).'
        )
    return (
        'Attacks on timing, caches and other side channels: how long noise and rounds take depends '
        'on noise and data. (Floating-point arithmetic and the generator are covered, as far as '
        'AES-256 is secure and the key stays secret.)'
    )


def round_up(value: float | None, digits: int = 4) -> str:
    """`value` to so many significant digits, rounded up: a printed guarantee never understates."""
    if value is None:
        return 'none'
    if value == 0:
        return '0'
    value = max(value, 1e-300)  # Below, the unit itself would be 0.
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    rounded = math.ceil(value / unit * (1 - 1e-12)) * unit
    return f'{rounded:.{digits}g}'
