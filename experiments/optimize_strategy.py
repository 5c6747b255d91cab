"""Finds the parameters of a mechanism for a participation schema, and saves them.

Example: a BLT with 4 buffers for the StackOverflow benchmark of document 002, table 3,

  python -m experiments.optimize_strategy --mechanism=blt --rounds=2052 --min_separation=342 \
    --max_participations=6 --buffers=4 --loss=max --output=blt.npz

The file goes to --strategy of the other binaries. Results are kept in a cache: a second call with
the same flags returns at once.
"""

import json
import pathlib
import time

from absl import flags

from dpfl import mechanisms
from dpfl.mechanisms import registry
from dpfl.simulation.training.privacy_config import MechanismConfig, ParticipationConfig
from dpfl.simulation.training.sampling_config import participation
from experiments.command import command_line
from experiments.flags import output_flags
from experiments.flags.settings_flags import SettingsFlags

_SCHEMA = SettingsFlags(ParticipationConfig)
_MECHANISM = SettingsFlags(
    MechanismConfig,
    only=('mechanism', 'bands'),
    choices={'mechanism': registry.OPTIMIZED},
    help={
        'mechanism': 'Mechanism that is optimised.',
        'bands': 'Bands of a banded mechanism; by default min_separation.',
    },
)
_LOSS = SettingsFlags(
    output_flags.LossConfig,
    defaults={'loss': None},
    help={
        'loss': 'Largest or root mean square noise of the prefix sums, at equal privacy; by '
        'default the one that the mechanism is published with: max for blt and banded_inverse, '
        'rms for the others.'
    },
)
_BUFFERS = flags.DEFINE_integer('buffers', 4, 'Buffers of a BLT.', lower_bound=1)
_MOMENTUM = flags.DEFINE_float(
    'momentum', 0.0, 'Optimise for the models of SGD with this momentum, not for prefix sums.'
)
_OUTPUT = SettingsFlags(
    output_flags.OutputConfig, help={'output': 'File to save the mechanism in (.npz).'}
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Optimises, saves, and prints losses and seconds."""
    config = _MECHANISM.read()
    name = command_line.required(config, 'mechanism')
    output = pathlib.Path(command_line.required(_OUTPUT.read(), 'output'))
    if not output.parent.is_dir():
        raise command_line.UsageError(f'--output={output}: must be in a directory that exists')
    started = time.monotonic()
    with command_line.refusing_bad_values():
        schema = participation(_SCHEMA.read())
        workload = None
        if _MOMENTUM.value:
            workload = mechanisms.workload.momentum(schema.rounds, _MOMENTUM.value)
        optimizer = registry.ENTRIES[name].optimizer
        size = _BUFFERS.value if optimizer.size == 'buffers' else config.bands
        loss = _LOSS.values()['loss']
        mechanism = optimizer.optimize(schema, size, loss=loss, workload=workload, progress=True)
    seconds = time.monotonic() - started
    try:
        mechanisms.save(mechanism, output)
    except OSError as error:
        raise command_line.UsageError(f'--output={output}: {error.strerror}') from None
    result = {
        'mechanism': name,
        'rounds': schema.rounds,
        'min_separation': schema.min_separation,
        'max_participations': schema.count,
        'buffers': mechanism.kernel().buffers,
        'max_loss': mechanism.max_loss(schema, workload),
        'rms_loss': mechanism.rms_loss(schema, workload),
        'sensitivity': mechanism.sensitivity(schema),
        'sensitivity_is_exact': mechanism.sensitivity_is_exact(schema),
        'seconds': seconds,
        'output': str(output),
    }
    print(json.dumps(result) if _FORMAT.read().format == 'json' else command_line.table(result))


if __name__ == '__main__':
    command_line.run(main)
