"""Installs TensorFlow Federated and all it needs beside a current TensorFlow."""

import argparse
import importlib.util
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from importlib import metadata

from dpfl import presets
from dpfl.runtime import tff_import

_PYTHONS = ((3, 11), (3, 12), (3, 13))
_PTH = 'dpfl_tff.pth'
# Line of the lock that ends the packages of a run.
_END = '# Documentation and development.'
# Line of a .pth file of site-packages, with which a program need not import dpfl before TFF. dpfl
# is loaded when one of the packages is imported, so the start of Python takes no longer.
PTH_LINE = (
    "import sys; sys.meta_path.insert(0, type('DpflTff', (), {'find_spec': staticmethod("
    f'lambda name, path=None, target=None: name in {tuple(tff_import.VERSIONS)} and __import__('
    "'dpfl.runtime.tff_import', fromlist=['FINDER']).FINDER.find_spec(name, path) or None)}))\n"
)
_CPU, _GPU = 'tensorflow-cpu', 'tensorflow'
# A federated sum in a program that does not import dpfl before TFF.
_PROOF = """
import os
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
import tensorflow_federated as tff
import numpy as np
from dpfl.runtime import contexts

total = tff.federated_computation(tff.federated_sum, tff.FederatedType(np.int32, tff.CLIENTS))
with contexts.local_runtime():
    assert total([1, 2, 39]) == 42
"""


def run(arguments: Sequence[str], refuse: Callable[[str], object]) -> str:
    """Installs the packages that the environment lacks, and tries them.

    pip cannot resolve TFF 0.87, which asks for Python 3.11 or earlier and for TensorFlow 2.14. So
    the versions and hashes are those of `requirements.lock`, with which the tests run. A package
    that is there stays if it has the same major version and is not older; else it is replaced.

    Args:
      arguments: `--dry_run`, `--gpu`.
      refuse: ends the program with a message.

    Returns:
      The changes, or with --dry_run the planned ones: packages replaced, and lines of pip.
    """
    parser = argparse.ArgumentParser(prog='dpfl install_tff', description=__doc__)
    parser.add_argument('--dry_run', action='store_true', help='print the commands only')
    parser.add_argument('--gpu', action='store_true', help='TensorFlow for NVIDIA GPUs')
    options = parser.parse_args(arguments)
    if sys.version_info[:2] not in _PYTHONS:
        known = ', '.join('{}.{}'.format(*version) for version in _PYTHONS)
        refuse(f'install_tff: needs Python {known}, and this is {platform.python_version()}')
    if (sys.platform, platform.machine()) != ('linux', 'x86_64'):
        refuse(f'install_tff: needs Linux x86_64, and this is {sys.platform} {platform.machine()}')

    pins = _pins(options.gpu)
    there = {name: _version(name) for name in (*pins, _CPU, _GPU)}
    missing = [name for name, pin in pins.items() if not _serves(there[name], _locked(pin))]
    old = [name for name in (_CPU, _GPU) if there[name] and name not in pins]
    changes = [f'removes {name} {there[name]}' for name in old]
    changes += [
        f'replaces {name} {there[name]} by {_locked(pins[name])}' for name in missing if there[name]
    ]
    remove = [*_pip('uninstall'), *old]
    install = [*_pip('install'), '--no-deps', '--only-binary=:all:']
    if options.dry_run:
        lines = [*changes, ' '.join(remove)] if old else changes
        names = [pins[name].split()[0] for name in missing]
        return '\n'.join([*lines, ' '.join([*install, *names])] if names else lines) or 'complete'

    for change in changes:
        print(change, file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        hashed = pathlib.Path(folder) / 'requirements.txt'
        hashed.write_text(''.join(f'{pins[name]}\n' for name in missing), encoding='utf-8')
        if old:
            _call(remove, refuse)
        if missing:
            _call([*install, '--require-hashes', '-r', str(hashed)], refuse)
    site = pathlib.Path(sysconfig.get_path('purelib'))
    (site / _PTH).write_text(PTH_LINE, encoding='utf-8')
    _call([sys.executable, '-c', _PROOF], refuse)
    count = f'{len(missing)} packages installed' if missing else 'nothing was missing'
    return f'{count}; TensorFlow Federated computes a federated sum'


def _pins(gpu: bool) -> dict[str, str]:
    """Lines of the lock, with their hashes, of all that runs; by name."""
    text = presets.lock().read_text(encoding='utf-8').partition(_END)[0]
    if gpu:
        text += presets.lock(gpu=True).read_text(encoding='utf-8')
    joined = text.replace('\\\n', '')
    pins = {line.partition('==')[0]: line for line in joined.splitlines() if '==' in line}
    # The two packages have the same modules.
    if gpu:
        del pins[_CPU]
    elif _serves(_version(_GPU), _locked(pins[_CPU])):
        pins[_GPU] = pins.pop(_CPU)
    return pins


def _locked(pin: str) -> str:
    return pin.partition('==')[2].split()[0]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _serves(version: str | None, locked: str) -> bool:
    """Whether a version may stay: of 0.x the locked one only, else the same major and not older."""
    if version is None or locked.startswith('0.'):
        return version == locked
    numbers, expected = (
        [int(number) for number in re.findall(r'\d+', text.partition('+')[0])]
        for text in (version, locked)
    )
    return numbers[0] == expected[0] and numbers >= expected


def _pip(action: str) -> list[str]:
    """Start of a command line of pip, or of uv in an environment without pip."""
    if importlib.util.find_spec('pip') is None and shutil.which('uv'):
        return ['uv', 'pip', action, '--python', sys.executable]
    options = {'install': '--ignore-requires-python', 'uninstall': '--yes'}
    return [sys.executable, '-m', 'pip', action, options[action]]


def _call(command: Sequence[str], refuse: Callable[[str], object]) -> None:
    if subprocess.run(command, check=False, stdout=sys.stderr).returncode:
        refuse(f'install_tff: {" ".join(command[:4])} failed, see above')
