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

from dpfl import Participation, ParticipationLog
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.mechanisms import registry
from dpfl.mechanisms.optimize.relative_loss import CRITERIA
from dpfl.participation import observed_schemas
from dpfl.planning import continuation, optimization
from dpfl.reporting import plain_text
from dpfl.simulation.training.privacy_config import MechanismConfig, ParticipationConfig
from dpfl.simulation.training.sampling_config import participation, required
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
_SEPARATIONS = flags.DEFINE_list(
    'separations',
    None,
    'Optimise one blt or scaled_blt for all of these values of --min_separation, comma-separated.',
)
_WEIGHTS = flags.DEFINE_list(
    'weights', None, 'How likely each of --separations is, comma-separated; by default equally.'
)
_LOGS = flags.DEFINE_list(
    'logs',
    None,
    'Optimise one blt or scaled_blt for the schemas of these participation logs (.npz), '
    'comma-separated.',
)
_CRITERION = flags.DEFINE_enum(
    'criterion',
    'expected',
    CRITERIA,
    'What --separations and --logs minimise: the expected or the worst loss, relative to that of '
    'the BLT that is optimised for the schema.',
)
_MOMENTUM = flags.DEFINE_float(
    'momentum', 0.0, 'Optimise for the models of SGD with this momentum instead of prefix sums.'
)
_NESTEROV = flags.DEFINE_boolean('nesterov', False, "Nesterov's momentum for --momentum.")
_SCHEDULE = SettingsFlags(ScheduleConfig)
_CONTINUATION = SettingsFlags(continuation.ContinuationConfig)
_OUTPUT = SettingsFlags(
    output_flags.OutputConfig, help={'output': 'File to save the mechanism in (.npz).'}
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)
# Flags of one kind of optimisation alone.
_OF_CONTINUATIONS = ('strategy', *continuation.ContinuationConfig().flat())
_OF_OTHERS = (
    *('bands', 'buffers', 'separations', 'weights', 'logs', 'criterion', 'momentum', 'nesterov'),
    *ScheduleConfig().flat(),
)


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
    if _SEPARATIONS.value or _LOGS.value:
        _robust(str(name), output, loss)
        return
    if _WEIGHTS.value is not None:
        raise command_line.UsageError('--weights: needs --separations')
    with command_line.refusing_bad_values():
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
    is_json = _FORMAT.read().format == 'json'
    print(json.dumps(result) if is_json else plain_text.table(result))


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
    if _FORMAT.read().format == 'json':
        print(json.dumps(found))
    else:
        print(f'{plain_text.columns(found["compared"])}\n\n{continuation.verdict(found)}')


def _robust(name: str, output: pathlib.Path, loss: str | None) -> None:
    """Optimises one mechanism for several schemas, and prints what it loses under each."""
    if name not in registry.ROBUST:
        raise command_line.UsageError(
            f'--mechanism={name}: must be {" or ".join(registry.ROBUST)} with several schemas'
        )
    if _SEPARATIONS.value and _LOGS.value:
        raise command_line.UsageError('--logs: cannot be combined with --separations')
    if _MOMENTUM.value or flags.FLAGS['server_schedule'].present:
        raise command_line.UsageError('--momentum, --server_schedule: need a single schema')
    weights: Sequence[float] | None = None
    if _WEIGHTS.value is not None:
        weights = _numbers('weights', _WEIGHTS.value, float)
    with command_line.refusing_bad_values():
        if _LOGS.value:
            if weights is not None:
                raise command_line.UsageError('--weights: needs --separations')
            logs = [ParticipationLog.load(path) for path in _LOGS.value]
            schemas, weights = observed_schemas(logs)
        else:
            given = _SCHEMA.read()
            schemas = tuple(
                Participation(required(given, 'rounds'), separation, given.max_participations)
                for separation in _numbers('separations', _SEPARATIONS.value, int)
            )
        rows = optimization.optimize_robust(
            name,
            schemas,
            weights,
            output,
            buffers=_BUFFERS.value,
            loss=loss,
            criterion=_CRITERION.value,
        )
    is_json = _FORMAT.read().format == 'json'
    print(json.dumps(rows) if is_json else plain_text.columns(rows))


def _numbers(name: str, texts: list[str], kind: type) -> list[Any]:
    try:
        return [kind(text) for text in texts]
    except ValueError:
        shown = 'integers' if kind is int else 'numbers'
        raise command_line.UsageError(
            f'--{name}={",".join(texts)}: must be comma-separated {shown}'
        ) from None


if __name__ == '__main__':
    command_line.run(main)
