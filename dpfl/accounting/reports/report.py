"""The privacy report of a run: numbers, assumptions and what is not covered.

It follows the checklist of [Xu23], appendix A, and [McMahan24], appendix C, after [Ponomareva23],
section 5.3. `privacy_report.schema.json` beside this file describes its JSON form.
"""

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

from dpfl import _json, _validate, errors, mechanisms
from dpfl.accounting import facts, gaussian
from dpfl.accounting.measured.measured import Measured
from dpfl.accounting.plan import PrivacyPlan
from dpfl.accounting.records import stated
from dpfl.accounting.reports import checklist, noise_keys, page
from dpfl.accounting.reports import observed as observed_lib
from dpfl.accounting.reports.about import About
from dpfl.accounting.reports.clip_course import ClipCourse
from dpfl.accounting.reports.report_values import ReportValues
from dpfl.accounting.sampling import kinds
from dpfl.accounting.selection import Selected, Selection
from dpfl.participation import ParticipationLog

# Raised when a key of the JSON form is removed or changes its meaning.
SCHEMA_VERSION = 2
# Raised when sentences of the report change: verification compares them within one version only.
# Reports without this key have version 1.
TEXT_VERSION = 8
_REQUIRED = ('noise_is_seeded', 'sampling_is_seeded')


