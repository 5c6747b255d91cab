"""TFF's own runtime: its results, and that its worker ends with the block."""

import os
import pathlib

import numpy as np
import pytest
import tensorflow_federated as tff

from tests.runtime import tff_context

pytestmark = [pytest.mark.tff, pytest.mark.standard]


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


def test_the_worker_ends_when_the_block_fails():
    before = _workers()
    with pytest.raises(ZeroDivisionError) as caught:
        with tff_context.native_runtime():
            kept = tff.framework.get_context_stack().current
            assert _workers() == before
            assert _total([1, 2, 3]) == 14
            assert len(_workers()) == len(before) + 1
            1 / 0  # noqa: B018
    assert _workers() == before
    del kept, caught
