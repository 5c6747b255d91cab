"""Redraws the figures of the documents that need no training, and checks what is said of them.

The documents are, by the numbers at the start of names, [Xu23] (000), [McMahan18] (001),
[McMahan24] (002) and [Augenstein20] (004); docs/papers/references.md lists the figures. Example:
figure 3 of [McMahan24],

  dpfl reproduce_figures --only=002/fig3 --output_dir=runs/figures

writes 002_fig3.png and its points as 002_fig3.csv, and prints what the document says about it
with the numbers that were computed. What was printed is also in checks.json.

The exit status is 1 if a number that can be compared does not match.
"""

import json
import pathlib
import sys
import time

from dpfl import _progress
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.published.figures import checks
from dpfl.published.figures.drawn import Recipe
from dpfl.published.tables import rows
from dpfl.reporting import charts

_DIRECTORY = SettingsFlags(
    output_flags.RunDirectoryConfig,
    only=('output_dir',),
    defaults={'output_dir': 'runs/figures'},
    help={'output_dir': 'Directory of the figures; files of an earlier call are replaced.'},
)
_SELECTION = SettingsFlags(
    output_flags.SelectionConfig,
    help={'only': 'Only figures whose name begins with this text.'},
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)
_DIFFERS = 1
_DOTS_PER_INCH = 120


def main() -> None:
    """Draws the figures; exits with 1 if a number that can be compared does not match."""
    selected = _selected()
    said = checks.load()
    published = {row.id: row for row in rows.load()}
    directory = _made_directory()
    results = []
    # The first call optimises matrices, which is slow.
    with _progress.bar(selected, unit='figure', delay=1.0) as bar:
        for recipe in bar:
            bar.set_postfix_str(recipe.name)
            results.append(_drawn(recipe, said, published, directory))
    values = [result.to_dict() for result in results]
    (directory / 'checks.json').write_text(json.dumps(values, indent=1) + '\n')
    output_flags.show(_FORMAT, values, checks.text(results))
    if any(result.match is False for result in results):
        sys.exit(_DIFFERS)


def _selected() -> list[Recipe]:
    only = _SELECTION.read().only
    found = [recipe for recipe in checks.RECIPES if recipe.name.startswith(only)]
    if not found:
        names = ', '.join(recipe.name for recipe in checks.RECIPES)
        raise command_line.UsageError(f'--only={only}: must be the beginning of one of {names}')
    return found


def _made_directory() -> pathlib.Path:
    directory = pathlib.Path(command_line.required(_DIRECTORY.read(), 'output_dir'))
    with command_line.naming('output_dir', directory):
        directory.mkdir(parents=True, exist_ok=True)
    return directory


def _drawn(
    recipe: Recipe,
    said: dict[str, rows.Row],
    published: dict[str, rows.Row],
    directory: pathlib.Path,
) -> checks.Result:
    """Computes, checks, draws and writes one figure."""
    start = time.monotonic()
    drawn = recipe.compute()
    found = checks.of_figure(recipe.name, drawn, said, published)
    stem = directory / recipe.name.replace('/', '_')
    png, data = stem.with_suffix('.png'), stem.with_suffix('.csv')
    output_flags.write_rows(str(data), charts.table(drawn.panels))
    charts.draw(drawn.panels, drawn.columns).savefig(png, dpi=_DOTS_PER_INCH)
    seconds = time.monotonic() - start
    return checks.Result(recipe.name, recipe.title, str(png), str(data), seconds, found)


if __name__ == '__main__':
    command_line.run(main)
