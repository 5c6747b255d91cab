"""Updates that are rounded to integers for secure aggregation, in a privacy plan."""

import dataclasses
from typing import TYPE_CHECKING

from dpfl import errors
from dpfl.accounting.facts import ASSUMPTION, Facts
from dpfl.accounting.part import Part
from dpfl.mechanisms.discretization import Discretization

if TYPE_CHECKING:
    from dpfl.accounting.plan import PrivacyPlan
    from dpfl.accounting.reports.report_values import ReportValues


@dataclasses.dataclass(frozen=True)
class IntegerUpdates(Part):
    """Rounded updates, whose norm the sensitivity counts ([Xu23], algorithm 2)."""

    settings: Discretization

    @property
    def words(self) -> str:
        return 'a discretization'

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

    def is_attained(self) -> bool:
        return False

    def shift(self, plan: 'PrivacyPlan', shift: float) -> float:
        return shift * self.settings.inflated_norm / plan.clip_norm

    def facts(self, report: 'ReportValues', facts: Facts) -> None:
        facts.put(
            ASSUMPTION,
            'rounding',
            'Updates are rounded to integers for secure aggregation (Xu et al. 2023, algorithm 2): '
            'the sensitivity counts the inflated norm {norm:g}.',
            norm=self.settings.inflated_norm,
        )
