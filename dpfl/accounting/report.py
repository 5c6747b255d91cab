"""The privacy report of a run: numbers, assumptions and what is not covered.

It follows the checklist of documents 000 (appendix A) and 002 (appendix C), after Ponomareva et
al. 2023, section 5.3.
"""

import dataclasses
import json
import math

from dpfl import mechanisms
from dpfl.accounting import checklist
from dpfl.accounting.plan import PrivacyPlan
from dpfl.participation import Participation, ParticipationLog

SCHEMA_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """What one schema gives: the schema's limits and the guarantee's parameters.

    Attributes:
      rounds, min_separation, max_participations: the schema; the last as a client can reach it.
      sensitivity, sensitivity_is_exact: of the mechanism, for clip norm 1, under the adjacency.
      rho, mu: zCDP and Gaussian DP parameters; None where there is no noise.
      epsilons: one entry per delta; None where there is no noise.
    """

    rounds: int
    min_separation: int
    max_participations: int
    sensitivity: float
    sensitivity_is_exact: bool
    rho: float | None
    mu: float | None
    epsilons: tuple[float | None, ...]

    @classmethod
    def of(cls, plan: PrivacyPlan, deltas, accountant: str) -> 'Guarantee':
        """The guarantee of a plan at each delta."""
        return cls(
            rounds=plan.participation.rounds,
            min_separation=plan.participation.min_separation,
            max_participations=plan.participation.count,
            sensitivity=plan.sensitivity,
            sensitivity_is_exact=plan.sensitivity_is_exact,
            rho=_finite(plan.rho),
            mu=_finite(plan.mu),
            epsilons=tuple(_finite(plan.epsilon(delta, accountant)) for delta in deltas),
        )


