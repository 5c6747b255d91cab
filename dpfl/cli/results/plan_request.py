"""Request to `plan_privacy`: a deployment, and a noise multiplier, a target or a simulation."""

import collections
import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dpfl._settings import Settings, setting
from dpfl.accounting import PrivacyPlan
from dpfl.accounting.sampling import kinds
from dpfl.cli.flags.participation_log import PaceConfig
from dpfl.errors import NOT_SHOWN, ArgumentError
from dpfl.mechanisms.named import NamedMechanism
from dpfl.simulation.training.mechanism import AUTO
from dpfl.simulation.training.privacy_config import PrivacyConfig
from dpfl.simulation.training.round_config import OF_KINDS

# Settings of sampling that a deployment has as well.
OF_DEPLOYMENT = (
    'rounds',
    'min_separation',
    'max_participations',
    'population',
    'clients_per_round',
)
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
    times: PaceConfig = PaceConfig()


class Contender(NamedTuple):
    """A mechanism of --mechanisms.

    Attributes:
      label: Its name in the table and the figure.
      named: Makes it.
      noise_multiplier: Noise multiplier of its own, at least 0; None for the amount that the
        request gives.
    """

    label: str
    named: NamedMechanism
    noise_multiplier: float | None


def parse(texts: Iterable[str]) -> list[Contender]:
    """Reads NAME or NAME=NOISE_MULTIPLIER; NAME is a text of `named.NamedMechanism`.

    Raises:
      ArgumentError: If a text is not of this form, occurs twice, or leaves open what a mechanism
        is optimised for.
    """
    pairs = {}
    for text in texts:
        name, noise = _split(text)
        named = NamedMechanism.parse(name, 'mechanisms')
        if named.size is not None and named.design is None and not named.is_fresh:
            raise ArgumentError(
                'mechanisms',
                name,
                'must have the schema that it is made for, as in blt:4@2000/400, or best_ to make '
                'it for each plan',
            )
        if text in pairs:
            raise ArgumentError('mechanisms', text, 'must not be given twice')
        pairs[text] = named, noise
    times = collections.Counter(named.name for named, _ in pairs.values())
    return [
        Contender(named.name if times[named.name] == 1 else text, named, noise)
        for text, (named, noise) in pairs.items()
    ]


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
      planning: Targets, simulation, times of rounds and sweeps.
      schema: The settings of `SamplingConfig` by name; None for those that are not given.
        `sampling` is what the guarantee relies on: 'none', or the name of a kind.
      run: Plan of a finished run, which is scaled to other cohort sizes with the same noise on the
        mean update; None for a plan of the settings.

    Raises:
      ArgumentError: If values are missing or contradict each other.
    """

    privacy: PrivacyConfig
    planning: PlanningConfig
    schema: Mapping[str, Any]
    run: PrivacyPlan | None = None

    def __post_init__(self) -> None:
        if self.planning.mechanisms == ():
            raise _refused('mechanisms', 'must name at least one')
        self._check_sampling()
        cohort = self.planning.simulated_clients_per_round
        if cohort is not None and not (self.has_simulation or self._has_noise_of_contenders):
            raise ArgumentError(
                'simulated_clients_per_round', cohort, 'needs simulated_noise_multiplier'
            )
        if 'target_epsilon' in self._given:
            self._refuse(['target_rho'], 'cannot be combined with target_epsilon')
        if self.has_target or self.has_simulation:
            self._refuse(['noise_multiplier'], 'cannot be combined with a target or a simulation')
        has_amount = 'noise_multiplier' in self._given or self.has_target or self.has_simulation
        if self.planning.mechanisms is not None:
            self._check_contenders(has_amount)
        elif not has_amount:
            raise _refused('noise_multiplier', 'must be given, or a target, or a simulation')
        if (self.has_target and self.has_simulation) != self.searches_cohort:
            raise _refused(
                'max_clients_per_round', 'needs a target and a simulation, and both need it'
            )
        if self.searches_cohort:
            cohorts = ['clients_per_round', 'sweep_clients_per_round']
            self._refuse(cohorts, 'cannot be combined with max_clients_per_round')
        if self.is_auto:
            self._check_auto()

    @functools.cached_property
    def _given(self) -> frozenset[str]:
        """Names of the settings that are given, with other values than the defaults."""
        of_schema = (name for name, value in self.schema.items() if value is not None)
        return frozenset((*self.privacy.changed(), *self.planning.changed(), *of_schema))

    def _refuse(self, names: Iterable[str], allowed: str) -> None:
        """Refuses the first of some settings that is given."""
        for name in names:
            if name in self._given:
                raise _refused(name, allowed)

    def _check_contenders(self, has_amount: bool) -> None:
        """Each mechanism has an amount of noise, and only one, and nothing else of its own."""
        allowed = 'must have a noise multiplier, as in NAME=7'
        if has_amount:
            allowed = 'cannot have a noise multiplier beside noise_multiplier or a target'
        for contender in self.contenders:
            if has_amount == (contender.noise_multiplier is not None):
                raise ArgumentError('mechanisms', contender.label, allowed)
        if self.privacy.mechanism != AUTO:
            raise ArgumentError(
                'mechanism', self.privacy.mechanism, 'cannot be combined with mechanisms'
            )
        of_one = ['simulated_noise_multiplier', 'max_clients_per_round', *_NOT_SHARED]
        self._refuse(of_one, 'cannot be combined with mechanisms')

    def _check_sampling(self) -> None:
        """Raises ArgumentError for values that the sampling has no use for."""
        if not self.is_sampled:
            for name in OF_KINDS:
                if name in self._given:
                    raise ArgumentError(name, self.schema[name], 'needs a sampling that has it')
            return
        shown = f'sampling={self.schema["sampling"]}'
        self._refuse(_WITHOUT_SAMPLING, f'cannot be combined with {shown}')
        availability, failure = self.planning.availability, self.planning.failure_probability
        if availability != 1:
            raise ArgumentError('availability', availability, f'must be 1 with {shown}')
        if 'failure_probability' in self._given:
            raise ArgumentError('failure_probability', failure, f'cannot be combined with {shown}')
        if self.is_auto:
            raise ArgumentError('mechanism', AUTO, f'cannot be combined with {shown}')

    def _check_auto(self) -> None:
        if self.has_simulation:
            raise ArgumentError(
                'mechanism',
                AUTO,
                'cannot be combined with a simulation: its noise multiplier belongs to one '
                'mechanism',
            )
        self._refuse(_RESTART_SETTINGS, 'needs a mechanism other than auto')
        if self.privacy.model_dimension is None:
            raise _refused(
                'model_dimension',
                'must be given: the past noise of a mechanism takes a number for each parameter, '
                'and auto takes one that fits memory_limit',
            )

    @property
    def is_sampled(self) -> bool:
        """Whether the guarantee relies on sampling."""
        return self.schema['sampling'] != kinds.NONE

    @property
    def is_auto(self) -> bool:
        """Whether the mechanism is to be found."""
        return self.privacy.mechanism == AUTO and self.planning.mechanisms is None

    @property
    def has_target(self) -> bool:
        """Whether a guarantee is asked for."""
        return not self._given.isdisjoint(('target_rho', 'target_epsilon'))

    @property
    def has_simulation(self) -> bool:
        """Whether the noise of a simulation is given."""
        return 'simulated_noise_multiplier' in self._given

    @property
    def searches_cohort(self) -> bool:
        """Whether the cohort size is to be found."""
        return 'max_clients_per_round' in self._given

    @functools.cached_property
    def contenders(self) -> list[Contender]:
        """The mechanisms of --mechanisms; empty without it."""
        return parse(self.planning.mechanisms or ())

    @property
    def _has_noise_of_contenders(self) -> bool:
        own = [contender.noise_multiplier for contender in self.contenders]
        return bool(own) and None not in own

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
