"""The sentences of a privacy report: about every run, the parts of its plan, and this run.

The sentences are a fold. First those that hold for every plan; then each part, in the order in
which the plan folds them, adds sentences and changes others; then the group, the log and the run;
the sentences for every reader, with which the page begins, last.
"""

import math
from typing import TYPE_CHECKING

from dpfl.accounting import gaussian
from dpfl.accounting.evidence import refutation
from dpfl.accounting.part import (
    ASSUMPTION,
    CHECKED,
    DEFINITION,
    MEANING,
    NOT_COVERED,
    TOOK_PART,
    VOID,
    Facts,
)

if TYPE_CHECKING:
    from dpfl.accounting.reports.report import PrivacyReport

# False positive rate of the test that the first sentences describe.
_FALSE_ALARMS = 0.01
# Longer lists of how often clients took part are cut.
_MOST_COUNTS = 12
_ADJACENCY = {
    'zero_out': 'Zero-out: neighbouring runs differ in one client, whose update is replaced by '
    'zero in every round that it takes part in. The planned cohort size stays the same.',
    'replace_one': 'Replace-one: neighbouring runs differ in one client, whose updates are '
    'replaced by any others within the clip norm. This doubles the sensitivity.',
    'replace_one_half_shift': 'Replace-one, with the convention of Augenstein et al. 2020: '
    'replacing a client is counted as moving the sum of a round by one clip norm.',
}


def facts(report: 'PrivacyReport') -> Facts:
    """All facts of a report: a pure function of its inputs and its numbers."""
    facts = Facts()
    _of_every_plan(report, facts)
    for part in report.plan.parts:
        part.facts(report, facts)
    _of_group(report, facts)
    _of_log(report, facts)
    _of_run(report, facts)
    _meaning(report, facts)
    _took_part(report, facts)
    return facts


def _of_every_plan(report: 'PrivacyReport', facts: Facts) -> None:
    plan, holds = report.plan, report.guarantee
    planned = 'planned ' if report.basis == 'plan' or report.ended_early else ''
    apart = f', and any two of these are at least {holds.min_separation} apart'
    facts.put(
        ASSUMPTION,
        'participation',
        'Each client takes part in at most {times} of {rounds} {planned}rounds{apart}.',
        times=holds.max_participations,
        rounds=holds.rounds,
        planned=planned,
        apart=apart if holds.max_participations > 1 else '',
    )
    facts.put(
        ASSUMPTION,
        'clip_norm',
        "Each client's update has an L2 norm of at most {norm:g}{changes}, because the aggregator "
        'clips it.',
        norm=plan.clip_norm,
        changes=' in every round',
    )
    facts.put(
        ASSUMPTION,
        'noise',
        'The noise of every round was drawn with standard deviation {noise:g} times the clip norm'
        '{in_use}{mean}, and no noise was used with two different cohorts.',
        noise=plan.update_noise_multiplier,
        in_use='',
        mean='',
    )
    facts.put(ASSUMPTION, 'release', '{release}', release=plan.mechanism.describe_release())
    facts.put(
        ASSUMPTION,
        'exactness',
        'The sensitivity is exact: a pattern of participations within the limits attains it.'
        if holds.sensitivity_is_exact
        else 'The sensitivity is a proven upper bound; it may be larger than what can be attained.',
    )
    facts.put(
        ASSUMPTION,
        'server',
        'The server is trusted to run the mechanism as described (central DP).',
    )
    facts.put(
        ASSUMPTION,
        'independence',
        'Which clients take part does not depend on the data of other clients.',
    )
    facts.put(
        NOT_COVERED,
        'tuning',
        'Tuning of hyperparameters over several runs on the same clients{how}, and choosing a '
        'checkpoint by its metrics.',
        how='',
    )
    facts.put(
        NOT_COVERED,
        'metrics',
        "Metrics computed on clients' data without noise, such as the training loss shown during "
        'the run.',
    )
    facts.put(
        NOT_COVERED,
        'timing',
        'How long rounds took, such as `seconds` in metrics.csv: this depends on single clients.',
    )
    facts.put(
        NOT_COVERED,
        'earlier_data',
        'Data used before the run, such as data for pre-training or for the vocabulary.',
    )
    facts.put(
        NOT_COVERED,
        'attacks',
        'Attacks on floating-point arithmetic and on the pseudo-random generator (Philox, which is '
        'not cryptographic).',
    )
    facts.put(
        NOT_COVERED,
        'other_runs',
        'Other runs on the same clients: the guarantees of several runs add up (composition).',
    )
    facts.put(NOT_COVERED, 'amplification', 'Amplification by sampling: none is claimed.')
    facts.put(DEFINITION, 'adjacency', _ADJACENCY[plan.adjacency])
    facts.put(
        DEFINITION,
        'output',
        '{before}the noised updates of all rounds, and therefore every model from the first to the '
        'last and everything that is computed from them.',
        before='',
    )
    if not plan.noise_multiplier:
        facts.put(VOID, 'noise', 'the run adds no noise')
        facts.put(NOT_COVERED, 'no_noise', 'There is no noise: the run has no privacy guarantee.')


