"""Speed and quality of sensitivities and optimisers, side by side with other packages.

  python benchmarks/mechanisms.py                                # dpfl, and tensorflow_privacy
  python benchmarks/mechanisms.py --full --only=tree             # as published; about 10 minutes
  python benchmarks/mechanisms.py --peers --repeats=5 --only=blt

What is compared:

  tree             exact sensitivity of tree aggregation at the setting of [Xu23-accounting], scaled
                   down unless --full, with tensorflow_privacy's tree accountant; both run in this
                   process, in turn, on one core; other processes hardly affect the CPU time
  tree_large       the same at 5000 rounds, separation 200, 25 participations: dpfl alone
  blt              BLT with 4 buffers, 2052 rounds, max loss
  blt_large        BLT with 4 buffers, 200,000 rounds: dpfl alone
  banded           BandMF with 342 bands, 2052 rounds, RMS loss; of jax_privacy four routes:
                   banded.optimize and the matrix that it starts from; the Toeplitz matrix that its
                   documentation recommends, with columns of equal norm; dense.optimize
  banded_toeplitz  BandToep with 400 bands, 10,000 rounds, RMS loss
  banded_inverse   banded inverse with 8, 16 and 32 bands, 2052 rounds, max loss: dpfl alone

With --peers the optimisers are compared with jax_privacy, in a separate environment created on
first use in ~/.cache/dpfl/peers (or in XDG_CACHE_HOME). Every run is a new process, as a user would
start it; dpfl and jax_privacy take turns. `seconds` is the time of the whole process, `inside`
excludes imports but includes compilation at run time. dpfl's cache of results is off. dpfl computes
the losses of both from the parameters that they found. Figures are medians over --repeats.

If a peer is missing or a run fails, it is reported as `not run`, and the rest goes on.
"""

import argparse
import dataclasses
import functools
import os
import platform
import statistics
import time
import types
from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.peers import optimizers
from benchmarks.peers.environments import NotRunError
from dpfl import mechanisms
from dpfl.participation import Participation

# Rounds, min_separation, max_participations.
_PUBLISHED_TREE = (2000, 314, 6)
_STACKOVERFLOW = (2052, 342, 6)
_TINY = (64, 16, 4)
# Functions of benchmarks/peers/with_jax_privacy.py.
_BANDED_ROUTES = {
    'banded_start': 'jax_privacy, start of banded.optimize',
    'banded_normalised_toeplitz': 'jax_privacy, Toeplitz with equal columns',
    'banded': 'jax_privacy, banded.optimize',
    'banded_dense': 'jax_privacy, dense.optimize',
}


