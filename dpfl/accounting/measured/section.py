"""The section of a privacy report about what an audit measured, in Markdown."""

from dpfl.accounting.measured.estimate import CONFIDENCE, Estimate
from dpfl.accounting.measured.measured import Measured
from dpfl.accounting.measured.sums import FALSE_ALARM, LEAST_POWER, UNTESTED
from dpfl.mechanisms import rounding

# What no audit can show, a sentence each.
LIMITS = (
    'It proves no guarantee: another attack, or one that knows more, may find more. Only the '
    'accounting bounds every attack.',
    'It tests the sums that the aggregator computed and returned. It would not notice a training '
    'loop that counts a client twice, or uses updates beside the aggregator.',
    'It measures canaries, random directions of the length of the clip norm. Updates of real '
    'clients have other directions and may be shorter.',
    'Of the noise it tests mean, variance and distribution, and correlations between the halves of '
    'all coordinates, two tensors and two rounds, of which one may be shifted in a circle. It '
    'would not notice correlations at other places, such as those of neighbouring coordinates; a '
    'shift of noise of which only a part of the coordinates is tested; or a distribution that '
    'differs from the normal one by less than chance does.',
    'The noise of the counts of an adaptive clip norm is not tested.',
    'It sees noise as real numbers. It would not notice a predictable generator, a noise key that '
    'leaked, or information in the last digits of floating-point numbers.',
    'It is one run. Intervals and bounds count the randomness of the canaries, whose scores are '
    'independent as long as the updates of clients do not depend on the directions of canaries: '
    'they do, a little, through the models of later rounds.',
)
_CLAIM_EXCEEDED = (
    '**A lower bound is above the claim. Either the claim or the run is wrong (or this is one of '
    'the {share:.0%} of audits whose bounds fail): do not rely on the guarantee.**'
)
_SUMS_REFUTED = (
    '**The sums of this run are not those of its plan: {failures}. Do not rely on the guarantee.**'
)


def render(audit: Measured) -> str:
    """The section."""
    claimed = 'no guarantee'
    if not _is_none(audit.epsilon_claimed):
        claimed = rounding.round_up(audit.epsilon_claimed)
    parts = [
        *_refuted(audit),
        f'Verdict: **{audit.verdict}**.',
        *_of_sums(audit),
        f'One-shot estimate with canary clients (Andrew et al. 2024): {audit.releases.observed} of '
        f'{audit.canaries} canaries took part, {_rounds(audit)}; the others, which took no part, '
        'check the distribution without a canary. A canary sends a random direction of the length '
        f'of the clip norm, in the {audit.dimension} dimensions of the model. Canaries are '
        'additional clients, whose updates are known in advance: they take nothing from the '
        'guarantee of real clients, and no denominator counts them.',
        f'At delta = {audit.delta:g} the claim is **{claimed}**, and the estimate for an attacker '
        f'who sees all releases is **{number(audit.releases.epsilon)}** '
        f'({CONFIDENCE:.0%} interval {number(audit.releases.epsilon_low)} to '
        f'{number(audit.releases.epsilon_high)}); for one who sees only the final model, '
        f'{number(audit.final_model.epsilon)}.',
    ]
    parts += [_of_canaries(audit), _table(audit), _meaning(audit), _limits()]
    return '\n\n'.join(parts)


def _refuted(audit: Measured) -> list[str]:
    parts = []
    if audit.sums is not None and audit.sums.failures:
        parts.append(_SUMS_REFUTED.format(failures='; '.join(map(str, audit.sums.failures))))
    if audit.exceeds_claim:
        parts.append(_CLAIM_EXCEEDED.format(share=1 - CONFIDENCE))
    return parts


