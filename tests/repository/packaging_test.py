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
    versions = {}
    for entry in map(requirements.Requirement, locked()):
        (specifier,) = entry.specifier
        versions[utils.canonicalize_name(entry.name)] = specifier.version
    return versions


def direct() -> list[requirements.Requirement]:
    lines = (line.split('#')[0].strip() for line in read('requirements.in').splitlines())
    return [requirements.Requirement(line) for line in lines if line]


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


def test_direct_requirements_are_locked():
    for requirement in direct():
        version = locked_versions()[utils.canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement


def test_both_locks_are_made_for_install_tff():
    runs, _, rest = read('requirements.lock').partition('# Documentation and development.')
    assert 'tensorflow-federated==0.87.0' in runs and 'ray==' in runs
    assert 'pytest==' in rest and 'mkdocs==' in rest
    gpu = read('requirements-gpu.lock')
    assert 'tensorflow==2.21.0 ' in gpu and 'nvidia-cudnn' in gpu
    assert len(HASH.findall(gpu)) >= gpu.count('==')


def test_dropped_packages_are_not_locked():
    assert {'tensorflow', 'libclang'} <= set(dropped())
    assert not set(dropped()) & set(locked_versions())


def test_no_index_is_named():
    text = ''.join(map(read, ('requirements.in', 'requirements.lock', 'requirements-gpu.lock')))
    assert not re.search(r'://|^\s*(-i|-f|--(extra-)?index-url|--find-links)\b', text, flags=re.M)


def test_setup_reads_the_version_without_importing(tmp_path):
    shutil.copy(ROOT / 'setup.py', tmp_path)
    (tmp_path / 'dpfl').mkdir()
    (tmp_path / 'dpfl/__init__.py').write_text("import no_such_module\n\n__version__ = '1.2.3'\n")
    printed = subprocess.run(
        [sys.executable, 'setup.py', '--version'],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.split() == ['1.2.3']


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


def bootstrap(checkout, path):
    return subprocess.run(
        [shutil.which('bash'), checkout / 'scripts/bootstrap.sh'],
        env={'PATH': str(path)},
        cwd='/',
        capture_output=True,
        text=True,
        timeout=60,
    )


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


def test_without_a_python_bootstrap_says_which_work(checkout, tools):
    result = bootstrap(checkout, tools)
    assert result.returncode != 0
    assert all(f'python3.{minor}' in result.stderr for minor in (11, 12, 13))
    assert len(result.stderr.splitlines()) <= 2 and result.stdout == ''
    assert not (checkout / '.venv').exists()


def test_pythons_that_do_not_run_or_are_too_new_are_not_used(checkout, tools):
    add_command(tools, 'python3.12', 'echo "no such version installed" >&2; exit 127')
    add_command(tools, 'python3', 'exit 1')  # what another version answers to the question
    result = bootstrap(checkout, tools)
    assert result.returncode != 0
    assert 'no usable Python' in result.stderr
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
    start = f'PYTHONPATH={packages} exec {sys.executable} -S "$@"'
    add_command(checkout / '.venv/bin', 'python', start)
    version = '{}.{}'.format(*sys.version_info)
    record = read('requirements.lock') + f'{checkout.resolve()} {version}\n'
    digest = hashlib.sha256(record.encode()).hexdigest()
    (checkout / '.venv/bootstrap.stamp').write_text(f'{digest}  -\n')
    return checkout


def assert_nothing_to_do(checkout, tools):
    result = bootstrap(checkout, tools)  # where there is no Python to set anything up with
    assert (result.returncode, result.stdout, result.stderr) == (0, '', '')


def test_bootstrap_adds_the_command_to_an_environment_without_it(finished, tools):
    assert_nothing_to_do(finished, tools)
    command = finished / '.venv/bin/dpfl'
    (finished / '.venv/packages/dpfl.py').unlink()
    package = finished / '.venv/packages/dpfl/cli'
    package.mkdir(parents=True)
    (package / 'main.py').write_text('import sys\ndef main(): print(sys.argv[1:])\n')
    printed = subprocess.run([command, 'a b', '--c'], capture_output=True, text=True, check=True)
    assert printed.stdout == "['a b', '--c']\n"


@pytest.mark.parametrize('damage', ['no stamp', 'other lock', 'no python', 'no packages', 'moved'])
def test_bootstrap_does_not_trust_an_unfinished_environment(finished, tools, damage):
    if damage == 'no stamp':
        (finished / '.venv/bootstrap.stamp').unlink()
    elif damage == 'other lock':
        with open(finished / 'requirements.lock', 'a') as lock:
            lock.write('# another\n')
    elif damage == 'no python':
        (finished / '.venv/bin/python').unlink()
    elif damage == 'no packages':
        (finished / '.venv/packages/tensorflow_federated.py').unlink()
    else:
        finished = finished.rename(finished.with_name('elsewhere'))
        tools = finished / 'tools'
    result = bootstrap(finished, tools)
    assert result.returncode != 0 and 'no usable Python' in result.stderr


def test_the_environment_of_the_tests_is_the_documented_one(tools):
    if pathlib.Path(sys.prefix) != ROOT / '.venv':
        pytest.skip('an environment of the reader, which bootstrap.sh has not made')
    assert_nothing_to_do(ROOT, tools)
    for entry in map(requirements.Requirement, locked()):
        if entry.marker is None or entry.marker.evaluate():
            assert entry.specifier.contains(metadata.version(entry.name)), entry.name
    for name in dropped():
        with pytest.raises(metadata.PackageNotFoundError):
            metadata.version(name)
