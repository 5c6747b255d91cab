"""The privacy report of a run: numbers, assumptions and what is not covered.

It follows the checklist of [Xu23], appendix A, and [McMahan24], appendix C, after [Ponomareva23],
section 5.3. `schema` describes its JSON form.
"""

import dataclasses
import functools
import json
import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, Literal

from dpfl import _json, _validate, errors, mechanisms
from dpfl._validate import Limits, Nats, Probability
from dpfl.accounting import dp, gaussian, part, running, tradeoff
from dpfl.accounting import selection as selection_lib
from dpfl.accounting.clipping import ClipCourse
from dpfl.accounting.measured.measured import Measured
from dpfl.accounting.part import Facts, Run
from dpfl.accounting.plan import PrivacyPlan
from dpfl.accounting.records import comparison
from dpfl.accounting.reports import inputs, page, sentences
from dpfl.accounting.reports import observed as observed_lib
from dpfl.accounting.reports.inputs import Inputs
from dpfl.accounting.reports.observed import Guarantee, Observed
from dpfl.accounting.sampling import kinds
from dpfl.accounting.selection import Selected, Selection
from dpfl.accounting.tradeoff import Tradeoff
from dpfl.participation import ParticipationLog

# Raised when a key of the JSON form is removed or changes its meaning.
SCHEMA_VERSION: Final = 2
# Raised when sentences of the report change: verification compares them within one version only.
# Reports without this key have version 1.
TEXT_VERSION = 10
# Inputs without which a file is no report, and those that every report writes.
_REQUIRED = ('noise_is_seeded', 'sampling_is_seeded')
WRITTEN = (*_REQUIRED, 'noise_key_digest', 'train_metrics_released')


# Attributes of a report by the keys of its JSON form, see `_json.by_paths`. Settings of its
# sampling come after the first of the three, inputs that are known before the run after the second.
PATHS_OF_PLAN: _json.Paths = {
    'schema_version': 'schema_version',
    'text_version': 'text_version',
    'statement': 'statement',
    'mechanism': 'plan.mechanism_name',
    'rounds': 'guarantee.rounds',
    'min_separation': 'guarantee.min_separation',
    'max_participations': 'guarantee.max_participations',
    'noise_multiplier': 'plan.noise_multiplier',
    'clip_norm': 'plan.clip_norm',
    'clients_per_round': 'plan.clients_per_round',
    'sampling': 'plan.sampling_name',
}
PATHS_OF_GUARANTEE: _json.Paths = {
    'sensitivity': 'guarantee.sensitivity',
    'sensitivity_is_exact': 'guarantee.sensitivity_is_exact',
    'rho': 'guarantee.rho',
    'mu': 'guarantee.mu',
    'delta': 'delta',
    'epsilon': 'guarantee.epsilon',
    'accountant': 'accountant',
    'adjacency': 'plan.adjacency',
    'basis': 'basis',
}
PATHS: _json.Paths = {
    'deltas': 'deltas',
    'plan': 'plan',
    'plan_guarantee': 'plan_guarantee',
    'observed': (
        'observed',
        {
            'guarantee': 'observed_guarantee',
            'patterns': 'pattern_guarantee',
            'max_per_round?': 'observed.repeats',
            **{name: f'observed.{name}' for name in comparison.COUNTS},
            'clients_by_participations': 'observed.clients_by_participations',
            'violations': 'observed.violations',
            'refutations?': 'observed.refutations',
        },
    ),
    'mechanism_parameters': 'plan.mechanism',
    'mechanism_digest': 'mechanism_digest',
    'assumptions': 'assumptions',
    'not_covered': 'not_covered',
    'journal_head?': 'journal_head',
    'group_size?': 'group_size',
    'selection?': (
        'selection',
        {
            'statement': 'selected_statement',
            'distribution': 'selection.distribution',
            'mean': 'selection.mean',
            'rho': 'selected.rho',
            'delta': 'delta',
            'epsilon': 'selected.epsilon',
            'epsilons': 'selected.epsilons',
            'accountant': 'selected.accountant',
        },
    ),
    'tradeoff?': 'tradeoff.rates',
    'membership?': (
        'tradeoff',
        {'advantage': 'tradeoff.advantage', 'bayes_risk': 'tradeoff.error'},
    ),
    'measured?': 'measured',
    'clip_course?': 'clip_course',
    'history?': 'history',
    'epsilons_so_far?': 'so_far',
    'stops_by_rule?': 'stops_by_rule',
}


