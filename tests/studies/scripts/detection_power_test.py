"""Studies of the power of diagnoses: cells that are made once, their page and their figures."""

import json

import pytest

from tests import forked_binaries

_TEXT = (
    '--flagfile=experiments/studies/detection_power_text.flags '
    '--vocabulary_size=96 --rounds=2 --min_separation=2 '
    '--population=40 --clients_per_round=4 --eval_clients=2 --samples=200 --inject=joined_words '
    '--epsilons=8 --accountant=analytic_gaussian --seeds=1 --inject_share=1'
)
_IMAGES = (
    '--flagfile=experiments/studies/detection_power_images.flags '
    '--model=tiny --rounds=2 --population=6 '
    '--clients_per_round=2 --primary_model=tiny --primary_clients=3 --primary_steps=2 '
    '--samples=40 --eval_clients=1 --seeds=1 --inject_shares=1'
)


@pytest.mark.exhaustive
@pytest.mark.tff
@pytest.mark.parametrize(
    'binary, flags, fault',
    [
        ('studies.detection_power', _TEXT, 'joined_words'),
        ('studies.detection_power_images', _IMAGES, 'inverted'),
    ],
)
def test_finished_cells_are_not_made_again(binary, flags, fault, tmp_path):
    command = (binary, *flags.split(), f'--output_dir={tmp_path}', '--format=json')
    first = forked_binaries.run(*command)
    assert first.returncode == 0, first.stderr
    values = json.loads(first.stdout)
    names = [(each['fault'], each['share']) for each in values['cells']]
    assert names == [(None, 0), (fault, 1)]
    assert (tmp_path / f'power_{fault}.png').is_file()
    again = forked_binaries.run(*command)
    assert json.loads(again.stdout) == values and 'round' not in again.stderr
    if binary == 'studies.detection_power':
        assert (tmp_path / 'power.html').is_file()
        changed = forked_binaries.run(*command, '--client_learning_rate=1')
        assert changed.returncode == 2
        last = changed.stderr.splitlines()[-1]
        assert last.startswith('error: --client_learning_rate=1.0: must be 2.0, as for the cells')
