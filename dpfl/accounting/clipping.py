"""How large a client's update is, and how the mean of a round is estimated from the updates.

Adaptive clipping releases two sums in every round: the sum of the clipped updates, and the number
of clients whose update was within the current clip norm. The next clip norm follows from that
number. Both sums use the same mechanism, with the same restarts, on the same clients. Both
therefore have the same sensitivity S in units of what one client adds to a round's sum. The whole
run is one Gaussian release of both sums, and the squares of the two ratios of sensitivity to noise
add up:

    S^2 / z^2 = S^2 / z_Delta^2 + (S / 2)^2 / sigma_b^2.

This is theorem 1 of [Xu23] (from [Andrew21]): `z_Delta = (z^-2 - (2 sigma_b)^-2)^(-1/2)`.
The run has the guarantee of the mechanism with noise multiplier z.

Here and below sigma_b (`count_stddev`) is the standard deviation of each entry of the noise z that
the mechanism adds to the sum over clients of b_i - 1/2, not to their mean; b_i is 1 for an update
within the clip norm and 0 otherwise. With the shift by 1/2 a client adds at most 1/2 in absolute
value. The sum of the b_i themselves would have twice the sensitivity where a client is zeroed out.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from dpfl import _json, _validate, errors
from dpfl._validate import Limits
from dpfl.accounting.part import ASSUMPTION, Facts, Part
from dpfl.mechanisms.discretization import Discretization

if TYPE_CHECKING:
    from dpfl.accounting.plan import PrivacyPlan
    from dpfl.accounting.reports.report import PrivacyReport

# Columns of metrics.csv.
_ROUND, _NORM, _ESTIMATE = 'round', 'clip_norm', 'clip_norm_estimate'
ESTIMATORS = ('fixed', 'clipped')
_Norm = Annotated[float, Limits('L2 norm of an update', above=0)]


@dataclasses.dataclass(frozen=True)
class IntegerUpdates(Part):
    """Rounded updates, whose norm the sensitivity counts ([Xu23], algorithm 2)."""

    settings: Discretization

    words = 'a discretization'
    is_attained = False

    def check(self, plan: 'PrivacyPlan') -> None:
        norm = self.settings.clip_norm
        if norm != plan.clip_norm:
            raise errors.ArgumentError(
                'clip_norm', plan.clip_norm, f"must equal the discretization's clip norm, {norm}"
            )
        if plan.estimator.kind != 'fixed':
            # Rounding inflates each update by the same, however small its weight.
            raise errors.ArgumentError(
                'estimator', plan.estimator.kind, 'must be fixed with a discretization'
            )

    def shift(self, plan: 'PrivacyPlan', shift: float) -> float:
        return shift * self.settings.inflated_norm / plan.clip_norm

    def facts(self, report: 'PrivacyReport', facts: Facts) -> None:
        facts.put(
            ASSUMPTION,
            'rounding',
            'Updates are rounded to integers for secure aggregation (Xu et al. 2023, algorithm 2): '
            'the sensitivity counts the inflated norm {norm:g}.',
            norm=self.settings.inflated_norm,
        )


@dataclasses.dataclass(frozen=True)
class ClipSchedule(Part):
    """Clip norms of later rounds ([McMahan18], section 3); noise is in units of the norm in use.

    Attributes:
      changes: pairs of a round and the clip norm from that round on, by rounds.
    """

    changes: tuple[tuple[int, float], ...]

    words = 'clip_schedule'

    def covers_hardened(self, plan: 'PrivacyPlan') -> bool:
        return True

    def check(self, plan: 'PrivacyPlan') -> None:
        if plan.adaptive_clip is not None:
            raise errors.ArgumentError(
                'clip_schedule', errors.NOT_SHOWN, 'must be empty with adaptive_clip'
            )
        allowed, before = set(plan.fresh_rounds), 0
        for change in self.changes:
            if len(change) != 2:
                raise errors.ArgumentError(
                    'clip_schedule', self.changes, 'must be pairs of a round and a clip norm'
                )
            first, norm = change
            _validate.integer('clip_schedule round', first, minimum=before + 1)
            _validate.scale('clip_schedule norm', norm)
            _validate.stddev('clip_schedule norm', norm, plan.noise_multiplier)
            if first < plan.participation.rounds and first not in allowed:
                raise errors.ArgumentError(
                    'clip_schedule round',
                    first,
                    'must be one in which the noise starts afresh, as with a restarted mechanism '
                    'or independent noise',
                )
            before = first

    def facts(self, report: 'PrivacyReport', facts: Facts) -> None:
        changes = ''.join(f', {norm:g} from round {first} on' for first, norm in self.changes)
        facts.change(ASSUMPTION, 'clip_norm', changes=changes)
        facts.change(ASSUMPTION, 'noise', in_use=' in use')


def update_noise_multiplier(noise_multiplier: float, count_stddev: float) -> float:
    """z_Delta, the noise multiplier of the updates with which the whole run has that of z.

    Args:
      noise_multiplier: z, of the whole run's guarantee, at least 0.
      count_stddev: sigma_b, above z / 2; [Xu23], algorithm 1, uses m / 20 for cohorts of m.

    Raises:
      ValueError: if an argument is out of its range. A count with noise of z / 2 or less breaks
        the guarantee, however much noise the updates have.
    """
    z = _validate.number('noise_multiplier', noise_multiplier, minimum=0)
    share = z / (2 * _validate.number('count_stddev', count_stddev, above=0))
    if not share < 1:
        raise errors.ArgumentError(
            'count_stddev',
            count_stddev,
            f'must be > {z / 2:g}, half of noise_multiplier={noise_multiplier}',
        )
    return z / math.sqrt((1 - share) * (1 + share))


@dataclasses.dataclass(frozen=True)
class AdaptiveClip(_json.JsonFields, Part):
    """Adaptive clipping: the clip norm follows a private quantile ([Xu23], algorithm 1).

    The plan has the initial clip norm C^0. The clip norm in use changes only where the mechanism
    starts afresh.

    Attributes:
      target_quantile: gamma, the targeted fraction of updates within the norm, strictly between 0
        and 1.
      learning_rate: eta_gamma, above 0: one round changes the estimate by a factor of at most about
        exp(learning_rate).
      count_stddev: sigma_b as above, above 0; None for a twentieth of the planned cohort size.

    Raises:
      ValueError: if a field is out of its range.

    Example:
      >>> AdaptiveClip().stddev(clients_per_round=100)  # Of the noise on the count.
      5.0
    """

    target_quantile: Annotated[float, Limits('share of clients', above=0, below=1)] = 0.5
    learning_rate: Annotated[float, Limits(above=0)] = 0.2
    count_stddev: Annotated[float, Limits('clients', above=0)] | None = None

    def stddev(self, clients_per_round: int) -> float:
        """sigma_b for a planned cohort size."""
        return clients_per_round / 20 if self.count_stddev is None else float(self.count_stddev)

    def scaled(self, ratio: float) -> 'AdaptiveClip':
        """The same for cohorts that are larger by a ratio: noise of the counts is in clients."""
        if self.count_stddev is None:
            return self
        return dataclasses.replace(self, count_stddev=self.count_stddev * ratio)

    words = 'adaptive_clip'

    def check(self, plan: 'PrivacyPlan') -> None:
        if not plan.mechanism.starts_afresh:
            raise errors.ArgumentError(
                'mechanism',
                plan.mechanism.name,
                'must be restarted with adaptive_clip, or independent noise: the clip norm can '
                'only change where the noise starts afresh',
            )
        self.update_noise(plan, plan.noise_multiplier)  # Refuses counts with too little noise.

    def update_noise(self, plan: 'PrivacyPlan', noise_multiplier: float) -> float:
        return update_noise_multiplier(noise_multiplier, self.stddev(plan.clients_per_round))

    def facts(self, report: 'PrivacyReport', facts: Facts) -> None:
        facts.put(
            ASSUMPTION,
            'clip_norm',
            "Each client's update has an L2 norm of at most the clip norm in use, because the "
            'aggregator clips it. The clip norm is {norm:g} at first. Wherever the noise starts '
            'afresh it becomes a private estimate of a quantile of the norms (Xu et al. 2023, '
            'algorithm 1). The counts of clipped updates have noise of standard deviation '
            '{stddev:g} and are part of the guarantee (theorem 1 there); a client that is zeroed '
            'out does not count in them.',
            norm=report.plan.clip_norm,
            stddev=self.stddev(report.plan.clients_per_round),
        )
        facts.change(ASSUMPTION, 'noise', in_use=' in use')


@dataclasses.dataclass(frozen=True)
class ClipCourse:
    """The clip norms of a run, and the estimate of the quantile at its end.

    Both are computed from noised counts. Strategies 5 and 6 of [Xu23], section 2.5, take the fixed
    clip norm of the next run from the estimate.

    Attributes:
      norms: each clip norm and the first round that used it, counted from 0, as `clip_schedule` of
        a plan has them; at least one.
      estimate: the estimate after the last round.

    Raises:
      ArgumentError: if a field is out of its range.
    """

    norms: tuple[tuple[Annotated[int, Limits('rounds', minimum=0)], _Norm], ...]
    estimate: _Norm

    def __post_init__(self):
        if not self.norms:
            raise errors.ArgumentError('norms', '[]', 'must hold at least one norm')
        before = -1
        for first, norm in self.norms:
            _validate.integer('norms round', first, minimum=before + 1)
            _validate.number('norms', norm, above=0)
            before = first
        _validate.number('estimate', self.estimate, above=0)

    @classmethod
    def from_dict(cls, values: Any) -> 'ClipCourse':
        """The course that `to_dict` wrote as `values`.

        Raises:
          ValueError: if they are of another form.
        """
        if not isinstance(values, dict) or values.keys() != {'norms', 'estimate'}:
            raise errors.ArgumentError(
                'clip_course', errors.NOT_SHOWN, 'must have norms and estimate'
            )
        return cls(_json.pairs('norms', values['norms']), values['estimate'])

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]]) -> 'ClipCourse | None':
        """The course in the metrics of rounds; None if no round has a clip norm.

        Args:
          rows: `round`, from 1, and `clip_norm` and `clip_norm_estimate`, as numbers or their
            texts; those of rounds without them are missing, or empty texts.

        Raises:
          ValueError: if a clip norm or an estimate is not a number above 0.
        """
        norms: list[tuple[int, float]] = []
        estimate = None
        for row in rows:
            if all(row.get(name) not in (None, '') for name in (_NORM, _ESTIMATE)):
                norm, estimate = float(row[_NORM]), float(row[_ESTIMATE])
                if not norms or norms[-1][1] != norm:
                    norms.append((int(row[_ROUND]) - 1, norm))
        return None if estimate is None else cls(tuple(norms), estimate)


@dataclasses.dataclass(frozen=True)
class Estimator(_json.JsonFields, Part):
    """The weighted mean of clipped updates, with a denominator that bounds its sensitivity.

    For clients k of a cohort with updates of norm at most S and weights w_k <= 1:

    - 'fixed': `sum w_k update_k / weight`, unbiased where `weight` is the expected total weight
      q W. One client moves it by at most `S / weight`.
    - 'clipped': `sum w_k update_k / max(weight, sum w_k)`, the exact weighted mean of every cohort
      whose total weight is at least `weight` (q W_min in the paper). One client moves it by at most
      `2 S / weight` ([McMahan18], lemma 1): its update moves the numerator, and its weight moves
      the denominator under a mean of norm at most S.

    With noise of standard deviation z times that bound, both have the guarantee of z (theorem 1).

    Attributes:
      kind: one of `ESTIMATORS`.
      weight: above 0, in units of clients of full weight; None for the planned cohort size, with
        which 'fixed' is biased towards zero if clients have less than full weight.
      example_cap: number of examples from which a client has full weight: `w_k = min(n_k /
        example_cap, 1)` for n_k examples. None for full weight of every client.

    Raises:
      ValueError: if a field is out of its range.

    Example:
      >>> Estimator('clipped', weight=80.0).denominator(clients_per_round=100)
      40.0
    """

    kind: Annotated[str, Limits(choices=ESTIMATORS)] = 'fixed'
    weight: Annotated[float, Limits('clients of full weight', above=0)] | None = None
    example_cap: Annotated[float, Limits('examples', above=0)] | None = None

    def denominator(self, clients_per_round: int) -> float:
        """The denominator of the noised mean: one client moves it by clip norm / denominator.

        The noised sum has sensitivity S. For 'clipped' it is `weight / 2` times the mean.
        """
        weight = float(clients_per_round) if self.weight is None else float(self.weight)
        return weight / 2 if self.kind == 'clipped' else weight

    def scaled(self, ratio: float) -> 'Estimator':
        """The estimator for a cohort that is larger by a ratio."""
        return (
            self if self.weight is None else dataclasses.replace(self, weight=self.weight * ratio)
        )

    @property
    def words(self) -> str:
        return f'estimator={self.kind}'

    def covers_hardened(self, plan: 'PrivacyPlan') -> bool:
        return self.kind == 'fixed'

    @property
    def is_attained(self) -> bool:
        return self.kind == 'fixed'

    def facts(self, report: 'PrivacyReport', facts: Facts) -> None:
        if self.example_cap is not None:
            facts.put(
                ASSUMPTION,
                'clip_norm/weights',
                'It is then multiplied by the weight of the client, its number of examples over '
                '{cap:g}, which the aggregator limits to 0 .. 1 (McMahan et al. 2018, section 2).',
                cap=self.example_cap,
            )
        if self.kind == 'clipped':
            denominator = self.denominator(report.plan.clients_per_round)
            facts.change(
                ASSUMPTION,
                'noise',
                mean=f' over {denominator:g}, which is how far one client moves the mean (clipped '
                'denominator: McMahan et al. 2018, lemma 1)',
            )
