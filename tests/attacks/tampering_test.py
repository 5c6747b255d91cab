"""No change of a finished run goes unnoticed; the attack says so if one does."""

import sys

import pytest

from dpfl.accounting.records.verification import Verification
from dpfl.simulation import run_directory
from tests.attacks import tampering

pytestmark = [pytest.mark.tff, pytest.mark.exhaustive]


@pytest.fixture(scope='module', name='run')
def _run(tmp_path_factory):
    return tampering.train(tmp_path_factory.mktemp('attacked'))


def test_every_change_is_noticed(run):
    results = tampering.attack(run)
    assert len(results) > 60
    assert [name for name, said in results.items() if not said] == []
    # Each is named: what is said begins with the file that was changed.
    name = 'saved_model/saved_model.pb'
    assert results[f'a bit of {name}'][0].startswith(f'{name}: its SHA-256 is not')
    assert results['log cut to one round'][0].startswith('participation.npz: is not the one')
    assert results['noise of the plan times 10'][0].startswith('plan.json: noise_multiplier is 20')
    assert 'noise_multiplier is 20.0, by config.json 2.0' in str(
        results['noise of the plan times 10, new journal']
    )
    assert tampering.noticed(run) == []


def test_a_change_that_goes_unnoticed_is_told(run, monkeypatch, capsys):
    def verify_nothing(path):
        return Verification(None, None, ())

    monkeypatch.setattr(run_directory, 'verify', verify_nothing)
    monkeypatch.setattr(sys, 'argv', ['tampering.py', f'--run_dir={run}'])
    with pytest.raises(SystemExit) as caught:
        tampering.main()
    assert caught.value.code == 1
    assert 'UNNOTICED' in capsys.readouterr().out
