r"""Proposes the flags of a run with your own text: looks at the data, and gives a reason for each.

Example:
  dpfl suggest --data_path=texts.jsonl --target_epsilon=4 --output=suggested.flags

It tries models, vocabularies, cohorts, rounds, clip norms and rates with the noise that the run
would have, in 10 to 20 short trials, each of some seconds. It prints the facts it found, flags with
reasons, whether such a run learns and what would help, and a command that runs as printed. Without
--target_epsilon the run has no noise: it shows whether the model learns anything, such as more than
the most frequent word. Where nothing says what the vocabulary is, a run with noise finds it with a
guarantee (--vocabulary=private), for a quarter of its epsilon.

NOT private: a proposal depends on the clients' text, and the guarantee of a run does not cover it.
--chosen_without_noise among the flags makes the report of the run say so.
"""

import pathlib
import sys
from typing import Any

from dpfl import _setting_texts
from dpfl.cli.command import command_line, program
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.reporting import plain_text
from dpfl.simulation.training.suggestion import NOT_PRIVATE, SuggestConfig, Suggestion, suggest
from dpfl.tasks.config import REAL_TASKS, ImageFaultConfig, TaskConfig

_TASK = SettingsFlags(
    TaskConfig,
    defaults={'task': 'user_text'},
    choices={'task': REAL_TASKS},
    skip=('warm_start', *ImageFaultConfig().flat()),
)
_WISHES = SettingsFlags(SuggestConfig)
_SEED = SettingsFlags(output_flags.SeedConfig)
_OUTPUT = SettingsFlags(
    output_flags.OutputConfig, help={'output': 'File for --flagfile to write the flags to.'}
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)
_RUN = 'runs/suggested'
_TITLES = {True: 'Found on the private data:', False: 'Not from the data:'}


def main() -> None:
    """Checks the flags, looks at the data, and prints the proposal."""
    task, wishes, output = _TASK.read(), _WISHES.read(), _OUTPUT.read().output
    command_line.check_writable(output, None)
    program.require('tensorflow_federated')
    with command_line.refusing_bad_values():
        found = suggest(task, wishes, _SEED.read().seed, lambda text: print(text, file=sys.stderr))
    flags = _setting_texts.flags(found.config.changed())
    if output is not None:
        pathlib.Path(output).write_text(''.join(f'{flag}\n' for flag in flags))
        flags = [f'--flagfile={output}']
    command = program.command('train', *flags, f'--output_dir={_RUN}')
    lines = [plain_text.table(found.data), '']
    for is_from_data, title in _TITLES.items():
        chosen = [each for each in found.proposals if each.is_from_data == is_from_data]
        names = [f'--{each.name}={each.value}' for each in chosen]
        width = max(map(len, names))
        reasons = zip(names, chosen, strict=True)
        lines += [title, *(f'{name:<{width}}  {each.reason}' for name, each in reasons), '']
    lines.append(f'{found.feasibility}\n\n{NOT_PRIVATE}\n\n{command}')
    output_flags.show(_FORMAT, _values(found, command), '\n'.join(lines))


def _values(found: Suggestion, command: str) -> dict[str, Any]:
    return {
        'data': found.data,
        'settings': [
            {
                'flag': each.name,
                'value': each.value,
                'reason': each.reason,
                'is_from_data': each.is_from_data,
            }
            for each in found.proposals
        ],
        **found.feasibility.to_dict(),
        'command': command,
        'not_covered': NOT_PRIVATE,
    }


if __name__ == '__main__':
    command_line.run(main)
