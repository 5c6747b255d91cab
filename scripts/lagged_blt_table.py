"""Writes the table of docs/concepts/lagged_blt.md, and its values to docs/figures/lagged_blt.json.

Run: python -m scripts.lagged_blt_table    (some minutes)
     python -m scripts.lagged_blt_table --draw    (writes the table again from the file)
"""

import argparse
import json
import pathlib
import time
from collections.abc import Iterator

from dpfl import Participation, mechanisms

_DOCS = pathlib.Path(__file__).parents[1] / 'docs'
PAGE = _DOCS / 'concepts' / 'lagged_blt.md'
DATA = _DOCS / 'figures' / 'lagged_blt.json'

# (rounds, min separation, max participations)
SCHEMAS = ((2052, 342, 6), (2000, 100, 20), (142, 10, 15))
# Buffers and draws.
SIZES = (
    *((buffers, 1) for buffers in (1, 2, 3, 4)),
    *((buffers, 2) for buffers in (1, 2, 3, 4)),
    *((buffers, 4) for buffers in (1, 2, 4)),
    *((buffers, 8) for buffers in (1, 2, 4)),
    (2, 32),
    (0, 8),
    (0, 32),
)
_START, _END = '<!-- table -->\n\n', '\n<!-- end of the table -->'


def mechanism(schema: Participation, buffers: int, draws: int, loss: str) -> mechanisms.Mechanism:
    """The optimised mechanism with so many stored buffers and draws in a round."""
    if not buffers:
        return mechanisms.optimize_banded_inverse(schema, draws, loss)
    if draws == 1:
        return mechanisms.optimize_blt(schema, buffers, loss)
    return mechanisms.optimize_lagged_blt(schema, buffers, loss, draws=draws)


def rows() -> Iterator[dict[str, object]]:
    """Losses of each size under each schema, and the seconds of CPU that both searches took."""
    for entry in SCHEMAS:
        schema = Participation(*entry)
        band = [
            mechanisms.optimize_banded_toeplitz(schema, schema.min_separation, loss)
            for loss in ('max', 'rms')
        ]
        yield _row(entry, 'banded_toeplitz', schema.min_separation - 1, 1, band, 0.0)
        for buffers, draws in SIZES:
            started = time.process_time()
            pair = [mechanism(schema, buffers, draws, loss) for loss in ('max', 'rms')]
            yield _row(entry, pair[0].name, buffers, draws, pair, time.process_time() - started)


def _row(entry, name, buffers, draws, pair, seconds) -> dict[str, object]:
    schema = Participation(*entry)
    return {
        'schema': list(entry),
        'mechanism': name,
        'buffers': buffers,
        'draws': draws,
        'max_loss': round(pair[0].max_loss(schema), 4),
        'rms_loss': round(pair[1].rms_loss(schema), 4),
        'seconds': round(seconds, 1),
    }


def table(values: list[dict]) -> str:
    """The table of the page."""
    titles = ' | '.join(f'{n} rounds, {k} x {b} apart' for n, b, k in SCHEMAS)
    lines = [f'| mechanism | buffers | draws | {titles} |', '|---|---|---|' + '---|' * len(SCHEMAS)]
    sizes = dict.fromkeys((row['mechanism'], row['buffers'], row['draws']) for row in values)
    toeplitz = False
    for name, buffers, draws in sizes:
        if name == 'banded_toeplitz' and toeplitz:
            continue
        toeplitz |= name == 'banded_toeplitz'
        losses = [
            f'{row["max_loss"]:.2f} / {row["rms_loss"]:.2f}'
            for row in values
            if row['mechanism'] == name
            and row['draws'] == draws
            and (name == 'banded_toeplitz' or row['buffers'] == buffers)
        ]
        shown = 'separation - 1' if name == 'banded_toeplitz' else buffers
        lines.append(f'| `{name}` | {shown} | {draws} | {" | ".join(losses)} |')
    return '\n'.join(lines) + '\n'


def main() -> None:
    """Writes the file, unless --draw is given, and the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--draw', action='store_true', help='write the table alone')
    if not parser.parse_args().draw:
        known = []
        for row in rows():
            known.append(json.dumps(row))
            DATA.write_text('[\n' + ',\n'.join(known) + '\n]\n')
    before, rest = PAGE.read_text().split(_START)
    after = rest.split(_END)[1]
    values = json.loads(DATA.read_text())
    PAGE.write_text(before + _START + table(values) + _END + after)


if __name__ == '__main__':
    main()
