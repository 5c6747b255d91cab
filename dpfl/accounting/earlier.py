"""Earlier runs, perhaps on the same clients, whose model a run begins with."""

import dataclasses
from typing import TYPE_CHECKING

from dpfl import errors
from dpfl.accounting.facts import COMPOSED, VOID, Facts
from dpfl.accounting.part import Part, Run

if TYPE_CHECKING:
    from dpfl.accounting.plan import PrivacyPlan
    from dpfl.accounting.reports.report_values import ReportValues

# What earlier runs have in common with the run, so that they can be composed.
_SAME = ('sampling_name', 'adjacency', 'noise', 'group_size')


@dataclasses.dataclass(frozen=True)
class Earlier(Part):
    """The plans of earlier runs, which are composed with the rounds."""

    plans: 'tuple[PrivacyPlan, ...]'

    @property
    def words(self) -> str:
        return 'earlier runs'

    def check(self, plan: 'PrivacyPlan') -> None:
        for earlier in self.plans:
            if earlier.earlier:
                raise errors.ArgumentError(
                    'earlier', errors.NOT_SHOWN, 'must be a flat list of plans'
                )
            for name in _SAME:
                value, same = getattr(plan, name), getattr(earlier, name)
                if same != value:
                    raise errors.ArgumentError(
                        name.removesuffix('_name'), value, f'must be {same}, as in the earlier run'
                    )

    def run(self, plan: 'PrivacyPlan', run: Run) -> Run:
        runs = [each.run for each in self.plans]
        return run.then(
            *(each.dp_event() for each in self.plans),
            mus=tuple(each.total_mu for each in runs),
            deltas=tuple(delta for each in runs for delta in each.deltas),
        )

    def facts(self, report: 'ReportValues', facts: Facts) -> None:
        facts.put(
            COMPOSED,
            'earlier',
            ', together with the {runs} earlier run(s) it continues from,',
            runs=len(self.plans),
        )
        if not all(each.noise_multiplier for each in self.plans):
            facts.put(VOID, 'earlier', 'an earlier run that it continues from added no noise')
