r"""Runs a study: many trainings that differ in a few flags, a table and a figure of the results.

Example:
  dpfl run_study --study=mechanisms --output_dir=runs/mechanisms

A study is a file in configs/studies, or a file of your own in the same form. Every run is a run of
dpfl train in its own directory. If the study is interrupted, the same command continues it:
finished runs are kept, and an interrupted one continues from its last checkpoint. At the end the
directory has study.html, study.md, results.json and study.png, and prediction.png if the study
asks which measure predicts another.

To use another task, model or number of rounds for all runs:
  dpfl run_study --study=clip --output_dir=runs/clip_1000 \
      --override=vocabulary_size=996 --override=rounds=200
"""

import json
import os
import pathlib

from absl import flags

from dpfl import _storage
from dpfl.cli.command import command_line, program
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.studies import (
    definition,
    driver,
    figure,
    jobs,
    measures,
    page,
    prediction,
    prediction_figure,
    statistics,
)

_STUDY = flags.DEFINE_string('study', None, 'Name of a study in configs/studies, or a JSON file.')
_DIRECTORY = SettingsFlags(
    output_flags.RunDirectoryConfig,
    only=('output_dir',),
    help={'output_dir': 'Directory of the study.'},
)
_SEEDS = flags.DEFINE_list(
    'seeds', None, 'Seeds of the runs, comma-separated; by default those of the study.'
)
_OVERRIDE = flags.DEFINE_multi_string(
    'override',
    [],
    'A flag for all runs, as name=value, in place of that of the study. Points that remove the '
    'flag stay without it.',
)
_JOBS = flags.DEFINE_integer('jobs', os.cpu_count(), 'Number of parallel runs.', lower_bound=1)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Runs what is missing; writes table, figure and page; prints the table."""
    name = _STUDY.value
    if not name:
        raise command_line.UsageError('--study: must be given')
    directory = pathlib.Path(command_line.required(_DIRECTORY.read(), 'output_dir'))
    overrides = _overrides()
    with command_line.refusing_bad_values():
        study = definition.load(name)
        seeds = study.seeds if _SEEDS.value is None else _seeds()
    with _storage.naming(directory):
        directory.mkdir(parents=True, exist_ok=True)
    with _storage.locked(directory):
        made = jobs.runs(study, directory, seeds, overrides)
        preparations = jobs.preparations(study, directory, seeds, overrides)
        driver.run(preparations, _JOBS.value or 1, 'preparations')
        printed = driver.run(list(made.values()), _JOBS.value or 1, study.name)
        with command_line.refusing_bad_values():
            runs = {
                point.name: [
                    measures.read(study, job.folder, printed[job.name])
                    for job in (made[point.name, seed] for seed in seeds)
                ]
                for point in study.points
            }
        values, text = _write(study, runs, seeds, directory)
    print(json.dumps(values, allow_nan=False) if _FORMAT.read().format == 'json' else text, end='')


def _write(study, runs, seeds, directory) -> tuple[dict, str]:
    """Writes the results of the study; returns their values and the text to print."""
    findings = [statistics.check(claim, runs) for claim in study.claims]
    orders = statistics.orders_by_value(study, runs)
    predictions = prediction.by_value(study, runs)
    values = page.values(study, runs, findings, orders, predictions, seeds)
    image = figure.png(figure.draw(study, runs))
    scatter = figure.png(prediction_figure.draw(study, runs, predictions)) if predictions else None
    text = page.text(study, runs, findings, orders, predictions, seeds, _command())
    for name, data in {
        'results.json': json.dumps(values, indent=1, allow_nan=False).encode(),
        'study.png': image,
        'study.md': text.encode(),
        'study.html': page.render(study.title, text, image, scatter).encode(),
        **({'prediction.png': scatter} if scatter else {}),
    }.items():
        _write_file(directory / name, data)
    return values, f'{text}\nPage: {directory / "study.html"}\n'


def _write_file(path: pathlib.Path, data: bytes) -> None:
    _storage.write_atomically(path, lambda file: file.write(data))


def _command() -> str:
    given = [
        flags.FLAGS[name].serialize()
        for name in ('study', 'output_dir', 'seeds')
        if flags.FLAGS[name].value is not None
    ]
    given += [f'--{_OVERRIDE.name}={each}' for each in _OVERRIDE.value or ()]
    return program.command('run_study', *given)


def _seeds() -> list[int]:
    try:
        seeds = [int(seed) for seed in _SEEDS.value or ()]
    except ValueError:
        raise command_line.UsageError(
            f'--seeds={",".join(_SEEDS.value or ())}: must be comma-separated integers'
        ) from None
    definition.check_seeds(seeds)
    return seeds


def _overrides() -> dict[str, str]:
    found = {}
    for each in _OVERRIDE.value:
        name, separator, value = each.partition('=')
        if not separator or not name or name in jobs.OF_EACH_RUN:
            raise command_line.UsageError(
                f'--override={each}: must be name=value, and not a flag that is set for each run: '
                f'{", ".join(jobs.OF_EACH_RUN)}'
            )
        found[name] = value
    return found


if __name__ == '__main__':
    command_line.run(main)
