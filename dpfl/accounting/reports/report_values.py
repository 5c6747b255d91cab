"""The values of a privacy report, for the texts that are made of them."""

import dataclasses

from dpfl.accounting.measured.measured import Measured
from dpfl.accounting.plan import PrivacyPlan
from dpfl.accounting.reports.about import About
from dpfl.accounting.reports.clip_course import ClipCourse
from dpfl.accounting.reports.observed import Guarantee, Observed
from dpfl.accounting.selection import Selected
from dpfl.accounting.tradeoff import Tradeoff


@dataclasses.dataclass(frozen=True)
class ReportValues:
    """What a privacy report says, as values; see `PrivacyReport`.

    Attributes:
      plan: the privacy plan of the run.
      accountant: by which epsilon is computed.
      deltas: each strictly between 0 and 1, at least one.
      plan_guarantee: the guarantee that follows from the plan.
      observed: what the log says, or None without a log.
      noise_is_seeded: whether the noise came from a known seed; the run is then a simulation.
      sampling_is_seeded: whether the cohorts came from a known seed; a run whose guarantee relies
        on sampling is then a simulation.
      also_not_covered: what else of the run the guarantee does not cover, one sentence each.
      train_metrics_released: whether metrics of the training clients were released without noise.
      remarks: what the report says besides the guarantee, one item each: how the models are made
        from what was released. The guarantee does not depend on it.
      clip_course: course of an adaptive clip norm; None without, or before the first round.
      history: how the run differs from one that trains the rounds it was planned for, such as an
        extension, one sentence each.
      tradeoff: what a membership test can reach against the guarantee that holds; None if the
        report does not say.
      measured: what an audit measured in the run; None without one.
      about: which run it is; None if that is not known.
      so_far: epsilon of the rounds in the log, at each delta, for a run that ended before its last
        planned round; None for others, for a run with a rule that stops it, and if the log breaks
        the plan. It counts on an end that does not depend on the data.
      selected: the guarantee of the best of several such runs; None for that of the run alone.
      noise_key_digest: of the keys from which all noise of the run follows, see `noise_keys`; None
        without a run. Runs with the same one cannot be composed.
      earlier_noise_key_digests: of the runs in `plan.earlier`, as far as they are known; see
        `noise_keys.earlier`.
      warm_start_is_public: whether the run, or an earlier one of `plan.earlier`, began with a model
        that was declared to be public.
    """

    plan: PrivacyPlan
    accountant: str
    deltas: tuple[float, ...]
    plan_guarantee: Guarantee
    observed: Observed | None
    noise_is_seeded: bool
    sampling_is_seeded: bool = False
    also_not_covered: tuple[str, ...] = ()
    train_metrics_released: bool = False
    clip_course: ClipCourse | None = None
    history: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    tradeoff: Tradeoff | None = None
    selected: Selected | None = None
    measured: Measured | None = None
    about: About | None = None
    so_far: tuple[float | None, ...] | None = None
    noise_key_digest: str | None = None
    earlier_noise_key_digests: tuple[str, ...] = ()
    warm_start_is_public: bool = False

    @property
    def basis(self) -> str:
        """Where the guarantee follows from: 'plan', or 'log' if the log breaks the plan."""
        return 'log' if self.observed and self.observed.violations else 'plan'

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee that holds for the run."""
        if self.observed is not None and self.basis == 'log':
            return self.observed.guarantee
        return self.plan_guarantee
