"""Every mechanism that is optimised, at ten schemas: losses, distance to the best there can be.

  python -m benchmarks.mechanism_table                              # measures what is missing
  python -m benchmarks.mechanism_table --only=scaled_blt --again    # measures these mechanisms anew
  python -m benchmarks.mechanism_table --schemas=2052/342/6 --peers # jax_privacy at one schema
  python -m benchmarks.mechanism_table --page                       # only makes the page again

A row is a mechanism of one size, optimised for one loss at one schema, in a process of its own with
the cache of results off. Mechanisms are those of the registry with an optimiser, so a new one has
rows at the next run. Rows are kept in benchmarks/mechanism_table.json after each measurement,
and benchmarks/mechanism_table.md is made of them. A row that takes longer than --timeout
is kept as not run.

The distance is to `mechanisms.loss_lower_bound`, which is computed once for each schema and loss
(--only=bound).
"""

import argparse
import json
import pathlib
import sys
import time

from benchmarks import measuring
from benchmarks.peers import environments
from benchmarks.peers.environments import NotRunError
from dpfl import mechanisms
from dpfl.mechanisms import registry
from dpfl.participation import Participation
from dpfl.reporting import plain_text

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_DATA = _ROOT / 'benchmarks' / 'mechanism_table.json'
_PAGE = _ROOT / 'benchmarks' / 'mechanism_table.md'
_LOSSES = ('max', 'rms')
_BOUND = 'bound'

# (rounds, min_separation, max_participations), and where it is from.
SCHEMAS: dict[tuple[int, int, int], str] = {
    (100, 10, 10): '',
    (200, 200, 1): 'one participation',
    (500, 25, 20): '',
    (530, 55, 8): 'pt-PT in [Xu23], table 1',
    (1000, 10, 100): '',
    (1000, 100, 3): 'fewer participations than fit',
    (2000, 100, 20): '[McMahan24], figure 4',
    (2052, 342, 6): 'StackOverflow in [McMahan24]',
    (4000, 1000, 4): 'pt-BR in [McMahan24]',
    (10000, 1000, 10): '',
}
# Sizes of a mechanism by what its size counts. Others take as many bands as the separation, and
# banded inverses, whose bands may exceed it, two numbers of bands.
_BUFFERS = (2, 4)
_INVERSE_BANDS = (8, 32)
# Functions of benchmarks/peers/with_jax_privacy.py by mechanism, and the losses that they minimise.
_PEERS = {'blt': _LOSSES, 'banded_toeplitz': ('rms',), 'banded_normalised_toeplitz': ('rms',)}
_REQUIREMENTS = ('jax-privacy==2.0.0',)
_PEER_NAMES = {
    'blt': 'jax_privacy: BLT',
    'banded_toeplitz': 'jax_privacy: banded Toeplitz',
    'banded_normalised_toeplitz': 'jax_privacy: banded Toeplitz, equal columns',
}


def main() -> None:
    args = _arguments()
    if args.measure:  # In a process of its own.
        print(json.dumps(measure(json.loads(args.measure))))
        return
    rows = _read()
    if not args.page:
        for schema in args.schemas:
            for row in _wanted(schema, args):
                key = _key(row)
                if key in rows and not args.again:
                    continue
                rows[key] = {**row, **_measured(row, args)}
                _write(rows)
                print(json.dumps(rows[key]), flush=True)
    _PAGE.write_text(page(list(rows.values())))


