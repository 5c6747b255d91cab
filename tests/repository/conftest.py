"""The wheel, made once for all tests that need it."""

import shutil
import subprocess
import sys
import zipfile

import pytest

from tests import paths

_SOURCES = (
    'dpfl',
    'experiments',
    'configs',
    'setup.py',
    'pyproject.toml',
    'LICENSE',
    'requirements.lock',
    'requirements-gpu.lock',
)


@pytest.fixture(scope='session', name='wheel')
def _wheel(tmp_path_factory):
    """The wheel, made of a copy: a folder `build` of the checkout may have old files."""
    source, made = tmp_path_factory.mktemp('source'), tmp_path_factory.mktemp('wheel')
    for name in _SOURCES:
        copy = shutil.copytree if (paths.ROOT / name).is_dir() else shutil.copy
        copy(paths.ROOT / name, source / name)
    pip = [sys.executable, '-m', 'pip', 'wheel', '--no-deps', '--no-build-isolation', '--no-index']
    done = subprocess.run(
        [*pip, f'--wheel-dir={made}', '.'], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = made.glob('dpfl-*.whl')
    return wheel


@pytest.fixture(scope='session', name='site')
def _site(wheel, tmp_path_factory):
    """What the wheel would install."""
    folder = tmp_path_factory.mktemp('site')
    zipfile.ZipFile(wheel).extractall(folder)
    return folder
