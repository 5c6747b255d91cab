r"""Optimises the parameters of a mechanism for a participation schema, and saves them.

Example: a BLT with 4 buffers for the StackOverflow benchmark of [McMahan24], table 3,

  dpfl optimize_strategy --mechanism=blt --rounds=2052 --min_separation=342 \
    --max_participations=6 --buffers=4 --loss=max --output=blt.npz

Give the file to other binaries as --strategy. Results are cached: a second call with the same flags
returns at once.
"""

import time

from absl import flags

from dpfl import mechanisms
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.errors import ArgumentError
from dpfl.mechanisms import registry
from dpfl.reporting import plain_text
from dpfl.simulation.training.mechanism import MechanismConfig
from dpfl.simulation.training.round_config import ParticipationConfig, participation

_SCHEMA = SettingsFlags(ParticipationConfig)
_MECHANISM = SettingsFlags(
    MechanismConfig,
    only=('mechanism', 'bands'),
    choices={'mechanism': registry.OPTIMIZED},
    help={
        'mechanism': 'Mechanism to optimise.',
        'bands': 'Number of bands of a banded mechanism; by default min_separation.',
    },
)
_LOSS = SettingsFlags(
    output_flags.LossConfig,
    defaults={'loss': None},
    help={
        'loss': 'Loss to minimise: largest or root mean square noise of the prefix sums, at equal '
        'privacy. By default the loss that the mechanism is published with: rms for banded and '
        'banded_toeplitz, max for the others.'
    },
)
_BUFFERS = flags.DEFINE_integer(
    'buffers', None, 'Number of buffers of a BLT; by default 4.', lower_bound=1
)
_OUTPUT = SettingsFlags(
    output_flags.OutputConfig, help={'output': 'File to save the mechanism in (.npz).'}
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Optimises and saves the mechanism, and prints its losses."""
    config, loss = _MECHANISM.read(), _LOSS.values()['loss']
    name = str(command_line.required(config, 'mechanism'))
    output = command_line.required(_OUTPUT.read(), 'output')
    command_line.check_writable(output, None)
    with command_line.refusing_bad_values(num_buffers='buffers'):
        schema = participation(_SCHEMA.read())
        optimizer = registry.ENTRIES[name].optimizer
        assert optimizer is not None  # As the flag has these only.
        sizes = {'buffers': _BUFFERS.value, 'bands': config.bands}
        size = sizes.pop(optimizer.size)
        for other, value in sizes.items():
            if value is not None:
                raise ArgumentError(other, value, f'mechanism={name} has {optimizer.size}')
        started = time.monotonic()
        mechanism = optimizer.optimize(schema, size, loss=loss, progress=True)
        seconds = time.monotonic() - started
    mechanisms.save(mechanism, output)
    result = {
        'mechanism': name,
        'rounds': schema.rounds,
        'min_separation': schema.min_separation,
        'max_participations': schema.count,
        'buffers': mechanism.kernel().buffers,
        'max_loss': mechanism.max_loss(schema),
        'rms_loss': mechanism.rms_loss(schema),
        'sensitivity': mechanism.sensitivity(schema),
        'sensitivity_is_exact': mechanism.sensitivity_is_exact(schema),
        'seconds': seconds,
        'output': output,
    }
    output_flags.show(_FORMAT, result, plain_text.table(result))


if __name__ == '__main__':
    command_line.run(main)