def _arguments() -> argparse.Namespace:
    parser = measuring.parser(__doc__)
    parser.add_argument('--only', default='', help='mechanisms, or "bound", separated by commas')
    parser.add_argument('--schemas', default='', help='schemas n/b/k, separated by commas')
    parser.add_argument('--peers', action='store_true', help='rows of jax_privacy too')
    parser.add_argument('--again', action='store_true', help='measure rows again that are there')
    parser.add_argument('--page', action='store_true', help='measure nothing')
    parser.add_argument('--timeout', type=float, default=180.0, help='seconds for a row')
    parser.add_argument('--measure', help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.only = [name for name in args.only.split(',') if name]
    unknown = set(args.only) - {_BOUND, *registry.OPTIMIZED}
    if unknown:
        parser.error(f'--only={",".join(unknown)}: must be bound or an optimised mechanism')
    given = [tuple(map(int, text.split('/'))) for text in args.schemas.split(',') if text]
    if not set(given) <= set(SCHEMAS):
        parser.error(f'--schemas={args.schemas}: must be among those of the script')
    args.schemas = given or list(SCHEMAS)
    return args


def _wanted(schema: tuple[int, int, int], args: argparse.Namespace) -> list[dict]:
    """Rows of a schema that the command asks for, without what is measured."""
    rows = []
    for loss in _LOSSES:
        if not args.only or _BOUND in args.only:
            rows.append(_row(schema, 'dpfl', _BOUND, 0, loss))
        for name in args.only or registry.OPTIMIZED:
            if name == _BOUND:
                continue
            optimizer = registry.ENTRIES[name].optimizer
            if optimizer is not None and loss in optimizer.losses:
                for size in _sizes(name, optimizer, schema):
                    rows.append(_row(schema, 'dpfl', name, size, loss))
        if args.peers:
            rows += [
                _row(schema, 'jax_privacy', name, size, loss)
                for name, losses in _PEERS.items()
                if loss in losses
                for size in (_BUFFERS if name == 'blt' else (min(schema[:2]),))
            ]
    return rows


def _sizes(name: str, optimizer: registry.Optimizer, schema: tuple[int, int, int]) -> list[int]:
    if optimizer.size == 'buffers':
        return list(_BUFFERS)
    if name.endswith('inverse'):
        return [bands for bands in _INVERSE_BANDS if bands <= schema[0]]
    return [optimizer.default_size(Participation(*schema))]


def _row(schema, package: str, name: str, size: int, loss: str) -> dict:
    return {'schema': list(schema), 'package': package, 'name': name, 'size': size, 'loss': loss}


def _key(row: dict) -> str:
    n, b, k = row['schema']
    return f'{n}/{b}/{k} {row["package"]} {row["name"]} {row["size"]} {row["loss"]}'


def _measured(row: dict, args: argparse.Namespace) -> dict:
    try:
        return _theirs(row, args) if row['package'] == 'jax_privacy' else _ours(row, args)
    except NotRunError as error:
        return {'not_run': str(error)}


def _ours(row: dict, args: argparse.Namespace) -> dict:
    """Runs `measure` in a new process."""
    # A bound may take a few minutes.
    timeout = 5 * args.timeout if row['name'] == _BOUND else args.timeout
    command = [sys.executable, __file__, f'--measure={json.dumps(row)}']
    output = environments.call(command, timeout, {'DPFL_CACHE_DIR': ''})
    return json.loads(output.splitlines()[-1])


def measure(row: dict) -> dict:
    """Optimises the mechanism of a row in this process: its losses, memory, draws, and seconds."""
    schema = Participation(*row['schema'])
    started, cpu_started = time.perf_counter(), time.process_time()
    if row['name'] == _BOUND:
        value = mechanisms.loss_lower_bound(schema, row['loss'])
        return {'value': value, 'seconds': time.perf_counter() - started}
    optimizer = registry.ENTRIES[row['name']].optimizer
    assert optimizer is not None
    found = optimizer.optimize(schema, row['size'], loss=row['loss'])
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    return {**_figures(found, schema), 'seconds': seconds, 'cpu_seconds': cpu_seconds}


def _figures(found: mechanisms.Mechanism, schema: Participation) -> dict:
    kernel = found.kernel()
    # Buffers of independent noise can be drawn again in each round instead of being kept.
    return {
        'max_loss': found.max_loss(schema),
        'rms_loss': found.rms_loss(schema),
        'is_exact': found.sensitivity_is_exact(schema),
        'copies': 0 if kernel.is_regenerable else kernel.buffers,
        'draws': kernel.draws,
        'stored': kernel.buffers,
    }


def _theirs(row: dict, args: argparse.Namespace) -> dict:
    """Runs the optimiser of jax_privacy; dpfl evaluates what it found."""
    python = environments.python('jax_privacy', _REQUIREMENTS, args.timeout)
    script = str(_ROOT / 'benchmarks' / 'peers' / 'with_jax_privacy.py')
    options = json.dumps({name: row[name] for name in ('schema', 'size', 'loss')})
    environment = {'PYTHONPATH': '', 'JAX_PLATFORMS': 'cpu'}
    output = environments.call([python, script, row['name'], options], args.timeout, environment)
    done = json.loads(output.splitlines()[-1])
    form = 'banded' if row['name'] == 'banded_normalised_toeplitz' else row['name']
    try:
        found = mechanisms.from_dict({'mechanism': form, **done['fields']})
    except ValueError as error:
        raise NotRunError(f'not a mechanism: {error}') from None
    buffers = row['size'] if row['name'] == 'blt' else row['size'] - 1
    return {
        f'{row["loss"]}_loss': getattr(found, f'{row["loss"]}_loss')(Participation(*row['schema'])),
        'copies': buffers,
        'draws': 1,
        'stored': buffers,
        'seconds': done['seconds'],
    }


def _read() -> dict[str, dict]:
    if not _DATA.exists():
        return {}
    return {_key(row): row for row in json.loads(_DATA.read_text())['rows']}


def _write(rows: dict[str, dict]) -> None:
    """Writes all rows, a line each."""
    lines = ',\n'.join(
        json.dumps(rows[key]) for key in sorted(rows, key=lambda key: _order(rows[key]))
    )
    _DATA.write_text(f'{{"rows": [\n{lines}\n]}}\n')


def _order(row: dict) -> tuple:
    is_mechanism = row['name'] != _BOUND
    return (*row['schema'], row['package'], is_mechanism, row['name'], row['size'], row['loss'])


_HEAD = """# Mechanisms by schema

Every mechanism with an optimiser at ten schemas (n, b, k), optimised for each of the two losses
separately. The distance is to a [proven lower bound](../docs/research/mechanisms.md) on the loss of
every linear mechanism: at most so much is left to gain, with any memory. All losses are with
proven sensitivities.

- **copies**: the noise state, in copies of the model. **draws**: normal variables for each
  coordinate and round. Where the state is noise that can be drawn again from its keys, both ways
  are given.
- **seconds**: of the optimiser alone, for the max and the rms loss, in a new process with the cache
  of results off. For dpfl it is the CPU time. For jax_privacy 2.0.0 it is the time that passed,
  beside other programs on two cores, with compilation: for orders of magnitude. Losses of
  jax_privacy are computed by dpfl from what it found.

Made by `benchmarks/mechanism_table.py`, which measures what `mechanism_table.json` does not have.
"""


def page(rows: list[dict]) -> str:
    """The page, in Markdown."""
    parts = [_HEAD]
    for schema, source in SCHEMAS.items():
        here = [row for row in rows if tuple(row['schema']) == schema]
        if here:
            parts.append(_section(schema, source, here))
    measured = {tuple(row['schema']) for row in rows}
    left = [str(schema) for schema in SCHEMAS if schema not in measured]
    if left:
        lines = [f'- {text}' for text in left]
        parts.append('\n'.join(['Schemas that were not measured yet:', '', *lines, '']))
    return '\n'.join(parts)


def _section(schema: tuple[int, int, int], source: str, rows: list[dict]) -> str:
    bounds = {row['loss']: row for row in rows if row['name'] == _BOUND and 'value' in row}
    lines = [f'## {schema}' + (f': {source}' if source else ''), '']
    stated = [f'{loss} {bounds[loss]["value"]:.4f}' for loss in _LOSSES if loss in bounds]
    lines += [f'Lower bounds: {", ".join(stated) or "not computed"}.', '']
    groups: dict[tuple, dict[str, dict]] = {}
    for row in sorted(rows, key=_order):
        if row['name'] != _BOUND:
            group = groups.setdefault((row['package'], row['name'], row['size']), {})
            group[row['loss']] = row
    made, missing = [], []
    for (package, name, size), by_loss in groups.items():
        label = _label(package, name, size)
        if any('not_run' not in row for row in by_loss.values()):
            made.append(_cells(label, by_loss, bounds))
        missing += [
            f'{label} ({loss}): {row["not_run"]}'
            for loss, row in by_loss.items()
            if 'not_run' in row
        ]
    head = ('mechanism', 'max loss', 'above', 'rms loss', 'above', 'copies', 'draws', 'seconds')
    lines.append(plain_text.markdown(head, made))
    if missing:
        lines += ['', 'Not run:', '', *(f'- {text}' for text in missing)]
    names = {row['name'] for row in rows}
    left = [f'`{name}`' for name in registry.OPTIMIZED if name not in names]
    if left:
        lines += ['', f'Not measured yet: {", ".join(left)}.']
    return '\n'.join([*lines, ''])


def _label(package: str, name: str, size: int) -> str:
    if package == 'jax_privacy':
        return f'{_PEER_NAMES[name]}, {size}'
    optimizer = registry.ENTRIES[name].optimizer if name in registry.ENTRIES else None
    unit = optimizer.size if optimizer else ''
    return f'`{name}`, {size} {unit}'.rstrip()


def _cells(label: str, by_loss: dict[str, dict], bounds: dict[str, dict]) -> list[str]:
    cells = [label]
    for loss in _LOSSES:
        row = by_loss.get(loss, {})
        value = row.get(f'{loss}_loss')
        bound = bounds.get(loss, {}).get('value')
        cells.append('' if value is None else f'{value:.4f}')
        cells.append(f'{100 * (value / bound - 1):.1f} %' if value and bound else '')
    done = [row for row in by_loss.values() if 'not_run' not in row]
    copies, draws, kept = (max(row[name] for row in done) for name in ('copies', 'draws', 'stored'))
    memory, numbers = f'{copies}', f'{draws}'
    if draws > 1:
        memory, numbers = f'{copies} or {kept}', f'{draws} or 1'
    seconds = ' / '.join(_rounded(row.get('cpu_seconds', row['seconds'])) for row in done)
    return [*cells, memory, numbers, seconds]


def _rounded(seconds: float) -> str:
    return f'{seconds:.0f}' if seconds >= 10 else f'{seconds:.2g}'


if __name__ == '__main__':
    main()
