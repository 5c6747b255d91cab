"""How the mean of a round is estimated from the updates of a cohort ([McMahan18], section 2)."""

import dataclasses
from typing import TYPE_CHECKING

from dpfl import _json, _validate
from dpfl.accounting.facts import ASSUMPTION, Facts
from dpfl.accounting.part import Part

if TYPE_CHECKING:
    from dpfl.accounting.plan import PrivacyPlan
    from dpfl.accounting.reports.report import PrivacyReport

KINDS = ('fixed', 'clipped')


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
      kind: one of `KINDS`.
      weight: above 0, in units of clients of full weight; None for the planned cohort size, with
        which 'fixed' is biased towards zero if clients have less than full weight.
      example_cap: number of examples from which a client has full weight: `w_k = min(n_k /
        example_cap, 1)` for n_k examples. None for full weight of every client.

    Raises:
      ValueError: if a field is out of its range.
    """

    kind: str = 'fixed'
    weight: float | None = None
    example_cap: float | None = None

    def __post_init__(self):
        _validate.choice('kind', self.kind, KINDS)
        if self.weight is not None:
            _validate.number('weight', self.weight, above=0)
        if self.example_cap is not None:
            _validate.number('example_cap', self.example_cap, above=0)

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
