"""Optimisers of dpfl and jax_privacy, each run in a new process, as a user starts it."""

import dataclasses
import json
import os
import pathlib
import sys
import tempfile
import time

import numpy as np

from benchmarks.peers import environments
from benchmarks.peers.environments import NotRunError
from dpfl import mechanisms
from dpfl.participation import Participation

_SCRIPTS = pathlib.Path(__file__).resolve().parent
_ROOT = _SCRIPTS.parents[1]
_PEER_VERSION = '2.0.0'


@dataclasses.dataclass(frozen=True)
class Run:
    """A measured process: its total time, the time and peak memory it reports, and its loss."""

    seconds: float
    inside: float
    peak_bytes: int
    loss: float


@dataclasses.dataclass(frozen=True)
class Problem:
    """A task for an optimiser; `size` is the number of buffers or bands."""

    task: str
    schema: tuple[int, int, int]
    size: int
    loss: str

    def __str__(self) -> str:
        unit = 'buffers' if self.task == 'blt' else 'bands'
        return f'{self.task}, {self.size} {unit}, {self.loss} loss, {describe(self.schema)}'

    def evaluate(self, fields: dict[str, np.ndarray]) -> float:
        """The loss of the mechanism that a process has found."""
        mechanism = mechanisms.from_dict(
            {'mechanism': self.task, **{name: value.tolist() for name, value in fields.items()}}
        )
        return getattr(mechanism, f'{self.loss}_loss')(Participation(*self.schema))


@dataclasses.dataclass(frozen=True)
class Package:
    """How to run tasks with a package: command and environment variables."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str]


def dpfl() -> Package:
    script = str(_SCRIPTS / 'with_dpfl.py')
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get('PYTHONPATH')]))
    return Package('dpfl', (sys.executable, script), {'PYTHONPATH': path, 'DPFL_CACHE_DIR': ''})


def jax_privacy(task: str, timeout: float) -> Package | None:
    """jax_privacy, installed if necessary. If that fails, prints a line and returns None."""
    try:
        python, versions = installed_jax_privacy(timeout)
    except NotRunError as error:
        print(f'not run: {task}: jax_privacy: {error}')
        return None
    print(f'  {versions}')
    script = str(_SCRIPTS / 'with_jax_privacy.py')
    return Package('jax_privacy', (python, script), {'PYTHONPATH': '', 'JAX_PLATFORMS': 'cpu'})


def installed_jax_privacy(timeout: float) -> tuple[str, str]:
    """The Python interpreter of jax_privacy's environment, and the versions of its packages."""
    requirements = (f'jax-privacy=={_PEER_VERSION}',)
    return environments.python('jax_privacy', requirements, timeout, also=('jax',))


def measure(
    problem: Problem, package: Package, *, time_limit: float, timeout: float, route: str = ''
) -> Run:
    """Solves a problem in a new process, by the package's function `route` if it has several.

    Raises:
      NotRunError: if the process fails, takes too long, or finds no valid mechanism.
    """
    with tempfile.TemporaryDirectory() as directory:
        output = pathlib.Path(directory) / 'result.npz'
        options = {
            'schema': problem.schema,
            'size': problem.size,
            'loss': problem.loss,
            'time_limit': time_limit,
        }
        command = [*package.command, route or problem.task, json.dumps(options), str(output)]
        started = time.perf_counter()
        environments.call(command, timeout, package.environment)
        seconds = time.perf_counter() - started
        with np.load(output) as file:
            result = dict(file)
    inside, peak_bytes = float(result.pop('seconds')), int(result.pop('peak_bytes'))
    try:
        loss = problem.evaluate(result)
    except ValueError as error:
        raise NotRunError(f'not a mechanism: {error}') from None
    print(
        f'{route or problem.task}: {package.name} took {seconds:.2f} s', file=sys.stderr, flush=True
    )
    return Run(seconds, inside, peak_bytes, loss)


def describe(schema: tuple[int, int, int]) -> str:
    rounds, min_separation, max_participations = schema
    return f'{rounds} rounds, separation {min_separation}, {max_participations} participations'
