"""What the command line replaces in a preset, and what stays."""

import pytest

from dpfl.cli.command import flagfiles
from tests import forked_binaries

_FILES = {
    'a': [
        '--mechanism=blt',
        '--strategy=blt_b100',
        '--rounds=30',
        '--min_separation=30',
        '--target_epsilon=1',
        '--client_max_batches=2',
        '--audit',
    ],
    'b': ['--mechanism=tree', '--tree_released=prefix_sums', '--noise_multiplier=2'],
}
_A = _FILES['a']


def _adjusted(*arguments):
    return flagfiles.adjust(arguments, _FILES.__getitem__)


@pytest.mark.parametrize(
    'own, dropped',
    [
        ([], []),
        (['--clip_norm=2'], []),
        (['--mechanism=tree'], ['--strategy=blt_b100']),
        (['--mechanism', 'tree'], ['--strategy=blt_b100']),
        (['--mechanism=blt'], []),
        (['--mechanism=blt', '--blt_decay=0.9', '--blt_scale=0.1'], ['--strategy=blt_b100']),
        (['--mechanism=tree', '--strategy=x'], []),
        (['--mechanism=none'], ['--strategy=blt_b100', '--target_epsilon=1']),
        (['--noise_multiplier=2'], ['--target_epsilon=1']),
        (['--target_epsilon=2'], []),
        (['--client_update=fedsgd'], ['--client_max_batches=2']),
        (['--client_update=fedavg'], []),
    ],
)
def test_what_no_longer_applies_is_dropped_and_said(own, dropped):
    found = _adjusted('--flagfile=a', *own)
    assert list(found.arguments) == [line for line in _A if line not in dropped] + own
    assert [
        message.partition(' of the preset: dropped, since --')[0] for message in found.messages
    ] == dropped


def test_a_separation_beyond_the_last_round_is_the_number_of_rounds():
    found = _adjusted('--flagfile=a', '--rounds=20')
    assert found.arguments == (*_A, '--min_separation=20', '--rounds=20')
    assert found.messages == (
        '--min_separation=30 of the preset: 20 here, since --rounds=20 is given',
    )
    for own in (['--rounds=30'], ['--rounds=20', '--min_separation=25'], ['--rounds=x']):
        assert _adjusted('--flagfile=a', *own).messages == ()


def test_only_presets_change():
    assert _adjusted('--strategy', 'x', '--mechanism=tree').messages == ()
    found = _adjusted('--strategy', 'x', '--flagfile', 'a', '--flagfile=b', '--mechanism=none')
    assert found.arguments == (
        *('--strategy', 'x', '--mechanism=blt', '--rounds=30', '--min_separation=30'),
        *('--client_max_batches=2', '--audit', '--mechanism=tree', '--mechanism=none'),
    )
    # A flag after the preset wins; the words of a flag without `=` stay together.
    assert _adjusted('--flagfile=a', '--rounds', '9').arguments[-2:] == ('--rounds', '9')


def test_a_binary_says_what_it_drops(tmp_path):
    path = tmp_path / 'preset.flags'
    path.write_text(
        '--mechanism=tree\n--tree_released=prefix_sums\n--rounds=8\n--noise_multiplier=2\n'
    )
    done = forked_binaries.run(
        'report_privacy', f'--flagfile={path}', '--mechanism=gaussian', '--delta=1e-6'
    )
    assert done.returncode == 0
    assert done.stderr == (
        '--tree_released=prefix_sums of the preset: dropped, since --mechanism=gaussian is given\n'
    )
