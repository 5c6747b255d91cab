r"""Compares what two generators write, on one page ([Augenstein20], sections 4 to 6).

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
import html
import json
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpfl import accounting
from dpfl._settings import Settings, setting
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.reporting import html_page, html_parts
from dpfl.reporting.html_parts import Cell
from experiments.studies.shared import files
from experiments.studies.shared.written import ComparisonConfig, Part, Verdict

if TYPE_CHECKING:
    from experiments.studies.shared.generators import Side


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
_STYLE = (
    html_parts.STYLE
    + """
.verdict { font-size: 1.15rem; padding: .7rem 1rem; border-left: .35rem solid var(--good);
  background: var(--good-paper); }
.verdict.untold { border-color: var(--unsure); background: none; }
.verdict.differs { border-color: var(--bad); background: var(--bad-paper); }
"""
)
_KINDS = {'word': 'word model', 'char': 'character model', 'images': 'images'}


def main() -> None:
    """Checks the flags, compares the sides, writes the page and prints the verdict."""
    given, config = _SIDES.read(), _COMPARISON.read()
    directory = pathlib.Path(command_line.required(_OUTPUT.read(), 'output_dir'))
    for name in ('a', 'b'):
        command_line.required(given, name)
    with command_line.refusing_bad_values():
        from experiments.studies.shared import generators

        sides = generators.open_side('a', given.a), generators.open_side('b', given.b)
        comparison = compare(sides, config)
    values = json.dumps(comparison.to_dict(), allow_nan=False)
    path = directory / 'comparison.html'
    files.write(path, comparison.render())
    files.write(directory / 'comparison.json', values)
    verdict = comparison.verdict
    text = '\n'.join([verdict.text, *verdict.examples(), '', str(path)])
    print(values if _FORMAT.read().format == 'json' else text)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two sides, compared.

    Attributes:
      sides: the generators of a and b by kind.
      config: settings of the comparison.
      parts: comparisons of the kinds of generators, by name.
      guarantees: guarantees of the runs together, from `generators.guarantees`.
    """

    sides: 'tuple[Side, Side]'
    config: ComparisonConfig
    parts: Mapping[str, Part]
    guarantees: list[dict[str, Any]]

    @property
    def verdict(self) -> Verdict:
        """Whether the sides differ, and in what."""
        areas = [area for part in self.parts.values() for area in part.areas]
        reasons = (each.unlearned for side in self.sides for each in side.values())
        unlearned = dict.fromkeys(reason for reason in reasons if reason is not None)
        return Verdict(tuple(areas), self.config.alpha, tuple(unlearned))

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {
            'verdict': self.verdict.to_dict(),
            'a': [generator.to_dict() for generator in self.sides[0].values()],
            'b': [generator.to_dict() for generator in self.sides[1].values()],
            'guarantees': self.guarantees,
            'settings': self.config.to_dict(),
            **{name: part.values for name, part in self.parts.items()},
        }

    def render(self) -> str:
        """The page as HTML."""
        verdict = self.verdict
        sections = [
            '<h1>What two generators write</h1>',
            _verdict(verdict),
            '<h2>The two sides</h2>',
            _sides(self.sides),
            *(part.render(verdict.of_area) for part in self.parts.values()),
            '<h2>Privacy</h2>',
            _privacy(self),
            '<h2>How it is decided</h2>',
            _method(verdict, self.config),
        ]
        return html_page.document('Two generators compared', '\n'.join(sections), _STYLE)


def compare(sides: 'tuple[Side, Side]', config: ComparisonConfig) -> Comparison:
    """Compares two sides.

    Raises:
      ArgumentError: if they cannot be compared; it names `b`.
      RunError: if a file cannot be read.
      DataError: if the data of a classifier cannot be read.
    """
    from experiments.studies.shared import drawn_images, generators, written_text

    generators.check_pair(*sides)
    first, second = sides
    parts: dict[str, Part] = {}
    known: frozenset[str] = frozenset()
    if (kind := generators.WORD) in first:
        parts['sentences'] = written_text.compare_sentences(first[kind], second[kind], config)
        known = frozenset(first[kind].vocabulary)
    if (kind := generators.CHAR) in first:
        parts['words'] = written_text.compare_words(first[kind], second[kind], known, config)
    if (kind := generators.IMAGES) in first:
        parts['images'] = drawn_images.compare(first[kind], second[kind], config)
    return Comparison(sides, config, parts, generators.guarantees(sides))