@dataclasses.dataclass(frozen=True)
class PrivacyReport(ReportValues):
    """A privacy report: `to_json` writes it for programs, `render` for people.

    The numbers at the top level of its JSON form follow from the plan. If the participation log
    breaks the plan they follow from the log instead, and `basis` says so.

    The fields are those of `ReportValues`.

    Raises:
      ArgumentError: if the run and an earlier one that it continues from have the same noise.
    """

    def __post_init__(self) -> None:
        noise_keys.check(self.noise_key_digest, self.earlier_noise_key_digests)

    @classmethod
    def from_plan(
        cls,
        plan: PrivacyPlan,
        deltas: Iterable[float],
        log: ParticipationLog | None = None,
        accountant: str = 'pld',
        noise_is_seeded: bool = False,
        sampling_is_seeded: bool = False,
        also_not_covered: tuple[str, ...] = (),
        train_metrics_released: bool = False,
        clip_course: ClipCourse | None = None,
        history: tuple[str, ...] = (),
        remarks: tuple[str, ...] = (),
        with_tradeoff: bool = False,
        measured: Measured | None = None,
        about: About | None = None,
        stops_by_rule: bool = False,
        noise_key_digest: str | None = None,
        earlier_noise_key_digests: tuple[str, ...] = (),
        warm_start_is_public: bool = False,
        journal_head: str | None = None,
    ) -> 'PrivacyReport':
        """The report of a plan and, if given, of the participation log of its run.

        The other arguments are as in the class. `with_tradeoff` adds its trade-off curve. With
        `stops_by_rule`, the data of the run may have ended it before its last round.

        Raises:
          ValueError: if there is no delta, a delta is not within (0, 1), or the accountant is
            unknown or does not support the plan's sampling.
        """
        deltas = tuple(float(delta) for delta in deltas)
        if not deltas:
            raise errors.ArgumentError('deltas', '[]', 'must hold at least one number')
        _validate.choice('accountant', accountant, gaussian.ACCOUNTANTS)
        report = cls(
            plan=plan,
            accountant=accountant,
            deltas=deltas,
            observed=None if log is None else observed_lib.observe(plan, log),
            noise_is_seeded=noise_is_seeded,
            sampling_is_seeded=sampling_is_seeded,
            also_not_covered=tuple(also_not_covered),
            train_metrics_released=train_metrics_released,
            clip_course=clip_course,
            history=tuple(history),
            remarks=tuple(remarks),
            has_tradeoff=with_tradeoff,
            measured=measured,
            about=about,
            stops_by_rule=stops_by_rule,
            noise_key_digest=noise_key_digest,
            earlier_noise_key_digests=tuple(earlier_noise_key_digests),
            warm_start_is_public=warm_start_is_public,
            journal_head=journal_head,
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
        if self.plan.delta_before:
            raise errors.ArgumentError(
                'selected_from',
                errors.NOT_SHOWN,
                'cannot be combined with a private vocabulary, which has a delta of its own',
            )
        if self.plan.slack:  # Renyi divergences are those of the events alone.
            raise errors.ArgumentError('noise', self.plan.noise, 'must be default with a selection')
        report = dataclasses.replace(self, selection=selection)
        _ = report.selected  # Refuses plans whose Renyi divergences are not known.
        return report

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values, by the keys of its JSON form."""
        holds = self.guarantee
        return {
            'schema_version': SCHEMA_VERSION,
            'text_version': TEXT_VERSION,
            'statement': checklist.statement(self),
            'mechanism': self.plan.mechanism.name,
            'rounds': holds.rounds,
            'min_separation': holds.min_separation,
            'max_participations': holds.max_participations,
            'noise_multiplier': self.plan.noise_multiplier,
            'clip_norm': self.plan.clip_norm,
            'clients_per_round': self.plan.clients_per_round,
            'sampling': self.plan.sampling_name,
            **kinds.settings_of(self.plan.sampling),
            'sensitivity': holds.sensitivity,
            'sensitivity_is_exact': holds.sensitivity_is_exact,
            'rho': holds.rho,
            'mu': holds.mu,
            'delta': self.deltas[0],
            'epsilon': holds.epsilons[0],
            'accountant': self.accountant,
            'adjacency': self.plan.adjacency,
            'basis': self.basis,
            'noise_is_seeded': self.noise_is_seeded,
            'noise_key_digest': self.noise_key_digest,
            'sampling_is_seeded': self.sampling_is_seeded,
            'train_metrics_released': self.train_metrics_released,
            'deltas': list(self.deltas),
            'plan': self.plan.to_dict(),
            'plan_guarantee': dataclasses.asdict(self.plan_guarantee),
            'observed': self._observed(),
            'mechanism_parameters': self.plan.mechanism.to_dict(),
            'mechanism_digest': self.plan.mechanism.digest(),
            'assumptions': self.facts.bullets(facts.ASSUMPTION),
            'not_covered': self.facts.bullets(facts.NOT_COVERED),
            **(
                {'earlier_noise_key_digests': list(self.earlier_noise_key_digests)}
                if self.earlier_noise_key_digests
                else {}
            ),
            **({'journal_head': self.journal_head} if self.journal_head else {}),
            **({'warm_start_is_public': True} if self.warm_start_is_public else {}),
            **({'group_size': self.plan.group_size} if self.plan.group_size > 1 else {}),
            **({'remarks': list(self.remarks)} if self.remarks else {}),
            **({'selection': self._selection(self.selected)} if self.selected else {}),
            **(self.tradeoff.to_dict() if self.tradeoff else {}),
            **({'measured': self.measured.to_dict()} if self.measured else {}),
            **({'clip_course': self.clip_course.to_dict()} if self.clip_course else {}),
            **({'also_not_covered': list(self.also_not_covered)} if self.also_not_covered else {}),
            **({'history': list(self.history)} if self.history else {}),
            **({'about': self.about.to_dict()} if self.about else {}),
            **({} if self.so_far is None else {'epsilons_so_far': list(self.so_far)}),
            **({'stops_by_rule': True} if self.stops_by_rule else {}),
        }

    def _observed(self) -> dict[str, Any] | None:
        if self.observed is None:
            return None
        assert self.observed_guarantee is not None and self.pattern_guarantee is not None
        values = dataclasses.asdict(self.observed)
        own = ['limits', 'pattern_sensitivity', 'pattern_is_exact']
        own += ['max_per_round'] if self.observed.max_per_round == 1 else []
        return {
            'guarantee': dataclasses.asdict(self.observed_guarantee),
            'patterns': dataclasses.asdict(self.pattern_guarantee),
            **{name: value for name, value in values.items() if name not in own},
        }

    def _selection(self, selected: Selected) -> dict[str, Any]:
        return {
            'statement': checklist.statement_selected(self, selected),
            **selected.to_dict(self.deltas),
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
) -> tuple[PrivacyReport, list[stated.Difference]]:
    """A report that follows from the plan in a JSON document, and what the document says otherwise.

    The document says what its report is made from: the plan, what the log and an audit showed,
    seeds, and sentences about the run. These are taken from it; everything else is compared.

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
        return report, stated.differences(values, report.to_dict())
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
    report = PrivacyReport(
        plan=plan,
        deltas=stated.deltas(values['deltas']),
        observed=stated.observed(values['observed'], plan),
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
        history=stated.texts('history', values.get('history', ())),
        stops_by_rule=_validate.truth('stops_by_rule', values.get('stops_by_rule', False)),
        journal_head=noise_keys.checked('journal_head', values.get('journal_head')),
        **stated.of_run(values, _REQUIRED),
    )
    if 'selection' in values:
        report = report.selected_from(Selection.from_dict(values['selection']))
    return report
