"""The assumptions of a privacy report, and what its guarantee does not cover, as sentences."""

from dpfl.accounting import large_delta
from dpfl.accounting.evidence import refutation, unseen
from dpfl.accounting.plan import PrivacyPlan
from dpfl.accounting.reports import checklist
from dpfl.accounting.reports.report_values import ReportValues
from dpfl.accounting.sampling import estimates


def assumptions(report: ReportValues) -> list[str]:
    """What the guarantee assumes, one item each."""
    plan = report.plan
    return [
        *_participation(report),
        _log(report),
        _clip_norm(plan),
        *_discretization(plan),
        _noise(plan),
        *_hardened(plan),
        *_before(plan),
        *([] if report.uses_sampling else [plan.mechanism.describe_release()]),
        *_exactness(report),
        'The server is trusted to run the mechanism as described (central DP).',
        *_ray(report),
        'Which clients take part does not depend on the data of other clients.',
    ]


def _ray(report: ReportValues) -> list[str]:
    if report.about is None or report.about.ray_losses is None:
        return []
    return [
        "Ray's hosts are trusted like the server: they saw the data of clients and the sums of "
        'updates before the noise was added, and clipped the updates. They never had the noise, '
        'nor its key.'
    ]


def _participation(report: ReportValues) -> list[str]:
    plan, holds = report.plan, report.guarantee
    if not report.uses_sampling:
        planned = 'planned ' if report.basis == 'plan' or report.ended_early else ''
        several = holds.max_participations > 1
        apart = f', and any two of these are at least {holds.min_separation} apart'
        return [
            f'Each client takes part in at most {holds.max_participations} of {holds.rounds} '
            f'{planned}rounds{apart if several else ""}.'
        ]
    if plan.sampling == 'cyclic_poisson':
        how = (
            f'the {plan.population} clients were divided into {plan.groups} groups in advance, '
            'without looking at their data, and never change group. Round t chooses from group t '
            f'mod {plan.groups} only: in each of {holds.rounds} rounds every client of the group '
            f'takes part with probability {plan.clients_per_round * (plan.groups or 1)}/'
            f'{plan.population}, independently of all other clients and of other rounds'
        )
    elif plan.sampling == 'balls_in_bins':
        how = (
            f'each of the {plan.population} clients has picked one of {plan.groups} bins, '
            'uniformly and independently of all other clients, and never changes it. A client of '
            f'bin i takes part in the rounds i, i + {plan.groups}, i + {2 * (plan.groups or 1)}, '
            f'... of {holds.rounds} rounds, and in no others'
        )
    elif plan.sampling == 'random_allocation':
        how = (
            f'each of the {plan.population} clients takes part in one round of each {plan.groups}, '
            'which it picks uniformly and independently of all other clients and of its other '
            f'rounds, in {holds.rounds} rounds'
        )
    elif plan.sampling == 'b_min_sep':
        waiting = (plan.groups or 1) - 1
        free = (plan.population or 0) - waiting * plan.clients_per_round
        how = (
            f'in each of {holds.rounds} rounds every client that took part in none of the last '
            f'{waiting} rounds takes part with probability {plan.clients_per_round}/{free}, '
            'independently of all other clients and of its other rounds. In round 0 clients are as '
            'in the middle of a long run: each waits for as many rounds as any number from 1 to '
            f'{waiting} with probability {plan.clients_per_round}/{plan.population}, and may take '
            'part with the rest'
        )
    elif plan.sampling == 'poisson':
        how = (
            f'every client takes part in each of {holds.rounds} rounds with probability '
            f'{plan.clients_per_round}/{plan.population}, independently of all other clients and '
            'of other rounds'
        )
    elif plan.sampling == 'truncated_poisson':
        how = (
            f'every client is chosen in each of {holds.rounds} rounds with probability '
            f'{plan.clients_per_round}/{plan.population}, independently of all other clients and '
            f'of other rounds; of more than {plan.cohort_cap} chosen clients, a uniformly random '
            f'set of {plan.cohort_cap} takes part'
        )
    else:
        how = (
            f'the cohort of each of {holds.rounds} rounds is a uniformly random set of '
            f'{plan.clients_per_round} of {plan.population} clients, drawn independently of other '
            'rounds'
        )
    return [
        f'Sampling: {how}.',
        'Who took part is secret, and so are the random numbers that chose the cohorts. The '
        'guarantee does not hold against anyone who knows the participation log.',
        *_tested(report),
    ]


