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
from experiments.command import command_line
from experiments.flags import schema_flags

_OPTIMIZERS = ('banded', 'banded_toeplitz', 'banded_inverse', 'blt')
flags.adopt_module_key_flags(schema_flags)
_MECHANISM = flags.DEFINE_enum('mechanism', None, _OPTIMIZERS, 'What is optimised.')
_LOSS = flags.DEFINE_enum(
    'loss',
    None,
    ['max', 'rms'],
    'Largest or root mean square noise of the prefix sums, at equal privacy; by default the one '
    'that the mechanism is published with: max for blt and banded_inverse, rms for the others.',
)
_BUFFERS = flags.DEFINE_integer('buffers', 4, 'Buffers of a BLT.', lower_bound=1)
_BANDS = flags.DEFINE_integer(
    'bands', None, 'Bands of the other mechanisms; by default min_separation.', lower_bound=1
)
_MOMENTUM = flags.DEFINE_float(
    'momentum', 0.0, 'Optimise for the models of SGD with this momentum, not for prefix sums.'
)
_OUTPUT = flags.DEFINE_string('output', None, 'File to save the mechanism in (.npz).')
_FORMAT = flags.DEFINE_enum('format', 'text', ['text', 'json'], 'Form of the result.')


def main() -> None:
    """Optimises, saves, and prints losses and seconds."""
    name = schema_flags.required('mechanism')
    output = pathlib.Path(schema_flags.required('output'))
    if not output.parent.is_dir():
        raise command_line.UsageError(f'--output={output}: must be in a directory that exists')
    started = time.monotonic()
    with command_line.refusing_bad_values():
        participation = schema_flags.participation()
        workload = None
        if _MOMENTUM.value:
            workload = mechanisms.workload.momentum(participation.rounds, _MOMENTUM.value)
        mechanism = _optimize(name, participation, workload)
    seconds = time.monotonic() - started
    try:
        mechanisms.save(mechanism, output)
    except OSError as error:
        raise command_line.UsageError(f'--output={output}: {error.strerror}') from None
    result = {
        'mechanism': name,
        'rounds': participation.rounds,
        'min_separation': participation.min_separation,
        'max_participations': participation.count,
        'buffers': mechanism.kernel().buffers,
        'max_loss': mechanism.max_loss(participation, workload),
        'rms_loss': mechanism.rms_loss(participation, workload),
        'sensitivity': mechanism.sensitivity(participation),
        'sensitivity_is_exact': mechanism.sensitivity_is_exact(participation),
        'seconds': seconds,
        'output': str(output),
    }
    print(json.dumps(result) if _FORMAT.value == 'json' else command_line.table(result))


def _optimize(name: str, participation, workload) -> mechanisms.Mechanism:
    options = {'workload': workload, 'progress': True}
    if name == 'blt':
        loss = _LOSS.value or 'max'
        return mechanisms.optimize_blt(participation, _BUFFERS.value, loss, **options)
    bands = _BANDS.value or min(participation.min_separation, participation.rounds)
    if name == 'banded_inverse':
        loss = _LOSS.value or 'max'
        return mechanisms.optimize_banded_inverse(participation, bands, loss=loss, **options)
    optimize = {
        'banded': mechanisms.optimize_banded,
        'banded_toeplitz': mechanisms.optimize_banded_toeplitz,
    }[name]
    return optimize(participation, bands, loss=_LOSS.value or 'rms', **options)


if __name__ == '__main__':
    command_line.run(main)
