"""Compares what two generators write, on one page ([Augenstein20], sections 4 to 6).

Example:
  python -m experiments.studies.compare_generators --a=runs/study/clean/word,runs/study/clean/char \
      --b=runs/study/faulty/word,runs/study/faulty/char --output_dir=runs/compared

Each side is one run or several of different kinds: a word model, a character model, a generator of
train_gan. Both sides have the same kinds, and word models the same vocabulary. The two sides can
also be given without flags: compare_generators runs/a runs/b --output_dir=runs/compared. The output
directory then has
- comparison.html: frequent words, unknown words by position, sentence lengths, n-grams, sheets of
  images, ink and classes side by side, with intervals, and whether they differ clearly;
- comparison.json: the same numbers.

No data of clients are read; for the class mix of images, held-out (public) images are.
"""

import dataclasses
import functools
import json
import pathlib
from typing import BinaryIO

from dpfl import _storage
from dpfl._settings import Settings, setting
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from experiments.studies.generators.config import ComparisonConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class SidesConfig(Settings):
    """The two sides."""

    a: tuple[str, ...] = setting((), 'Directories of the runs of the first side, comma-separated.')
    b: tuple[str, ...] = setting((), 'Directories of the runs of the second side.')


_SIDES = SettingsFlags(SidesConfig)
_COMPARISON = SettingsFlags(ComparisonConfig)
_OUTPUT = SettingsFlags(
    output_flags.RunDirectoryConfig,
    only=('output_dir',),
    help={'output_dir': 'Directory for the page; files of an earlier comparison are replaced.'},
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags, compares the sides, writes the page and prints the verdict."""
    given, config = _SIDES.read(), _COMPARISON.read()
    directory = pathlib.Path(command_line.required(_OUTPUT.read(), 'output_dir'))
    for name in ('a', 'b'):
        command_line.required(given, name)
    with command_line.refusing_bad_values():
        from experiments.studies.generators import comparison, page, sides

        first, second = sides.open_side('a', given.a), sides.open_side('b', given.b)
        found = comparison.compare(first, second, config)
    values = json.dumps(found.to_dict(), allow_nan=False)
    with _storage.naming(directory):
        directory.mkdir(parents=True, exist_ok=True)
    path = directory / 'comparison.html'
    for file, text in ((path, page.render(found)), (directory / 'comparison.json', values)):
        _storage.write_atomically(file, functools.partial(_write, text.encode()))
    if _FORMAT.read().format == 'json':
        print(values)
    else:
        print('\n'.join([found.verdict.text, *found.verdict.examples(), '', str(path)]))


def _write(data: bytes, file: BinaryIO) -> None:
    file.write(data)


if __name__ == '__main__':
    command_line.run(main, operands=('a', 'b'))