def _of_group(report: 'PrivacyReport', facts: Facts) -> None:
    size = report.plan.group_size
    several = 'several devices, beyond group privacy'
    facts.put(
        NOT_COVERED,
        'clients',
        'Clients that do not follow the algorithm (the guarantee still holds for the others), and '
        'people with {several}.',
        several=several if size == 1 else f'more than {size} devices',
    )
    if size > 1:
        facts.put(
            DEFINITION,
            'adjacency/group',
            'Up to {size} clients, such as those of one person, change together.',
            size=size,
        )


def _of_log(report: 'PrivacyReport', facts: Facts) -> None:
    if report.observed is None:
        text = "The limits are the plan's; they were not compared with a participation log."
    elif report.basis == 'plan':
        text = "The limits are the plan's, and the participation log keeps them."
    else:
        text = (
            'The limits are those that the participation log shows, because the run did not keep '
            'the plan.'
        )
        if report.ended_early:
            text += (
                ' In the planned rounds that did not run, they count everything that the plan '
                'admits.'
            )
    facts.put(ASSUMPTION, 'limits', text)
    if report.basis == 'log' and report.plan.sampling is not None:
        lost = report.plan.sampling.lost_amplification(report)
        facts.put(ASSUMPTION, 'limits/amplification', '{text}', text=lost)
    if report.observed is not None:
        facts.put(
            NOT_COVERED,
            'log',
            'The participation log itself, and the numbers taken from it: which clients took part '
            'is neither noised nor kept secret by this guarantee.',
        )


def _of_run(report: 'PrivacyReport', facts: Facts) -> None:
    if report.about is not None and report.about.ray_losses is not None:
        facts.put(
            ASSUMPTION,
            'hosts',
            "Ray's hosts are trusted like the server: they saw the data of clients and the sums of "
            'updates before the noise was added, and clipped the updates. They never had the '
            'noise, nor its key.',
        )
    if report.train_metrics_released:
        facts.put(
            NOT_COVERED,
            'train_metrics',
            'The metrics of the training clients: they were released with this run, without noise. '
            'The guarantee is for the models alone, and does not hold for the directory of the run '
            'as a whole.',
        )
    if report.noise_is_seeded:
        facts.put(
            NOT_COVERED,
            'noise_seed',
            'This run is a simulation: its noise came from a given seed, so whoever knows the seed '
            'can remove the noise.',
        )
    if report.selected is not None:
        how = ' in any other way than that of the selection above'
        facts.change(NOT_COVERED, 'tuning', how=how)
    if report.noise_key_digest is not None:
        facts.put(
            NOT_COVERED,
            'copies',
            'A copy of the run that was continued with other data, which its files cannot show: it '
            'has the same noise key, and noise_key_digest in its report, and there is no joint '
            'guarantee with it.',
        )
    if report.warm_start_is_public:
        facts.put(
            NOT_COVERED,
            'public_model',
            'The model that training began with: it is taken to be public, as was declared. If it '
            'learned from clients of this run, the guarantee does not hold for them.',
        )
    for number, text in enumerate(report.also_not_covered):
        facts.put(NOT_COVERED, f'of_run@{number}', '{text}', text=text)
    for number, delta in enumerate(report.deltas):
        if warning := gaussian.delta_warning(delta, report.plan.population):
            facts.put(NOT_COVERED, f'large_delta@{number}', '{text}', text=warning)


