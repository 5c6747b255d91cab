"""The values of a privacy report: what it is made from, and the numbers that follow."""

import dataclasses
import functools
from collections.abc import Sequence

import dp_accounting

from dpfl import _json
from dpfl.accounting import running, tradeoff
from dpfl.accounting import selection as selection_lib
from dpfl.accounting.clipping import ClipCourse
from dpfl.accounting.facts import Facts
from dpfl.accounting.measured.measured import Measured
from dpfl.accounting.part import Run
from dpfl.accounting.plan import PrivacyPlan
from dpfl.accounting.reports import history, sentences
from dpfl.accounting.reports.inputs import Inputs
from dpfl.accounting.reports.observed import Guarantee, Observed
from dpfl.accounting.selection import Selected, Selection
from dpfl.accounting.tradeoff import Tradeoff


@dataclasses.dataclass(frozen=True)
class ReportValues(Inputs):
    """What a privacy report is made from; see `PrivacyReport`.

    The numbers are properties: they follow from these fields, and nothing can set them.

    Attributes:
      observed: what the log says, or None without a log.
      clip_course: course of an adaptive clip norm; None without, or before the first round.
      has_tradeoff: whether the report says what a membership test can reach.
      selection: of the best of several such runs; None for a report of the run alone.
      measured: what an audit measured in the run; None without one.
      journal_head: digest of the journal of the run up to its last release, see
        `journal.Journal.released_head`; None without a journal.
    """

    observed: Observed | None = None
    clip_course: ClipCourse | None = None
    has_tradeoff: bool = False
    selection: Selection | None = None
    measured: Measured | None = None
    journal_head: str | None = None

    @property
    def stops_by_rule(self) -> bool:
        """Whether the data of the run may have ended it before its last planned round."""
        return self.stop_at_accuracy is not None

    @property
    def history(self) -> tuple[str, ...]:
        """How the run differs from one that trains the rounds it was planned for, in sentences."""
        return history.sentences(self)

    @functools.cached_property
    def facts(self) -> Facts:
        """What the report says in sentences."""
        return sentences.facts(self)

    @property
    def basis(self) -> str:
        """Where the guarantee follows from: 'plan', or 'log' if the log breaks the plan."""
        return 'log' if self.observed and self.observed.violations else 'plan'

    @property
    def uses_sampling(self) -> bool:
        """Whether the guarantee relies on random sampling."""
        return self.plan.sampling is not None and self.basis == 'plan'

    @functools.cached_property
    def plan_guarantee(self) -> Guarantee:
        """The guarantee that follows from the plan alone."""
        return Guarantee.of(self.plan, self.deltas, self.accountant)

    @functools.cached_property
    def guarantee(self) -> Guarantee:
        """The guarantee that holds for the run, with all planned rounds."""
        if self.basis == 'plan':
            return self.plan_guarantee
        return self._of_observed(self.accounted_plan)

    @functools.cached_property
    def accounted_plan(self) -> PrivacyPlan:
        """The plan, or what is left of it if the log breaks it."""
        return self.plan if self.observed is None else self.observed.holding(self.plan)

    @functools.cached_property
    def _accounted_run(self) -> Run:
        """What the run releases by the guarantee that holds."""
        if self.basis == 'plan':
            return self.plan.run
        return self.accounted_plan.run_of_sensitivity(self.guarantee.sensitivity)

    @functools.cached_property
    def observed_guarantee(self) -> Guarantee | None:
        """The guarantee of the rounds in the log, for the limits that its clients kept."""
        if self.observed is None:
            return None
        return self._of_observed(self.observed.so_far(self.plan))

    def _of_observed(self, plan: PrivacyPlan) -> Guarantee:
        """The guarantee of a plan; a client listed m times in a round adds m updates to it."""
        assert self.observed is not None
        times = self.observed.max_per_round
        sensitivity = times * plan.sensitivity if times > 1 else None
        return Guarantee.of(plan, self.deltas, self._method(plan), sensitivity)

    def _method(self, plan: PrivacyPlan) -> str:
        return self.accountant if self.accountant in plan.accountants else 'best'

    @functools.cached_property
    def pattern_guarantee(self) -> Guarantee | None:
        """The guarantee for exactly the rounds in which the clients of the log took part.

        It relies on no sampling and holds for these clients only.
        """
        if self.observed is None:
            return None
        plain, seen = self.plan.without_sampling(self.observed.limits), self.observed
        return Guarantee.of(
            plain,
            self.deltas,
            self._method(plain),
            seen.pattern_sensitivity,
            is_exact=seen.pattern_is_exact,
        )

    @property
    def ended_early(self) -> bool:
        """Whether the log has fewer rounds than planned."""
        planned = self.plan.participation.rounds
        return self.observed is not None and self.observed.rounds < planned

    @functools.cached_property
    def so_far(self) -> tuple[float | None, ...] | None:
        """Epsilon of the rounds in the log, at each delta, if the run ended early.

        It holds if what ended the run did not depend on the data. None for a run with a rule that
        stops it, and without noise.
        """
        seen = self.observed
        if not self.ended_early or self.stops_by_rule or not self.plan.noise_multiplier:
            return None
        assert seen is not None and self.observed_guarantee is not None
        if self.basis == 'log':
            return self.observed_guarantee.epsilons
        epsilons = [
            running.RunningEpsilon(self.plan, delta, self.accountant).after(seen.rounds)
            for delta in self.deltas
        ]
        return tuple(map(_json.finite, epsilons))

    def dp_event(self) -> dp_accounting.DpEvent:
        """The run as an event, for composition with other runs on the same clients."""
        if self.basis == 'plan':
            return self.plan.dp_event()
        if self.guarantee.mu is None:
            return dp_accounting.NonPrivateDpEvent()
        return self._accounted_run.event()

    @functools.cached_property
    def tradeoff(self) -> Tradeoff | None:
        """What a membership test can reach against the guarantee that holds, if the report says."""
        return self.tradeoff_at(tradeoff.FALSE_POSITIVE_RATES) if self.has_tradeoff else None

    def tradeoff_at(self, rates: Sequence[float]) -> Tradeoff:
        """The trade-off curve of the guarantee that holds, at some false positive rates.

        A bound of the sampling's own is known at the deltas of the report only, and counts there.
        """
        curve = tradeoff.of_event(self.dp_event(), self.plan.neighbours, self.slack, rates)
        sampling = self.plan.sampling
        if sampling is None or not (sampling.has_own_bound and self.uses_sampling):
            return curve
        pairs = zip(self.guarantee.epsilons, self.deltas, strict=True)
        return tradeoff.limited(curve, [(each, at) for each, at in pairs if each is not None])

    @property
    def slack(self) -> float:
        """What hardened noise adds to epsilon; see `PrivacyPlan.slack`."""
        if not self.plan.noise_multiplier:
            return 0.0
        return self._accounted_run.slack

    @functools.cached_property
    def selected(self) -> Selected | None:
        """The guarantee of the best of several such runs, for a report with a selection."""
        if self.selection is None:
            return None
        event, neighbours = self.dp_event(), self.plan.neighbours
        epsilons = [
            selection_lib.epsilon(event, self.selection, delta, neighbours) for delta in self.deltas
        ]
        return Selected(self.selection, tuple(epsilons))
