"""Settings of the server's optimizer and of its learning rate. Does not import TensorFlow."""

import dataclasses
import math

import numpy as np

from dpfl import mechanisms
from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError

SGD = 'sgd'
# Share of the learning rate in the last round of a schedule.
_FINAL_RATE = 0.1
# Optimizers that scale each coordinate by its past gradients.
_ADAPTIVE = ('adam', 'yogi', 'adagrad')


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleConfig(Settings):
    """How the learning rate of the server changes over the rounds."""

    server_schedule: str = setting(
        'constant',
        "Course of the server's learning rate after the warm-up. linear: constant, and over the "
        'last quarter of all rounds straight down to a tenth. cosine: half a wave of the cosine '
        'down to a tenth.',
        choices=('constant', 'linear', 'cosine'),
    )
    server_warmup_rounds: int = setting(
        0,
        "Rounds in which the server's learning rate rises in equal steps; it is full in the last "
        'of them.',
        minimum=0,
    )

    def multipliers(self, rounds: int) -> np.ndarray:
        """Learning rate of each round, relative to the full one; float64 [rounds], above 0.

        Raises:
          ArgumentError: if there are fewer rounds than those of warm-up and cooldown together.
        """
        warmup, t = self.server_warmup_rounds, np.arange(rounds)
        rates = np.minimum((t + 1) / warmup, 1.0) if warmup else np.ones(rounds)
        if warmup > rounds:
            raise ArgumentError('server_warmup_rounds', warmup, f'must be <= {rounds}, all rounds')
        drop = 1 - _FINAL_RATE
        if self.server_schedule == 'linear':
            cooldown = _cooldown(rounds)
            if warmup + cooldown > rounds:
                raise ArgumentError(
                    'server_warmup_rounds',
                    warmup,
                    f'must be <= {rounds - cooldown}, the rounds before the last quarter',
                )
            rates = rates - drop * np.clip((t - (rounds - cooldown) + 1) / cooldown, 0, 1)
        elif self.server_schedule == 'cosine':
            after = np.clip((t - warmup) / max(rounds - 1 - warmup, 1), 0, 1)
            rates = rates - drop * (1 - np.cos(np.pi * after)) / 2
        return rates

    def workload_of_sgd(
        self, rounds: int, momentum: float, nesterov: bool = False
    ) -> np.ndarray | None:
        """The workload A of SGD with this schedule and full learning rate 1.

        Returns:
          As in `mechanisms.workload`; None for the prefix sums.

        Raises:
          ArgumentError: as `multipliers`.
        """
        rates = self.multipliers(rounds)
        if nesterov or (rates != 1).any():
            return mechanisms.workload.learning_rate_schedule(rates, momentum, nesterov=nesterov)
        return mechanisms.workload.momentum(rounds, momentum) if momentum else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerConfig(ScheduleConfig):
    """How the server makes a step from the noised mean of a round."""

    server_optimizer: str = setting(
        SGD,
        "The server's optimizer. For adam, yogi and adagrad the noise of the mechanism is "
        'optimised as if they were SGD without momentum, which is an assumption.',
        choices=(SGD, *_ADAPTIVE),
    )
    server_learning_rate: float = setting(1.0, "Learning rate of the server's optimizer.", above=0)
    server_momentum: float = setting(
        0.9, "Momentum of the server's SGD; beta_1 of adam and yogi.", minimum=0, below=1
    )
    server_nesterov: bool = setting(
        False,
        "Nesterov's momentum for the server's SGD: the step looks one momentum ahead.",
        needs={'server_optimizer': (SGD,)},
    )
    server_beta2: float | None = setting(
        None,
        'Decay of the mean square of past gradients, for --server_optimizer=adam or yogi; by '
        'default 0.999.',
        minimum=0,
        below=1,
        needs={'server_optimizer': ('adam', 'yogi')},
    )
    server_epsilon: float | None = setting(
        None,
        'What is added to the root mean square of past gradients; by default 1e-7 for adam, 1e-3 '
        'for yogi. For adagrad it is added to the sum of squares, by default 1e-7.',
        above=0,
        needs={'server_optimizer': _ADAPTIVE},
    )

    def check(self) -> None:
        """Raises ArgumentError if the optimizer cannot use the momentum that is given."""
        super().check()
        unused = (0.0, ServerConfig.server_momentum)
        if self.server_optimizer == 'adagrad' and self.server_momentum not in unused:
            raise ArgumentError(
                'server_momentum', self.server_momentum, 'must not be given for adagrad'
            )
        if self.server_nesterov and not self.server_momentum:
            raise ArgumentError('server_nesterov', True, 'needs a server_momentum above 0')

    def rates(self, rounds: int) -> np.ndarray:
        """Learning rate of each round, float64 [rounds].

        Raises:
          ArgumentError: as `multipliers`.
        """
        return self.server_learning_rate * self.multipliers(rounds)

    @property
    def is_linear(self) -> bool:
        """Whether the model is a linear function of the noised means of the rounds."""
        return self.server_optimizer == SGD

    def workload(self, rounds: int) -> np.ndarray | None:
        """The workload A that a mechanism is optimised for, at full learning rate 1.

        Row t gives the model after round t as a sum of the rounds' noised means. That is exact for
        SGD, with momentum and a schedule. Adam, Yogi and Adagrad divide each coordinate by a
        function of its past gradients, so no matrix is known beforehand: the workload is then that
        of SGD with the same schedule and without momentum.

        Returns:
          As in `mechanisms.workload`; None for the prefix sums.

        Raises:
          ArgumentError: as `multipliers`.
        """
        momentum = self.server_momentum if self.is_linear else 0.0
        return self.workload_of_sgd(rounds, momentum, self.server_nesterov)

    def describe(self, rounds: int) -> str:
        """Sentences about the optimizer and the workload that gives the noise of the models."""
        name, momentum = self.server_optimizer, self.server_momentum
        rate = self._describe_schedule(rounds)
        if not self.is_linear:
            return (
                f'The server uses {name.capitalize()} with {rate}. It divides each coordinate by a '
                'function of its past gradients, so the models are no linear function of the '
                'noised means. Errors and losses of a mechanism are stated for SGD without '
                'momentum: that they order mechanisms for this optimizer, too, is an assumption.'
            )
        kind = "Nesterov's momentum" if self.server_nesterov else 'momentum'
        return (
            f'The server uses SGD with {kind} {momentum:g} and {rate}: each model is a linear '
            'function of the noised means, with a workload that is known beforehand.'
        )

    def _describe_schedule(self, rounds: int) -> str:
        warmup, name = self.server_warmup_rounds, self.server_schedule
        parts = [f'{warmup} rounds of warm-up'] if warmup else []
        if name == 'linear':
            parts.append(f'a linear cooldown over the last {_cooldown(rounds)} rounds')
        elif name == 'cosine':
            parts.append('a cosine course')
        return (
            f'a learning rate with {" and ".join(parts)}' if parts else 'a constant learning rate'
        )


def _cooldown(rounds: int) -> int:
    """Rounds at the end in which a linear schedule lowers the learning rate: a quarter of all."""
    return math.ceil(rounds / 4)
