r"""Finds the groups and bands of cyclic Poisson sampling with the least error at an epsilon.

Example: the design for 1000 rounds at epsilon 4,

  python -m experiments.studies.optimize_sampling --population=10000 --clients_per_round=100 \
      --rounds=1000 \
    --target_epsilon=4 --delta=1e-6 --output=design.npz

Fewer bands leave more noise in the sums, but let clients be drawn from fewer and larger groups, so
that sampling amplifies more. The table has the best number of groups, independent noise with
Poisson sampling (DP-SGD), and clients that are kept apart without amplification; the strategy of
the best of the three is saved, and the command that runs it is printed. --target_error instead of
--target_epsilon finds the least epsilon at an error. docs/reference/sampling.md says what the
guarantee needs: who took part has to stay secret.
"""

import dataclasses
import pathlib
import time
from typing import Any

from dpfl import mechanisms
from dpfl._settings import Settings, setting
from dpfl.accounting.gaussian import USUAL_MOST_DELTA
from dpfl.cli.command import command_line, program
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.cli.results import train_command
from dpfl.errors import NOT_SHOWN, ArgumentError, renaming
from dpfl.reporting import plain_text
from dpfl.simulation.training.mechanism import MechanismConfig
from dpfl.simulation.training.privacy_config import NoiseConfig
from dpfl.simulation.training.round_config import SamplingConfig
from experiments.studies.shared import amplification

# What is at most this times as large counts as nearly the same.
_SAME = 1.001


@dataclasses.dataclass(frozen=True, kw_only=True)
class DesignConfig(Settings):
    """What a design has to meet: an epsilon or an error."""

    target_epsilon: float | None = setting(
        None,
        'Epsilon to meet at --delta, from 0.1 to 64: the error is least.',
        minimum=0.1,
        maximum=64,
    )
    target_error: float | None = setting(
        None,
        'Noise in the prefix sums to meet, in clip norms, largest or root mean square by --loss: '
        'epsilon is least.',
        above=0,
    )

    def check(self) -> None:
        """Checks that at most one of the two is given."""
        if self.target_epsilon is not None and self.target_error is not None:
            raise ArgumentError(
                'target_error', self.target_error, 'cannot be combined with target_epsilon'
            )


_DEPLOYMENT = SettingsFlags(
    SamplingConfig,
    only=('rounds', 'population', 'clients_per_round'),
    help={
        'population': 'Number of clients.',
        'clients_per_round': 'Clients in a round on average.',
    },
)
_MECHANISM = SettingsFlags(
    MechanismConfig,
    only=('mechanism',),
    defaults={'mechanism': amplification.MECHANISMS[0]},
    choices={'mechanism': amplification.MECHANISMS},
    help={'mechanism': 'banded (BandMF) takes longer than banded_toeplitz, and has less error.'},
)
_DELTA = SettingsFlags(NoiseConfig, only=('delta', 'allow_large_delta'))
_LOSS = SettingsFlags(
    output_flags.LossConfig,
    defaults={'loss': 'rms'},
    help={'loss': 'Error that counts: largest or root mean square noise of the prefix sums.'},
)
_TARGET = SettingsFlags(DesignConfig)
_OUTPUT = SettingsFlags(
    output_flags.OutputConfig, help={'output': 'File to save the strategy in (.npz).'}
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Finds the designs, saves the strategy of the best one, and prints how to run it."""
    deployment, target = _DEPLOYMENT.read(), _TARGET.read()
    rounds = command_line.required(deployment, 'rounds')
    population = command_line.required(deployment, 'population')
    output = pathlib.Path(command_line.required(_OUTPUT.read(), 'output'))
    command_line.check_writable(str(output), None)
    with command_line.refusing_bad_values():
        search = amplification.Search(
            rounds=rounds,
            population=population,
            clients_per_round=deployment.clients_per_round,
            delta=_DELTA.read().delta,
            loss=_LOSS.read().loss,
            mechanism=str(_MECHANISM.read().mechanism),
        )
        found = find(search, target, output)
    command = program.command('train', '--output_dir=runs/planned', *found.pop('train'))
    text = (
        f'{plain_text.columns(found["designs"])}\n\nA run with the design {found["chosen"]}; add '
        f'the task, the model and the learning rates:\n{command}'
    )
    output_flags.show(_FORMAT, {**found, 'command': command}, text)


def find(
    search: amplification.Search, config: DesignConfig, output: pathlib.Path
) -> dict[str, Any]:
    """The designs for a target; saves the strategy of the one that is best of all.

    Args:
      search: what the designs are for.
      config: has a target.
      output: file to save the strategy in (.npz).

    Returns:
      `designs` has a row each for the best one with groups that take turns, for independent noise,
      and for clients that are kept apart; `chosen` is the name of the best of the three (the
      last one if amplification is worth less than 0.1 %), and `train` has the flags of a run.

    Raises:
      ArgumentError: if no target is given, it cannot be met, or the file cannot be written.
    """
    started = time.monotonic()
    given, least, value = 'epsilon', 'error', config.target_epsilon
    if config.target_error is not None:
        given, least, value = 'error', 'epsilon', config.target_error
    if value is None:
        raise ArgumentError('target_epsilon', NOT_SHOWN, 'or target_error must be given')
    with renaming(epsilon='target_epsilon', error='target_error'):
        made: dict[str, amplification.Design] = vars(search.designs(given, value, progress=True))
    values = {name: getattr(design, least) for name, design in made.items()}
    chosen = min(values, key=lambda name: values[name])
    # Where amplification is worth nearly nothing, take the design that needs no secret cohorts.
    if values['separated'] <= _SAME * values[chosen]:
        chosen = 'separated'
    design = made[chosen]
    mechanisms.save(design.plan.mechanism, output)
    return {
        'designs': [_row(name, each) for name, each in made.items()],
        'chosen': chosen,
        'delta': search.delta,
        'loss': search.loss,
        'train': train_flags(design, search, output, config.target_epsilon),
        'seconds': time.monotonic() - started,
        'output': str(output),
    }


def train_flags(
    design: amplification.Design,
    search: amplification.Search,
    strategy: pathlib.Path,
    target_epsilon: float | None,
) -> list[str]:
    """The flags of a run with a design, but for the task, the model and the learning rates.

    Args:
      design: the design.
      search: what it is for.
      strategy: file of its strategy.
      target_epsilon: epsilon that its noise was calibrated for; None for a target error.
    """
    settings = {'mechanism': search.mechanism, 'strategy': strategy}
    recipe = train_command.Recipe(settings if design.bands > 1 else {'mechanism': 'gaussian'})
    return train_command.of_plan(
        design.plan,
        recipe,
        population=search.population,
        delta=search.delta,
        accountant='pld',
        target_epsilon=target_epsilon,
        others={'allow_large_delta': True} if search.delta > USUAL_MOST_DELTA else None,
    )


def _row(name: str, design: amplification.Design) -> dict[str, Any]:
    plan = design.plan
    return {
        'design': name,
        'sampling': plan.sampling_name,
        'bands': design.bands,
        'groups': design.groups,
        'probability': design.probability,
        'noise_multiplier': plan.noise_multiplier,
        'epsilon': design.epsilon,
        'error': design.error,
    }


if __name__ == '__main__':
    command_line.run(main)
