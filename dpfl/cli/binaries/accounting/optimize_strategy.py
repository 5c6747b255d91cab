"""Optimises the parameters of a mechanism for a participation schema, and saves them.

Example: a BLT with 4 buffers for the StackOverflow benchmark of [McMahan24], table 3,

  python -m experiments.optimize_strategy --mechanism=blt --rounds=2052 --min_separation=342 \
    --max_participations=6 --buffers=4 --loss=max --output=blt.npz

--momentum and --server_schedule=linear, for example, optimise for the models of SGD with momentum
and a falling learning rate instead of prefix sums. Give the file to other binaries as --strategy.
Results are cached: a second call with the same flags returns at once.

Example: one mechanism, blt or scaled_blt, for a separation that is not known yet,

  python -m experiments.optimize_strategy --mechanism=scaled_blt --rounds=2052 \
    --max_participations=6 --separations=86,171,342,684,1368 --criterion=worst --output=robust.npz

--logs=LOG,... takes the schemas from participation logs instead, such as those of
simulate_population with several seeds; each counts as often as it occurs.

Example: a run with planned.npz finds after 1026 of its rounds that clients return after 171 rounds,
not 342; what is saved has its first 1026 rounds (docs/concepts/switching.md),

  python -m experiments.optimize_strategy --mechanism=switched_blt --strategy=planned.npz \
    --switch_round=1026 --rounds=2052 --min_separation=171 --max_participations=12 \
    --planned_min_separation=342 --planned_max_participations=6 --output=switched.npz

--mechanism=continued --strategy=banded.npz goes on with a banded matrix beyond its rounds.
"""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.mechanisms import registry
from dpfl.planning import continuation, optimization, robust
from dpfl.reporting import plain_text
from dpfl.simulation.training.privacy_config import MechanismConfig, ParticipationConfig
from dpfl.simulation.training.sampling_config import participation
from dpfl.simulation.training.server_config import ScheduleConfig

_SCHEMA = SettingsFlags(ParticipationConfig)
_MECHANISM = SettingsFlags(
    MechanismConfig,
    only=('mechanism', 'bands', 'strategy'),
    choices={'mechanism': (*registry.OPTIMIZED, *continuation.NAMES)},
    help={
        'mechanism': 'Mechanism to optimise.',
        'strategy': 'For --mechanism=switched_blt and continued: strategy of the rounds before, a '
        'name in dpfl/strategies or a file. switched_blt begins with a BLT, continued with a '
        'banded mechanism.',
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
_BUFFERS = flags.DEFINE_integer('buffers', 4, 'Number of buffers of a BLT.', lower_bound=1)
_MOMENTUM = flags.DEFINE_float(
    'momentum', 0.0, 'Optimise for the models of SGD with this momentum instead of prefix sums.'
)
_NESTEROV = flags.DEFINE_boolean('nesterov', False, "Nesterov's momentum for --momentum.")
_SCHEDULE = SettingsFlags(ScheduleConfig)
_ROBUST = SettingsFlags(robust.RobustConfig)
_CONTINUATION = SettingsFlags(continuation.ContinuationConfig)
_OUTPUT = SettingsFlags(
    output_flags.OutputConfig, help={'output': 'File to save the mechanism in (.npz).'}
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)
# Flags of one kind of optimisation alone.
_OF_CONTINUATIONS = ('strategy', *continuation.ContinuationConfig().flat())
_OF_ONE_SCHEMA = ('momentum', 'nesterov', *ScheduleConfig().flat())
_OF_OTHERS = ('bands', 'buffers', *_OF_ONE_SCHEMA, *robust.RobustConfig().flat())


def main() -> None:
    """Optimises and saves the mechanism, and prints its losses."""
    config, loss = _MECHANISM.read(), _LOSS.values()['loss']
    name = command_line.required(config, 'mechanism')
    output = pathlib.Path(command_line.required(_OUTPUT.read(), 'output'))
    if name in continuation.NAMES:
        _refuse(_OF_OTHERS, f'cannot be combined with mechanism={name}')
        _continuation(name, output, loss)
        return
    _refuse(_OF_CONTINUATIONS, f'needs mechanism={" or ".join(continuation.NAMES)}')
    several = _ROBUST.read()
    if several.is_wanted:
        _refuse(('bands', *_OF_ONE_SCHEMA), 'needs a single schema')
        with command_line.refusing_bad_values():
            rows = robust.optimize(
                name, several, _SCHEMA.read(), output, buffers=_BUFFERS.value, loss=loss
            )
        _print(rows, plain_text.columns(rows))
        return
    with command_line.refusing_bad_values(beta='momentum'):
        result = optimization.optimize(
            str(name),
            participation(_SCHEMA.read()),
            output,
            buffers=_BUFFERS.value,
            bands=config.bands,
            loss=loss,
            momentum=_MOMENTUM.value,
            nesterov=_NESTEROV.value,
            schedule=_SCHEDULE.read(),
        )
    _print(result, plain_text.table(result))


def _print(found: Any, text: str) -> None:
    print(json.dumps(found) if _FORMAT.read().format == 'json' else text)


def _refuse(names: Sequence[str], why: str) -> None:
    for name in names:
        if flags.FLAGS[name].present:
            raise command_line.UsageError(f'--{name}: {why}')


def _continuation(name: str, output: pathlib.Path, loss: str | None) -> None:
    """Optimises how a run goes on, and prints what that is worth."""
    with command_line.refusing_bad_values():
        found = continuation.optimize(
            name,
            _MECHANISM.read().strategy,
            participation(_SCHEMA.read()),
            output,
            _CONTINUATION.read(),
            loss=loss,
        )
    _print(found, f'{plain_text.columns(found["compared"])}\n\n{continuation.verdict(found)}')


if __name__ == '__main__':
    command_line.run(main)