def main() -> None:
    args = _arguments()
    print(_machine())
    for name in args.only:
        try:
            _PARTS[name](args)
        except NotRunError as error:
            print(f'not run: {name}: {error}')
        print(flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--only', default='', help='parts to run, separated by commas')
    parser.add_argument('--peers', action='store_true', help='compare with jax_privacy')
    parser.add_argument('--repeats', type=int, default=3, help='runs of each')
    parser.add_argument(
        '--time_limit', type=float, default=60.0, help='seconds for BandMF inside, each'
    )
    parser.add_argument(
        '--timeout', type=float, default=1800.0, help='seconds until a process is given up'
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        '--full', action='store_true', help='the tree at the full size for tensorflow_privacy too'
    )
    size.add_argument(
        '--tiny', action='store_true', help='every part at a size of no interest, in seconds'
    )
    args = parser.parse_args()
    args.only = [name for name in args.only.split(',') if name] or list(_PARTS)
    if not set(args.only) <= set(_PARTS):
        parser.error(f'--only={",".join(args.only)}: must be among {", ".join(_PARTS)}')
    if args.repeats < 1:
        parser.error(f'--repeats={args.repeats}: must be at least 1')
    return args


def _machine() -> str:
    return (
        f'machine: {os.cpu_count()} cores, {_load()}, {platform.machine()}, '
        f'Python {platform.python_version()}, NumPy {np.__version__}\n'
    )


def _load() -> str:
    return f'load {os.getloadavg()[0]:.2f}'


def _title(text) -> None:
    print(f'{text} ({_load()})', flush=True)


def _table(rows: list[dict[str, str]]) -> None:
    names = list(rows[0])
    lines = [names, *([row[name] for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
    for first, *others in lines:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        print(f'  {first.ljust(widths[0])}  ' + '  '.join(cells))


def _target(args, figure: str, target: str, met: bool) -> None:
    if not args.tiny:  # the targets are for the sizes of interest
        print(f'  {figure}; target {target}: {"met" if met else "missed"}')


def _typical(measured: list):
    """The median of each field over several measurements."""
    kind = type(measured[0])
    return kind(
        *(
            statistics.median(getattr(one, field.name) for one in measured)
            for field in dataclasses.fields(kind)
        )
    )


# The tree


@dataclasses.dataclass(frozen=True)
class Call:
    """Wall-clock and CPU seconds of one call, and the squared sensitivity."""

    seconds: float
    cpu_seconds: float
    value: float


def _tree(args) -> None:
    """Measures both packages in this process, in turn."""
    schema = (128, 20, 6) if args.tiny else _PUBLISHED_TREE if args.full else (500, 79, 6)
    _title(f'tree: exact sensitivity, {optimizers.describe(schema)}')
    calls = {'dpfl': [_ours(schema)]}
    try:
        for _ in range(args.repeats):
            calls.setdefault('tensorflow_privacy', []).append(_theirs(schema))
            calls['dpfl'].append(_ours(schema))
    except ImportError as error:
        raise NotRunError(f'tensorflow_privacy cannot be imported: {error}') from None
    finally:
        _tree_table(calls)
    ours, theirs = (_typical(these) for these in calls.values())
    equal = len({call.value for these in calls.values() for call in these}) == 1
    print(f'  values equal: {"yes" if equal else "NO"}')
    ratio = theirs.seconds / ours.seconds
    cpu_ratio = theirs.cpu_seconds / ours.cpu_seconds
    figure = f'{ratio:,.0f} times faster, by CPU time {cpu_ratio:,.0f}'
    if args.full:
        _target(args, figure, 'at least 50,000 by CPU time', cpu_ratio >= 50_000)
    else:
        print(f'  {figure} (the target, 50,000, is for the setting of --full)')


def _tree_large(args) -> None:
    schema = (256, 16, 8) if args.tiny else (5000, 200, 25)
    _title(f'tree_large: exact sensitivity, {optimizers.describe(schema)}')
    calls = [_ours(schema) for _ in range(args.repeats)]
    _tree_table({'dpfl': calls})
    seconds = _typical(calls).seconds
    _target(args, f'{seconds:.3g} s', 'less than 2 s', seconds < 2)


def _ours(schema) -> Call:
    """Dpfl's mean time over as many calls as take about half a second."""
    rounds, *_ = schema
    mechanism, participation = mechanisms.BinaryTree(rounds), Participation(*schema)
    count, seconds = 0, 0.0
    started, cpu_started = time.perf_counter(), time.process_time()
    while seconds < 0.5:
        bound = mechanism.sensitivity_bound(participation)
        count += 1
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    if not bound.is_exact:
        raise NotRunError('the sensitivity of dpfl is a bound, not exact')
    return Call(seconds / count, cpu_seconds / count, bound.squared)


def _theirs(schema) -> Call:
    """One call of tensorflow_privacy with an empty cache."""
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    from tensorflow_privacy.privacy.analysis import tree_aggregation_accountant as accountant

    rounds, min_separation, max_participations = schema
    accountant._tree_sensitivity_square_sum.cache_clear()
    started, cpu_started = time.perf_counter(), time.process_time()
    # tensorflow_privacy counts the rounds strictly between two participations.
    rho = accountant.compute_zcdp_single_tree(1.0, rounds, max_participations, min_separation - 1)
    return Call(time.perf_counter() - started, time.process_time() - cpu_started, 2 * rho)


def _tree_table(calls: dict[str, list[Call]]) -> None:
    typical = {name: _typical(these) for name, these in calls.items()}
    _table(
        [
            {
                '': name,
                'seconds': f'{call.seconds:.4g}',
                'CPU seconds': f'{call.cpu_seconds:.4g}',
                'squared sensitivity': f'{call.value:g}',
            }
            for name, call in typical.items()
        ]
    )


# The optimisers


def _blt(args) -> None:
    ours, theirs = _compare(optimizers.Problem('blt', _STACKOVERFLOW, 4, 'max'), args)
    if theirs:
        ratio = theirs.seconds / ours.seconds
        _target(args, f'{ratio:.1f} times faster', 'at least 10', ratio >= 10)
        _target_excess(args, ours, theirs, 1e-6)


def _blt_large(args) -> None:
    ours, _ = _compare(
        optimizers.Problem('blt', (200_000, 20_000, 10), 4, 'max'), args, with_peer=False
    )
    _target(args, f'{ours.seconds:.2f} s', 'less than 10 s', ours.seconds < 10)


def _banded(args) -> None:
    problem = optimizers.Problem('banded', _STACKOVERFLOW, 342, 'rms')
    ours, _ = _compare(problem, args, routes=_BANDED_ROUTES)
    _target(
        args,
        f'RMS loss {ours.loss:.4f} after {ours.seconds:.1f} s',
        '8.596 in less than 60 s',
        ours.loss <= 8.596 and ours.seconds < 60,
    )
    gigabytes = ours.peak_bytes / 1e9
    _target(args, f'peak memory {gigabytes:.2f} GB', 'less than 2 GB', gigabytes < 2)


def _banded_toeplitz(args) -> None:
    ours, theirs = _compare(
        optimizers.Problem('banded_toeplitz', (10_000, 400, 25), 400, 'rms'), args
    )
    if theirs:
        _target_excess(args, ours, theirs, 0.02)
    _target(args, f'{ours.seconds:.1f} s', 'less than 120 s', ours.seconds < 120)


def _banded_inverse(args) -> None:
    for bands in (8, 16, 32):
        _compare(
            optimizers.Problem('banded_inverse', _STACKOVERFLOW, bands, 'max'),
            args,
            with_peer=False,
        )


def _target_excess(args, ours: optimizers.Run, theirs: optimizers.Run, most: float) -> None:
    excess = ours.loss / min(ours.loss, theirs.loss) - 1
    _target(args, f'{excess:.1e} above the better loss', f'at most {most:g}', excess <= most)


def _compare(
    problem: optimizers.Problem,
    args,
    with_peer=True,
    routes: Mapping[str, str] = types.MappingProxyType({'': 'jax_privacy'}),
) -> tuple[optimizers.Run, optimizers.Run | None]:
    """Prints table and speed ratios; returns the medians, with None for a peer that did not run.

    `routes` has the functions of the peer and their names in the table; that of the least loss
    is returned.
    """
    if args.tiny:
        problem = dataclasses.replace(problem, schema=_TINY, size=2)
    _title(problem)
    peer = optimizers.jax_privacy(problem.task, args.timeout) if with_peer and args.peers else None
    measure = functools.partial(
        optimizers.measure, problem, time_limit=args.time_limit, timeout=args.timeout
    )
    ours: list[optimizers.Run] = []
    theirs: dict[str, list[optimizers.Run]] = {route: [] for route in routes if peer}
    for _ in range(args.repeats):
        ours.append(measure(optimizers.dpfl()))
        for route in list(theirs):
            try:
                theirs[route].append(measure(peer, route=route))
            except NotRunError as error:
                print(f'not run: {route or problem.task}: jax_privacy: {error}')
                del theirs[route]
    typical = _typical(ours)
    others = {route: _typical(runs) for route, runs in theirs.items()}
    _table([_row('dpfl', typical), *(_row(routes[route], run) for route, run in others.items())])
    for route, run in others.items():
        print(
            f'  {routes[route]}, over dpfl: seconds {run.seconds / typical.seconds:.1f}; '
            f'inside {run.inside / typical.inside:.1f}; '
            f'loss {run.loss / typical.loss:.9f}'
        )
    if with_peer and not args.peers:
        print('  jax_privacy was not asked for (--peers)')
    return typical, min(others.values(), key=lambda run: run.loss, default=None)


def _row(name: str, run: optimizers.Run) -> dict[str, str]:
    return {
        '': name,
        'seconds': f'{run.seconds:.2f}',
        'inside': f'{run.inside:.2f}',
        'peak GB': f'{run.peak_bytes / 1e9:.2f}',
        'loss': f'{run.loss:.8f}',
    }


_PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    'tree': _tree,
    'tree_large': _tree_large,
    'blt': _blt,
    'blt_large': _blt_large,
    'banded': _banded,
    'banded_toeplitz': _banded_toeplitz,
    'banded_inverse': _banded_inverse,
}


if __name__ == '__main__':
    main()
