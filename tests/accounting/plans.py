"""Small plans and reports, which the tests of accounting change field by field."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import dp_accounting

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.accounting.sampling import kinds
from dpfl.simulation import sampling

# It keeps `plan()`.
LOG = ParticipationLog([[0, 1], [2, 3], [4, 5], [0, 2], [1, 3], [4, 6]])


def _made(changes: dict[str, Any], **fields: Any) -> accounting.PrivacyPlan:
    """The plan of these fields, some of which are changed."""
    return accounting.PrivacyPlan(**with_part(fields | changes))


def plan(**changes: Any) -> accounting.PrivacyPlan:
    """A plan with correlated noise over six rounds; `changes` replace its fields."""
    return _made(
        changes,
        mechanism=mechanisms.Blt(6, [0.9, 0.4], [0.2, 0.3]),
        participation=Participation(6, 2, 3),
        clip_norm=0.5,
        noise_multiplier=4.0,
        clients_per_round=2,
    )


def independent(rounds: int, **changes: Any) -> accounting.PrivacyPlan:
    """A plan with independent noise, in whose rounds every client may take part."""
    return _made(
        changes,
        mechanism=mechanisms.Identity(rounds),
        participation=Participation(rounds),
        clip_norm=1.0,
        noise_multiplier=2.0,
        clients_per_round=10,
    )


def production(**changes: Any) -> accounting.PrivacyPlan:
    """The plan of document 003 over 2000 rounds."""
    return _made(
        changes,
        mechanism=mechanisms.BinaryTree(2000),
        participation=Participation(2000, 314, 6),
        clip_norm=5.0,
        noise_multiplier=7.0,
        clients_per_round=6500,
    )


def adaptive(**changes: Any) -> accounting.PrivacyPlan:
    """The plan of document 003 with noise that starts afresh, and an adaptive clip norm."""
    restarted = mechanisms.Restarted.every(mechanisms.BinaryTree(1024), rounds=2000)
    fields = dict(mechanism=restarted, adaptive_clip=accounting.AdaptiveClip())
    return production(**fields | changes)


def poisson_event(
    probability: float, noise_multiplier: float, rounds: int = 1
) -> dp_accounting.DpEvent:
    """Poisson samples with independent noise in each of some rounds."""
    release = dp_accounting.GaussianDpEvent(noise_multiplier)
    one = dp_accounting.PoissonSampledDpEvent(probability, release)
    return dp_accounting.SelfComposedDpEvent(one, rounds)


def replaced(plan: accounting.PrivacyPlan, **changes: Any) -> accounting.PrivacyPlan:
    """The plan with other fields, or other settings of its sampling."""
    values = fields(plan, noise_multiplier=plan.noise_multiplier)
    if plan.sampling is not None:
        values |= {'sampling': plan.sampling.name, **plan.sampling.to_dict()}
    return _made(changes, **values)


def with_part(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a plan, with a sampling that is given by its name and settings as a part."""
    settings = {name: fields.pop(name) for name in kinds.every_setting() if name in fields}
    kind = fields.get('sampling') or kinds.NONE
    if isinstance(kind, str):
        fields['sampling'] = kinds.from_settings(kind, settings)
    return fields


_BANDED = mechanisms.BandedToeplitz(7, [1.0, 0.5, 0.25])
_GROUPED = dict(mechanism=_BANDED, participation=Participation(7, 3), groups=3)
_BINNED = _GROUPED | dict(clients_per_round=20)
# What is particular to each sampling.
_SAMPLED: dict[str, dict[str, Any]] = {
    'poisson': {},
    'truncated_poisson': dict(cohort_cap=5),
    'without_replacement': {},
    'cyclic_poisson': _GROUPED,
    'balls_in_bins': _BINNED,
    'random_allocation': _BINNED | dict(participation=Participation(7, 1, 3)),
    'b_min_sep': _GROUPED,
}
SAMPLINGS = tuple(_SAMPLED)


def sampled(kind: str, **changes: Any) -> accounting.PrivacyPlan:
    """A plan of each sampling over seven rounds, with 3 of 60 clients in a round; 20 with bins."""
    fields = dict(sampling=kind, population=60, clients_per_round=3, noise_multiplier=4.0)
    return independent(7, **fields | _SAMPLED[kind] | changes)


def sampler(plan: accounting.PrivacyPlan, seed: int = 0) -> sampling.Sampler:
    """The sampler of a run of a plan with sampling."""
    assert plan.sampling is not None
    rounds, size = plan.participation.rounds, plan.clients_per_round
    return sampling.RandomSampler(plan.sampling, rounds, size, seed)


def fields(plan: accounting.PrivacyPlan, **changes: Any) -> dict[str, Any]:
    """The fields of a plan but its noise multiplier, as `calibrated` takes them."""
    values = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    del values['noise_multiplier']
    return values | changes


def calibrated(
    plan: accounting.PrivacyPlan,
    epsilon: float,
    accountant: str = 'analytic_gaussian',
    delta: float = 1e-6,
    **changes: Any,
) -> accounting.PrivacyPlan:
    """The plan with other fields, and the noise for a target."""
    target = dict(epsilon=epsilon, delta=delta, accountant=accountant)
    return accounting.PrivacyPlan.calibrated(**target, **fields(plan, **changes))


def report(
    plan: accounting.PrivacyPlan,
    deltas: Sequence[float] = (1e-6,),
    log: ParticipationLog | Sequence[Sequence[int]] | None = None,
    accountant: str = 'best',
    **values: Any,
) -> accounting.PrivacyReport:
    """The report of a plan, with a log or its cohorts."""
    if log is not None and not isinstance(log, ParticipationLog):
        log = ParticipationLog(log)
    return accounting.PrivacyReport.from_plan(plan, deltas, log, accountant, **values)


def read(report: accounting.PrivacyReport) -> accounting.PrivacyReport:
    """What is read from the file of a report."""
    return accounting.PrivacyReport.from_json(report.to_json())
