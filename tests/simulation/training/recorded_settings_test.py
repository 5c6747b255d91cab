"""The settings of a run against its plan, and against what its report states besides."""

import dataclasses
import json
import re

import pytest

from dpfl import Participation, _setting_texts, accounting, mechanisms
from dpfl.accounting.records import archive, journal
from dpfl.errors import ArgumentError
from dpfl.simulation import extension
from dpfl.simulation.training import GanConfig, recorded_settings
from tests.accounting import archives
from tests.simulation.training import small_config

_BASE = archives.CONFIG
_TREE = small_config.TREE
_GAUSSIAN = {**_TREE, 'mechanism': 'gaussian'}


def _settings(config):
    """The settings of a configuration, as the journal of its run has them."""
    return json.loads(json.dumps(config.to_dict()))


def _state(settings, **files):
    planned = dataclasses.replace(archives.PLANNED, settings=settings, files=files)
    return journal.State(planned=planned, built=archives.built({}, data=archives.DATA))


def _differences(record, config=_BASE, **files):
    state = _state(_settings(config), **files)
    differences = recorded_settings.differences(state, record)
    assert all('\n' not in each for each in differences)
    return differences


def _config(**changes):
    return _BASE.with_values(changes)


_SETTINGS = [
    {},
    _TREE,
    {**_TREE, 'restart_first': 3, 'restart_every': 4},
    {**_TREE, 'mechanism': mechanisms.BinaryTree(6, 'prefix_sums')},
    {'adjacency': 'replace_one', 'noise_seed': 5},
    {**_GAUSSIAN, 'clip_schedule': ((3, 0.1), (9, 0.2))},  # Once allowed, beyond the last round.
    {**_GAUSSIAN, 'adaptive_clip': True, 'count_stddev': 3.0},
    {**_GAUSSIAN, 'sampling': 'poisson', 'min_separation': 1, 'max_participations': None},
    {'estimator': 'clipped', 'cohort_weight': 1.5, 'example_cap': 9.0},
    {'secagg': True, 'secagg_bits': 16},
    {'noise': 'hardened'},
    {'noise_multiplier': None, 'target_epsilon': 3.0},
    {**_TREE, 'mechanism': 'none', 'noise_multiplier': None},
    {'chosen_without_noise': ('clip_norm', 'delta')},
    {'release_train_metrics': True, 'stop_at_accuracy': 0.5},
    {'server_momentum': 0.5, 'model': 'micro'},
]
# Lists that are allowed beside other settings only.
_WITH_LISTS = [
    {'task': 'synthetic_glyphs', 'inject': ('inverted', 'encoding'), 'inject_share': 0.25},
    {'select_examples': ('loss>3', 'length<9'), 'selection_model': 'a model'},
]


def test_a_run_that_python_has_made_continues_on_the_command_line_with_its_settings():
    for changes in _SETTINGS + _WITH_LISTS:
        config = _config(**changes)
        if isinstance(config.privacy.mechanism, str):  # An object has no flag.
            texts = recorded_settings.texts_of(_state(_settings(config)))
            assert recorded_settings.with_flags(type(config)(), texts) == config
            assert 'mechanism' in texts or config.privacy.mechanism == 'blt'
    assert recorded_settings.texts_of(_state({}, **{archive.FLAGS: '--rounds=3'})) == {
        'rounds': '3'
    }


def test_a_setting_of_earlier_versions_is_left_out_at_the_value_that_is_left():
    settings = _settings(_BASE)
    settings['sampling']['devices']['drop_out'] = 0.08
    settings['privacy']['tree_completed'] = False
    # A group of which nothing is left.
    settings['task']['planting'] = {'secrets': 0, 'secret_copies': [1], 'secret_words': 2}
    assert recorded_settings.of_state(_state(settings)) == _BASE
    before = json.loads(json.dumps({**_BASE.fixed(), 'drop_out': 0.08, 'tree_completed': False}))
    extension.require_configuration(before, _BASE.fixed())
    settings['sampling']['devices']['drop_out'] = before['drop_out'] = 0.1
    gone = 'drop_out=0.1: is a setting of earlier versions, which commit .* was the last to read'
    with pytest.raises(ValueError, match=gone):
        recorded_settings.of_state(_state(settings))
    with pytest.raises(ArgumentError, match=gone):
        extension.require_configuration(before, _BASE.fixed())
    before['drop_out'], before['secrets'] = 0.08, 3
    with pytest.raises(ArgumentError, match='secrets=3: is a setting .* commit 8b7dc965 of'):
        extension.require_configuration(before, _BASE.fixed())


