"""Flag files by path and by name, and what the command line replaces in a preset."""

import math
import re

import pytest
from absl import flags

from dpfl import _setting_texts, presets
from dpfl.cli.command import flagfiles
from dpfl.simulation.training import TrainConfig
from dpfl.simulation.training.plan import build_plan
from tests import forked_binaries

_BLT = flagfiles.read(str(presets.FOLDER / 'synthetic_text.blt.flags'))

_A = (
    '--mechanism=blt --strategy=blt_b100 --rounds=30 --min_separation=30 --target_epsilon=1 '
    '--client_max_batches=2 --audit'
).split()
_B = ['--mechanism=tree', '--tree_released=prefix_sums', '--noise_multiplier=2']


@pytest.mark.parametrize(
    'name',
    ['synthetic_text.blt', 'synthetic_text.blt.flags', 'configs/synthetic_text.blt.flags'],
)
def test_a_preset_is_found_by_name_from_any_directory(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert flagfiles.read(name) == _BLT != []
    for spelled in ([f'--flagfile={name}'], ['-flagfile', name]):
        expanded = flagfiles.expand(['--a', *spelled, '--b=1'])
        assert expanded == [('--a', False), *((line, True) for line in _BLT), ('--b=1', False)]


def test_a_file_that_exists_wins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'synthetic_text.blt').write_text('--own\n')
    assert flagfiles.read('synthetic_text.blt') == ['--own']
    assert flagfiles.read('synthetic_text.blt.flags') == _BLT
    (tmp_path / 'quickstart').mkdir()
    assert flagfiles.read('quickstart') != []


def test_flags_of_a_file_are_as_absl_reads_them(tmp_path):
    path = tmp_path / 'a.flags'
    path.write_text('# one\n// two\n\n--a=1\n  --b \n--c=x\u2028y\r\n--d=# no comment\n')
    assert flagfiles.read(str(path)) == ['--a=1', '--b', '--c=x\u2028y', '--d=# no comment']
    assert flagfiles.read(str(path)) == [
        each.strip() for each in flags.FlagValues().read_flags_from_files([f'--flagfile={path}'])
    ]


def test_a_file_names_others_and_strategies_beside_it(tmp_path, monkeypatch):
    for folder in (tmp_path / 'folder/sub', tmp_path / 'sub'):
        folder.mkdir(parents=True)
    (tmp_path / 'folder/one.flags').write_text(
        '--a=1\n--flagfile=two.flags\n--flagfile=quickstart\n--strategy=blt_b400\n'
    )
    (tmp_path / 'folder/two.flags').write_text(
        '--flagfile=one.flags\n--strategy=sub/x.npz\n--b=2\n'
    )
    (tmp_path / 'folder/sub/x.npz').touch()
    monkeypatch.chdir(tmp_path)
    found = ['--a=1', '--strategy=folder/sub/x.npz', '--b=2', *flagfiles.read('quickstart')]
    assert flagfiles.read('folder/one.flags') == [*found, '--strategy=blt_b400']
    (tmp_path / 'sub/x.npz').touch()
    assert '--strategy=sub/x.npz' in flagfiles.read('folder/one.flags')


def test_files_that_name_each_other_twice_end(tmp_path):
    for i in range(40):
        (tmp_path / f'{i}').write_text(f'--flagfile={i + 1}\n--flagfile={i + 1}\n')
    (tmp_path / '40').write_text('--a\n')
    with pytest.raises(flags.Error, match='more than 100 files'):
        flagfiles.read(str(tmp_path / '0'))


@pytest.mark.parametrize(
    'name, message',
    [
        ('syntetic_text.blt', 'or the name of a preset, such as synthetic_text.blt'),
        ('zzz', 'must be a file, or the name of a preset$'),
        ('no/such.flags', r'cannot be read \(No such file or directory\)'),
        ('configs/../setup.py', 'cannot be read'),
        ('a\0b', 'must be a file'),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(name, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(flags.Error, match=message) as caught:
        flagfiles.read(name)
    assert str(caught.value).startswith('--flagfile=') and '\n' not in str(caught.value)


@pytest.mark.standard
@pytest.mark.parametrize(
    'name', [each for each in presets.names() if not re.search(r'debug|images|power|[.]00\d', each)]
)
def test_a_preset_for_training_makes_a_plan(name):
    # tests/repository/presets_test.py has those of papers.
    texts = {}
    for line in flagfiles.read(name):
        flag, _, value = line.removeprefix('--').partition('=')
        texts[flag] = value or 'true'
    config = _setting_texts.with_texts(TrainConfig(), texts)
    plan = build_plan(config.privacy, config.sampling, population=None, dimension=None)
    assert math.isinf(plan.rho) == (config.privacy.mechanism == 'none')


@pytest.fixture
def adjusted(monkeypatch):
    """The arguments and messages that `adjust` makes of a command line with the files above."""
    monkeypatch.setattr(flagfiles, 'read', {'a': _A, 'b': _B}.__getitem__)
    return lambda *arguments: flagfiles.adjust(arguments)


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
def test_what_no_longer_applies_is_dropped_and_said(own, dropped, adjusted):
    arguments, messages = adjusted('--flagfile=a', *own)
    assert arguments == [line for line in _A if line not in dropped] + own
    said = ' of the preset: dropped, since --'
    assert [message.partition(said)[0] for message in messages] == dropped


def test_parameters_take_the_place_of_those_of_a_run_that_continues():
    """`--resume --strategy=`: the decays of the run stayed, and both together were refused."""
    of_run = {'mechanism': 'blt', 'blt_decay': '0.9', 'blt_scale': '0.2', 'clip_norm': '2'}
    given = {'mechanism': 'blt', 'strategy': 'x'}
    assert flagfiles.replaced(of_run, given)[0] == {'blt_decay', 'blt_scale'}
    of_run = {'mechanism': 'blt', 'blt_decay': '0.9'}
    assert flagfiles.replaced(of_run, {'clip_norm': '1'})[0] == set()


def test_a_separation_beyond_the_last_round_is_the_number_of_rounds(adjusted):
    assert adjusted('--flagfile=a', '--rounds=20') == (
        [*_A, '--min_separation=20', '--rounds=20'],
        ['--min_separation=30 of the preset: 20 here, since --rounds=20 is given'],
    )
    for own in (['--rounds=30'], ['--rounds=20', '--min_separation=25'], ['--rounds=x']):
        assert adjusted('--flagfile=a', *own)[1] == []


def test_only_presets_change(adjusted):
    assert adjusted('--strategy', 'x', '--mechanism=tree')[1] == []
    files = ('--flagfile', 'a', '--flagfile=b')
    assert adjusted('--strategy', 'x', *files, '--mechanism=none')[0] == [
        *('--strategy', 'x', '--mechanism=blt', '--rounds=30', '--min_separation=30'),
        *('--client_max_batches=2', '--audit', '--mechanism=tree', '--mechanism=none'),
    ]
    # A flag after the preset wins; the words of a flag without `=` stay together.
    assert adjusted('--flagfile=a', '--rounds', '9')[0][-2:] == ['--rounds', '9']


def test_a_binary_says_what_it_drops(tmp_path):
    path = tmp_path / 'preset.flags'
    path.write_text('\n'.join([*_B, '--rounds=8', '--delta=1e-6']))
    flags = (f'--flagfile={path}', '--mechanism=gaussian')
    assert forked_binaries.run('report_privacy', *flags, check=True).stderr == (
        '--tree_released=prefix_sums of the preset: dropped, since --mechanism=gaussian is given\n'
    )