def history(report: 'PrivacyReport') -> list[str]:
    """How a run was extended, by which rule it stops, and which run it continues from."""
    sentences = [
        f'It was planned for {step.planned} rounds, and extended to {step.rounds} when '
        f'{step.released} had been released.'
        for step in report.extensions
    ]
    if report.extensions:
        sentences.append(
            f'The guarantee is that of all {report.extensions[-1].rounds} rounds, as if they had '
            'been planned from the beginning: noise that was used keeps its amount, and epsilon is '
            'larger than that of the shorter run. If what was released had a part in the decision '
            'to go on, the number of rounds is itself a result; the guarantee does not cover that '
            'choice.'
        )
    own, seen = report.plan.participation.rounds, report.observed
    if report.stop_at_accuracy is not None:
        stopped = f' It stopped after {seen.rounds}.' if seen and seen.rounds < own else ''
        sentences.append(
            'The run stops at the first evaluation with an accuracy of at least '
            f'{report.stop_at_accuracy:g}.{stopped} This rule reads the data of the held-out '
            'clients without noise, so the number of rounds depends on their data, which the '
            'guarantee does not cover. For the clients that train, the guarantee is that of all '
            f'{own} planned rounds, which is an upper bound however early the run stops.'
        )
    if report.plan.earlier:
        runs = '; '.join(
            f'{earlier.participation.rounds} rounds of {earlier.mechanism.name} with noise '
            f'multiplier {earlier.noise_multiplier:g} and clip norm {earlier.clip_norm:g}, at most '
            f'{earlier.participation.count} of them per client'
            for earlier in report.plan.earlier
        )
        sentences.append(
            f'The run begins with the model of an earlier run ({runs}). The guarantee is that of '
            f'all rounds planned there and of the {own} rounds here together, for clients that '
            'take part in both as each plan allows. Sensitivity and noise multiplier are those of '
            'this run. Rounds that the earlier run trains beyond its plan, and other runs that '
            'begin with its model, are not part of it.'
        )
    return sentences


def _meaning(report: 'PrivacyReport', facts: Facts) -> None:
    whom = 'one client' if report.plan.group_size == 1 else f'{report.plan.group_size} clients'
    if facts.bullets(VOID) or report.guarantee.epsilons[0] is None:
        facts.put(
            MEANING,
            'test',
            'The models may tell anybody whether {whom} took part, and what the data were.',
            whom=whom,
        )
        return
    if report.measured is not None and report.measured.refutations:
        facts.put(MEANING, 'audit', '**Do not rely on what follows: the audit refutes it.**')
    if report.noise_is_seeded or report.sampling_is_seeded and report.uses_sampling:
        facts.put(
            MEANING,
            'simulation',
            'This run is a simulation: it protects nobody from those who know its seed. Against '
            'others it is as follows.',
        )
    right, detected = _best_test(report)
    facts.put(
        MEANING,
        'test',
        'Somebody who sees every model of the run, knows everything about everybody else{secret}, '
        'and guesses {question}, is right in at most **{right} of 100 cases**. A coin is right in '
        '50.',
        secret=', but not who took part' if report.uses_sampling else '',
        question=f'whether the data of {whom} were used'
        if report.plan.adjacency == 'zero_out'
        else f'which of two sets of data {whom} had',
        right=right,
    )
    if detected is not None and report.plan.adjacency == 'zero_out':
        facts.put(
            MEANING,
            'test/rare',
            'At one false alarm in 100, at most {found} of 100 {whom} that took part are found.',
            found=detected,
            whom='clients' if report.plan.group_size == 1 else 'such groups',
        )
    if report.so_far is not None:
        facts.put(MEANING, 'test/planned', 'This is for all planned rounds.')


