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
    return _ACCOUNTANT[report.accountant]


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
    secrets = [
        *(['noise'] if report.noise_is_seeded else []),
        *(['cohorts'] if report.sampling_is_seeded and uses_sampling(report) else []),
    ]
    subject = 'The run satisfies' if not secrets \
        else f'Simulation: with secret {" and ".join(secrets)} this run would satisfy'
    return f'{subject} {" and ".join(parts)} for each client.'


def assumptions(report) -> list[str]:
    """What has to hold for the guarantee to hold, one sentence each."""
    plan = report.plan
    return [
        *_participation(report),
        _log(report),
        _clip_norm(plan),
        *_discretization(plan),
        _noise(plan),
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
        return [
            f'Each client takes part in at most {holds.max_participations} of {holds.rounds} '
            f'rounds, any two of them at least {holds.min_separation} apart.'
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
        return 'The limits are the plan\'s; no participation log was compared with them.'
    return 'The limits are the plan\'s, and the participation log keeps them.'


def _clip_norm(plan) -> str:
    if plan.adaptive_clip is not None:
        return (
            'Each client\'s update has an L2 norm of at most the clip norm in use (the aggregator '
            f'clips it): {plan.clip_norm:g} at first, and from each restart of the noise on a '
            'private estimate of a quantile of the norms (document 000, algorithm 1). The clipped '
            f'counts have noise of standard deviation {plan.count_stddev:g} and are a part of the '
            'guarantee (theorem 1); a client that is zeroed out is left out of them.'
        )
    changes = ''.join(
        f', {norm:g} from round {first} on' for first, norm in plan.clip_schedule
    )
    return (
        f'Each client\'s update has an L2 norm of at most {plan.clip_norm:g}'
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
    items = [
        'Tuning of hyperparameters on the same clients, and choosing a checkpoint by its metrics.',
        'Metrics computed on clients\' data without noise, such as the training loss shown during '
        'the run.',
        'Data used before the run, such as data for pre-training or for the vocabulary.',
        'Clients that do not follow the algorithm (the guarantee of the others still holds), and '
        'people with several devices beyond group privacy.',
        'Attacks on floating-point arithmetic and on the pseudo-random generator (Philox, not a '
        'cryptographic one).',
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
        items.insert(0, 'This run is a simulation: its noise came from a given seed, so whoever '
                        'knows the seed can remove the noise.')
    if report.sampling_is_seeded and uses_sampling(report):
        items.insert(0, 'This run is a simulation: its cohorts came from a given seed, so whoever '
                        'knows the seed knows who took part.')
    if not report.plan.noise_multiplier:
        items.insert(0, 'There is no noise: the run has no privacy guarantee.')
    return items


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
