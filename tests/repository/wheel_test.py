"""The wheel: what is in it, and its commands in another directory, with and without TensorFlow."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from dpfl import presets
from dpfl.cli import catalogue
from tests import paths

_SOURCES = ('dpfl', 'configs', 'setup.py', 'pyproject.toml', 'requirements.lock', 'LICENSE')
# As if these were not installed. Whoever has no TFF has none of what comes with it.
_HIDDEN = ('tensorflow', 'tensorflow_federated', 'tensorflow_privacy', 'google', 'grpc', 'jax')
_HIDE = """\
import sys


class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {names!r}:
            raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)


sys.meta_path.insert(0, Hidden())
"""
_REPORT = (
    'report --mechanism=tree --rounds=2000 --min_separation=314 --max_participations=6 '
    '--noise_multiplier=7 --delta=1e-10 --accountant=rdp --format=json'
).split()
# Flags with which a command comes to where it needs TFF.
_NEED_TFF = {
    'audit_privacy': '--mechanism=tree --rounds=8 --min_separation=8 --noise_multiplier=2 '
    '--delta=1e-6',
    'compare_vocabularies': '--data_path=texts.jsonl --target_epsilon=1',
    'debug_images': '--flagfile=debug_images --output_dir=out',
    'debug_text': '--flagfile=debug_text --output_dir=out',
    'detection_power': '--flagfile=detection_power_text --output_dir=out',
    'detection_power_images': '--flagfile=detection_power_images --output_dir=out',
    'pretrain': '--public_text=texts.txt --output=out',
    'start_worker': '--port=8000',
    'suggest': '--data_path=texts.jsonl',
    'text_baselines': '--data_path=texts.jsonl',
    'train': '--flagfile=synthetic_text.blt --output_dir=out',
    'train_gan': '--flagfile=emnist.004.gan --task=synthetic_glyphs --output_dir=out',
}


@pytest.fixture(scope='module', name='wheel')
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


@pytest.fixture(scope='module', name='site')
def _site(wheel, tmp_path_factory):
    """What the wheel would install."""
    folder = tmp_path_factory.mktemp('site')
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


@pytest.fixture(name='run')
def _run(site, tmp_path):
    """Runs the command of the unpacked wheel in another directory."""
    hide = tmp_path / 'hide'
    hide.mkdir()
    (hide / 'sitecustomize.py').write_text(_HIDE.format(names=_HIDDEN))
    work = tmp_path / 'work'
    work.mkdir()

    def run(*arguments, has_tff=False):
        places = [str(site)] if has_tff else [str(site), str(hide)]
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
    for needed in (
        'dpfl/py.typed',
        'dpfl/__main__.py',
        'dpfl/configs/synthetic_text.blt.flags',
        'dpfl/configs/studies/mechanisms.json',
        'dpfl/configs/studies/text.flags',
        'dpfl/configs/presets.json',
        'dpfl/configs/requirements.lock',
        'dpfl/strategies/blt_b400.npz',
        'dpfl/published/tables/published.json',
        'dpfl/published/figures/statements.json',
        'dpfl/accounting/reports/privacy_report.schema.json',
    ):
        assert needed in names
    kept = subprocess.run(
        ['git', 'ls-files', 'dpfl', 'configs'],
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    inside = {re.sub('^configs/', 'dpfl/configs/', name) for name in kept}
    assert inside <= set(names)


def test_the_wheel_has_one_console_script_and_light_requirements(wheel):
    archive = zipfile.ZipFile(wheel)
    (info,) = {name.partition('/')[0] for name in archive.namelist() if '.dist-info/' in name}
    scripts = archive.read(f'{info}/entry_points.txt').decode()
    assert scripts.split() == ['[console_scripts]', 'dpfl', '=', 'dpfl.cli.main:main']
    needed = re.findall('^Requires-Dist: (.*)$', archive.read(f'{info}/METADATA').decode(), re.M)
    base = [each for each in needed if 'extra ==' not in each]
    assert {re.match(r'[\w-]+', each)[0] for each in base} == {
        'absl-py',
        'dp-accounting',
        'numpy',
        'scipy',
        'tqdm',
    }


def test_a_guarantee_without_tensorflow_in_another_directory(run):
    done = run(*_REPORT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)['epsilon'] == pytest.approx(8.8986, abs=5e-5)


def test_names_work_in_another_directory(run):
    done = run(
        *'report --mechanism=blt --strategy=blt_b400 --rounds=1280 --min_separation=301'.split(),
        *'--max_participations=4 --noise_multiplier=7.379 --delta=1e-10 --format=json'.split(),
    )
    assert json.loads(done.stdout)['rho'] == pytest.approx(0.1534, abs=5e-5)
    done = run('reproduce_tables', '--only=002-T4')
    assert done.returncode == 0 and '002-T4' in done.stdout, done.stderr
    assert run('lock').stdout.rstrip() == presets.lock().read_text().rstrip()


@pytest.mark.tff
@pytest.mark.exhaustive
@pytest.mark.parametrize('name', ['quickstart', 'configs/quickstart.flags'])
def test_a_run_in_another_directory(run, name):
    done = run(
        'train',
        f'--flagfile={name}',
        '--rounds=2',
        '--clients_per_round=10',
        '--output_dir=out',
        '--format=json',
        has_tff=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)['rounds'] == 2


def test_a_study_in_another_directory(site, tmp_path):
    code = (
        'import dpfl\n'
        'from dpfl.studies import definition\n'
        'print(dpfl.__file__, definition.load("mechanisms").name, definition.load("noise").name)\n'
    )
    done = subprocess.run(
        [sys.executable, '-c', code],
        cwd=tmp_path,
        env={**os.environ, 'PYTHONPATH': str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(site / 'dpfl/__init__.py'), 'mechanisms', 'noise']


@pytest.mark.parametrize('name', sorted(_NEED_TFF))
def test_what_needs_tff_says_so_in_one_line(run, tmp_path, name):
    (tmp_path / 'work/texts.jsonl').write_text('{"client": "a", "text": "one two"}\n')
    (tmp_path / 'work/texts.txt').write_text('one two\n' * 100)
    done = run(name, *_NEED_TFF[name].split())
    assert done.returncode == 2, done.stderr
    assert done.stderr.count('\n') == 1 and done.stdout == ''
    assert done.stderr.startswith(f'error: dpfl {name} needs TensorFlow Federated'), done.stderr
    assert 'dpfl lock > tff.lock; pip install --no-deps --require-hashes -r tff.lock' in done.stderr


def test_no_command_has_a_traceback_without_tff(run):
    for name in catalogue.binaries():
        if name not in _NEED_TFF:
            done = run(name, '--no_such_flag')
            assert done.returncode == 2, done.stderr
            assert done.stderr.startswith('error: ') and done.stderr.count('\n') == 1, done.stderr
