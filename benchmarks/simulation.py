"""Speed of simulated rounds of federated training, side by side with other ways to do it.

  python benchmarks/simulation.py                       # both jobs; about 10 minutes
  python benchmarks/simulation.py --only=S --rounds=15

The jobs:

  S  vocabulary 1000, embedding 32, 64 units, projection 32; 50 clients with 2 batches of 16 x 20
  M  the 2.4M-parameter model of [Xu23]; 8 clients with 4 batches of 16 x 20

The contenders, each in a separate process (stock TFF with a worker), take turns by the round:

  dpfl             the cohort-sharded engine with the projected CIFG
  dpfl_ray         the same on Ray (--ray=local): a process for each core
  stock            tff.learning by default, a plain LSTM from Keras
  stock_iterator   the same with TFF's loop over a data set iterator
  bare             a loop in TensorFlow without TFF, the CIFG of dpfl
  floor            the matrix products of the CIFG's round alone, on all cores

With --peers, or if named in --contenders, another package is measured too. It has a separate
environment, created on first use in ~/.cache/dpfl/peers (or in XDG_CACHE_HOME):

  flower           Flower's simulation of PyTorch clients on Ray, a plain LSTM

pip installs the build of PyTorch with CUDA, some gigabytes, unless PIP_FIND_LINKS or
PIP_EXTRA_INDEX_URL names a place with the build for CPUs.

All contenders except stock and stock_iterator use the TensorFlow settings of dpfl's binaries: one
thread per operation, oneDNN.

All contenders clip the update of every client. Those in TFF use dpfl's aggregator with independent
noise, the others have their own implementation. Figures are medians over --rounds. `CPU s` is the
processor time of the process and its children, the figure that other processes on the machine
disturb least. `ready` is the time until the first round is done, including imports and compilation.
`idle` is the time of a round whose clients have no data: moving weights in and out of the runtime.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import platform
import select
import signal
import statistics
import subprocess
import sys
import tempfile

from benchmarks import measuring
from benchmarks.peers import environments
from benchmarks.peers.environments import NotRunError
from benchmarks.peers.rounds import Job

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_SCRIPTS = 'benchmarks.peers.'
_JOBS = {'S': Job(1000, (32, 64, 32), 50, 2), 'M': Job(10_000, (96, 670, 96), 8, 4)}
# What a round on Ray may take, in rounds of dpfl.
_MOST_ON_RAY = {'S': 1.3, 'M': 1.15}
# What a round of others must take at least, in the same unit.
_LEAST = {'S': {'stock': 25.0, 'stock_iterator': 6.0}, 'M': {'bare': 1 / 1.2}}
_TINY = Job(50, (4, 8, 4), 3, 1, batch_size=2, length=3)

_CONTENDERS = ('dpfl', 'dpfl_ray', 'stock', 'stock_iterator', 'bare', 'floor')
# TensorFlow's settings that dpfl's binaries make, and those who run without them, as users do.
_FAST = {'TF_NUM_INTRAOP_THREADS': '1', 'TF_ENABLE_ONEDNN_OPTS': '1'}
_BY_DEFAULT = ('stock', 'stock_iterator')
# By contender that is another package: what its environment has.
PEERS = {'flower': ('flwr[simulation]==1.41.0', 'torch==2.13.0')}
_EVERYONE = [*_CONTENDERS, *PEERS]


class Contender:
    """A process that runs rounds when asked; a context manager that ends it and what it started.

    Attributes:
      name: its name.
      ready: seconds until its first round was done; set by `await_ready`.
      idle: seconds of the rounds whose clients have no data.

    Raises:
      NotRunError: if it is a peer that cannot be installed.
    """

    def __init__(self, name: str, job: Job, timeout: float):
        command, environment = _command(name, timeout)
        options = json.dumps(dataclasses.asdict(job))
        self._errors = tempfile.TemporaryFile('w+')
        self._process = subprocess.Popen(
            [*command, options],
            cwd=_ROOT,
            env={**os.environ, **environment},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self.name, self.ready, self.idle = name, 0.0, []
        self._rounds: list[dict[str, float]] = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        with contextlib.suppress(BrokenPipeError):  # It has ended, and not read what was written.
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # The worker of stock TFF outlives it.
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def await_ready(self) -> None:
        self.ready = self._answer()['ready']

    def run(self, request: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            print(request, file=self._process.stdin, flush=True)
        answer = self._answer()
        if request == 'idle':
            self.idle.append(answer['seconds'])
        else:
            self._rounds.append(answer)

    def _answer(self) -> dict:
        # No end of file when it fails: the worker of stock TFF holds the other end of the pipe.
        while not select.select([self._process.stdout], [], [], 1.0)[0]:
            if self._process.poll() is not None:
                break
        else:
            if line := self._process.stdout.readline():
                return json.loads(line)
        status = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines() or [f'exit status {status}']
        raise NotRunError(lines[-1])

    def median(self, field: str = 'seconds') -> float:
        """Median of a field of the answers over all rounds."""
        return statistics.median(answer[field] for answer in self._rounds)


def _command(name: str, timeout: float) -> tuple[list[str], dict[str, str]]:
    """Of a contender: the command but for the job, and what its environment has."""
    if name in _CONTENDERS:
        command = [sys.executable, '-m', f'{_SCRIPTS}simulate', name]
        fast = {} if name in _BY_DEFAULT else _FAST
        return command, {'TF_CPP_MIN_LOG_LEVEL': '3', 'CUDA_VISIBLE_DEVICES': ''} | fast
    python = environments.python(name, PEERS[name], timeout)
    print(f'  {name}: {", ".join(PEERS[name])}', flush=True)
    command = [python, '-m', f'{_SCRIPTS}simulate_with_{name}']
    return command, {'PYTHONPATH': '', 'CUDA_VISIBLE_DEVICES': ''}


def main() -> None:
    args = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # Ends the contenders.
    print(
        f'machine: {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}, {platform.machine()}, '
        f'Python {platform.python_version()}\n'
    )
    for name in args.only:
        job = _TINY if args.tiny else _JOBS[name]
        print(f'job {name}: {job} (load {os.getloadavg()[0]:.2f})', flush=True)
        contenders = _measure(job, args)
        _print_table(contenders, job)
        if not args.tiny:
            _print_targets(name, contenders)
        print(flush=True)


def _arguments() -> argparse.Namespace:
    parser = measuring.parser(__doc__)
    parser.add_argument('--only', default='S,M', help='jobs, separated by commas')
    parser.add_argument('--contenders', default='', help='which, separated by commas')
    parser.add_argument('--peers', action='store_true', help='another package, too')
    parser.add_argument('--rounds', type=int, default=9, help='measured rounds of each')
    parser.add_argument('--tiny', action='store_true', help='at a size of no interest')
    parser.add_argument(
        '--timeout', type=float, default=1800.0, help='seconds for installing a package'
    )
    args = parser.parse_args()
    args.contenders = args.contenders or ','.join(_EVERYONE if args.peers else _CONTENDERS)
    for flag, allowed in (('only', _JOBS), ('contenders', _EVERYONE)):
        names = getattr(args, flag).split(',')
        if not set(names) <= set(allowed):
            parser.error(f'--{flag}={",".join(names)}: must be among {", ".join(allowed)}')
        setattr(args, flag, names)
    if args.rounds < 1:
        parser.error(f'--rounds={args.rounds}: must be at least 1')
    return args


def _measure(job: Job, args) -> dict[str, Contender]:
    """The contenders that run, when they have ended; the others are reported."""
    with contextlib.ExitStack() as stack:
        running = []
        for name in args.contenders:  # One after the other: starting takes all cores.
            with _reporting(name):
                contender = stack.enter_context(Contender(name, job, args.timeout))
                contender.await_ready()
                running.append(contender)
        for request in ['round'] * args.rounds + ['idle'] * min(args.rounds, 5):
            for contender in list(running):
                if request == 'round' or contender.name.startswith(('dpfl', 'stock')):
                    running.remove(contender)
                    with _reporting(contender.name):
                        contender.run(request)
                        running.append(contender)
        return {name: one for name in _EVERYONE for one in running if one.name == name}


@contextlib.contextmanager
def _reporting(name: str):
    """A context that ends if the contender cannot be measured, and reports why."""
    try:
        yield
    except NotRunError as error:
        print(f'not run: {name}: {error}', flush=True)


def _print_table(contenders: dict[str, Contender], job: Job) -> None:
    header = ('', 's/round', 'clients/s', 'CPU s', 'idle s', 'ready s', 'peak GB', 'times dpfl')
    rows = [header]
    for name, one in contenders.items():
        seconds, dpfl = one.median(), contenders.get('dpfl')
        rows.append(
            (
                name,
                f'{seconds:.3f}',
                f'{job.clients / seconds:.1f}',
                f'{one.median("cpu_seconds"):.2f}',
                f'{statistics.median(one.idle):.3f}' if one.idle else '',
                f'{one.ready:.1f}',
                f'{one.median("peak_bytes") / 1e9:.2f}',
                f'{seconds / dpfl.median():.2f}' if dpfl else 'nan',
            )
        )
    for first, *others in rows:
        print(f'  {first:<17}' + ''.join(f'{cell:>11}' for cell in others))


def _print_targets(name: str, contenders: dict[str, Contender]) -> None:
    """Prints the target ratios of seconds per round, where both contenders were measured."""
    if 'dpfl' not in contenders:
        return
    ratios = {
        other: one.median() / contenders['dpfl'].median() for other, one in contenders.items()
    }
    if 'dpfl_ray' in ratios:
        ratio, most = ratios['dpfl_ray'], _MOST_ON_RAY[name]
        _target(f'dpfl_ray / dpfl: {ratio:.2f}', f'at most {most:.2f}', ratio <= most)
    for other, least in _LEAST[name].items():
        if other in ratios:
            ratio = ratios[other]
            _target(f'{other} / dpfl: {ratio:.2f}', f'at least {least:.2f}', ratio >= least)
    if name == 'M':
        share = statistics.median(contenders['dpfl'].idle) / contenders['dpfl'].median()
        _target(f'moving weights: {share:.0%} of a round', 'at most 15 %', share <= 0.15)
    if 'floor' in ratios:
        print(f'  {1 / ratios["floor"]:.2f} times the matrix products alone')


def _target(figure: str, target: str, met: bool) -> None:
    print(f'  {figure}; target {target}: {"met" if met else "missed"}')


if __name__ == '__main__':
    main()
