"""Presets have the parameters that the papers state, and give their guarantees."""

import json
import math
import re

import pytest

from dpfl import Participation, mechanisms
from dpfl._setting_texts import with_texts
from dpfl.debugging.text.config import StudyConfig
from dpfl.simulation.training import TrainConfig
from dpfl.simulation.training.plan import build_plan
from tests import paths, presets

_PRESETS = presets.load()
_PUBLISHED = {row['id']: row for row in json.loads(paths.PUBLISHED.read_text())}
_POPULATION = 342_477  # Of the split train of StackOverflow.


def _plan(config):
    population = config.sampling.population or _POPULATION
    return build_plan(
        config.privacy, config.sampling, population=lambda: population, dimension=lambda: 1_000
    )


def _schema(inputs):
    """The flags of a published schema; MinS counts the rounds between two participations."""
    return dict(
        rounds=inputs['rounds'],
        min_separation=min(inputs['MinS'] + 1, inputs['rounds']),
        max_participations=inputs['MaxP'],
    )


def test_values_are_those_of_the_paper_and_all_have_a_source():
    for preset in _PRESETS.values():
        values = preset.flags()
        stated = {name: value for name, (value, _) in preset.stated.items()}
        assert {name: values[name] for name in stated} == stated
        assert not set(stated) & set(preset.taken)
        assert set(values) == {*stated, *preset.taken}
        assert all(where for _, where in preset.stated.values()) and all(preset.taken.values())


def test_every_preset_of_a_paper_is_in_the_list():
    files = {path.stem for path in (paths.ROOT / 'configs').glob('*.00?.*.flags')}
    assert files == set(_PRESETS)


def test_the_run_that_finds_a_clip_norm_has_the_noise_of_algorithm_1():
    plan = _plan(presets.config('gboard.000.adaptive'))
    assert plan.adaptive_clip.count_stddev == 25 and plan.fresh_rounds == (129, 1153)


@pytest.mark.parametrize(
    'name, row',
    {
        'gboard.000.final': '000-T1-es-ES',
        'gboard.000.otf': '000-T2-es-ES',
        'gboard.002.blt': '002-T4-es-ES-BLT',
        'gboard.002.id_id': '002-T4-id-ID-BLT',
        'gboard.002.pt_br': '002-T4-pt-BR-BLT',
        'gboard.002.pt_pt': '002-T4-pt-PT-3.12-BLT',
    }.items(),
)
def test_presets_of_keyboards_have_schema_noise_and_guarantee_of_their_row(name, row):
    inputs = _PUBLISHED[row]['inputs']
    values = _PRESETS[name].flags()
    assert {key: int(values[key]) for key in _schema(inputs)} == _schema(inputs)
    noise = inputs.get('sigma_abs', inputs.get('noise_multiplier', 7))
    assert float(values['noise_multiplier']) == noise
    strategy = f'blt_b{inputs["blt_appA"]}' if 'blt_appA' in inputs else None
    assert values.get('strategy') == strategy
    rho, published = _plan(presets.config(name)).rho, _PUBLISHED[row]['published']['zcdp']
    unit = 10 ** -_PUBLISHED[row]['decimals']['zcdp']
    # [McMahan24] rounds up, [Xu23] to the nearest.
    least = published - unit if row.startswith('002') else published - unit / 2
    assert least < rho <= least + unit


# The matrix of BandMF is made by a command; reproduce_tables compares its loss.
_OF_TABLE_3 = [
    name
    for name in _PRESETS
    if name.startswith('stackoverflow.002.') and not name.endswith('.banded')
]


# Those of which the table has no loss.
_WITHOUT_LOSS = ('blt3_once', 'blt4_once', 'banded_toeplitz')


@pytest.mark.standard
@pytest.mark.parametrize('name', _OF_TABLE_3)
def test_losses_of_table_3_of_mcmahan24(name):
    plan = _plan(presets.config(name))
    assert plan.epsilon(1e-6) == pytest.approx(8, rel=1e-4)
    kind = name.rpartition('.')[2]
    size, _, once = kind.removeprefix('blt').partition('_')
    published = {'tree': '002-T3-TreeAgg-Full'}
    row = published.get(kind, f'002-T3-BLT-nbuf{size}-k{1 if once else 6}')
    assert (row in _PUBLISHED) == (kind not in _WITHOUT_LOSS)
    if row in _PUBLISHED:
        loss = plan.mechanism.max_loss(plan.participation)
        assert loss < _PUBLISHED[row]['published']['first_column'] + 0.0051  # Printed rounded.


