"""What the tests run under; and their order: first those without a TFF runtime, in seconds."""

import gc
import os
import signal

import pytest

from dpfl.runtime import tff_import
from tests.repository import tensor_comparison

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
os.environ.setdefault('CUDA_VISIBLE_DEVICES', '')
# Optimisers are tested, not their kept results.
os.environ['DPFL_CACHE_DIR'] = ''
# A fork of a process in which gRPC has threads ends in its handlers: TFF's own context starts some.
os.environ.setdefault('GRPC_ENABLE_FORK_SUPPORT', '0')
# What tests write does not outlive the machine, and a disk takes milliseconds for each call.
os.fsync = lambda descriptor: None
# What runs in the background of a shell ignores SIGINT, and so would all that the tests start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    if config.getoption('numprocesses', None) and not hasattr(config, 'workerinput'):
        return  # It only hands out tests: what the others import takes seconds.
    from tests import json_schema

    # Whatever report a test makes is compared with the schema of reports.
    json_schema.check_every_report()


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.get_closest_marker('tff') is not None)


def pytest_collection_finish():
    gc.freeze()  # Of libraries and tests nothing is garbage: to look for it takes seconds.


def pytest_sessionfinish():
    tff_import.drop_default_context()


@pytest.fixture(scope='module', name='local_runtime')
def _local_runtime():
    """The runtime of runs on this machine, in place of TFF's own."""
    from dpfl.runtime import contexts  # Imports TFF.

    with contexts.local_runtime():
        yield


@pytest.fixture(autouse=True)
def _tensors_are_compared_by_value(request, monkeypatch):
    if request.node.get_closest_marker('tff') is not None:
        tensor_comparison.refuse(monkeypatch)