def _tested(report: ReportValues) -> list[str]:
    """How the log was tested against the sampling, and what the tests cannot see."""
    if report.observed is None:
        return []
    return [
        'The log was tested against this sampling, and no test refutes it. The tests refute '
        f'cohorts that were sampled as planned with probability at most {refutation.FALSE_ALARM:g}.'
        f' {" ".join(unseen.unseen(report.plan, report.observed.rounds))}'
    ]


def _log(report: ReportValues) -> str:
    if report.observed is None:
        return "The limits are the plan's; they were not compared with a participation log."
    if report.basis == 'plan':
        return "The limits are the plan's, and the participation log keeps them."
    text = (
        'The limits are those that the participation log shows, because the run did not keep the '
        'plan.'
    )
    if report.ended_early:
        text += " For the planned rounds that did not run, they are the plan's where it is wider."
    if report.plan.sampling != 'none':
        with_sampling = checklist.round_up(report.plan_guarantee.epsilons[0])
        without = checklist.round_up(report.guarantee.epsilons[0])
        text += (
            f' Nothing is amplified by sampling={report.plan.sampling}: with it epsilon would be '
            f'{with_sampling} at delta = {report.deltas[0]:g}, without it epsilon is {without}.'
        )
    return text


def _clip_norm(plan: PrivacyPlan) -> str:
    if plan.adaptive_clip is not None:
        return (
            "Each client's update has an L2 norm of at most the clip norm in use, because the "
            f'aggregator clips it. The clip norm is {plan.clip_norm:g} at first. Wherever the '
            'noise starts afresh it becomes a private estimate of a quantile of the norms (Xu et '
            'al. 2023, algorithm 1). The counts of clipped updates have noise of standard '
            f'deviation {plan.count_stddev:g} and are part of the guarantee (theorem 1 '
            f'there); a client that is zeroed out does not count in them.{_weights(plan)}'
        )
    changes = ''.join(f', {norm:g} from round {first} on' for first, norm in plan.clip_schedule)
    return (
        f"Each client's update has an L2 norm of at most {plan.clip_norm:g}"
        f'{changes or " in every round"}, because the aggregator clips it.{_weights(plan)}'
    )


def _weights(plan: PrivacyPlan) -> str:
    cap = plan.estimator.example_cap
    if cap is None:
        return ''
    return (
        ' It is then multiplied by the weight of the client, its number of examples over '
        f'{cap:g}, which the aggregator limits to 0 .. 1 (McMahan et al. 2018, section 2).'
    )


def _noise(plan: PrivacyPlan) -> str:
    unit = 'the clip norm'
    if plan.adaptive_clip is not None or plan.clip_schedule:
        unit += ' in use'
    if plan.estimator.kind == 'clipped':
        unit += (
            f' over {plan.denominator:g}, which is how far one client moves the mean (clipped '
            'denominator: McMahan et al. 2018, lemma 1)'
        )
    return (
        'The noise of every round was drawn with standard deviation '
        f'{plan.update_noise_multiplier:g} times {unit}, and no noise was used with two different '
        'cohorts.'
    )


def _hardened(plan: PrivacyPlan) -> list[str]:
    if plan.noise == 'default':
        return []
    return [
        'Hardened noise: each round releases an exact sum of integers plus exact discrete Gaussian '
        "noise. One client's integers have a norm of at most the clip norm. The noise comes from "
        'key streams of AES-256. The result is converted to floats only afterwards. The '
        'sensitivity counts the rounding of correlated noise. Epsilon counts that the discrete '
        f'Gaussian is within {plan.slack:.1g} of the Gaussian in every probability '
        '(docs/reference/hardened.md).'
    ]


