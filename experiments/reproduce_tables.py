"""Recomputes every published privacy and loss number, and compares the results.

The documents are, by the numbers at the start of row ids, [Xu23] (000), [McMahan18] (001),
[McMahan24] (002), [Xu23-accounting] (003) and [Augenstein20] (004). The published values are in
dpfl/published/tables/published.json. Example: the tables of [McMahan24],

  dpfl reproduce_tables --only=002-T

The exit status is 1 if a row that can be reproduced does not match. Rows that cannot be reproduced
are listed with the reason.
"""

import sys

from dpfl import _progress
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.published.tables import calculations, rows

_SELECTION = SettingsFlags(
    output_flags.SelectionConfig,
    help={'only': 'Only rows whose id begins with this text.'},
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)
_DIFFERS = 1


def main() -> None:
    """Prints the rows; exits with 1 if a row that can be reproduced does not match."""
    results = []
    # Rows that optimise a mechanism are slow.
    with _progress.bar(_selected(), unit='row', delay=1.0) as bar:
        for row in bar:
            bar.set_postfix_str(row.id)
            results.append(calculations.compute(row))
    output_flags.show(_FORMAT, [result.to_dict() for result in results], rows.text(results))
    if any(result.match is False for result in results):
        sys.exit(_DIFFERS)


def _selected() -> list[rows.Row]:
    every = rows.load()
    only = _SELECTION.read().only
    selected = [row for row in every if row.id.startswith(only)]
    if not selected:
        raise command_line.UsageError(
            f'--only={only}: must be the beginning of a row id, such as {every[0].id}'
        )
    return selected


if __name__ == '__main__':
    command_line.run(main)
