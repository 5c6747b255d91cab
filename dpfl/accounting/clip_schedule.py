"""A clip norm that changes at planned rounds, as in [McMahan18], section 3."""

import dataclasses
from typing import TYPE_CHECKING

from dpfl import _validate, errors
from dpfl.accounting.facts import ASSUMPTION, Facts
from dpfl.accounting.part import Part

if TYPE_CHECKING:
    from dpfl.accounting.plan import PrivacyPlan
    from dpfl.accounting.reports.report_values import ReportValues


@dataclasses.dataclass(frozen=True)
class ClipSchedule(Part):
    """The clip norms of later rounds; the noise is in units of the norm in use.

    Attributes:
      changes: pairs of a round and the clip norm from that round on, by rounds.
    """

    changes: tuple[tuple[int, float], ...]

    @property
    def words(self) -> str:
        return 'clip_schedule'

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

    def facts(self, report: 'ReportValues', facts: Facts) -> None:
        changes = ''.join(f', {norm:g} from round {first} on' for first, norm in self.changes)
        facts.change(ASSUMPTION, 'clip_norm', changes=changes)
        facts.change(ASSUMPTION, 'noise', in_use=' in use')