def _verdict(verdict: Verdict) -> str:
    kind = 'verdict' if verdict.is_told else 'verdict untold'
    kind = 'verdict differs' if verdict.differing else kind
    examples = ''.join(f'<li>{html.escape(text)}</li>\n' for text in verdict.examples())
    surest = f'<p>The surest difference of each:</p>\n<ul>\n{examples}</ul>\n' if examples else ''
    return f'<p class="{kind}"><strong>{html.escape(verdict.text)}</strong></p>\n{surest}'


def _sides(sides: 'tuple[Side, Side]') -> str:
    """A column for each generator, so that the table fits on narrow screens."""
    named = [(name, each) for name, side in zip('ab', sides, strict=True) for each in side.values()]
    values = [generator.to_dict() for _, generator in named]
    shown = {
        'run': '{directory}',
        'task': '{task}',
        'model': '{model}',
        'parameters': '{parameters:,}',
        'rounds': '{rounds:,}',
        'clients per round': '{clients_per_round:,}',
        'mechanism': '{mechanism}',
        'clip norm': '{clip_norm:g}',
        'noise multiplier': '{noise_multiplier:.4g}',
        'seed': '{seed}',
        'delta': '{delta:.3g}',
    }
    rows = [
        [Cell(name, 'text'), *(form.format(**value) for value in values)]
        for name, form in shown.items()
    ]
    accuracies = [
        '–' if value['accuracy'] is None else f'{100 * value["accuracy"]:.1f} %' for value in values
    ]
    rows += [
        [Cell('accuracy (images: of the discriminator)', 'text'), *accuracies],
        [Cell('epsilon', 'text'), *(_epsilon(value['epsilon']) for value in values)],
    ]
    names = [Cell('', 'text'), *(f'{name}: {_KINDS[generator.kind]}' for name, generator in named)]
    return html_parts.table(names, rows)


def _epsilon(value: float | None) -> str:
    return 'infinite' if value is None else accounting.round_up(value)


def _privacy(comparison: Comparison) -> str:
    names = {'a': 'all runs of a', 'b': 'all runs of b', 'both': 'all runs of a and b'}
    rows = [
        [
            Cell(f'{names[row["of"]]}, for a client of all', 'text'),
            str(row['runs']),
            'none' if row['remark'] not in ('', 'infinite') else _epsilon(row['epsilon']),
            f'{row["delta"]:.3g}',
            Cell(row['remark'] if row['remark'] != 'infinite' else '', 'text'),
        ]
        for row in comparison.guarantees
    ]
    is_seeded = any(
        generator.report.noise_is_seeded for side in comparison.sides for generator in side.values()
    )
    simulated = ' Some noise comes from a known seed: this is a simulation and protects nobody.'
    columns = [Cell('guarantee of', 'text'), 'runs', 'epsilon', 'delta', Cell('remark', 'text')]
    return html_parts.table(columns, rows) + html_parts.note(
        'Runs that learn from the same client add up (composition). A client that only one side '
        'learned from has the guarantee of that side. Everything on this page is made from the '
        'generators and costs nothing more, except accuracy, which is that of held-out clients.'
        + (simulated if is_seeded else '')
    )


def _method(verdict: Verdict, config: ComparisonConfig) -> str:
    allowed = (
        'Intervals and p-values are those of the draws alone: they compare these very models. Two '
        'models that were trained on equal data would differ as well.'
        if not config.training_deviation
        else 'Intervals and p-values also allow for training again on equal data: a standard '
        f'deviation of {config.training_deviation:g} in the logarithm of the odds of a share above '
        '5 %, more for rarer events (with the cube root of their rarity), and a third of it in the '
        'logarithm of a mean. It is an assumption (--training_deviation).'
    )
    return (
        f'<p>A difference is clear if its p-value, after Holm’s correction over its area, is at '
        f'most {verdict.of_area:.2g}: {config.alpha:g} divided among {len(verdict.areas)} areas. '
        'Rows with a clear difference are marked. Intervals are for one difference by itself '
        '(shares: Newcombe; means: Welch), so a row can be unmarked although its interval excludes '
        f'0. N-grams count if at least {config.least_count} sentences or words of both sides '
        f'together have them.</p>\n<p>{allowed}</p>\n'
    )


if __name__ == '__main__':
    command_line.run(main, operands=('a', 'b'))
