"""TFF's own runtime: its results, and that its worker ends with the block."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow_federated as tff

from dpfl.runtime import native
from tests import paths

pytestmark = pytest.mark.tff


def _workers():
    """Processes of TFF's worker that this process has started."""
    found = []
    for path in pathlib.Path('/proc').glob('[0-9]*'):
        try:
            parent = int((path / 'stat').read_text().rpartition(')')[2].split()[1])
            command = (path / 'cmdline').read_bytes()
        except OSError:
            continue
        if parent == os.getpid() and b'worker_binary' in command:
            found.append(int(path.name))
    return found


@tff.tensorflow.computation(np.int32)
def _square(x):
    return x * x


@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def _total(values):
    return tff.federated_sum(tff.federated_map(_square, values))


def test_the_worker_ends_with_the_block():
    before = _workers()
    with native.native_runtime(max_concurrent_clients=1):
        assert _total([1, 2, 3]) == 14
        (worker,) = set(_workers()) - set(before)
    assert worker not in _workers()


def test_the_worker_ends_when_the_block_fails():
    before = _workers()
    with pytest.raises(ZeroDivisionError) as caught:
        with native.native_runtime():
            kept = tff.framework.get_context_stack().current
            _total([1])
            assert len(_workers()) == len(before) + 1
            1 / 0  # noqa: B018
    assert _workers() == before
    del kept, caught


def test_without_a_computation_nothing_is_started():
    before = _workers()
    with native.native_runtime():
        assert _workers() == before


_PROGRAM = """
import numpy as np, tensorflow_federated as tff
from dpfl.runtime import contexts

@tff.tensorflow.computation(np.int32)
def square(x):
    return x * x

with contexts.local_runtime():
    print(square(3))
print(square(4))
"""


@pytest.mark.exhaustive
def test_a_program_that_also_uses_the_default_context_ends_in_order():
    done = subprocess.run(
        [sys.executable, '-c', _PROGRAM],
        cwd=paths.ROOT,
        env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'},
        capture_output=True,  # A worker that stayed behind would keep the pipes open.
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.split() == ['9', '16'] and 'Traceback' not in done.stderr
