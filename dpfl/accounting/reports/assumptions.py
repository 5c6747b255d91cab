"""The assumptions of a privacy report, and what its guarantee does not cover, as sentences."""

from dpfl.accounting import large_delta
from dpfl.accounting.evidence import refutation, unseen
from dpfl.accounting.plan import PrivacyPlan
from dpfl.accounting.reports.report_values import ReportValues
from dpfl.mechanisms import rounding


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
    assert plan.sampling is not None  # As the guarantee uses it.
    return [
        f'Sampling: {plan.sampling.describe(plan)}.',
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
    if report.plan.sampling is not None:
        with_sampling = rounding.round_up(report.plan_guarantee.epsilons[0])
        without = rounding.round_up(report.guarantee.epsilons[0])
        text += (
            f' Nothing is amplified by sampling={report.plan.sampling.name}: with it epsilon would '
            f'be {with_sampling} at delta = {report.deltas[0]:g}, without it epsilon is {without}.'
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
            f'adds to them (mu = {rounding.round_up(each.mu(plan.neighbours))}). All clients took '
            'part, so sampling does not amplify it.'
        )
        if each.delta:
            text += (
                ' With probability at most '
                f'{rounding.round_up(each.delta)} it shows something that only one client has: '
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
    if report.plan.sampling is not None and report.uses_sampling:
        return report.plan.sampling.accounted(report.plan, report.deltas)
    if report.guarantee.sensitivity_is_exact:
        return [
            'The sensitivity is exact: a pattern of participations within the limits attains it.'
        ]
    return ['The sensitivity is a proven upper bound; it may be larger than what can be attained.']


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