def _before(plan: PrivacyPlan) -> list[str]:
    items = []
    for each in plan.before:
        text = (
            f'Released before training, once: {each.name}, from sums over all clients with noise '
            f'of standard deviation {each.noise_multiplier:.4g} times the norm of what one client '
            f'adds to them (mu = {checklist.round_up(each.mu(plan.neighbours))}). All clients took '
            'part, so sampling does not amplify it.'
        )
        if each.delta:
            text += (
                ' With probability at most '
                f'{checklist.round_up(each.delta)} it shows something that only one client has: '
                'that is a part of every delta of this report.'
            )
        items.append(text)
    return items


def _discretization(plan: PrivacyPlan) -> list[str]:
    if plan.discretization is None:
        return []
    return [
        'Updates are rounded to integers for secure aggregation (Xu et al. 2023, algorithm 2): the '
        f'sensitivity counts the inflated norm {plan.discretization.inflated_norm:g}.'
    ]


def _exactness(report: ReportValues) -> list[str]:
    plan = report.plan
    if report.uses_sampling:
        if plan.sampling in estimates.SAMPLINGS:
            return _estimates(report)
        if plan.sampling == 'cyclic_poisson':
            return [
                'No row of the strategy C of the noise mixes two turns of a group, as C has at '
                f'most {plan.groups} bands. Each turn is accounted for as a Gaussian release on a '
                'Poisson sample, with the norm of its column of C as sensitivity (Choquette-Choo '
                'et al. 2023, theorem 4). Epsilon is that of the worst group.'
            ]
        if plan.sampling == 'truncated_poisson':
            return [
                'Each round is accounted for as a Gaussian release on a Poisson sample if fewer '
                'other clients than the cap are chosen, and otherwise as one in which a client '
                'takes the place of another one (Ganesh et al. 2025). A client that is zeroed out '
                'keeps its place.'
            ]
        if plan.sampling == 'poisson':
            text = 'Each round is accounted for as a Gaussian release of the sum over its sample.'
            if plan.group_size > 1:
                text += ' Members of a group are in the sample independently of each other.'
            if plan.adjacency == 'replace_one':
                text += ' A client that is replaced is in the sample as often as before.'
            return [text]
        text = (
            'A round with a sample without replacement is accounted for by a pair of distributions '
            'that dominates it (after Zhu, Dong and Wang 2022), or by theorem 27 of Wang, Balle '
            'and Kasiviswanathan 2018. Population and cohorts of neighbouring runs have the same '
            'sizes: a cohort without the client holds another one in its place, so '
        )
        if plan.adjacency == 'replace_one_half_shift':
            return [
                text + 'the sum of a round may move by two clip norms, but ONE IS COUNTED: the '
                'guarantee holds only if any two updates are at most one clip norm apart, which '
                'clipping does not ensure.'
            ]
        return [text + 'the sum of a round moves by up to two clip norms, as counted here.']
    if report.guarantee.sensitivity_is_exact:
        return [
            'The sensitivity is exact: a pattern of participations within the limits attains it.'
        ]
    return ['The sensitivity is a proven upper bound; it may be larger than what can be attained.']


def _estimates(report: ReportValues) -> list[str]:
    """What is estimated, and with which confidence."""
    plan = report.plan
    found = [estimates.of_plan(plan, delta) for delta in report.deltas if plan.noise_multiplier]
    items = [
        'A client releases a mixture of Gaussians, one of each set of rounds in which it may take '
        'part. Updates that point in one direction, through the absolute values of the strategy C, '
        'are the worst (docs/reference/sampling.md).'
    ]
    for each in found:
        if each.is_amplified:
            items.append(
                f'Epsilon at delta = {each.delta:g} IS AN ESTIMATE from {each.samples} random '
                f'samples of each direction with seed {each.seed}. It is an upper confidence '
                'bound: over the choice of the samples, the probability that it is too small is '
                f'at most {each.failure:g}. That does not cover a plan that was tuned until its '
                'estimate was small, since the seed is public and always the same; it covers the '
                'noise for a target epsilon, which is searched with samples of another seed. '
                'Without the sampling of clients, epsilon is certainly at most '
                f'{checklist.round_up(each.unamplified)}.'
            )
        else:
            items.append(
                f'Epsilon at delta = {each.delta:g} is the one without amplification: the samples '
                'of the estimate did not show a smaller one.'
            )
    return items


