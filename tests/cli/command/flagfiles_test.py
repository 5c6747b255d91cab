"""Flag files by path and by name, and what is named in them."""

import math
import re

import pytest
from absl import flags

from dpfl import _setting_texts, presets
from dpfl.cli.command import flagfiles
from dpfl.simulation.training import TrainConfig
from dpfl.simulation.training.plan import build_plan

_BLT = flagfiles.read(str(presets.FOLDER / 'synthetic_text.blt.flags'))


@pytest.mark.parametrize(
    'name',
    ['synthetic_text.blt', 'synthetic_text.blt.flags', 'configs/synthetic_text.blt.flags'],
)
def test_a_preset_is_found_by_name_from_any_directory(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert flagfiles.read(name) == _BLT != []
    for spelled in ([f'--flagfile={name}'], ['-flagfile', name]):
        assert flagfiles.expand(['--a', *spelled, '--b=1']) == ['--a', *_BLT, '--b=1']


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
    folder = tmp_path / 'folder'
    folder.mkdir()
    (folder / 'one.flags').write_text(
        '--a=1\n--flagfile=two.flags\n--flagfile=quickstart\n--strategy=blt_b400\n'
    )
    (folder / 'two.flags').write_text('--flagfile=one.flags\n--strategy=sub/x.npz\n--b=2\n')
    (folder / 'sub').mkdir()
    (folder / 'sub/x.npz').touch()
    monkeypatch.chdir(tmp_path)
    assert flagfiles.read('folder/one.flags') == [
        '--a=1',
        f'--strategy={folder.relative_to(tmp_path)}/sub/x.npz',
        '--b=2',
        *flagfiles.read('quickstart'),
        '--strategy=blt_b400',
    ]
    (tmp_path / 'sub').mkdir()
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


def test_presets_have_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert {'quickstart', 'synthetic_text.blt', 'gboard.002.blt'} <= set(presets.names())
    for name in presets.names():
        assert presets.find(name) == presets.FOLDER / f'{name}.flags'


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
