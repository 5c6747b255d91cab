"""What an audit measured in a run, next to what the run claims: values and a report's section."""

import dataclasses
import json
import math
import os
import pathlib
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from dpfl import _json, _npz, _validate, errors
from dpfl._validate import Epsilon, Limits, Probability
from dpfl.accounting import gaussian
from dpfl.accounting.measured import estimate as estimate_lib
from dpfl.accounting.measured.estimate import CONFIDENCE, Estimate, Mu
from dpfl.accounting.measured.sums import (
    FALSE_ALARM,
    LEAST_POWER,
    UNTESTED,
    Power,
    SumTests,
    Verdict,
)
from dpfl.accounting.plan import PrivacyPlan
from dpfl.mechanisms import rounding

AUDIT = 'audit.npz'
_MOST_CANARIES = 10**7
# The sizes of audits are small; nothing in the file is worth more memory.
_MOST_BYTES = 1 << 28
_KINDS = {'took_part': 'b', 'rounds': 'i', 'releases': 'f', 'final_model': 'f'}
# What no audit can show, a sentence each.
_LIMITS = (
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


@dataclasses.dataclass(frozen=True)
class Scores:
    """The content of `audit.npz`: what the canaries of a run showed.

    Attributes:
      took_part: whether each canary took part, bool [canaries].
      rounds: in how many rounds it did or, if it was held out, would have; int64 [canaries].
      releases: cosine of each canary with the weighted sum of all releases, float64 [canaries].
      final_model: cosine with the change of the model over the run, float64 [canaries].
      dimension: number of parameters of the model.
      pattern: rounds in which the canaries of each group take part, bool [groups, rounds]; None
        with sampling, where each canary has its own.
      sums: what tests of the sums of all rounds showed.
    """

    took_part: np.ndarray
    rounds: np.ndarray
    releases: np.ndarray
    final_model: np.ndarray
    dimension: int
    pattern: np.ndarray | None
    sums: SumTests

    def to_bytes(self) -> bytes:
        """The file."""
        arrays = {
            'took_part': self.took_part,
            'rounds': self.rounds,
            'releases': self.releases,
            'final_model': self.final_model,
            'dimension': np.array(self.dimension, np.int64),
            'sums': np.frombuffer(
                json.dumps(self.sums.to_dict(), allow_nan=False).encode(), np.uint8
            ),
        }
        if self.pattern is not None:
            arrays['pattern'] = self.pattern
        return _npz.to_bytes(arrays, compressed=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> 'Scores':
        """Reads the file.

        Raises:
          ValueError: if it is not such a file; the message names it.
        """
        try:
            arrays = _npz.load(path, _MOST_BYTES)
            dimension = arrays['dimension']
            if dimension.shape != () or dimension.dtype.kind != 'i':
                raise errors.ArgumentError('dimension', errors.NOT_SHOWN, 'must be an integer')
            count = arrays['took_part'].size
            _validate.integer('canaries', count, minimum=4, maximum=_MOST_CANARIES)
            for name, kind in _KINDS.items():
                if arrays[name].shape != (count,) or arrays[name].dtype.kind != kind:
                    raise errors.ArgumentError(name, errors.NOT_SHOWN, 'must have a canary each')
            pattern = arrays.get('pattern')
            if pattern is not None and (pattern.ndim != 2 or pattern.dtype.kind != 'b'):
                raise errors.ArgumentError('pattern', errors.NOT_SHOWN, 'must be [groups, rounds]')
            sums = arrays['sums']
            if sums.dtype != np.uint8 or sums.ndim != 1:
                raise errors.ArgumentError('sums', errors.NOT_SHOWN, 'must be a text')
            return cls(
                **{name: arrays[name] for name in _KINDS},
                dimension=_validate.integer('dimension', int(dimension), minimum=2),
                pattern=pattern,
                sums=SumTests.from_dict(_json.loads(sums.tobytes())),
            )
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(f'{path}: not the audit of a run ({errors.shown(error)})') from None


@dataclasses.dataclass(frozen=True)
class Measured(_json.JsonPaths):
    """What an audit measured, and what the run claims.

    Attributes:
      canaries: number of all canaries.
      least_rounds: fewest rounds of a canary that took part.
      most_rounds: most rounds of a canary that took part.
      dimension: number of parameters of the model.
      delta: at which epsilon is given.
      mu_claimed: mu of the plan; infinite without noise, None with sampling.
      epsilon_claimed: epsilon of the plan at `delta`; infinite without noise.
      mu_of_canaries: mu of the plan for the rounds of the canaries, the largest over them; None
        with sampling. Below the claim if they are not the worst rounds.
      releases: of an attacker who sees every release.
      final_model: of one who sees the final model only.
      sums: what tests of the sums of all rounds showed.
    """

    # First the numbers of `audit_privacy`, then both attacks.
    json_paths: ClassVar = {
        'method': 'method',
        'verdict': 'verdict',
        'mu_claimed': 'mu_claimed',
        'mu_lower': 'releases.mu_lower',
        'epsilon_claimed': 'epsilon_claimed',
        'epsilon_lower': 'releases.epsilon_lower',
        'epsilon_estimate': 'releases.epsilon',
        'trials': 'canaries',
        'confidence': 'confidence',
        'delta': 'delta',
        'exceeds_claim': 'exceeds_claim',
        'canary_verdict': 'canary_verdict',
        'canary_power': 'canary_power',
        'canaries_in': 'releases.observed',
        'canaries_out': 'releases.unobserved',
        'least_rounds': 'least_rounds',
        'most_rounds': 'most_rounds',
        'dimension': 'dimension',
        'mu_of_canaries': 'mu_of_canaries',
        'epsilon_of_canaries': 'epsilon_of_canaries',
        'sums': 'sums',
        'releases': 'releases',
        'final_model': 'final_model',
    }

    canaries: Annotated[int, Limits('canaries', minimum=4)]
    least_rounds: Annotated[int, Limits('rounds', minimum=0)]
    most_rounds: Annotated[int, Limits('rounds', minimum=0)]
    dimension: Annotated[int, Limits('parameters', minimum=2)]
    delta: Probability
    mu_claimed: Mu | None
    epsilon_claimed: Epsilon
    mu_of_canaries: Mu | None
    releases: Estimate
    final_model: Estimate
    sums: SumTests

    @classmethod
    def of(cls, scores: Scores, plan: PrivacyPlan, delta: float, accountant: str) -> 'Measured':
        """The estimates from what the canaries of a run showed.

        Raises:
          ArgumentError: if the scores cannot be those of the plan.
        """
        has_mu = plan.sampling is None
        pattern = scores.pattern
        if (pattern is not None) != has_mu or (
            pattern is not None and pattern.shape[1] != plan.participation.rounds
        ):
            raise errors.ArgumentError('pattern', errors.NOT_SHOWN, 'must be that of the plan')
        if scores.sums.rounds != plan.participation.rounds:
            raise errors.ArgumentError('sums', errors.NOT_SHOWN, 'must be those of the plan')
        estimates = [
            estimate_lib.estimate(
                cosines[scores.took_part],
                cosines[~scores.took_part],
                scores.dimension,
                delta,
                is_gaussian=has_mu,
            )
            for cosines in (scores.releases, scores.final_model)
        ]
        rounds = scores.rounds[scores.took_part]
        return cls(
            canaries=scores.took_part.size,
            least_rounds=int(rounds.min()),
            most_rounds=int(rounds.max()),
            dimension=scores.dimension,
            delta=delta,
            mu_claimed=plan.mu if has_mu else None,
            epsilon_claimed=plan.epsilon(delta, accountant),
            mu_of_canaries=None if pattern is None else mu_of(plan, pattern),
            releases=estimates[0],
            final_model=estimates[1],
            sums=scores.sums,
        )

    @classmethod
    def from_dict(cls, values: Any, plan: PrivacyPlan, accountant: str) -> 'Measured':
        """The estimates that `to_dict` wrote, with the claims computed from the plan.

        Only `audit.npz` can tell whether the estimates are right: see `read`.

        Raises:
          ValueError: if the values are of another form.
        """
        stated = _json.checked_object('measured', values)
        delta = _validate.number('measured.delta', stated['delta'], above=0, below=1)
        of_canaries = stated['mu_of_canaries']
        if of_canaries is not None:
            _validate.number('mu_of_canaries', of_canaries, minimum=0)
        elif plan.sampling is None:
            of_canaries = math.inf
        return cls(
            **{
                name: _validate.integer(name, stated[name], minimum=0)
                for name in ('least_rounds', 'most_rounds', 'dimension')
            },
            canaries=_validate.integer('trials', stated['trials'], minimum=4),
            delta=delta,
            mu_claimed=plan.mu if plan.sampling is None else None,
            epsilon_claimed=plan.epsilon(delta, accountant),
            mu_of_canaries=of_canaries,
            releases=_estimate('releases', stated['releases']),
            final_model=_estimate('final_model', stated['final_model']),
            sums=SumTests.from_dict(stated['sums']),
        )

    @property
    def method(self) -> Literal['one_shot_canaries']:
        """How it was measured."""
        return 'one_shot_canaries'

    @property
    def confidence(self) -> Probability:
        """Confidence of intervals and of bounds, each by itself."""
        return CONFIDENCE

    @property
    def epsilon_of_canaries(self) -> Epsilon | None:
        """Epsilon of `mu_of_canaries` at `delta`."""
        if self.mu_of_canaries is None:
            return None
        return gaussian.exact_epsilon(self.mu_of_canaries, self.delta)

    @property
    def exceeds_claim(self) -> bool:
        """Whether the lower bound from the releases is above the claim, which is then wrong."""
        releases = self.releases
        if releases.mu_lower is not None and self.mu_claimed is not None:
            return releases.mu_lower > self.mu_claimed
        return releases.epsilon_lower > self.epsilon_claimed

    @property
    def refutations(self) -> tuple[str, ...]:
        """What contradicts the claim, a sentence each: it is then not to be relied on."""
        exceeded = ['a lower bound is above the claim'] * self.exceeds_claim
        return (*map(str, self.sums.failures), *exceeded)

    @property
    def verdict(self) -> Verdict:
        """'refuted', 'not refuted', or 'cannot tell' if a fault could be there unseen."""
        return 'refuted' if self.refutations else self.sums.verdict

    @property
    def canary_power(self) -> dict[str, Power]:
        """Probability that the canaries' lower bound exceeds the claim, by fault.

        If the noise is as planned, the mean score tells its share in all that hides a canary. So
        this is empty unless the tests of the sums say that, and if mu is infinite or there is none.
        """
        if self.sums.verdict != 'not refuted':
            return {}
        claimed, planned = self.mu_claimed, self.mu_of_canaries
        if not claimed or not planned or math.isinf(claimed) or math.isinf(planned):
            return {}
        return {
            name: estimate_lib.power(self.releases, self.dimension, planned, claimed, share)
            for name, share in (('half the noise', 0.5), ('no noise', 0.0))
        }

    @property
    def canary_verdict(self) -> Verdict:
        """The verdict of the canaries' lower bound alone; as `verdict`."""
        if self.exceeds_claim:
            return 'refuted'
        power = min(self.canary_power.values(), default=0.0)
        return 'cannot tell' if power < LEAST_POWER else 'not refuted'


def mu_of(plan: PrivacyPlan, pattern: np.ndarray) -> float:
    """The largest `||C u|| / update_noise_multiplier` over patterns u, bool [groups, rounds]."""
    if not plan.noise_multiplier:
        return math.inf
    # The noise of the updates; that of the counts of an adaptive clip norm hides no canary.
    strategy = plan.mechanism_of_run.strategy_matrix()
    norms = np.linalg.norm(strategy @ pattern.T.astype(np.float64), axis=0)
    return float(norms.max()) / plan.update_noise_multiplier


def read(
    directory: str | os.PathLike[str], plan: PrivacyPlan, delta: float, accountant: str
) -> Measured | None:
    """The audit in the directory of a run, computed from `audit.npz`; None if there is none.

    Raises:
      ValueError: if the file is damaged, or is not that of a run with this plan.
    """
    path = pathlib.Path(directory) / AUDIT
    if not path.exists():
        return None
    scores = Scores.load(path)
    try:
        return Measured.of(scores, plan, delta, accountant)
    except ValueError as error:
        raise ValueError(f'{path}: not the audit of this run ({errors.shown(error)})') from None


def _estimate(name: str, values: Any) -> Estimate:
    """The estimate that a report has; null is infinity, except for a missing mu."""
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(Estimate):
        value, where = _json.checked_object(name, values)[field.name], f'{name}.{field.name}'
        if field.type is bool:
            _validate.truth(where, value)
        elif value is None and field.type is Epsilon:
            value = math.inf
        else:
            _validate.by_type(where, value, field.type)
        fields[field.name] = value
    return Estimate(**fields)


def audit_section(audit: Measured) -> str:
    """The section."""
    claimed = 'no guarantee'
    if not math.isinf(audit.epsilon_claimed):
        claimed = rounding.round_up(audit.epsilon_claimed)
    refuted = []
    if audit.sums.failures:
        refuted.append(_SUMS_REFUTED.format(failures='; '.join(map(str, audit.sums.failures))))
    if audit.exceeds_claim:
        refuted.append(_CLAIM_EXCEEDED.format(share=1 - CONFIDENCE))
    low, high = audit.least_rounds, audit.most_rounds
    rounds = f'{low}' if low == high else f'{low} to {high}'
    rounds += ' round' if high == 1 else ' rounds'
    bound = f'The lower bound from the canaries alone: **{audit.canary_verdict}**. '
    powers = ', '.join(f'{name} {_percent(value)}' for name, value in audit.canary_power.items())
    if powers:
        bound += f'Probability that it would be above the claim: {powers}.'
    else:
        bound += 'How likely it is to be above the claim with less noise is not known.'
    parts = [
        *refuted,
        f'Verdict: **{audit.verdict}**.',
        *_of_sums(audit),
        f'One-shot estimate with canary clients (Andrew et al. 2024): {audit.releases.observed} of '
        f'{audit.canaries} canaries took part, each in {rounds}; the others, which took no part, '
        'check the distribution without a canary. A canary sends a random direction of the length '
        f'of the clip norm, in the {audit.dimension} dimensions of the model. Canaries are '
        'additional clients, whose updates are known in advance: they take nothing from the '
        'guarantee of real clients, and no denominator counts them.',
        f'At delta = {audit.delta:g} the claim is **{claimed}**, and the estimate for an attacker '
        f'who sees all releases is **{shown_number(audit.releases.epsilon)}** '
        f'({CONFIDENCE:.0%} interval {shown_number(audit.releases.epsilon_low)} to '
        f'{shown_number(audit.releases.epsilon_high)}); for one who sees only the final model, '
        f'{shown_number(audit.final_model.epsilon)}.',
        bound,
        _table(audit),
        _meaning(audit),
        'What an audit cannot show:',
        '\n'.join(f'- {limit}' for limit in _LIMITS),
    ]
    return '\n\n'.join(parts)


def _of_sums(audit: Measured) -> list[str]:
    """What the tests of the sums showed, and what they would have shown."""
    tests = audit.sums
    text = (
        'A simulation knows its sums. Each sum before the noise was compared with the sum of '
        'clipped updates, and release minus sum with the law of the planned noise, in '
        f'{sum(tests.tested)} of its coordinates in each of {tests.rounds} rounds. A run as '
        f'planned fails with a probability of at most {FALSE_ALARM:g}. The probabilities below are '
        'those of the faults in the table, and say nothing about other faults.'
    )
    if tests.noise_test in UNTESTED:
        text += f' The noise could not be tested: {UNTESTED[tests.noise_test]}.'
    rows = []
    for name, power in tests.power.items():
        seen = 'not seen' if power >= LEAST_POWER else 'cannot tell'
        shown = 'see above' if tests.failures else seen
        rows.append(f'| {name} | {_percent(power)} | {shown} |')
    head = ['| fault | probability that these tests show it | so |', '|---|---|---|']
    return [text, '\n'.join([*head, *rows])]


def _percent(power: float) -> str:
    """A probability, rounded down."""
    return f'{int(power * 1000) / 10:g} %'


def _table(audit: Measured) -> str:
    both = (audit.releases, audit.final_model)
    rows = [
        ('epsilon, estimate', [shown_number(estimate.epsilon) for estimate in both]),
        (
            f'its {CONFIDENCE:.0%} interval',
            [
                f'{shown_number(estimate.epsilon_low)} to {shown_number(estimate.epsilon_high)}'
                for estimate in both
            ],
        ),
        (
            f'epsilon, lower bound at {CONFIDENCE:.0%}',
            [shown_number(estimate.epsilon_lower) for estimate in both],
        ),
        (
            'epsilon with the fitted deviation',
            [shown_number(estimate.epsilon_fitted) for estimate in both],
        ),
        (
            'scores with canary: mean, deviation',
            [f'{estimate.mean:.3f}, {estimate.deviation:.3f}' for estimate in both],
        ),
        (
            'scores without: mean, deviation',
            [f'{estimate.null_mean:.3f}, {estimate.null_deviation:.3f}' for estimate in both],
        ),
    ]
    if audit.mu_claimed is not None:
        bounds = [shown_number(estimate.mu_lower or 0.0) for estimate in both]
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
    if audit.mu_claimed is not None and not math.isinf(audit.mu_claimed):
        text += (
            f' The plan claims mu = {rounding.round_up(audit.mu_claimed)}; for the rounds of these '
            f'canaries it gives {audit.mu_of_canaries:.4g}, which is what the mean score with '
            'canary should be, or less where the sum of real updates is large.'
        )
    return text


def shown_number(value: float) -> str:
    """An epsilon or a mu with three digits."""
    return 'unbounded' if math.isinf(value) else f'{value:.3g}'
