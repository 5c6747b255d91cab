"""Finds a bug in the tokenisation of text that nobody may look at ([Augenstein20], section 5).

Example:
  python -m experiments.debug_text --flagfile=configs/debug_text.flags --output_dir=runs/debug_text

In each setting of --bug_rates, another share of the sentences has its first two words joined to one
token. For each setting, a word model of all sentences and a character model of the words outside
the vocabulary are trained under a privacy plan. People look only at what these models write. The
output directory then has
- study.html: the settings side by side, and the conclusion;
- study.json: the same numbers;
- a folder for each model with the files of a run of experiments.train.

The preset trains eight small models on synthetic text, in about five minutes on two cores. With
--resume, finished models are kept, and an interrupted one continues.
"""

import functools
import json
from typing import TYPE_CHECKING, Any, BinaryIO

from dpfl import _storage
from dpfl.simulation.training import PrivacyConfig, TrainConfig, mechanism
from dpfl.simulation.training.plan import accountant, build_plan
from dpfl.tasks.config import TaskConfig, TextTaskConfig
from experiments.command import command_line
from experiments.debugging.text.clients import OpenedText
from experiments.debugging.text.config import KINDS, StudyConfig
from experiments.flags import output_flags, run_flags
from experiments.flags.settings_flags import SettingsFlags

if TYPE_CHECKING:
    from experiments.debugging.text import results

# The rows of the study are sentences and words of all clients.
_TASK = SettingsFlags(
    TextTaskConfig,
    skip=('packing', 'client_min_tokens', 'client_min_sentences', 'language_size'),
)
_STUDY = SettingsFlags(StudyConfig)
_CONFIG = SettingsFlags(
    TrainConfig(privacy=PrivacyConfig(mechanism='gaussian')),
    skip=(
        *TaskConfig().flat(),
        'clip_norm',
        'client_update',
        'client_epochs',
        'release_train_metrics',
        'secagg',
        'secagg_scale',
        'secagg_bits',
        'model_dimension',
    ),
    choices={'mechanism': (*mechanism.NAMES, 'none')},
)
_DIRECTORY = SettingsFlags(output_flags.RunDirectoryConfig)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags, trains what is missing, and writes the page."""
    where, study, base = _DIRECTORY.read(), _STUDY.read(), _CONFIG.read()
    output_dir = run_flags.directory(where)
    opened = OpenedText(_TASK.read(), base.seed)
    with command_line.refusing_bad_values(directory='output_dir'):
        for kind in KINDS:  # Checks both before the long part begins.
            _check(study.train_config(base, kind), opened)
        from experiments.debugging.text import page, results
        from experiments.debugging.text.study import Study

        settings: list[results.Setting] = []
        run = Study(config=study, base=base, opened=opened)
        for setting in run.run(output_dir, resume=where.resume, overwrite=where.overwrite):
            settings.append(setting)
    page_path, json_path = output_dir / 'study.html', output_dir / 'study.json'
    summary = json.dumps({'settings': [setting.to_dict() for setting in settings]})
    for path, content in ((page_path, page.render(settings)), (json_path, summary)):
        _storage.write_atomically(path, functools.partial(_write, content.encode()))
    if _FORMAT.read().format == 'json':
        print(summary)
    else:
        print(command_line.columns([_row(setting) for setting in settings]))
        print(f'\n{page_path}')


def _write(data: bytes, file: BinaryIO) -> None:
    file.write(data)


def _check(config: TrainConfig, opened: OpenedText) -> None:
    """Raises ArgumentError if there is no such plan, or the accountant does not support it."""
    population = functools.partial(opened.population, config.sampling.population)
    plan = build_plan(config.privacy, config.sampling, population=population, dimension=lambda: 0)
    plan.epsilon(config.privacy.delta, accountant(config.privacy, plan))
    config.sampling.sampler(plan.participation, population(), config.seed, plan.groups)


def _row(setting: 'results.Setting') -> dict[str, Any]:
    conclusion = setting.conclusion
    return {
        'setting': setting.name,
        'OOV rate, first position': setting.positions.rates[0],
        'overall': setting.positions.overall,
        'two-word share': conclusion.joined_share
        if conclusion
        else setting.to_dict()['joined_share'],
        **{f'accuracy, {kind}': model['accuracy'] for kind, model in setting.models.items()},
        **{
            f'epsilon, {kind}': _epsilon(model['epsilon']) for kind, model in setting.models.items()
        },
        'epsilon, both': _epsilon(setting.together),
        'fault': conclusion.verdict if conclusion else '-',
    }


def _epsilon(value: float | None) -> float:
    return float('inf') if value is None else value


if __name__ == '__main__':
    command_line.run(main, threads_per_operation=1)