def _best_test(report: 'PrivacyReport') -> tuple[str, str | None]:
    """How often the best membership tests are right, in 100 cases, rounded up.

    The first has equal numbers of both cases; the second, None if it is not known, has a false
    alarm in one of 100. A curve that the report does not have is computed only where that is quick.
    """
    if report.has_tradeoff or not report.uses_sampling:
        curve = report.tradeoff_at([_FALSE_ALARMS])
        return _of_100((1 + curve.advantage) / 2), _of_100(curve.points[0][1])
    epsilon, delta = report.guarantee.epsilons[0], report.deltas[0]
    assert epsilon is not None
    return _of_100((1 + math.tanh(epsilon / 2) + delta) / 2), None


def _of_100(share: float) -> str:
    return f'{min(100.0, math.ceil(1000 * share) / 10):g}'


def _took_part(report: 'PrivacyReport', facts: Facts) -> None:
    seen = report.observed
    if seen is None:
        facts.put(
            TOOK_PART,
            'clients',
            'Who took part is not known here. The plan has {cohort} in each of {rounds:,} rounds, '
            'and {limits}.',
            cohort=counted(f'{report.plan.clients_per_round:,}', 'client'),
            rounds=report.plan.participation.rounds,
            limits=_limits(report),
        )
        facts.put(
            CHECKED, 'log', 'Nothing: this report is of a plan, which was compared with no log.'
        )
        return
    planned = report.plan.participation.rounds
    counts = seen.clients_by_participations
    times = [f'{clients:,} {_times(count)}' for count, clients in counts[:_MOST_COUNTS]]
    if len(counts) == 1:
        times = [f'each {_times(counts[0][0])}']
    if len(counts) > _MOST_COUNTS:
        times.append('...')
    sizes = sorted({seen.smallest_cohort, seen.largest_cohort})
    facts.put(
        TOOK_PART,
        'clients',
        '{clients} took part{times}, in {rounds} of {sizes}.',
        clients=counted(f'{seen.clients:,}', 'client'),
        times=f' ({", ".join(times)})' if times else '',
        rounds=counted(f'{seen.rounds:,}', 'round')
        if seen.rounds == planned
        else f'{seen.rounds:,} of {planned:,} planned rounds',
        sizes=counted(' to '.join(f'{size:,}' for size in sizes), 'client'),
    )
    facts.put(
        TOOK_PART,
        'source',
        'This is known from the participation log{journal}.',
        journal=''
        if report.journal_head is None
        else ', whose cohorts the run wrote down one by one before it computed their rounds',
    )
    if seen.violations:
        facts.put(
            CHECKED,
            'log',
            'The participation log **breaks the plan**; the statement above is for what happened.',
        )
        return
    facts.put(
        CHECKED,
        'log',
        'The participation log keeps the plan: it has at most {planned}, no client twice in a '
        'round, and {limits}.',
        planned=counted(f'{planned:,}', 'round'),
        limits=_limits(report),
    )
    if report.uses_sampling:
        facts.put(
            CHECKED,
            'log/sampling',
            'Exact tests find no difference between its cohorts and the planned sampling; they '
            'would find one in a run as planned with probability at most {false_alarm:g}.',
            false_alarm=refutation.FALSE_ALARM,
        )


def _limits(report: 'PrivacyReport') -> str:
    planned = report.plan.participation
    if planned.count == 1:
        return 'no client in more than one round'
    apart = f' or sooner than {planned.min_separation:,} rounds after its last one'
    return f'no client in more than {planned.count:,} rounds' + (
        apart if planned.min_separation > 1 else ''
    )


def counted(count: str, noun: str) -> str:
    """A number of things in words: 1 round, 3 rounds, 3 to 5 clients."""
    return f'{count} {noun}' if count == '1' else f'{count} {noun}s'


def _times(count: int) -> str:
    return {1: 'once', 2: 'twice'}.get(count, f'in {count} rounds')