def test_the_selection_of_a_generator_is_left_out_if_it_selects_nothing():
    settings = _settings(GanConfig())
    selection = {'select_clients': [], 'select_examples': [], 'selection_model': None}
    settings['task']['selection'] = selection
    assert recorded_settings.of_state(_state(settings)) == GanConfig()
    before = json.loads(json.dumps({**GanConfig().fixed(), **selection}))
    extension.require_configuration(before, GanConfig().fixed())
    selection['select_clients'] = ['ink>0']
    with pytest.raises(ValueError, match='select_clients=.*: is a setting of earlier versions'):
        recorded_settings.of_state(_state(settings))
    # A run on text still has them.
    config = _config(select_clients=('length>1',))
    assert recorded_settings.of_state(_state(_settings(config))) == config


def _record(config):
    model = config.task.model or 'small'
    return archives.record_of(config, about=accounting.About(task='synthetic_text', model=model))


@pytest.mark.parametrize('changes', _SETTINGS)
def test_a_run_agrees_with_its_own_settings_and_with_no_others(changes):
    config = _config(**changes)
    record = _record(config)
    assert _differences(record, config) == []
    if changes:
        assert _differences(_record(_BASE), config)
    if changes not in ({}, {'noise_multiplier': None, 'target_epsilon': 3.0}):
        assert _differences(record)


def test_restarts_are_compared_where_the_mechanism_is_from_a_file(tmp_path):
    base = mechanisms.Blt(6, [0.9], [0.2])
    files = [str(tmp_path / name) for name in ('base.npz', 'restarted.npz')]
    mechanisms.save(base, files[0])
    mechanisms.save(mechanisms.Restarted.every(base, 1, 2), files[1])
    config = _config(strategy=files[0], restart_first=1, restart_every=2, **small_config.NO_BUFFERS)
    assert _differences(_record(config), config) == []
    for first in (0, 2):
        other = config.with_values({'restart_first': first})
        (found,) = _differences(_record(config), other)
        assert 'its mechanism, restarted, is not the one of config.json' in found
    whole = _config(mechanism='restarted', strategy=files[1], **small_config.NO_BUFFERS)
    assert _differences(_record(whole), whole) == []
    assert _differences(
        _record(config), config.with_values({'restart_first': None, 'restart_every': None})
    )


@pytest.mark.standard
@pytest.mark.parametrize('changes', _SETTINGS)
def test_no_two_settings_are_taken_for_each_other(changes):
    record = _record(_config(**changes))
    for other in _SETTINGS:
        if other and other != changes:
            assert _differences(record, _config(**other)), other


_EARLIER = (archives.make_record(noise_multiplier=5.0).plan,)


@pytest.mark.parametrize(
    'name, value',
    [
        ('noise_multiplier', 20.0),
        ('clip_norm', 0.05),
        ('clients_per_round', 6),
        ('participation', Participation(6, 3, 2)),
        ('mechanism', mechanisms.Blt(6, [0.9, 0.4], [0.2, 0.31])),
        ('adjacency', 'replace_one'),
        ('before', (accounting.ReleaseBefore('words', 9.0),)),
        ('earlier', _EARLIER),
    ],
)
def test_every_field_of_the_plan_is_compared(name, value):
    plan = dataclasses.replace(archives.record_of().plan, **{name: value})
    found = _differences(archives.record_of(plan=plan))
    assert any(name.partition('_')[0] in each for each in found), found


# Nobody compared these, so that a forged plan could leave out what its report has to say.
_STATED = [
    ({'release_train_metrics': True}, {'train_metrics_released': False}),
    ({'stop_at_accuracy': 0.5}, {'stop_at_accuracy': None}),
    ({'chosen_without_noise': ('clip_norm',)}, {'also_not_covered': ()}),
    ({}, {'also_not_covered': ('Another sentence.',)}),
    ({}, {'remarks': ('Epsilon is 0.01.',)}),
    ({}, {'deltas': (1e-3,)}),
    ({}, {'accountant': 'rdp'}),
    ({'noise_seed': 5}, {'noise_is_seeded': False}),
    ({}, {'sampling_is_seeded': True}),
    ({}, {'warm_start_is_public': True}),
    ({}, {'about': accounting.About(task='emnist', model='small')}),
]