@dataclasses.dataclass(frozen=True)
class PrivacyReport(Inputs):
    """A privacy report: `to_json` writes it for programs, `render` for people.

    The numbers at the top level of its JSON form follow from the plan. If the participation log
    breaks the plan they follow from the log instead, and `basis` says so.

    The fields, and those of `Inputs`, are its inputs. The numbers are properties: they follow from
    these fields, and nothing can set them.

    Attributes:
      observed: what the log says, or None without a log.
      clip_course: course of an adaptive clip norm; None without, or before the first round.
      has_tradeoff: whether the report says what a membership test can reach.
      selection: of the best of several such runs; None for a report of the run alone.
      measured: what an audit measured in the run; None without one.
      journal_head: digest of the journal of the run up to its last release, see
        `journal.Journal.released_head`; None without a journal.

    Raises:
      ArgumentError: if the run and an earlier one that it continues from have the same noise, if
        extensions do not lead to the plan and its log, or if it has a selection whose guarantee is
        not known, see `selected_from`.

    Example:
      >>> plan = accounting.PrivacyPlan(
      ...     mechanism=mechanisms.Identity(100), participation=Participation(100, 50),
      ...     clip_norm=1.0, noise_multiplier=2.0, clients_per_round=10)
      >>> PrivacyReport.from_plan(plan, [1e-6]).to_dict()['statement']
      'A run of this plan satisfies 0.25-zCDP and (3.308, 1e-06)-DP for each client.'
    """

    observed: Observed | None = None
    clip_course: ClipCourse | None = None
    has_tradeoff: bool = False
    selection: Selection | None = None
    measured: Measured | None = None
    journal_head: str | None = None

    def __post_init__(self) -> None:
        inputs.check_noise(self.noise_key_digest, self.earlier_noise_key_digests)
        # Extensions follow each other, and lead to the plan and its log.
        steps = self.extensions
        released = [step.released for step in steps]
        planned = [*(step.planned for step in steps[1:]), self.plan.participation.rounds]
        follows = [step.rounds for step in steps] == planned and released == sorted(released)
        # The last round that began may have no cohort yet.
        begun = math.inf if self.observed is None else self.observed.rounds + 1
        if steps and not (follows and released[-1] <= begun):
            raise errors.ArgumentError(
                'extensions',
                [dataclasses.astuple(step) for step in steps],
                f'must begin with the rounds of the one before, and end with the {planned[-1]} '
                'rounds of the plan and no more released rounds than the log has',
            )
        if self.selection is None:
            return
        if self.plan.delta_before:
            raise errors.ArgumentError(
                'selected_from',
                errors.NOT_SHOWN,
                'cannot be combined with a private vocabulary, which has a delta of its own',
            )
        if self.plan.slack:  # Renyi divergences are those of the events alone.
            raise errors.ArgumentError('noise', self.plan.noise, 'must be default with a selection')
        _ = self.selected  # Refuses plans whose Renyi divergences are not known.

    @classmethod
    def from_plan(
        cls,
        plan: PrivacyPlan,
        deltas: Iterable[float],
        log: ParticipationLog | None = None,
        accountant: str = 'pld',
        noise_is_seeded: bool = False,
        with_tradeoff: bool = False,
        **fields: Any,
    ) -> 'PrivacyReport':
        """The report of a plan and, if given, of the participation log of its run.

        Args:
          plan: the privacy plan.
          deltas: at which epsilon is reported, at least one.
          log: of the run; None without one.
          accountant: by which epsilon is computed.
          noise_is_seeded: whether the noise came from a known seed.
          with_tradeoff: whether the report has its trade-off curve.
          **fields: other fields of the report by name: `sampling_is_seeded`,
            `train_metrics_released`, `also_not_covered` and `remarks` (lists of sentences),
            `stop_at_accuracy` and `extensions`, `about`, `clip_course`, `measured`,
            `warm_start_is_public`, and digests of noise keys and journal.

        Raises:
          ValueError: if there is no delta, a delta is not within (0, 1), the accountant is unknown
            or does not support the plan's sampling, or `from_json` would refuse a field.
        """
        _validate.instance_of(PrivacyPlan)('plan', plan)
        _validate.instance_of(ParticipationLog, None)('log', log)
        deltas = tuple(float(delta) for delta in deltas)
        if not deltas:
            raise errors.ArgumentError('deltas', '[]', 'must hold at least one number')
        _validate.choice('accountant', accountant, gaussian.ACCOUNTANTS)
        report = cls(
            plan=plan,
            accountant=accountant,
            deltas=deltas,
            observed=None if log is None else observed_lib.observe(plan, log),
            has_tradeoff=with_tradeoff,
            **inputs.checked({'noise_is_seeded': noise_is_seeded, **fields}),
        )
        _ = report.plan_guarantee  # Refuses a delta or an accountant that does not fit.
        return report

    def with_tradeoff(self) -> 'PrivacyReport':
        """The report with the trade-off curve of the guarantee that holds."""
        return dataclasses.replace(self, has_tradeoff=True)

    def selected_from(self, selection: Selection) -> 'PrivacyReport':
        """The report with the guarantee of the best of a random number of such runs.

        Raises:
          ArgumentError: if the guarantee is not known: with hardened noise, for groups of clients
            in a plan with sampling, and if something that was released before training has a delta
            of its own.
        """
        return dataclasses.replace(self, selection=selection)

    @property
    def stops_by_rule(self) -> bool:
        """Whether the data of the run may have ended it before its last planned round."""
        return self.stop_at_accuracy is not None

    @property
    def history(self) -> tuple[str, ...]:
        """How the run differs from one that trains the rounds it was planned for, in sentences."""
        return tuple(sentences.history(self))

    @functools.cached_property
    def facts(self) -> Facts:
        """What the report says in sentences."""
        return sentences.facts(self)

    @property
    def schema_version(self) -> Literal[2]:
        """Changes when a key is removed or changes its meaning, not when keys are added."""
        return SCHEMA_VERSION

    @property
    def text_version(self) -> Annotated[int, Limits(minimum=2)]:
        """Changes when sentences of reports change. Reports without this key have version 1."""
        return TEXT_VERSION

    @property
    def statement(self) -> str:
        """The guarantee in words, rounded up."""
        return page.statement(self)

    @property
    def selected_statement(self) -> str | None:
        """The guarantee of the best of several such runs in words; None without a selection."""
        return page.statement_selected(self, self.selected) if self.selected else None

    @property
    def assumptions(self) -> list[str]:
        """What the guarantee assumes."""
        return self.facts.bullets(part.ASSUMPTION)

    @property
    def not_covered(self) -> list[str]:
        """What the guarantee does not cover."""
        return self.facts.bullets(part.NOT_COVERED)

    @property
    def delta(self) -> Probability:
        """The first of `deltas`."""
        return self.deltas[0]

    @property
    def group_size(self) -> Annotated[int, Limits('clients', minimum=2)] | None:
        """Number of clients that change together, for whom all numbers are; None for one."""
        return self.plan.group_size if self.plan.group_size > 1 else None

    @property
    def mechanism_digest(self) -> str:
        """SHA-256 of the parameters of the mechanism."""
        return self.plan.mechanism.digest()

    @property
    def basis(self) -> Annotated[str, Limits(choices=('plan', 'log'))]:
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
    def so_far(self) -> tuple[Nats | None, ...] | None:
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

    def dp_event(self) -> dp.Event:
        """The run as an event, for composition with other runs on the same clients."""
        if self.basis == 'plan':
            return self.plan.dp_event()
        if self.guarantee.mu is None:
            return dp.NonPrivateDpEvent()
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
        known = [(epsilon, delta) for epsilon, delta in pairs if epsilon is not None]
        return tradeoff.limited(curve, known)

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

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values, by the keys of its JSON form."""
        return {
            **_json.by_paths(self, PATHS_OF_PLAN),
            **kinds.settings_of(self.plan.sampling),
            **_json.by_paths(self, PATHS_OF_GUARANTEE),
            **self.of_run(WRITTEN),
            **_json.by_paths(self, PATHS),
        }

    def to_json(self) -> str:
        """The report as a JSON document; infinite values (no noise) are null."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes, *, with_selection: bool = False) -> 'PrivacyReport':
        """Reads what `to_json` wrote; all numbers and sentences are computed anew.

        Args:
          text: the JSON document.
          with_selection: whether it may be about the best of several runs, or also state a joint
            guarantee with other runs, which is not read.

        Raises:
          ValueError: if the text is not a privacy report, has an unknown key, or states anything
            that does not follow from its plan. It may promise less: a larger epsilon.
        """
        try:
            report, differences = read(text, with_selection=with_selection)
            for difference in differences:
                if not difference.promises_less:
                    raise difference.error()
            return report
        except ValueError as error:
            raise ValueError(f'not a privacy report ({errors.shown(error)})') from None

    def render(self) -> str:
        """The report as Markdown."""
        return page.render(self)


