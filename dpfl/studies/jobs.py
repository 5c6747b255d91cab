"""The jobs of a study: their commands and the files they leave. No TensorFlow."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from dpfl import _storage, errors
from dpfl.studies import definition

_TRAIN = 'train'
_LEDGER = 'ledger.jsonl'
# Flags that this module sets for every run.
OF_EACH_RUN = ('seed', 'noise_seed', 'output_dir', 'resume', 'overwrite', 'format')


@dataclasses.dataclass(frozen=True)
class Job:
    """A command that is run once.

    Attributes:
      name: Unique name in the study, such as `runs/tree/seed_1`. It is also a path within the
        directory of the study.
      binary: Name of the command.
      flags: Values of its flags by name.
      directory: Directory of the study.
    """

    name: str
    binary: str
    flags: Mapping[str, str]
    directory: pathlib.Path

    @property
    def arguments(self) -> list[str]:
        """Arguments of the command line."""
        return [f'--{name}={value}' for name, value in self.flags.items()]

    @property
    def folder(self) -> pathlib.Path:
        """Directory of the run, if the job is a run."""
        return self.directory / self.name

    @property
    def output(self) -> pathlib.Path:
        """File with the standard output of the job."""
        return self._beside('.out')

    @property
    def log(self) -> pathlib.Path:
        """File with the standard error of the job."""
        return self._beside('.log')

    def _beside(self, suffix: str) -> pathlib.Path:
        return self.directory / 'jobs' / f'{self.name.replace("/", "__")}{suffix}'

    @property
    def rounds(self) -> int:
        """Number of rounds that the job trains; 0 if it is not a run."""
        return int(self.flags['rounds']) if self.binary == _TRAIN else 0

    def rounds_begun(self) -> int:
        """Number of rounds that the run has begun so far."""
        try:
            return (self.folder / _LEDGER).read_bytes().count(b'"event": "began"')
        except OSError:
            return 0

    def result(self) -> dict[str, Any] | None:
        """What the job printed when it finished; None if it has not finished.

        Raises:
          RunError: If it was finished with other flags.
        """
        record = self._beside('.json')
        if not record.exists():
            return None
        with _storage.naming(record):
            values = json.loads(record.read_text())
        now = [self.binary, *self.arguments]
        if values['command'] != now:
            changed = sorted({*values['command']} ^ {*now})
            raise errors.RunError(
                f'{record}: was made with other flags ({", ".join(changed)}); give another '
                'directory, or delete what depends on them'
            )
        return values['result']

    def finish(self) -> dict[str, Any]:
        """Records that the job is finished, and returns what it printed."""
        with _storage.naming(self.output):
            result = json.loads(self.output.read_text())
        values = {'command': [self.binary, *self.arguments], 'result': result}
        text = json.dumps(values, indent=1) + '\n'
        _storage.write_atomically(self._beside('.json'), lambda file: file.write(text.encode()))
        return result


def preparations(
    study: definition.Study,
    directory: pathlib.Path,
    seeds: Sequence[int],
    overrides: definition.Flags,
) -> list[Job]:
    """The jobs that come before the runs, in order. The arguments are those of `runs`."""
    made, of_runs = [], {**study.flags, **overrides}
    for preparation in study.preparations:
        shared = {name: of_runs[name] for name in preparation.shared if name in of_runs}
        each = seeds if '{seed}' in preparation.name else (None,)
        for seed in each:
            flags = {**shared, **preparation.flags, 'format': 'json'}
            name = f'prepared/{_filled(preparation.name, directory, seed)}'
            made.append(Job(name, preparation.binary, _all(flags, directory, seed), directory))
    return made


def run_name(point: str, seed: int) -> str:
    """Name of a run, which is its path within the directory of the study."""
    return f'runs/{point.replace(" ", "_")}/seed_{seed}'


def runs(
    study: definition.Study,
    directory: pathlib.Path,
    seeds: Sequence[int],
    overrides: definition.Flags,
) -> dict[tuple[str, int], Job]:
    """The runs by point and seed. All points of a seed come before the next seed.

    Args:
      study: The study.
      directory: Directory of the study.
      seeds: Seeds of the runs.
      overrides: Flags that replace those of the study in all runs, except at points that remove
        the flag.
    """
    found = {}
    for seed in seeds:
        for point in study.points:
            name = run_name(point.name, seed)
            removed = {flag for flag, value in point.flags.items() if value is None}
            flags = {
                **point.flags,
                **{flag: value for flag, value in overrides.items() if flag not in removed},
                'seed': str(seed),
                'noise_seed': str(seed),
                'output_dir': str(directory / name),
                'resume': 'true',
                'format': 'json',
            }
            found[point.name, seed] = Job(name, _TRAIN, _all(flags, directory, seed), directory)
    return found


def _all(flags: definition.Flags, directory: pathlib.Path, seed: int | None) -> dict[str, str]:
    return {
        name: _filled(value, directory, seed) for name, value in flags.items() if value is not None
    }


def _filled(value: str, directory: pathlib.Path, seed: int | None) -> str:
    text = str(value).replace('{prepared}', str(directory / 'prepared'))
    return text.replace('{seed}', str(seed))
