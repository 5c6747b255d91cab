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
from dpfl.accounting.clipping import ClipCourse
from dpfl.accounting.measured.measured import Measured
from dpfl.accounting.plan import PrivacyPlan
from dpfl.accounting.records import stated
from dpfl.accounting.reports import checklist, history, inputs, noise_keys, page
from dpfl.accounting.reports import observed as observed_lib
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

    The fields are those of `Inputs` and `ReportValues`.

    Raises:
      ArgumentError: if the run and an earlier one that it continues from have the same noise, if
        extensions do not lead to the plan and its log, or if it has a selection whose guarantee is
        not known, see `selected_from`.
    """

    def __post_init__(self) -> None:
        noise_keys.check(self.noise_key_digest, self.earlier_noise_key_digests)
        history.check(self)
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
          ValueError: if there is no delta, a delta is not within (0, 1), or the accountant is
            unknown or does not support the plan's sampling.
        """
        deltas = tuple(float(delta) for delta in deltas)
        if not deltas:
            raise errors.ArgumentError('deltas', '[]', 'must hold at least one number')
        _validate.choice('accountant', accountant, gaussian.ACCOUNTANTS)
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in fields.items()
        }
        report = cls(
            plan=plan,
            accountant=accountant,
            deltas=deltas,
            observed=None if log is None else observed_lib.observe(plan, log),
            noise_is_seeded=noise_is_seeded,
            has_tradeoff=with_tradeoff,
            **values,
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
            **_json.given(self._given()),
        }

    def _given(self) -> dict[str, Any]:
        """The keys that only some reports have; those of the others are None, False or empty."""
        return {
            'earlier_noise_key_digests': list(self.earlier_noise_key_digests),
            'journal_head': self.journal_head,
            'warm_start_is_public': self.warm_start_is_public,
            'group_size': self.plan.group_size if self.plan.group_size > 1 else None,
            'remarks': list(self.remarks),
            'selection': self._selection(self.selected) if self.selected else None,
            **(self.tradeoff.to_dict() if self.tradeoff else {}),
            'measured': self.measured.to_dict() if self.measured else None,
            'clip_course': self.clip_course.to_dict() if self.clip_course else None,
            'also_not_covered': list(self.also_not_covered),
            'history': list(self.history),
            'about': self.about.to_dict() if self.about else None,
            'epsilons_so_far': None if self.so_far is None else list(self.so_far),
            'stops_by_rule': self.stops_by_rule,
            'extensions': [each.to_dict() for each in self.extensions],
            'stop_at_accuracy': self.stop_at_accuracy,
        }

    def _observed(self) -> dict[str, Any] | None:
        seen = self.observed
        if seen is None:
            return None
        assert self.observed_guarantee is not None and self.pattern_guarantee is not None
        return {
            'guarantee': dataclasses.asdict(self.observed_guarantee),
            'patterns': dataclasses.asdict(self.pattern_guarantee),
            **({'max_per_round': seen.max_per_round} if seen.max_per_round > 1 else {}),
            **{name: getattr(seen, name) for name in stated.COUNTS},
            'clients_by_participations': seen.clients_by_participations,
            'violations': seen.violations,
            **_json.given({'refutations': [each.to_dict() for each in seen.refutations]}),
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
    seeds, extensions, and remarks about the run. These are taken from it; everything else is
    compared.

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
        deltas=inputs.deltas(values['deltas']),
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
        journal_head=noise_keys.checked('journal_head', values.get('journal_head')),
        selection=Selection.from_dict(values['selection']) if 'selection' in values else None,
        **inputs.of_run(values, _REQUIRED),
    )
    stated.refuse_more_texts('history', values.get('history', ()), report.history)
    return report