@pytest.mark.parametrize('users', ['c5000', 'c1667', 'c1250'])
def test_table_2_of_mcmahan18(users):
    row = _PUBLISHED[f'001-T2-K763430-C{users[1:]}-z1-T5000']
    name = f'stackoverflow.001.{users}'
    published, own = (
        _plan(presets.config(name, population=population)).epsilon(1e-9, 'moments')
        for population in (763_430, _POPULATION)
    )
    assert round(published, 3) == row['published']['eps']
    says = ' '.join(_PRESETS[name].differs)
    assert f'epsilon is {math.ceil(own * 1000) / 1000:.3f} at 1e-9' in says
    assert f'the document has {published:.3f} with 763,430' in says
    config = presets.config(name)
    assert (config.privacy.delta, config.privacy.accountant) == (1e-9, 'moments')


# The most that a client moves the model in a round, before the mean is taken: S of the document or,
# where it states none, of the preset. For [McMahan18] also sigma, the noise on the mean.
_REACHES = {
    'stackoverflow.001.c5000': (15, 0.003),
    'stackoverflow.001.c1667': (10, 0.006),
    'stackoverflow.001.c1250': (15, 0.012),
    'stackoverflow.001.baseline': (1e9, 0),
    'stackoverflow.001.fedsgd': (2, 0.002),
    **{name: (1, None) for name in _PRESETS if name.startswith('stackoverflow.002.')},
    **{name: (5, None) for name in _PRESETS if name.startswith('gboard.')},
    'gboard.000.adaptive': (0.1, None),  # The norm that it starts with.
    'stackoverflow.004.word': (0.2, None),
    'stackoverflow.004.debug': (0.2, None),
    **{name: (0.1, None) for name in _PRESETS if name.startswith('emnist.004.')},
}


def test_the_norm_that_reaches_the_model():
    assert set(_REACHES) == set(_PRESETS)
    for name, (norm, sigma) in _REACHES.items():
        values = _PRESETS[name].flags()
        rate = float(values['server_learning_rate'])
        norms = [float(values[key]) for key in values if key.endswith('clip_norm')]
        reached = max(norms) * rate
        assert reached == pytest.approx(norm, rel=1e-12), name
        if sigma is not None:
            noise = float(values.get('noise_multiplier', 0)) * reached
            assert round(noise / float(values['clients_per_round']), 3) == sigma, name


@pytest.mark.parametrize(
    'name', [name for name in _PUBLISHED if re.match('004-(S5 RNN N=342477|T3 sim|T13 sim)', name)]
)
def test_epsilons_of_augenstein20(name):
    inputs, published = _PUBLISHED[name]['inputs'], _PUBLISHED[name]['published']
    is_gan = name.startswith('004-T')
    # Of the 3,400 writers 340 are held out, and the epsilon is the printed one all the same.
    for population in {inputs['N'], min(inputs['N'], 3_060) if is_gan else inputs['N']}:
        preset = 'emnist.004.gan' if is_gan else 'stackoverflow.004.word'
        config = presets.config(preset, population=population, delta=inputs['delta'])
        plan = _plan(config)
        assert (plan.noise_multiplier, plan.participation.rounds) == (inputs['z'], inputs['rounds'])
        epsilon = plan.epsilon(config.privacy.delta, config.privacy.accountant_of(plan))
        assert float(f'{epsilon:.3g}') == pytest.approx(published['eps'], rel=1e-9)


_REAL_TEXT = [
    path
    for task in ('commit_messages', 'git_log', 'user_text')
    for path in sorted((paths.ROOT / 'configs').glob(f'{task}.*.flags'))
]


@pytest.mark.parametrize('path', _REAL_TEXT, ids=lambda path: path.stem)
def test_flags_for_real_text_are_those_of_a_run(path):
    flags = presets.flags(path)
    of_study = {name: text for name, text in flags.items() if name in StudyConfig().flat()}
    if path.stem.endswith('.debug'):
        assert len(with_texts(StudyConfig(), of_study).cases) > 1
        flags = {name: text for name, text in flags.items() if name not in of_study}
    assert with_texts(TrainConfig(), flags).task.task == flags['task']


@pytest.mark.standard
@pytest.mark.parametrize(
    'path', [path for path in _REAL_TEXT if 'blt_decay' in path.read_text()], ids=lambda p: p.stem
)
def test_the_blt_for_real_text_is_the_best_for_its_schema(path):
    flags = presets.flags(path)
    names = ('rounds', 'min_separation', 'max_participations')
    schema = Participation(*(int(flags[name]) for name in names))
    decay, scale = ([*map(float, flags[f'blt_{name}'].split(','))] for name in ('decay', 'scale'))
    best = mechanisms.optimize_blt(schema, num_buffers=len(decay), loss='max')
    # What is lost beside the optimum is rounding and the optimiser's tolerance.
    loss = mechanisms.Blt(schema.rounds, decay, scale).max_loss(schema)
    assert loss <= best.max_loss(schema) * (1 + 1e-4)