@dataclasses.dataclass(frozen=True)
class Observed:
    """What the participation log says.

    Attributes:
      guarantee: of the limits that every client in the log kept.
      smallest_cohort, largest_cohort: clients in a round.
      violations: how the log breaks the plan, one sentence each; empty if it keeps it.
    """

    guarantee: Guarantee
    smallest_cohort: int
    largest_cohort: int
    violations: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class PrivacyReport:
    """A report: `to_json` for programs, `render` for people.

    The numbers at its top level are the plan's; where the log breaks the plan they are those of
    the log, and `basis` says so.

    Attributes:
      plan_guarantee: what the plan gives.
      observed: what the log says, or None without a log.
      deltas: each strictly between 0 and 1, at least one.
      noise_is_seeded: the noise came from a known seed, so the run is a simulation.
      Others: as in `PrivacyPlan`.
    """

    mechanism: mechanisms.Mechanism
    clip_norm: float
    noise_multiplier: float
    clients_per_round: int
    adjacency: str
    accountant: str
    deltas: tuple[float, ...]
    plan_guarantee: Guarantee
    observed: Observed | None
    noise_is_seeded: bool

    @classmethod
    def from_plan(
        cls,
        plan: PrivacyPlan,
        deltas,
        log: ParticipationLog | None = None,
        accountant: str = 'pld',
        noise_is_seeded: bool = False,
    ) -> 'PrivacyReport':
        """Report of a plan and, if given, of the participation log of the run that followed it.

        Raises:
          ValueError: if there is no delta or one is out of (0, 1), or the accountant is unknown.
        """
        deltas = tuple(float(delta) for delta in deltas)
        if not deltas:
            raise ValueError('deltas=[]: must hold at least one number')
        return cls(
            mechanism=plan.mechanism,
            clip_norm=float(plan.clip_norm),
            noise_multiplier=float(plan.noise_multiplier),
            clients_per_round=plan.clients_per_round,
            adjacency=plan.adjacency,
            accountant=accountant,
            deltas=deltas,
            plan_guarantee=Guarantee.of(plan, deltas, accountant),
            observed=None if log is None else _observe(plan, log, deltas, accountant),
            noise_is_seeded=noise_is_seeded,
        )

    @property
    def basis(self) -> str:
        """'plan', or 'log' where the log breaks the plan: whose numbers are the guarantee."""
        return 'log' if self.observed and self.observed.violations else 'plan'

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee that holds for the run."""
        return self.observed.guarantee if self.basis == 'log' else self.plan_guarantee

    def to_dict(self) -> dict:
        """The report as plain values: the keys of its JSON form."""
        holds = self.guarantee
        return {
            'schema_version': SCHEMA_VERSION,
            'mechanism': self.mechanism.name,
            'rounds': holds.rounds,
            'min_separation': holds.min_separation,
            'max_participations': holds.max_participations,
            'noise_multiplier': self.noise_multiplier,
            'clip_norm': self.clip_norm,
            'clients_per_round': self.clients_per_round,
            'sensitivity': holds.sensitivity,
            'sensitivity_is_exact': holds.sensitivity_is_exact,
            'rho': holds.rho,
            'mu': holds.mu,
            'delta': self.deltas[0],
            'epsilon': holds.epsilons[0],
            'accountant': self.accountant,
            'adjacency': self.adjacency,
            'basis': self.basis,
            'noise_is_seeded': self.noise_is_seeded,
            'deltas': list(self.deltas),
            'plan_guarantee': dataclasses.asdict(self.plan_guarantee),
            'observed': None if self.observed is None else dataclasses.asdict(self.observed),
            'mechanism_parameters': self.mechanism.to_dict(),
            'mechanism_digest': self.mechanism.digest(),
            'assumptions': checklist.assumptions(self),
            'not_covered': checklist.not_covered(self),
        }

    def to_json(self) -> str:
        """One JSON document; infinite values (no noise) are null."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> 'PrivacyReport':
        """Reads what `to_json` wrote; the texts are made anew.

        Raises:
          ValueError: if the text is not such a report.
        """
        try:
            values = json.loads(text)
            if values['schema_version'] != SCHEMA_VERSION:
                raise ValueError(f'schema version {values["schema_version"]}')
            observed = values['observed']
            if observed is not None:
                observed = Observed(
                    guarantee=_guarantee_from(observed['guarantee']),
                    smallest_cohort=observed['smallest_cohort'],
                    largest_cohort=observed['largest_cohort'],
                    violations=tuple(observed['violations']),
                )
            return cls(
                mechanism=mechanisms.from_dict(values['mechanism_parameters']),
                deltas=tuple(values['deltas']),
                plan_guarantee=_guarantee_from(values['plan_guarantee']),
                observed=observed,
                **{name: values[name] for name in (
                    'clip_norm', 'noise_multiplier', 'clients_per_round', 'adjacency',
                    'accountant', 'noise_is_seeded',
                )},
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f'not a privacy report ({error})') from None

    def render(self) -> str:
        """The report as Markdown."""
        return checklist.render(self)


def _guarantee_from(values: dict) -> Guarantee:
    return Guarantee(**{**values, 'epsilons': tuple(values['epsilons'])})


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value


def _observe(plan: PrivacyPlan, log: ParticipationLog, deltas, accountant: str) -> Observed | None:
    if not log.rounds:
        return None
    seen = log.observed()
    planned = plan.participation
    return Observed(
        guarantee=Guarantee.of(plan.over(seen), deltas, accountant),
        smallest_cohort=int(log.cohort_sizes.min()),
        largest_cohort=int(log.cohort_sizes.max()),
        violations=_violations(planned, seen),
    )


def _violations(planned: Participation, seen: Participation) -> tuple[str, ...]:
    violations = []
    if seen.rounds > planned.rounds:
        violations.append(f'The run had {seen.rounds} rounds; the plan has {planned.rounds}.')
    if seen.count > 1 and seen.min_separation < planned.min_separation:
        violations.append(
            f'A client took part in two rounds {seen.min_separation} apart; '
            f'the plan has at least {planned.min_separation}.'
        )
    if seen.max_participations > planned.count:
        violations.append(
            f'A client took part in {seen.max_participations} rounds; '
            f'the plan has at most {planned.count}.'
        )
    return tuple(violations)
