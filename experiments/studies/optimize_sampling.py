"""Finds the groups and bands of cyclic Poisson sampling with the least error at an epsilon.

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

import json
import pathlib

from dpfl.cli.command import command_line, program
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.reporting import plain_text
from dpfl.simulation.training.privacy_config import MechanismConfig, NoiseConfig
from dpfl.simulation.training.sampling_config import SamplingConfig
from experiments.studies.sampling import amplification, designs

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
_TARGET = SettingsFlags(designs.DesignConfig)
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
    with command_line.refusing_bad_values():
        search = amplification.Search(
            rounds=rounds,
            population=population,
            clients_per_round=deployment.clients_per_round,
            delta=_DELTA.read().delta,
            loss=_LOSS.read().loss,
            mechanism=str(_MECHANISM.read().mechanism),
        )
        found = designs.find(search, target, output)
    command = program.command('train', '--output_dir=runs/planned', *found.pop('train'))
    if _FORMAT.read().format == 'json':
        print(json.dumps({**found, 'command': command}))
        return
    print(plain_text.columns(found['designs']))
    print(
        f'\nA run with the design {found["chosen"]}; add the task, the model and the learning '
        f'rates:\n{command}'
    )


if __name__ == '__main__':
    command_line.run(main)
