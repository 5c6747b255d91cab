"""The set-up files agree with one another, and the set-up script keeps its promises."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
from importlib import metadata

import pytest
from packaging import requirements, utils

from tests import paths

ROOT = paths.ROOT
HASH = re.compile(r'--hash=sha256:[0-9a-f]{64}')


def read(name: str) -> str:
    return (ROOT / name).read_text()


def locked() -> dict[str, list[str]]:
    """The entries of the lock: requirement -> its hash options."""
    text = re.sub(r'^#.*\n', '', read('requirements.lock'), flags=re.M).replace('\\\n', '')
    entries = [line.split(' --hash') for line in text.splitlines() if line.strip()]
    return {
        first.strip(): ['--hash' + rest.strip() for rest in others] for first, *others in entries
    }


def locked_versions() -> dict[str, str]:
    entries = map(requirements.Requirement, locked())
    return {utils.canonicalize_name(each.name): str(each.specifier)[2:] for each in entries}


def dropped() -> list[str]:
    return re.findall(r'^# drop: (\S+)', read('requirements.in'), flags=re.M)


def test_every_package_of_the_lock_is_pinned_and_hashed():
    assert len(locked()) > 50
    for entry, hashes in locked().items():
        requirement = requirements.Requirement(entry)
        assert [s.operator for s in requirement.specifier] == ['=='], entry
        assert '*' not in str(requirement.specifier), entry
        assert requirement.url is None, entry
        assert hashes and all(HASH.fullmatch(option) for option in hashes), entry


def test_direct_requirements_are_locked_and_dropped_packages_are_not():
    lines = (line.split('#')[0].strip() for line in read('requirements.in').splitlines())
    for requirement in map(requirements.Requirement, filter(None, lines)):
        version = locked_versions()[utils.canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement
    assert {'tensorflow', 'libclang'} <= set(dropped())
    assert not set(dropped()) & set(locked_versions())


def test_both_locks_are_made_for_install_tff():
    runs, _, rest = read('requirements.lock').partition('# Documentation and development.')
    assert 'tensorflow-federated==0.87.0' in runs and 'ray==' in runs
    assert 'pytest==' in rest and 'mkdocs==' in rest
    gpu = read('requirements-gpu.lock')
    assert 'tensorflow==2.21.0 ' in gpu and 'nvidia-cudnn' in gpu
    assert len(HASH.findall(gpu)) >= gpu.count('==')


def test_no_index_is_named():
    text = ''.join(map(read, ('requirements.in', 'requirements.lock', 'requirements-gpu.lock')))
    assert not re.search(r'://|^\s*(-i|-f|--(extra-)?index-url|--find-links)\b', text, flags=re.M)


def test_setup_reads_the_version_without_importing(tmp_path):
    shutil.copy(ROOT / 'setup.py', tmp_path)
    (tmp_path / 'dpfl').mkdir()
    (tmp_path / 'dpfl/__init__.py').write_text("import no_such_module\n\n__version__ = '1.2.3'\n")
    command = [sys.executable, 'setup.py', '--version']
    assert subprocess.check_output(command, cwd=tmp_path, text=True).split() == ['1.2.3']


def test_scripts_can_be_executed_and_parsed():
    for script in (ROOT / '.ci/run', *(ROOT / 'scripts').glob('*.sh')):
        assert os.access(script, os.X_OK), script
        assert 'set -euo pipefail' in script.read_text(), script
        subprocess.run(['bash', '-n', script], check=True)


@pytest.fixture
def checkout(tmp_path):
    """A checkout with nothing set up yet."""
    (tmp_path / 'scripts').mkdir()
    shutil.copy(ROOT / 'scripts/bootstrap.sh', tmp_path / 'scripts')
    shutil.copy(ROOT / 'requirements.lock', tmp_path)
    return tmp_path


@pytest.fixture
def tools(tmp_path):
    """A folder for the PATH with what the script calls, and no Python."""
    folder = tmp_path / 'tools'
    folder.mkdir()
    for name in 'bash cat chmod dirname flock grep rm mv sha256sum uname'.split():
        if shutil.which(name):
            (folder / name).symlink_to(shutil.which(name))
    return folder


def add_command(folder, name, body):
    (folder / name).write_text(f'#!/usr/bin/env bash\n{body}\n')
    (folder / name).chmod(0o755)


def assert_bootstrap(checkout, tools, error):
    """The script, where no Python can set anything up, has an error, or nothing to do."""
    result = subprocess.run(
        [shutil.which('bash'), checkout / 'scripts/bootstrap.sh'],
        env={'PATH': str(tools)},
        cwd='/',
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (result.returncode != 0, result.stdout) == (bool(error), '')
    assert error in result.stderr if error else result.stderr == ''
    return result.stderr


def test_without_a_python_that_runs_bootstrap_says_which_work(checkout, tools):
    for name, body in {
        '': '',
        'python3.12': 'echo "no such version installed" >&2; exit 127',
        'python3': 'exit 1',  # What another version answers to the question.
    }.items():
        if name:
            add_command(tools, name, body)
        stderr = assert_bootstrap(checkout, tools, 'no usable Python')
        assert all(f'python3.{minor}' in stderr for minor in (11, 12, 13))
        assert len(stderr.splitlines()) <= 2
        assert not (checkout / '.venv').exists()


@pytest.fixture
def finished(checkout):
    """A checkout whose .venv looks finished: this interpreter, with empty packages."""
    packages = checkout / '.venv/packages'
    packages.mkdir(parents=True)
    names = 'tensorflow_federated tensorflow_privacy tensorflow dp_accounting pytest dpfl'
    for name in names.split():
        (packages / f'{name}.py').touch()
    (checkout / '.venv/bin').mkdir()
    start = f'PYTHONPATH="{packages}" exec "{sys.executable}" -S "$@"'
    add_command(checkout / '.venv/bin', 'python', start)
    version = '{}.{}'.format(*sys.version_info)
    record = read('requirements.lock') + f'{checkout.resolve()} {version}\n'
    digest = hashlib.sha256(record.encode()).hexdigest()
    (checkout / '.venv/bootstrap.stamp').write_text(f'{digest}  -\n')
    return checkout


def test_bootstrap_adds_the_command_to_an_environment_without_it(finished, tools):
    assert_bootstrap(finished, tools, '')
    command = finished / '.venv/bin/dpfl'
    (finished / '.venv/packages/dpfl.py').unlink()
    package = finished / '.venv/packages/dpfl/cli'
    package.mkdir(parents=True)
    (package / 'main.py').write_text('import sys\ndef main(): print(sys.argv[1:])\n')
    printed = subprocess.run([command, 'a b', '--c'], capture_output=True, text=True, check=True)
    assert printed.stdout == "['a b', '--c']\n"


@pytest.mark.parametrize(
    'damaged',
    ['bootstrap.stamp', 'bin/python', 'packages/tensorflow_federated.py', 'lock', 'place'],
)
def test_bootstrap_does_not_trust_an_unfinished_environment(finished, tools, damaged):
    if damaged == 'lock':
        with open(finished / 'requirements.lock', 'a') as lock:
            lock.write('# another\n')
    elif damaged == 'place':
        finished = finished.rename(finished.with_name('elsewhere'))
    else:
        (finished / '.venv' / damaged).unlink()
    assert_bootstrap(finished, finished / 'tools', 'no usable Python')


def test_the_environment_of_the_tests_is_the_documented_one(tools):
    if pathlib.Path(sys.prefix) != (ROOT / '.venv').resolve():
        pytest.skip('an environment of the reader, which bootstrap.sh has not made')
    assert_bootstrap(ROOT, tools, '')
    for entry in map(requirements.Requirement, locked()):
        if entry.marker is None or entry.marker.evaluate():
            assert entry.specifier.contains(metadata.version(entry.name)), entry.name
    for name in dropped():
        with pytest.raises(metadata.PackageNotFoundError):
            metadata.version(name)