def read(
    text: str | bytes, *, with_selection: bool = False
) -> tuple[PrivacyReport, list[comparison.Difference]]:
    """The report that follows from the plan in a JSON document, and where the document differs.

    The inputs of the report are taken from the document: the plan, results of the log and of an
    audit, seeds, extensions, and remarks about the run. Everything else is compared.

    Args:
      text, with_selection: as in `PrivacyReport.from_json`.

    Raises:
      ValueError: if it is no such document.
    """
    try:
        values = dict(_json.checked_object('report', _json.loads(text)))
        for name in ('selection', 'composition'):
            if name in values and not with_selection:
                allowed = 'must be missing, so that the report is of one run'
                raise errors.ArgumentError(name, errors.NOT_SHOWN, allowed)
        values.pop('composition', None)
        report = _from_values(values)
        return report, comparison.report_differences(values, report.to_dict())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(errors.shown(error)) from None


def _from_values(values: dict[str, Any]) -> PrivacyReport:
    """The report of the inputs in JSON values; nothing else in them is read."""
    if values['schema_version'] != SCHEMA_VERSION:
        raise errors.ArgumentError(
            'schema_version', values['schema_version'], f'must be {SCHEMA_VERSION}'
        )
    mechanism = mechanisms.from_dict(values['mechanism_parameters'])
    plan = PrivacyPlan.from_dict(values['plan'], mechanism)
    accountant = _validate.choice('accountant', values['accountant'], plan.accountants)
    selection = None
    if 'selection' in values:  # Its other keys are numbers and words.
        stated = _json.checked_object('selection', values['selection'])
        own = [field.name for field in dataclasses.fields(Selection)]
        selection = Selection.from_dict({name: stated[name] for name in own if name in stated})
    report = PrivacyReport(
        plan=plan,
        deltas=inputs.deltas(values['deltas']),
        observed=comparison.observed(values['observed'], plan),
        accountant=accountant,
        clip_course=(
            ClipCourse.from_dict(values['clip_course']) if 'clip_course' in values else None
        ),
        has_tradeoff='tradeoff' in values,
        measured=(
            Measured.from_dict(values['measured'], plan, accountant)
            if 'measured' in values
            else None
        ),
        journal_head=inputs.checked_key('journal_head', values.get('journal_head')),
        selection=selection,
        **inputs.read(values, _REQUIRED),
    )
    comparison.refuse_more_texts('history', values.get('history', ()), report.history)
    return report
