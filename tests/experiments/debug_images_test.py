"""The image study from its flags to its page, and what it refuses."""

import functools
import json
import shutil

import numpy as np
import pytest

from tests import forked_binaries

_FLAGS = (
    '--population=60 --primary_clients=40 --model=tiny --rounds=2 --clients_per_round=4 '
    '--noise_seed=1 --samples=40 --client_max_batches=1 --eval_clients=1 '
    '--realistic_population=40000 --inject=inverted --compare=fix --primary_model=tiny '
    '--primary_steps=60'
).split()
_run = functools.partial(forked_binaries.run, 'debug_images')


def _arrays(path) -> dict:
    with np.load(path) as arrays:
        return dict(arrays)


@pytest.mark.exhaustive
@pytest.mark.tff
def test_study_and_its_resumption(tmp_path):
    output = tmp_path / 'study'
    flags = (*_FLAGS, f'--output_dir={output}')
    summary = forked_binaries.printed('debug_images', *flags)
    results = summary['results']
    assert [(each['state'], each['subpopulation']) for each in results] == [
        (state, name) for state in ('bug', 'fixed') for name in ('high_accuracy', 'low_accuracy')
    ]
    # A quarter of the clients each without the bug; with it fewer are good, and more are bad.
    clients = [each['clients'] for each in results]
    assert 15 <= clients[2] <= 20 and 15 <= clients[3] <= 20
    assert clients[0] < clients[2] and clients[1] > clients[3]
    for each in results:
        here, realistic = each['guarantees']
        assert here['population'] == each['clients'] and here['clients_per_round'] == 4
        assert realistic['clients_per_round'] == 400
        run = output / each['state'] / each['subpopulation']
        report = json.loads((run / 'privacy_report.json').read_text())
        assert report['epsilon'] == pytest.approx(here['epsilon'])
        assert report['delta'] == pytest.approx(1 / each['clients'])
        assert any('Which clients were selected' in item for item in report['not_covered'])
    assert '<h1>' in (output / 'study.html').read_text()
    assert len(list((output / 'sheets').glob('*.png'))) == 4
    # Everything is there: only measured again. A run that is missing is trained again, to the same.
    models = {path: _arrays(path) for path in output.rglob('model.npz')}
    assert len(models) == 5
    shutil.rmtree(output / 'fixed' / 'low_accuracy')
    again = _run(*flags, '--resume', '--format=json', check=True)
    assert again.stderr.count('is finished') == 6
    repeated = json.loads(again.stdout)
    assert repeated == summary
    for path, before in models.items():
        after = _arrays(path)
        assert before.keys() == after.keys()
        for name, value in before.items():
            np.testing.assert_array_equal(after[name], value)
    # Without --resume nothing is replaced, and with another classifier nothing is continued.
    refused = _run(*flags)
    assert refused.returncode == 2 and 'must not hold an earlier' in refused.stderr
    changed = _run(*flags, '--resume', '--primary_steps=61')
    assert changed.returncode == 2
    assert changed.stderr.splitlines()[-1].startswith('error: --primary_steps=61: must be 60')