def _of_sums(audit: Measured) -> list[str]:
    """What the tests of the sums showed, and what they would have shown."""
    tests = audit.sums
    if tests is None:
        return ['The sums of this run were not tested.']
    text = (
        'A simulation knows its sums. Each sum before the noise was compared with the sum of '
        'clipped updates, and release minus sum with the law of the planned noise, in '
        f'{sum(tests.tested)} of its coordinates in each of {tests.rounds} rounds. A run as '
        f'planned fails with a probability of at most {FALSE_ALARM:g}. The probabilities below are '
        'those of the faults in the table, and say nothing about other faults.'
    )
    if tests.noise_test in UNTESTED:
        text += f' The noise could not be tested: {UNTESTED[tests.noise_test]}.'
    rows = [
        f'| {name} | {_percent(value)} | {_seen(value, bool(tests.failures))} |'
        for name, value in tests.power.items()
    ]
    head = ['| fault | probability that these tests show it | so |', '|---|---|---|']
    return [text, '\n'.join([*head, *rows])]


def _seen(power: float, is_refuted: bool) -> str:
    if is_refuted:
        return 'see above'
    return 'not seen' if power >= LEAST_POWER else 'cannot tell'


def _percent(power: float) -> str:
    """A probability, rounded down."""
    return f'{int(power * 1000) / 10:g} %'


def _of_canaries(audit: Measured) -> str:
    """What the lower bound of the canaries says about itself."""
    powers = ', '.join(f'{name} {_percent(value)}' for name, value in audit.canary_power.items())
    text = f'The lower bound from the canaries alone: **{audit.canary_verdict}**. '
    if not powers:
        return text + 'How likely it is to be above the claim with less noise is not known.'
    return text + f'Probability that it would be above the claim: {powers}.'


def _rounds(audit: Measured) -> str:
    low, high = audit.least_rounds, audit.most_rounds
    how_many = f'{low}' if low == high else f'{low} to {high}'
    return f'each in {how_many} round{"" if high == 1 else "s"}'


def _table(audit: Measured) -> str:
    both = (audit.releases, audit.final_model)
    rows = [
        ('epsilon, estimate', [number(estimate.epsilon) for estimate in both]),
        (
            f'its {CONFIDENCE:.0%} interval',
            [
                f'{number(estimate.epsilon_low)} to {number(estimate.epsilon_high)}'
                for estimate in both
            ],
        ),
        (
            f'epsilon, lower bound at {CONFIDENCE:.0%}',
            [number(estimate.epsilon_lower) for estimate in both],
        ),
        (
            'epsilon with the fitted deviation',
            [number(estimate.epsilon_fitted) for estimate in both],
        ),
        ('scores with canary: mean, deviation', [_pair(estimate) for estimate in both]),
        ('scores without: mean, deviation', [_null(estimate) for estimate in both]),
    ]
    if audit.mu_claimed is not None:
        bounds = [number(estimate.mu_lower or 0.0) for estimate in both]
        rows.insert(3, (f'mu, lower bound at {CONFIDENCE:.0%}', bounds))
    lines = ['| | all releases | final model |', '|---|---|---|']
    return '\n'.join([*lines, *(f'| {name} | {a} | {b} |' for name, (a, b) in rows)])


def _meaning(audit: Measured) -> str:
    text = (
        'A score is the cosine of a canary with what was released, in standard deviations of the '
        'cosine of a random direction. The estimate is epsilon of two normal distributions, those '
        'of scores with and without the canary. Lower bounds assume independent scores, and '
        'nothing else about their distribution.'
    )
    if audit.mu_claimed is not None and not _is_none(audit.mu_claimed):
        text += (
            f' The plan claims mu = {rounding.round_up(audit.mu_claimed)}; for the rounds of these '
            f'canaries it gives {audit.mu_of_canaries:.4g}, which is what the mean score with '
            'canary should be, or less where the sum of real updates is large.'
        )
    return text


def _limits() -> str:
    return 'What an audit cannot show:\n\n' + '\n'.join(f'- {limit}' for limit in LIMITS)


def _pair(estimate: Estimate) -> str:
    return f'{estimate.mean:.3f}, {estimate.deviation:.3f}'


def _null(estimate: Estimate) -> str:
    return f'{estimate.null_mean:.3f}, {estimate.null_deviation:.3f}'


def _is_none(value: float) -> bool:
    return value == float('inf')


def number(value: float) -> str:
    """An epsilon or a mu with three digits."""
    return 'unbounded' if _is_none(value) else f'{value:.3g}'
