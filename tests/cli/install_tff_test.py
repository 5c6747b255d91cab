"""`dpfl install_tff`: what it would install, replace and run. Nothing is installed here."""

import pathlib
import sys
import sysconfig

import pytest

from dpfl.cli import install_tff


def _refuse(message):
    raise SystemExit(message)


@pytest.fixture(name='versions')
def _versions(monkeypatch):
    """What is installed; all that is wanted, unless a test changes it."""
    pins = install_tff._pins(gpu=False)
    found = {name: install_tff._locked(pin) for name, pin in pins.items()}
    monkeypatch.setattr(install_tff, '_version', found.get)
    return found


@pytest.fixture(name='calls')
def _calls(monkeypatch, tmp_path):
    """Command lines that would have been run, with the requirements of the moment."""
    made = []

    def call(command, refuse):
        del refuse
        files = [pathlib.Path(word).read_text() for word in command if word.endswith('.txt')]
        made.append((list(command), *files))

    monkeypatch.setattr(install_tff, '_call', call)
    monkeypatch.setattr(sysconfig, 'get_path', lambda name: str(tmp_path))
    return made


def test_what_runs_is_pinned_with_hashes_and_a_gpu_takes_the_place_of_the_other_package():
    cpu, gpu = install_tff._pins(gpu=False), install_tff._pins(gpu=True)
    assert {'tensorflow-federated', 'tensorflow-privacy', 'keras', 'tf-keras', 'ray'} <= set(cpu)
    assert not {'pytest', 'mkdocs', 'ruff'} & set(cpu)
    assert all('--hash=sha256:' in pin for pin in cpu.values())
    assert install_tff._locked(cpu['tensorflow-federated']) == '0.87.0'
    assert set(cpu) - set(gpu) == {'tensorflow-cpu'}
    assert {'tensorflow', 'nvidia-cudnn-cu12'} <= set(gpu) - set(cpu)


@pytest.mark.parametrize(
    'version, locked, may_stay',
    [
        (None, '1.2', False),
        ('1.2', '1.2', True),
        ('1.10.1', '1.9', True),
        ('1.2.0+local.3', '1.2', True),
        ('1.1', '1.2', False),
        ('2.0', '1.2', False),
        ('0.87.1', '0.87.0', False),
    ],
)
def test_what_may_stay(version, locked, may_stay):
    assert install_tff._serves(version, locked) == may_stay


def test_a_second_call_tries_only(versions, calls, tmp_path):
    assert install_tff.run(['--dry_run'], _refuse) == 'complete'
    assert calls == []
    assert install_tff.run([], _refuse).startswith('nothing was missing;')
    assert calls == [([sys.executable, '-c', install_tff._PROOF],)]
    assert (tmp_path / 'dpfl_tff.pth').read_text() == install_tff.PTH_LINE


def test_what_is_missing_or_old_is_installed_and_said_before(versions, calls, capsys):
    del versions['tensorflow-federated']
    versions['numpy'] = '1.25.2'
    lines = install_tff.run(['--dry_run'], _refuse).splitlines()
    numpy = install_tff._locked(install_tff._pins(gpu=False)['numpy'])
    assert lines[0] == f'replaces numpy 1.25.2 by {numpy}' and len(lines) == 2
    assert 'install --ignore-requires-python --no-deps --only-binary=:all: ' in lines[1]
    assert lines[1].endswith(f'numpy=={numpy} tensorflow-federated==0.87.0') and calls == []

    assert install_tff.run([], _refuse).startswith('2 packages installed;')
    (install, requirements), _ = calls
    assert '--require-hashes' in install and requirements.count('==') == 2
    assert requirements.count('--hash=') >= 2
    assert capsys.readouterr().err == f'{lines[0]}\n'


def test_an_old_tensorflow_is_removed_and_a_new_one_stays(versions, calls):
    del versions['tensorflow-cpu']
    versions['tensorflow'] = '2.14.1'
    lines = install_tff.run(['--dry_run'], _refuse).splitlines()
    assert lines[0] == 'removes tensorflow 2.14.1'
    assert lines[1].endswith('pip uninstall --yes tensorflow')
    assert 'tensorflow-cpu==' in lines[2]
    versions['tensorflow'] = '2.21.3'
    assert install_tff.run(['--dry_run'], _refuse) == 'complete'


@pytest.mark.parametrize(
    'attribute, value, message',
    [
        ('version_info', (3, 10, 4), 'needs Python 3.11, 3.12, 3.13, and this is'),
        ('platform', 'darwin', 'needs Linux x86_64, and this is darwin'),
    ],
)
def test_other_systems_are_refused(monkeypatch, calls, attribute, value, message):
    monkeypatch.setattr(sys, attribute, value)
    with pytest.raises(SystemExit, match=message):
        install_tff.run([], _refuse)
    assert calls == []


def test_what_fails_ends_it():
    message = r'install_tff: .*-c raise SystemExit\(3\) failed, see above'
    with pytest.raises(SystemExit, match=message):
        install_tff._call([sys.executable, '-c', 'raise SystemExit(3)'], _refuse)
