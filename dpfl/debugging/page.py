"""Parts that the pages of the studies of text and of images share, and the files of a study.

A page is one HTML file that loads nothing from elsewhere. No TensorFlow.
"""

import json
import math
import os
import pathlib
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from dpfl import _storage, accounting, errors
from dpfl.debugging.diagnosis import Measures, Trait
from dpfl.debugging.differences import Difference, json_values
from dpfl.reporting import html_parts
from dpfl.reporting.html_parts import Cell

_STYLE = (
    html_parts.STYLE
    + """
.found, .bad { color: var(--bad); } .not-seen, .good { color: var(--good); }
.suspected, .cannot-tell, .unsure { color: var(--unsure); }
"""
)
NUMBERS = 'study.json'


def document(
    name: str, title: str, sections: Iterable[tuple[str, str]], *, lead: str = '', style: str = ''
) -> str:
    """A page as HTML.

    Args:
      name: title of the window.
      title: headline.
      sections: titles and contents, as HTML. A section without content is left out.
      lead: HTML below the headline.
      style: additional CSS rules.
    """
    parts = [f'<h1>{title}</h1>', lead]
    for heading, content in sections:
        if content:
            parts += [f'<h2>{heading}</h2>', content]
    return html_parts.document(name, '\n'.join(filter(None, parts)), _STYLE + style)


def differences(
    compared: Sequence[Difference],
    traits: Mapping[str, Trait],
    clear: Container[str] = (),
    what: str = 'trait',
) -> str:
    """A table of differences with intervals.

    Args:
      compared: the differences, a row each.
      traits: all traits by name.
      clear: names of the traits that are marked.
      what: title of the column with their meanings.
    """
    names = [what, 'here', 'reference', 'difference', '95 % interval', 'adjusted p']
    rows = []
    for difference in compared:
        trait = traits[difference.name]
        scale, unit = (100, 'points') if trait.unit == '%' else (1, trait.unit)
        rows.append(
            [
                Cell(trait.meaning, 'clear' if difference.name in clear else ''),
                Cell(trait.shown(difference.first)),
                Cell(trait.shown(difference.second)),
                Cell(f'{scale * difference.value:+.2f} {unit}'.strip()),
                Cell(f'{scale * difference.low:+.2f} to {scale * difference.high:+.2f}'),
                Cell('< 1e-9' if difference.adjusted < 1e-9 else f'{difference.adjusted:.2g}'),
            ]
        )
    return html_parts.table(names, rows)


def words(compared: Sequence[Difference]) -> str:
    """A table of words that differ clearly, with the shares of sentences that have them."""
    if not compared:
        return '<p>No word is clearly more frequent in the one than in the other.</p>\n'
    traits = {word.name: Trait(word.name, word.name, 0, 0) for word in compared}
    return differences(compared, traits, what='word: sentences with it')


def measured(generators: Mapping[str, Measures], traits: Mapping[str, Trait]) -> str:
    """A table of the traits of some generators, which have the same ones, with intervals.

    Args:
      generators: the traits by name of the generator.
      traits: all traits by name.
    """
    rows = []
    for name in next(iter(generators.values())):
        trait, row = traits[name], []
        scale, unit = (100, '%') if trait.unit == '%' else (1, '')
        for measures in generators.values():
            low, high = measures[name].interval()
            value = scale * measures[name].value
            row.append(Cell(f'{value:.2f}{unit} ({scale * low:.2f} to {scale * high:.2f})'))
        rows.append([trait.meaning, *row])
    table = html_parts.table(['trait', *generators], rows)
    return f'{table}<p>In brackets: 95 % intervals of the samples.</p>'


def epsilon(value: float | None) -> str:
    """Epsilon, rounded up; None is infinite."""
    is_finite = value is not None and math.isfinite(value)
    return str(accounting.round_up(value)) if is_finite else 'infinite'


def simulated(what_comes: str) -> str:
    """The warning that secret draws come from a known seed; `what_comes` begins the sentence."""
    return f' {what_comes} from a known seed: this is a simulation and protects nobody.'


def check_directory(directory: pathlib.Path, unwanted: Iterable[str]) -> None:
    """Refuses the directory of an earlier study, or one that cannot be written, before training.

    Args:
      directory: directory of the study.
      unwanted: names of what an earlier study leaves there; none if it is resumed or replaced.

    Raises:
      ArgumentError: if there is an earlier study, or nothing can be written.
    """
    existing = next(folder for folder in (directory, *directory.parents) if folder.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise errors.ArgumentError('output_dir', directory, 'must be writable')
    if any((directory / name).exists() for name in unwanted):
        raise errors.ArgumentError(
            'output_dir',
            directory,
            'must not hold an earlier study, unless it is resumed or overwritten',
        )


def write(directory: pathlib.Path, page: str, found: Any) -> tuple[pathlib.Path, str]:
    """Writes the page and the numbers of a study; returns the path of the page, and the numbers.

    Raises:
      StorageError: if a file cannot be written.
    """
    path, numbers = directory / 'study.html', json.dumps(json_values(found))
    _storage.write_atomically(path, lambda file: file.write(page.encode()))
    lines = f'{numbers}\n'.encode()
    _storage.write_atomically(directory / NUMBERS, lambda file: file.write(lines))
    return path, numbers