@pytest.mark.parametrize('changes, stated', _STATED)
def test_everything_that_the_plan_states_besides_is_compared(changes, stated):
    config = _config(**changes)
    (name,) = stated
    (found,) = _differences(archives.record_of(config, **stated), config)
    assert found.startswith('plan.json: ')
    assert {'also_not_covered': ' say', 'about': 'about.task'}.get(name, name) in found


@pytest.mark.parametrize('task', ['user_text', 'git_log', 'emnist'])
def test_the_limits_of_a_task_are_those_of_its_settings(task):
    config = _config(task=task, **({} if task == 'emnist' else {'vocabulary': 'data'}))
    record = archives.record_of(config, about=None)
    found = _differences(record, config)
    assert found and all('does not say: ' in each for each in found)
    limits = tuple(each.partition('does not say: ')[2] for each in found)
    assert _differences(dataclasses.replace(record, also_not_covered=limits), config) == []


def test_a_gan_states_its_limits():
    config = GanConfig().with_values(
        {'rounds': 6, 'clients_per_round': 2, 'noise_multiplier': 3.0, 'delta': 1e-6}
    )
    same = _config(
        **_GAUSSIAN,
        noise_multiplier=3.0,
        clip_norm=0.3,
        accountant=None,
        min_separation=1,
        max_participations=None,
    )
    record = archives.record_of(same, also_not_covered=config.not_covered, remarks=(), about=None)
    assert _differences(record, config) == []
    less = dataclasses.replace(record, also_not_covered=config.not_covered[1:])
    assert len(_differences(less, config)) == 1


def test_a_fork_has_earlier_plans():
    plan = archives.record_of().plan
    config = _config(warm_start='runs/a')
    forked = archives.record_of(config, plan=dataclasses.replace(plan, earlier=_EARLIER))
    assert _differences(forked, config) == []
    seeded = dataclasses.replace(forked, noise_is_seeded=True)
    assert _differences(seeded, config) == []
    assert 'has earlier plans' in ' '.join(_differences(forked))
    assert 'has no earlier plans' in ' '.join(_differences(archives.record_of(), config))


@pytest.mark.parametrize(
    'change, message',
    [
        (lambda text: text.replace('--rounds=6', '--rounds=7'), 'has --rounds=7, config.json 6'),
        (lambda text: text.replace('--rounds=6\n', ''), 'has --rounds=None, config.json 6'),
        (lambda text: text.replace('secagg=false', 'secagg'), 'has --secagg=true'),
        (
            lambda text: text.replace('_metrics=false', '_metrics'),
            'has --release_train_metrics=true',
        ),
        (lambda text: text.replace('--rounds=6', '--rounds=x'), 'rounds=x: must be a value'),
        (lambda text: text + 'word\n', 'flags.txt: line'),
        (lambda text: '\x00\n', 'flags.txt: line 1 is not a flag'),
        (lambda text: text + '--output_dir=runs/a\n', ''),
        (lambda text: re.sub('--(.*)=false', r'--no\1', text), ''),
    ],
)
def test_flags_are_those_of_the_configuration(change, message):
    text = ''.join(f'{line}\n' for line in _setting_texts.flags(_BASE.flat()))
    found = _differences(archives.record_of(), **{archive.FLAGS: change(text)})
    assert len(found) == bool(message)
    assert message in ''.join(found)


@pytest.mark.parametrize('settings', [{'course': 3}, {'course': {}, 'x': 1}, {'a': 1}])
def test_what_is_no_configuration_is_named_in_one_line(settings):
    (found,) = recorded_settings.differences(_state(settings), archives.record_of())
    assert found.startswith('config.json: ') and '\n' not in found


def test_a_loop_of_ones_own_says_that_nobody_has_its_settings():
    record = archives.record_of()
    (found,) = recorded_settings.differences(_state(None), record)
    assert found == f'plan.json: does not say: {archive.OWN_LOOP}'
    stated = dataclasses.replace(record, also_not_covered=(archive.OWN_LOOP,))
    assert recorded_settings.differences(_state(None), stated) == []
