"""The protocol of a process of benchmarks/simulation.py, which runs rounds of a job on request.

Lines on standard input are requests: `round`, or `idle` for a round whose clients have no data.
Each answer is a line of JSON on standard output; the first line says that the process is ready.

Uses NumPy and the standard library only, since it runs in the environment of every peer.
"""

import dataclasses
import itertools
import json
import os
import sys
from collections.abc import Iterator

import numpy as np

from benchmarks.peers import family

# For all contenders: learning rate of the clients, clip norm, noise, momentum of the server.
LEARNING_RATE, CLIP_NORM, NOISE_MULTIPLIER, MOMENTUM = 0.1, 0.5, 0.1, 0.9


@dataclasses.dataclass(frozen=True)
class Job:
    """A round; `sizes` are embedding, units and projection. All clients have `batches` batches."""

    vocabulary: int
    sizes: tuple[int, int, int]
    clients: int
    batches: int
    batch_size: int = 16
    length: int = 20

    def tokens(self) -> np.ndarray:
        """Integers [clients, batches, batch_size, length + 1]: inputs and, one later, labels."""
        shape = (self.clients, self.batches, self.batch_size, self.length + 1)
        return np.random.default_rng(0).integers(4, self.vocabulary, shape, np.int32)


def given() -> Job:
    """The job, from the command line."""
    options = json.loads(sys.argv[-1])
    return Job(**{**options, 'sizes': tuple(options['sizes'])})


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0))


def requests() -> Iterator[str]:
    """Yields requests: first one for a round that compiles everything, then reports ready."""
    for number, request in enumerate(itertools.chain(['round'], map(str.strip, sys.stdin))):
        yield request
        if number == 0:
            _answer(ready=family.age())


class measured(family.Use):  # noqa: N801
    """A context manager that answers a request with the time of its block."""

    _is_first = True

    def __exit__(self, *error):
        super().__exit__(*error)
        if not measured._is_first and error == (None, None, None):
            _answer(
                seconds=self.seconds,
                cpu_seconds=self.cpu_seconds,
                peak_bytes=family.peak_bytes(),
            )
        measured._is_first = False


class Turns:
    """Requests for a package that runs its own loop; create it when the first round begins."""

    def __init__(self):
        self._requests = requests()
        next(self._requests)
        self._measured = measured().__enter__()

    def next(self) -> bool:
        """Answers for the round that has ended, and waits for the next; False if there is none."""
        self._measured.__exit__(None, None, None)
        if next(self._requests, None) is None:
            return False
        self._measured = measured().__enter__()
        return True


def _answer(**values):
    print(json.dumps(values), flush=True)
