"""Settings of a round: who takes part, and what the server does with the mean. No TensorFlow."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpfl import Participation, _validate, accounting, mechanisms
from dpfl._settings import Settings, setting
from dpfl.accounting.sampling import kinds
from dpfl.errors import NOT_SHOWN, ArgumentError
from dpfl.simulation import sampling as samplers
from dpfl.simulation.population import Population, TimerConfig

# Those on which no guarantee relies.
_OTHERS = ('min_separation', 'timer', 'uniform')
# Settings of kinds of sampling but the population.
OF_KINDS = tuple(name for name in kinds.every_setting() if name != 'population')
SGD = 'sgd'
# Share of the learning rate in the last round of a schedule.
_FINAL_RATE = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParticipationConfig(Settings):
    """The participation schema: how often a client may take part."""

    rounds: int | None = setting(None, 'Number of rounds.', minimum=1)
    min_separation: int = setting(
        1,
        'A client that takes part in round i may take part again in round i + min_separation at '
        'the earliest; 1 allows every round. (MinS of tensorflow-privacy and of the papers is one '
        'less.)',
        minimum=1,
    )
    max_participations: int | None = setting(
        None,
        'Limit on the rounds that a client may take part in; by default as many as --rounds and '
        '--min_separation allow.',
        minimum=1,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingConfig(ParticipationConfig):
    """Participation schema and choice of cohorts.

    Example:
      >>> SamplingConfig(sampling='poisson', population=1000).is_amplified
      True
    """

    sampling: str = setting(
        'min_separation',
        'How cohorts are chosen. min_separation: in turn, so that the schema holds; timer: by a '
        'simulated population of devices with timers; uniform: at random, but the guarantee does '
        'not rely on it; with the others it does. '
        + '. '.join(f'{name}: {kind.help}' for name, kind in kinds.KINDS.items())
        + '.',
        choices=lambda: (*_OTHERS, *kinds.KINDS),
    )
    population: int | None = setting(
        None,
        'Number of clients to train on; by default all clients in the data, and 10000 for a '
        'synthetic task.',
        minimum=1,
    )
    clients_per_round: int = setting(
        100,
        'Clients in every round; the average number with the Poisson --sampling, before it is '
        'truncated.',
        minimum=1,
    )
    groups: int | None = setting(
        None,
        'Number of groups of clients that take turns, for --sampling=cyclic_poisson: at least the '
        'bands of the mechanism, which is the default. A client takes part in a turn of its group '
        'with probability clients_per_round * groups / population. For balls_in_bins the number of '
        'bins, for random_allocation that of the rounds of an epoch; population / '
        'clients_per_round by default. For b_min_sep a client takes part in at most one of so '
        'many rounds; the bands of the mechanism by default.',
        minimum=1,
    )
    cohort_cap: int | None = setting(
        None,
        'Largest cohort, for --sampling=truncated_poisson. With a cap that is rarely reached the '
        'guarantee is about that of poisson.',
        minimum=1,
    )
    devices: TimerConfig = TimerConfig()

    @property
    def is_amplified(self) -> bool:
        """Whether the guarantee relies on the sampling."""
        return self.sampling in kinds.KINDS

    def optimize_for(self, schema: Participation) -> Participation | None:
        """The schema for which a mechanism can be optimised; None with amplification.

        With it a mechanism is not best for the schema, but for the sampling.
        """
        return None if self.is_amplified else schema

    def plan_fields(
        self,
        mechanism: mechanisms.Mechanism,
        schema: Participation,
        population: Callable[[], int | None],
    ) -> dict[str, Any]:
        """The fields of a plan that follow from the sampling, without those that are not needed.

        The schema is the tightest that all cohorts keep, unless limits are given.

        Args:
          mechanism: that of the plan.
          schema: of rounds and limits, from `participation`.
          population: returns the number of clients; only called if the guarantee relies on it.

        Raises:
          ArgumentError: if settings are given that the sampling does not have, the mechanism cannot
            have it, or the data have too few clients.
        """
        kind = kinds.KINDS.get(self.sampling)
        given = {name: getattr(self, name) for name in OF_KINDS}
        for name, value in given.items():
            if value is not None and name not in kinds.settings(kind):
                having = [
                    sampling
                    for sampling in kinds.KINDS
                    if name in kinds.settings(kinds.KINDS[sampling])
                ]
                raise ArgumentError(name, value, f'needs sampling={" or ".join(having)}')
        if kind is None:
            return {}
        count = population()
        if count is not None:
            self.check_cohort(count)
            others = kind.defaults(
                mechanism.with_rounds(schema.rounds), count, self.clients_per_round
            )
            given |= {name: value for name, value in others.items() if given[name] is None}
        part = kinds.from_settings(kind.name, {**given, 'population': count})
        assert part is not None
        if schema.min_separation == 1 and schema.max_participations is None:
            schema = part.schema(schema.rounds)
        return dict(sampling=part, participation=schema)

    def check_cohort(self, population: int) -> None:
        """Checks that data, whose number of clients no setting says, have enough for a cohort.

        Raises:
          ArgumentError: if they have fewer; it names `clients_per_round`.
        """
        if self.population is None and population < self.clients_per_round:
            raise ArgumentError(
                'clients_per_round',
                self.clients_per_round,
                f'must be <= {population}, the clients to train on that the data have',
            )

    def sampler(self, plan: accounting.PrivacyPlan, population: int, seed: int) -> samplers.Sampler:
        """Builds the sampler of a plan.

        Args:
          plan: that of the settings, or one with the same schema and sampling.
          population: number of clients.
          seed: of the cohorts.

        Raises:
          ArgumentError: if the sampler cannot keep the schema, or the data have too few clients.
        """
        self.check_cohort(population)
        cohort, schema, kind = self.clients_per_round, plan.participation, plan.sampling
        try:
            if kind is not None:
                return samplers.RandomSampler(kind, schema.rounds, cohort, seed)
            if self.sampling == 'min_separation':
                return samplers.MinSeparationSampler(schema, population, cohort, seed)
            if self.sampling == 'timer':
                devices = Population(
                    population=population,
                    clients_per_round=cohort,
                    seed=seed,
                    **self.devices.flat(),
                )
                return samplers.TimerSampler(schema, devices)
            uniform = accounting.WithoutReplacement(population=population)
            return samplers.RandomSampler(uniform, schema.rounds, cohort, seed, is_relied_on=False)
        except ArgumentError as error:
            if error.name != 'population' or self.population is not None:
                raise
            raise ArgumentError(
                'population',
                NOT_SHOWN,
                f'is not given, and there are {population} clients to train on: {error.allowed}',
            ) from None


def required(config: Settings, name: str) -> Any:
    """The value of a required setting.

    Raises:
      ArgumentError: if it is missing or empty.
    """
    value = getattr(config, name)
    if value in (None, '', ()):
        raise ArgumentError(name, NOT_SHOWN, 'must be given')
    return value


def participation(config: ParticipationConfig) -> Participation:
    """The participation schema of a configuration.

    Raises:
      ArgumentError: if `rounds` is missing, or a limit can never be reached, which is most likely a
        typing error.
    """
    schema = Participation(
        required(config, 'rounds'), config.min_separation, config.max_participations
    )
    if schema.min_separation > schema.rounds:
        raise ArgumentError(
            'min_separation', schema.min_separation, f'must be <= {schema.rounds}, the rounds'
        )
    if schema.max_participations is not None and schema.max_participations > schema.count:
        raise ArgumentError(
            'max_participations',
            schema.max_participations,
            f'must be <= {schema.count}, what rounds={schema.rounds} and '
            f'min_separation={schema.min_separation} allow',
        )
    return schema


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerConfig(Settings):
    """How the server makes a step from the noised mean of a round."""

    server_optimizer: str = setting(
        SGD,
        "The server's optimizer. For adam the noise of the mechanism is optimised as if it were "
        'SGD without momentum, which is an assumption.',
        choices=(SGD, 'adam'),
    )
    server_learning_rate: float = setting(
        1.0, "Learning rate of the server's optimizer.", **_validate.SCALE
    )
    server_schedule: str = setting(
        'constant',
        "Course of the server's learning rate. linear: constant, and over the last quarter of all "
        'rounds straight down to a tenth.',
        choices=('constant', 'linear'),
    )
    server_momentum: float = setting(
        0.9, "Momentum of the server's SGD; beta_1 of adam.", minimum=0, below=1
    )
    server_nesterov: bool = setting(
        False,
        "Nesterov's momentum for the server's SGD: the step looks one momentum ahead.",
        needs={'server_optimizer': (SGD,)},
    )

    def check(self) -> None:
        """Raises ArgumentError for Nesterov's momentum without any."""
        super().check()
        if self.server_nesterov and not self.server_momentum:
            raise ArgumentError('server_nesterov', True, 'needs a server_momentum above 0')

    def rates(self, rounds: int) -> np.ndarray:
        """Learning rate of each round, float64 [rounds]."""
        rates = np.ones(rounds)
        if self.server_schedule == 'linear':
            cooldown = _cooldown(rounds)
            after = np.arange(rounds) - (rounds - cooldown) + 1
            rates -= (1 - _FINAL_RATE) * np.clip(after / cooldown, 0, 1)
        return self.server_learning_rate * rates

    def describe(self, rounds: int) -> str:
        """Sentences about the optimizer and the noise of the models."""
        rate = 'a constant learning rate'
        if self.server_schedule == 'linear':
            rate = (
                f'a learning rate with a linear cooldown over the last {_cooldown(rounds)} rounds'
            )
        if self.server_optimizer != SGD:
            return (
                f'The server uses {self.server_optimizer.capitalize()} with {rate}. It divides '
                'each coordinate by a function of its past gradients, so the models are no linear '
                'function of the noised means. Errors and losses of a mechanism are stated for SGD '
                'without momentum: that they order mechanisms for this optimizer, too, is an '
                'assumption.'
            )
        kind = "Nesterov's momentum" if self.server_nesterov else 'momentum'
        return (
            f'The server uses SGD with {kind} {self.server_momentum:g} and {rate}: each model is a '
            'linear function of the noised means, with a workload that is known beforehand.'
        )


def _cooldown(rounds: int) -> int:
    """Rounds at the end in which a linear schedule lowers the learning rate: a quarter of all."""
    return math.ceil(rounds / 4)
