"""The wheel: what is in it, and its commands in another directory, without TensorFlow."""

import json
import os
import re
import subprocess
import sys
import zipfile

import pytest

from dpfl.cli import catalogue
from tests import paths

pytestmark = pytest.mark.standard
_LOCKS = ('requirements.lock', 'requirements-gpu.lock')
# As if these were not installed. Whoever has no TFF has none of what comes with it.
_HIDDEN = ('tensorflow', 'tensorflow_federated', 'tensorflow_privacy', 'google', 'grpc', 'jax')
_HIDE = """\
from importlib import machinery

find = machinery.PathFinder.find_spec


def find_others(name, path=None, target=None):
    return None if name.partition('.')[0] in {names!r} else find(name, path, target)


machinery.PathFinder.find_spec = find_others
"""
# Flags with which a command comes to where it needs TFF.
_NEED_TFF = {
    'audit_privacy': '--mechanism=tree --rounds=8 --min_separation=8 --noise_multiplier=2 '
    '--delta=1e-6',
    'debug_images': '--flagfile=debug_images --output_dir=out',
    'debug_text': '--flagfile=debug_text --output_dir=out',
    'pretrain': '--public_text=texts.txt --output=out',
    'suggest': '--data_path=texts.jsonl',
    'train': '--flagfile=synthetic_text.blt --output_dir=out',
    'train_gan': '--flagfile=emnist.004.gan --task=synthetic_glyphs --output_dir=out',
}


@pytest.fixture(name='run')
def _run(site, tmp_path):
    """Runs the command of the unpacked wheel in another directory, without TensorFlow."""
    hide = tmp_path / 'hide'
    hide.mkdir()
    (hide / 'sitecustomize.py').write_text(_HIDE.format(names=_HIDDEN))
    work = tmp_path / 'work'
    work.mkdir()

    def run(*arguments):
        places = [str(site), str(hide)]
        return subprocess.run(
            [sys.executable, '-m', 'dpfl', *arguments],
            cwd=work,
            env={**os.environ, 'PYTHONPATH': os.pathsep.join(places)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_the_wheel_has_all_that_is_needed_and_no_other_package(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition('/')[0] for name in names} == {'dpfl', wheel.name[:10] + '.dist-info'}
    assert {'dpfl/py.typed', *(f'dpfl/configs/{lock}' for lock in _LOCKS)} <= set(names)
    listed = ['git', 'ls-files', 'dpfl', 'configs', ':(glob)experiments/*.py']
    kept = subprocess.check_output(listed, cwd=paths.ROOT, text=True).split()
    inside = {re.sub('^(?=configs/|experiments/)', 'dpfl/', name) for name in kept}
    assert inside <= set(names)


def test_the_wheel_has_one_console_script_and_light_requirements(wheel):
    archive = zipfile.ZipFile(wheel)
    (info,) = {name.partition('/')[0] for name in archive.namelist() if '.dist-info/' in name}
    scripts = archive.read(f'{info}/entry_points.txt').decode()
    assert scripts.split() == ['[console_scripts]', 'dpfl', '=', 'dpfl.cli.main:main']
    needed = re.findall('^Requires-Dist: (.*)$', archive.read(f'{info}/METADATA').decode(), re.M)
    base = [each for each in needed if 'extra ==' not in each]
    light = {'absl-py', 'dp-accounting', 'numpy', 'scipy', 'tqdm'}
    assert {re.match(r'[\w-]+', each)[0] for each in base} == light


def test_names_work_in_another_directory_and_without_tensorflow(run):
    done = run(
        *'report --mechanism=blt --strategy=blt_b400 --rounds=1280 --min_separation=301'.split(),
        *'--max_participations=4 --noise_multiplier=7.379 --delta=1e-10 --format=json'.split(),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)['rho'] == pytest.approx(0.1534, abs=5e-5)
    done = run('reproduce_tables', '--only=002-T4-es-ES-BLT')
    assert done.returncode == 0 and '002-T4' in done.stdout, done.stderr


@pytest.mark.exhaustive
def test_no_command_has_a_traceback_without_tff(run, tmp_path):
    (tmp_path / 'work/texts.jsonl').write_text('{"client": "a", "text": "one two"}\n')
    (tmp_path / 'work/texts.txt').write_text('one two\n' * 100)
    for name in catalogue.binaries():
        done = run(name, *_NEED_TFF.get(name, '--no_such_flag').split())
        assert done.returncode == 2 and done.stdout == '', done.stderr
        assert done.stderr.startswith('error: ') and done.stderr.count('\n') == 1, done.stderr
        needs_tff = f'error: dpfl {name} needs TensorFlow Federated' in done.stderr
        assert needs_tff == (name in _NEED_TFF)
        assert done.stderr.endswith('dpfl install_tff\n') or not needs_tff
