"""Request to `plan_privacy`: a deployment, and a noise multiplier, a target or a simulation."""

import collections
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from dpfl import mechanisms
from dpfl._settings import Settings, setting
from dpfl.accounting import PrivacyPlan
from dpfl.cli.flags.participation_log import PaceConfig
from dpfl.cli.results import train_command
from dpfl.errors import NOT_SHOWN, ArgumentError, renaming
from dpfl.mechanisms.named import NamedMechanism
from dpfl.participation import Participation
from dpfl.planning import Pace, Simulation, Target
from dpfl.simulation.training.mechanism import AUTO
from dpfl.simulation.training.privacy_config import PrivacyConfig

_SWEPT = ('clients_per_round', 'population', 'rounds', 'min_separation')
# Settings of one mechanism; 'auto' chooses them itself.
_RESTART_SETTINGS = ('restart_first', 'restart_every')
# Those that 'auto' has no use for either, and several mechanisms do not share.
_NOT_SHARED = (*_RESTART_SETTINGS, 'tree_released')
# Settings that plans with sampling do not have.
_WITHOUT_SAMPLING = (
    'timer_hours',
    'min_separation',
    'max_participations',
    'target_rho',
    'simulated_noise_multiplier',
    'simulated_clients_per_round',
    'max_clients_per_round',
    'sweep_min_separation',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanningConfig(Settings):
    """Availability, targets, a simulation, and sweeps."""

    mechanisms: tuple[str, ...] | None = setting(
        None,
        'Compares several mechanisms, comma-separated, instead of --mechanism: NAME, or '
        'NAME=NOISE_MULTIPLIER. NAME is a mechanism without parameters, '
        'KIND:SIZE@ROUNDS/MIN_SEPARATION (made for that schema), best_KIND:SIZE (made for each '
        'plan), a name in dpfl/strategies or a file. A mechanism that was made for fewer rounds '
        'has no plan for more. For example blt_b400=7.379,honaker_tree=7.',
    )
    availability: float = setting(
        1.0, 'Share of the population that reports at some time, > 0 and <= 1.'
    )
    simulated_noise_multiplier: float | None = setting(
        None,
        'Noise multiplier that was good enough in a small simulation of the same mechanism. It is '
        'scaled in proportion to the cohort size.',
        above=0,
        needs='simulated_clients_per_round',
    )
    simulated_clients_per_round: int | None = setting(
        None,
        'Cohort size of that simulation. With --mechanisms, whose noise multipliers '
        'are then for this cohort size, and are scaled in proportion.',
    )
    target_rho: float | None = setting(None, 'Rho of the zCDP guarantee to meet.')
    max_clients_per_round: int | None = setting(
        None,
        'Largest cohort that the system supports. With a target and a simulation, the binary looks '
        'for the smallest cohort up to this size that meets the target; do not give '
        '--clients_per_round then.',
    )
    failure_probability: float = setting(
        1e-6,
        'Also state which limits of participation uniformly random cohorts would break with at '
        'most this probability. No guarantee depends on it.',
        above=0,
        below=1,
    )
    sweep_clients_per_round: tuple[int, ...] | None = setting(
        None, 'Values of clients_per_round, comma-separated.'
    )
    sweep_population: tuple[int, ...] | None = setting(
        None, 'Values of population, comma-separated.'
    )
    sweep_rounds: tuple[int, ...] | None = setting(None, 'Values of rounds, comma-separated.')
    sweep_min_separation: tuple[int, ...] | None = setting(
        None, 'Values of min_separation, comma-separated.'
    )


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A mechanism to plan with.

    Attributes:
      name: Its name in the table and the figure.
      make: Makes it over the rounds of a schema; None if it has fewer rounds.
      recipe: How `train` gets it; None where no command is given.
      verdict: Why it was taken or left; None if it was given.
      noise_multiplier: Noise multiplier of its own, at least 0; None for the amount that the
        request gives.
    """

    name: str
    make: Callable[[Participation], mechanisms.Mechanism | None]
    recipe: train_command.Recipe | None = None
    verdict: str | None = None
    noise_multiplier: float | None = None


def parse(texts: Sequence[str]) -> list[Candidate]:
    """Reads NAME or NAME=NOISE_MULTIPLIER; NAME is a text of `named.NamedMechanism`.

    Raises:
      ArgumentError: If a text is not of this form, occurs twice, or leaves open what a mechanism
        is optimised for.
    """
    candidates = []
    pairs = [_split(text) for text in texts]
    times = collections.Counter(name for name, _ in pairs)
    for text, (name, noise) in zip(texts, pairs, strict=True):
        named = NamedMechanism.parse(name, 'mechanisms')
        if named.size is not None and named.design is None and not named.is_fresh:
            raise ArgumentError(
                'mechanisms',
                name,
                'must have the schema that it is made for, as in blt:4@2000/400, or best_ to make '
                'it for each plan',
            )
        if texts.count(text) > 1:
            raise ArgumentError('mechanisms', text, 'must not be given twice')
        label = name if times[name] == 1 else text
        candidates.append(Candidate(label, _maker(named), noise_multiplier=noise))
    return candidates


def _maker(named: NamedMechanism) -> Callable[[Participation], mechanisms.Mechanism | None]:
    return lambda schema: named.make(schema, named.design or schema)


def _split(text: str) -> tuple[str, float | None]:
    name, separator, number = text.rpartition('=')
    if not separator or text.endswith('.npz'):
        return text, None
    try:
        noise = float(number)
    except ValueError:
        noise = math.nan
    if not 0 <= noise < math.inf:
        raise ArgumentError(
            'mechanisms', text, 'must be NAME or NAME=NOISE_MULTIPLIER, a finite number >= 0'
        )
    return name, noise


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """A request for plans.

    Attributes:
      privacy: Mechanism, noise and accounting.
      planning: Targets, simulation and sweeps.
      schema: rounds, min_separation, max_participations, population, clients_per_round and
        timer_hours by name; None for those that are not given.
      timing: The known times of rounds, for a timer.
      sampling: Sampling that the guarantee relies on, 'none', or the name of a kind.
      groups: Groups of clients, for cyclic Poisson sampling; None for the bands of the mechanism.
      cohort_cap: Largest cohort, for truncated Poisson sampling.
      run: Plan of a finished run, which is scaled to other cohort sizes with the same noise on the
        mean update; None for a plan of the settings.

    Raises:
      ArgumentError: If values are missing or contradict each other.
    """

    privacy: PrivacyConfig
    planning: PlanningConfig
    schema: dict[str, Any]
    timing: PaceConfig = dataclasses.field(default_factory=PaceConfig)
    sampling: str = 'none'
    groups: int | None = None
    cohort_cap: int | None = None
    run: PrivacyPlan | None = None

    def __post_init__(self) -> None:
        if self.planning.mechanisms == ():
            raise _refused('mechanisms', 'must name at least one')
        self._check_sampling()
        self._check_pairs()
        if self.planning.target_rho is not None and self.privacy.target_epsilon is not None:
            raise _refused('target_rho', 'cannot be combined with target_epsilon')
        if self.privacy.noise_multiplier is not None and (self.has_target or self.has_simulation):
            raise _refused('noise_multiplier', 'cannot be combined with a target or a simulation')
        self._check_amount()
        if (self.has_target and self.has_simulation) != self.searches_cohort:
            raise _refused(
                'max_clients_per_round', 'needs a target and a simulation, and both need it'
            )
        cohorts = {
            'clients_per_round': self.schema['clients_per_round'],
            'sweep_clients_per_round': self.planning.sweep_clients_per_round,
        }
        for name, value in cohorts.items():
            if self.searches_cohort and value is not None:
                raise _refused(name, 'cannot be combined with max_clients_per_round')
        if self.privacy.mechanism == AUTO and self.planning.mechanisms is None:
            self._check_auto()

    def _check_amount(self) -> None:
        """Each mechanism has an amount of noise, and only one."""
        common = self.has_target or self.has_simulation or self.privacy.noise_multiplier is not None
        if self.planning.mechanisms is None:
            if not common:
                raise _refused('noise_multiplier', 'must be given, or a target, or a simulation')
            return
        allowed = 'must have a noise multiplier, as in NAME=7'
        if common:
            allowed = 'cannot have a noise multiplier beside noise_multiplier or a target'
        for contender in self.contenders:
            if common == (contender.noise_multiplier is not None):
                raise ArgumentError('mechanisms', contender.name, allowed)
        if self.privacy.mechanism != AUTO:
            raise ArgumentError(
                'mechanism', self.privacy.mechanism, 'cannot be combined with mechanisms'
            )
        if self.has_simulation or self.searches_cohort:
            name = 'simulated_noise_multiplier' if self.has_simulation else 'max_clients_per_round'
            raise _refused(name, 'cannot be combined with mechanisms')
        for name in _NOT_SHARED:
            if getattr(self.privacy, name) != getattr(PrivacyConfig(), name):
                raise _refused(name, 'cannot be combined with mechanisms')

    def _check_sampling(self) -> None:
        """Raises ArgumentError for values that the sampling has no use for."""
        if self.sampling == 'none':
            for name in ('groups', 'cohort_cap'):
                value = getattr(self, name)
                if value is not None:
                    raise ArgumentError(name, value, 'needs a sampling that has it')
            return
        shown = f'sampling={self.sampling}'
        values = {**self.privacy.flat(), **self.planning.flat(), **self.schema}
        for name in _WITHOUT_SAMPLING:
            if values[name] is not None:
                raise _refused(name, f'cannot be combined with {shown}')
        availability, failure = self.planning.availability, self.planning.failure_probability
        if availability != 1:
            raise ArgumentError('availability', availability, f'must be 1 with {shown}')
        if failure != PlanningConfig.failure_probability:
            raise ArgumentError('failure_probability', failure, f'cannot be combined with {shown}')
        if self.privacy.mechanism == AUTO and self.planning.mechanisms is None:
            raise ArgumentError('mechanism', AUTO, f'cannot be combined with {shown}')

    def _check_pairs(self) -> None:
        cohort = self.planning.simulated_clients_per_round
        if cohort is not None and not (self.has_simulation or self._scales_other_noise):
            raise ArgumentError(
                'simulated_clients_per_round', cohort, 'needs simulated_noise_multiplier'
            )
        timer, timing = self.schema['timer_hours'], self.timing.given
        if timer is not None and not timing:
            needed = 'needs round_minutes, round_times or rounds_by_day'
            raise ArgumentError('timer_hours', timer, needed)
        if timing and timer is None:
            raise ArgumentError(timing[0], self.timing.shown(timing[0]), 'needs timer_hours')

    @property
    def _scales_other_noise(self) -> bool:
        """Whether the noise that is scaled is that of --mechanisms."""
        own = [contender.noise_multiplier for contender in self.contenders]
        return bool(own) and None not in own

    def _check_auto(self) -> None:
        if self.has_simulation:
            raise ArgumentError(
                'mechanism',
                AUTO,
                'cannot be combined with a simulation: its noise multiplier belongs to one '
                'mechanism',
            )
        for name in _RESTART_SETTINGS:
            if getattr(self.privacy, name) is not None:
                raise _refused(name, 'needs a mechanism other than auto')
        if self.privacy.model_dimension is None:
            raise _refused(
                'model_dimension',
                'must be given: the past noise of a mechanism takes a number for each parameter, '
                'and auto takes one that fits memory_limit',
            )

    @property
    def has_target(self) -> bool:
        """Whether a guarantee is asked for."""
        return self.planning.target_rho is not None or self.privacy.target_epsilon is not None

    @property
    def has_simulation(self) -> bool:
        """Whether the noise of a simulation is given."""
        return self.planning.simulated_noise_multiplier is not None

    @functools.cached_property
    def contenders(self) -> list[Candidate]:
        """The mechanisms of --mechanisms; empty without it."""
        return parse(self.planning.mechanisms or ())

    @functools.cached_property
    def pace(self) -> Pace | None:
        """The times of rounds, as far as they are known; None if all rounds take as long.

        Raises:
          ArgumentError: If a file cannot be read, or a number is not allowed.
        """
        return self.timing.pace()

    @property
    def searches_cohort(self) -> bool:
        """Whether the cohort size is to be found."""
        return self.planning.max_clients_per_round is not None

    @property
    def target(self) -> Target | None:
        """The guarantee that is asked for; None without one."""
        if not self.has_target or self.sampling != 'none':
            return None
        with renaming(rho='target_rho', epsilon='target_epsilon'):
            return Target(
                rho=self.planning.target_rho,
                epsilon=self.privacy.target_epsilon,
                delta=self.privacy.delta,
                accountant=self.accountant,
            )

    @property
    def accountant(self) -> str:
        """Accountant that computes epsilon."""
        return self.privacy.accountant or ('pld' if self.sampling == 'none' else 'best')

    @property
    def simulation(self) -> Simulation | None:
        """The simulation whose noise was good enough; None without one."""
        return self.scaling(self.planning.simulated_noise_multiplier)

    def scaling(self, noise_multiplier: float | None) -> Simulation | None:
        """How a noise multiplier follows the cohort size; None if it is 0, or does not."""
        cohort = self.planning.simulated_clients_per_round
        if not noise_multiplier or cohort is None:
            return None
        return Simulation(noise_multiplier, cohort)

    @functools.cached_property
    def sweeps(self) -> dict[str, tuple[int, ...]]:
        """Values of the swept quantities, by name; the first is on the plot's horizontal axis.

        Raises:
          ArgumentError: If there are more than two, or not enough rounds.
        """
        given = {name: getattr(self.planning, f'sweep_{name}') for name in _SWEPT}
        sweeps = {name: values for name, values in given.items() if values is not None}
        for name, values in sweeps.items():
            if not values:
                raise ArgumentError(f'sweep_{name}', '', 'must be comma-separated integers')
        if len(sweeps) > 2:
            raise _refused(f'sweep_{list(sweeps)[2]}', 'at most two sweeps can be combined')
        rounds = self.schema['rounds']
        if rounds is None:
            raise _refused('rounds', 'must be given')
        most = max(sweeps.get('rounds', (rounds,)))
        if most > rounds:
            raise ArgumentError('sweep_rounds', most, f'must be <= {rounds}, the value of rounds')
        return sweeps


def _refused(name: str, allowed: str) -> ArgumentError:
    return ArgumentError(name, NOT_SHOWN, allowed)
