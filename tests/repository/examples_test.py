"""Every public name has an example in its docstring, and the examples are true."""

import doctest
import importlib
import inspect

import dp_accounting
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import dpfl
from dpfl.runtime import contexts

_ROOMS = (
    'dpfl',
    'dpfl.participation',
    'dpfl.mechanisms',
    'dpfl.accounting',
    'dpfl.planning',
    'dpfl.aggregators',
    'dpfl.learning',
    'dpfl.simulation.training',
    'dpfl.strategies',
)
# Seconds each: searches, runs, and processes that TFF builds.
_SLOW = {
    'Candidate',
    'choose',
    'optimize_block_blt',
    'build_noise_ring',
    'build_weighted_aggregator',
    'build_dp_fedavg',
    *('Cost', 'dry_run', 'TrainResult', 'train'),
    *('PretrainResult', 'pretrain', 'generate'),
}
_HOW = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def _public():
    for room in _ROOMS:
        module = importlib.import_module(room)
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):  # Constants have none.
                marks = pytest.mark.standard if name in _SLOW or 'gan' in name else ()
                yield pytest.param(module, name, id=f'{room}.{name}', marks=marks)


@pytest.mark.parametrize('module, name', _public())
def test_a_public_name_has_an_example_that_holds(module, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = {'np': np, 'tf': tf, 'tff': tff, 'keras': keras, 'dp_accounting': dp_accounting}
    known['Participation'] = dpfl.Participation
    for other in ('mechanisms', 'accounting', 'aggregators', 'learning'):
        known[other] = importlib.import_module(f'dpfl.{other}')
    known |= {each: getattr(module, each) for each in module.__all__}
    found = doctest.DocTestFinder(recurse=False).find(getattr(module, name), name, globs=known)
    examples = [test for test in found if test.examples]
    assert examples, f'{name} has no example'
    told = []
    for test in examples:
        with contexts.local_runtime():
            doctest.DocTestRunner(optionflags=_HOW).run(test, out=told.append)
    assert not told, ''.join(told)