def not_covered(report: ReportValues) -> list[str]:
    """What the guarantee does not cover, one item each; the gravest first."""
    uses_sampling = report.uses_sampling
    items = []
    if not report.plan.noise_multiplier:
        items.append('There is no noise: the run has no privacy guarantee.')
    if report.train_metrics_released:
        items.append(
            'The metrics of the training clients: they were released with this run, without '
            'noise. The guarantee is for the models alone, and does not hold for the directory of '
            'the run as a whole.'
        )
    if report.sampling_is_seeded and uses_sampling:
        items.append(
            'This run is a simulation: its cohorts came from a given seed, so whoever knows the '
            'seed knows who took part.'
        )
    if report.noise_is_seeded:
        items.append(
            'This run is a simulation: its noise came from a given seed, so whoever knows the '
            'seed can remove the noise.'
        )
    items += [
        _tuning(report),
        "Metrics computed on clients' data without noise, such as the training loss shown during "
        'the run.',
        'How long rounds took, such as `seconds` in metrics.csv: this depends on single clients.',
        _earlier_data(report.plan),
        'Clients that do not follow the algorithm (the guarantee still holds for the others), and '
        f'people with {_several(report.plan.group_size)}.',
        _attacks(report.plan),
        'Other runs on the same clients: the guarantees of several runs add up (composition).',
        *_copies(report),
        *_public_model(report),
        *report.also_not_covered,
        *_large_deltas(report),
    ]
    if not uses_sampling:
        items.append('Amplification by sampling: none is claimed.')
    if report.observed is not None:
        items.append(
            'The participation log itself, and the numbers taken from it: which clients took part '
            'is neither noised nor kept secret by this guarantee.'
        )
    return items


def _copies(report: ReportValues) -> list[str]:
    if report.noise_key_digest is None:
        return []
    return [
        'A copy of the run that was continued with other data, which its files cannot show: it has '
        'the same noise key, and noise_key_digest in its report, and there is no joint guarantee '
        'with it.'
    ]


def _public_model(report: ReportValues) -> list[str]:
    if not report.warm_start_is_public:
        return []
    return [
        'The model that training began with: it is taken to be public, as was declared. If it '
        'learned from clients of this run, the guarantee does not hold for them.'
    ]


def _earlier_data(plan: PrivacyPlan) -> str:
    if plan.before:
        return (
            'Data used before the run in other ways than for what was released before training, '
            'such as data for pre-training.'
        )
    return 'Data used before the run, such as data for pre-training or for the vocabulary.'


def _large_deltas(report: ReportValues) -> list[str]:
    warnings = [large_delta.warning(delta, report.plan.population) for delta in report.deltas]
    return [warning for warning in warnings if warning]


def _tuning(report: ReportValues) -> str:
    how = '' if report.selected is None else ' in any other way than that of the selection above'
    return (
        f'Tuning of hyperparameters over several runs on the same clients{how}, and choosing a '
        'checkpoint by its metrics.'
    )


def _several(group_size: int) -> str:
    if group_size == 1:
        return 'several devices, beyond group privacy'
    return f'more than {group_size} devices'


def _attacks(plan: PrivacyPlan) -> str:
    if plan.noise == 'default':
        return (
            'Attacks on floating-point arithmetic and on the pseudo-random generator (Philox, '
            'which is not cryptographic).'
        )
    return (
        'Attacks on timing, caches and other side channels: how long noise and rounds take depends '
        'on noise and data. (Floating-point arithmetic and the generator are covered, as far as '
        'AES-256 is secure and the key stays secret.)'
    )
