"""Inspects text that nobody may look at, by what private generators write ([Augenstein20]).

Example:
  dpfl debug_text --flagfile=configs/debug_text.flags --output_dir=runs/debug_text

For each task of --inspect (T1 to T6 in table 1 of the paper), generators are trained under a
privacy plan on the sentences, words or clients that it selects. People look only at what these
models write. What is compared gets a verdict (found, suspected, not seen, cannot tell) and
differences with intervals. --inject damages the text on purpose, to see whether a fault is found.
The output directory then has
- study.html: verdicts, differences, sentences and words;
- study.json: the same numbers;
- a folder for each model with the files of a run of dpfl train.

The preset trains eight small models on synthetic text, in about five minutes on two cores. With
--resume, finished models are kept, and an interrupted one continues. docs/debug_text.md says
how to use it on data of one's own.
"""

import functools
from typing import TYPE_CHECKING, Any

from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.debugging.text.clients import OpenedText
from dpfl.debugging.text.config import KINDS, NOT_OF_TASK, NOT_OF_TRAINING, StudyConfig
from dpfl.reporting import plain_text
from dpfl.simulation.training import PrivacyConfig, TrainConfig, mechanism, privacy_config
from dpfl.simulation.training.plan import build_plan
from dpfl.tasks.config import TextTaskConfig

if TYPE_CHECKING:
    from dpfl.debugging.text import results

_TASK = SettingsFlags(TextTaskConfig, skip=NOT_OF_TASK)
_STUDY = SettingsFlags(StudyConfig)
_CONFIG = SettingsFlags(
    TrainConfig(privacy=PrivacyConfig(mechanism='gaussian')),
    skip=NOT_OF_TRAINING,
    choices={'mechanism': (*mechanism.NAMES, 'none')},
    help=privacy_config.WITHOUT_AUTO,
)
_DIRECTORY = SettingsFlags(output_flags.RunDirectoryConfig)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags, trains what is missing, and writes the page."""
    where, study, base = _DIRECTORY.read(), _STUDY.read(), _CONFIG.read()
    output_dir = output_flags.directory(where)
    opened = OpenedText(_TASK.read(), base.seed)
    with command_line.refusing_bad_values(directory='output_dir'):
        for kind in KINDS:  # Checks both before the long part begins.
            _check(study.train_config(base, kind), opened)
        from dpfl.debugging import page
        from dpfl.debugging.text import page as text_page
        from dpfl.debugging.text.study import Study

        found = Study(
            config=study,
            base=base,
            opened=opened,
            directory=output_dir,
            resume=where.resume,
            overwrite=where.overwrite,
        ).run()
    path, numbers = page.write(output_dir, text_page.render(found), found)
    if _FORMAT.read().format == 'json':
        print(numbers)
        return
    print(plain_text.columns([_row(case, one) for case in found.cases for one in case.written]))
    for each in found.compared:
        print(f'\n{each.title}: {each.diagnosis.verdict}. {each.diagnosis.text}')
    print(f'\n{path}')


def _check(config: TrainConfig, opened: OpenedText) -> None:
    """Raises ArgumentError if there is no such plan, or the accountant does not support it."""
    population = functools.partial(opened.population, config.sampling.population)
    plan = build_plan(config.privacy, config.sampling, population=population, dimension=lambda: 0)
    plan.epsilon(config.privacy.delta, config.privacy.accountant_of(plan))
    config.sampling.sampler(plan, population(), config.seed)


def _row(case: 'results.CaseResult', name: str) -> dict[str, Any]:
    model = case.written[name].model
    return {
        'case': case.case.name,
        'generator': name,
        'loss': model['loss'],
        'accuracy': model['accuracy'],
        'epsilon': _epsilon(model['epsilon']),
        'epsilon, all of the case': _epsilon(case.together),
    }


def _epsilon(value: float | None) -> float:
    return float('inf') if value is None else value


if __name__ == '__main__':
    command_line.run(main, threads_per_operation=1)
