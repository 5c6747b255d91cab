"""The cost of private aggregation on top of a plain mean, side by side with TFF's aggregators.

  python benchmarks/aggregators.py                          # about 15 minutes
  python benchmarks/aggregators.py --sizes=2.4M --contenders=blt,stock_tree --pairs=9
  python benchmarks/aggregators.py --peers                  # with jax_privacy's noise

Sizes are numbers of coordinates of the model, in four tensors; a cohort has 2 clients. The
contenders, each in a separate process:

  gaussian         dpfl, independent noise
  blt              dpfl, BLT with 4 buffers, past noise in the state
  blt_in_ring      dpfl, the same with past noise in a ring outside of TFF
  tree             dpfl, binary tree over 2052 rounds
  honaker          dpfl, the same with the estimator of Honaker
  banded_inverse   dpfl, banded inverse with 8 bands
  banded           dpfl, 342 bands as in BandMF, with past noise in a ring outside of TFF
  hardened         dpfl, exact independent noise in integers, from AES-256
  hardened_blt     dpfl, the same for BLT with 4 buffers
  secure           dpfl, BLT with 4 buffers on secure sums of rounded updates
  stock_gaussian   tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed
  stock_tree       tff.aggregators.DifferentiallyPrivateFactory.tree_aggregation
  stock_tree_in_dpfl   the same in dpfl's runtime, where no state is sent to a worker
  stock_ddp        tff.learning.ddp_secure_aggregator
  jax_blt          jax_privacy's streaming BLT with 4 buffers: the noise alone, in JAX
  jax_banded       jax_privacy's streaming solve with 342 bands: the noise alone, in JAX

The contenders of TFF run in its own runtime, all others in dpfl's. Within a process, rounds of a
plain mean and rounds of the contender take turns. `s above` is the median difference of such pairs,
and `CPU above` the same for processor time, which other processes on the machine disturb least.
`state MB` is the size of the state between rounds, including the ring of `banded`. `peak GB` is the
peak memory of the process and TFF's worker together. `times floor` compares with the time of one
normal draw per coordinate and a copy of the state (of one row of the ring, for `banded`). Secure
sums run in TFF's test backend, without cryptography. jax_privacy runs in a separate environment, as
in benchmarks/mechanisms.py. It computes no mean, so its seconds are those of the noise alone.

If a contender cannot be measured, it is reported as `not run`, and the rest goes on.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import tempfile

from benchmarks.peers import optimizers
from benchmarks.peers.environments import NotRunError

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_SIZES = {'0.1M': 100_000, '2.4M': 2_400_000, '6.4M': 6_400_000}
_TINY = 2_000
_TFF_CONTENDERS = (
    'gaussian',
    'blt',
    'blt_in_ring',
    'tree',
    'honaker',
    'banded_inverse',
    'banded',
    'hardened',
    'hardened_blt',
    'secure',
    'stock_gaussian',
    'stock_tree',
    'stock_tree_in_dpfl',
    'stock_ddp',
)
_JAX_CONTENDERS = ('jax_blt', 'jax_banded')

# (contender, reference, limit on the ratio of their seconds above the mean), at 2.4M coordinates.
_TARGETS = (
    ('blt', 'stock_tree', 1 / 6),
    ('honaker', 'stock_tree', 1 / 2),
    ('banded', 'stock_tree', 3.0),
    ('secure', 'stock_ddp', 2.0),
    ('hardened', 'gaussian', 5.0),
    ('hardened_blt', 'blt', 5.0),
)
_MOST_BYTES = ('banded', 6e9)


@dataclasses.dataclass(frozen=True)
class Figures:
    """Figures of one contender: medians over pairs of rounds, and bytes."""

    seconds: float
    above: float
    cpu_above: float
    state_bytes: int
    peak_bytes: int
    floor: float

    @classmethod
    def of(cls, result: dict) -> 'Figures':
        def above(name):
            pairs = zip(result[name], result[f'plain_{name}'], strict=True)
            return statistics.median(private - plain for private, plain in pairs)

        return cls(
            statistics.median(result['seconds']),
            above('seconds'),
            above('cpu_seconds'),
            result['state_bytes'],
            result['peak_bytes'],
            result['floor'],
        )


def main() -> None:
    args = _arguments()
    print(
        f'machine: {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}, {platform.machine()}, '
        f'Python {platform.python_version()}\n'
    )
    for name in args.sizes:
        coordinates = _TINY if args.tiny else _SIZES[name]
        print(
            f'{coordinates} coordinates, {args.pairs} pairs (load {os.getloadavg()[0]:.2f})',
            flush=True,
        )
        figures = {}
        for contender in args.contenders:
            try:
                figures[contender] = Figures.of(_measure(contender, coordinates, args))
            except NotRunError as error:
                print(f'not run: {contender}: {error}', flush=True)
        _print_table(figures)
        if name == '2.4M' and not args.tiny:
            _print_targets(figures)
        print(flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--sizes', default=','.join(_SIZES), help='which, separated by commas')
    parser.add_argument('--contenders', default='', help='which, separated by commas')
    parser.add_argument('--peers', action='store_true', help="jax_privacy's, too")
    parser.add_argument('--pairs', type=int, default=7, help='measured pairs of rounds of each')
    parser.add_argument(
        '--timeout', type=float, default=1200.0, help='seconds until a process is given up'
    )
    parser.add_argument('--tiny', action='store_true', help='at a size of no interest')
    args = parser.parse_args()
    everyone = (*_TFF_CONTENDERS, *_JAX_CONTENDERS)
    args.contenders = args.contenders or ','.join(everyone if args.peers else _TFF_CONTENDERS)
    for flag, allowed in (('sizes', _SIZES), ('contenders', everyone)):
        names = getattr(args, flag).split(',')
        if not set(names) <= set(allowed):
            parser.error(f'--{flag}={",".join(names)}: must be among {", ".join(allowed)}')
        setattr(args, flag, names)
    if args.pairs < 1:
        parser.error(f'--pairs={args.pairs}: must be at least 1')
    return args


def _measure(contender: str, coordinates: int, args) -> dict:
    """Measures a contender in a new process.

    Raises:
      NotRunError: if the process fails or takes too long.
    """
    options = json.dumps({'coordinates': coordinates, 'clients': 2, 'pairs': args.pairs})
    environment = {**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3', 'CUDA_VISIBLE_DEVICES': ''}
    command = [sys.executable, '-m', 'benchmarks.peers.aggregate']
    if contender in _JAX_CONTENDERS:
        python, _ = optimizers.installed_jax_privacy(args.timeout)
        command = [python, str(_ROOT / 'benchmarks' / 'peers' / 'noise_with_jax_privacy.py')]
        environment |= {'PYTHONPATH': '', 'JAX_PLATFORMS': 'cpu'}
    with tempfile.TemporaryDirectory() as directory:
        output, errors = pathlib.Path(directory, 'result'), pathlib.Path(directory, 'errors')
        with errors.open(
            'w'
        ) as file:  # Not a pipe: a worker that is left behind would hold it open.
            process = subprocess.Popen(
                [*command, contender, options, str(output)],
                cwd=_ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=file,
                start_new_session=True,
            )
        try:
            status = process.wait(args.timeout)
        except subprocess.TimeoutExpired:
            raise NotRunError(f'given up after {args.timeout:g} s') from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if status:
            lines = errors.read_text().strip().splitlines() or [f'exit status {status}']
            raise NotRunError(lines[-1])
        return json.loads(output.read_text())


def _print_table(figures: dict[str, Figures]) -> None:
    rows = [('', 's/round', 's above', 'CPU above', 'times floor', 'state MB', 'peak GB')]
    rows += [
        (
            name,
            f'{one.seconds:.3f}',
            f'{one.above:.3f}',
            f'{one.cpu_above:.2f}',
            f'{one.above / one.floor:.1f}',
            f'{one.state_bytes / 1e6:.1f}',
            f'{one.peak_bytes / 1e9:.2f}',
        )
        for name, one in figures.items()
    ]
    for first, *others in rows:
        print(f'  {first:<16}' + ''.join(f'{cell:>13}' for cell in others))


def _print_targets(figures: dict[str, Figures]) -> None:
    """Prints the target ratios of seconds above the mean, where both contenders were measured."""
    for name, other, most in _TARGETS:
        if {name, other} <= figures.keys():
            ratio = figures[name].above / figures[other].above
            _target(f'{name} / {other}: {ratio:.2f}', f'at most {most:.2f}', ratio <= most)
    name, most = _MOST_BYTES
    if name in figures:
        peak = figures[name].peak_bytes
        _target(f'{name}: {peak / 1e9:.2f} GB', f'less than {most / 1e9:g} GB', peak < most)


def _target(figure: str, target: str, met: bool) -> None:
    print(f'  {figure}; target {target}: {"met" if met else "missed"}')


if __name__ == '__main__':
    main()
