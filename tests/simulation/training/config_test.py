"""Configurations as values: JSON, validation, unique names."""

import collections
import dataclasses
import json
import math

import numpy as np
import pytest

from dpfl import _settings, mechanisms
from dpfl.errors import ArgumentError
from dpfl.mechanisms import registry
from dpfl.simulation.training import (
    GanConfig,
    GenerateConfig,
    PretrainConfig,
    PrivacyConfig,
    SamplingConfig,
    TaskConfig,
    TextConfig,
    TrainConfig,
)
from dpfl.simulation.training import mechanism as mechanism_lib
from dpfl.simulation.training.mechanism import PARAMETERS
from dpfl.simulation.training.round_config import ServerConfig
from tests.sizes import standard

_ALL = (TrainConfig, GanConfig, PretrainConfig, GenerateConfig)
_CONFIG = TrainConfig(
    task=TaskConfig(model='tiny', text=TextConfig(vocabulary_size=50)),
    privacy=PrivacyConfig(
        mechanism='blt',
        blt_decay=(0.9, 0.5),
        blt_scale=(0.1, 0.2),
        noise_multiplier=2.0,
        clip_schedule=((3, 0.5), (6, 0.25)),
    ),
    sampling=SamplingConfig(rounds=9, min_separation=3),
    seed=7,
)


_OBJECT = {
    'mechanism': mechanisms.BandedToeplitz(9, [1.0, 0.5]),
    'blt_decay': None,
    'blt_scale': None,
}


@pytest.mark.parametrize(
    'config', [*(kind() for kind in _ALL), _CONFIG, _CONFIG.with_values(_OBJECT)]
)
def test_json_round_trip(config):
    values = json.loads(json.dumps(config.to_dict(), allow_nan=False))
    again, default = type(config).from_dict(values), type(config)()
    assert again == config and again.digest() == config.digest()
    assert (again == _CONFIG) == (config is _CONFIG)
    assert type(config).from_dict({}) == default
    assert default.with_values(config.flat()) == config


def test_every_parameter_of_a_mechanism_has_a_setting():
    entries = registry.ENTRIES.values()
    names = {name for entry in entries for way in (*entry.ways, entry.optional) for name in way}
    settings = {mechanism_lib._NAMES.get(name, name) for name in names}
    assert settings == {*PARAMETERS} <= {field.name for field in dataclasses.fields(PrivacyConfig)}


@pytest.mark.parametrize('mechanism', ['none', 'auto', _OBJECT['mechanism']])
@pytest.mark.parametrize('name', PARAMETERS)
def test_parameters_that_would_be_ignored_are_refused(mechanism, name):
    (field,) = (field for field in dataclasses.fields(PrivacyConfig) if field.name == name)
    allowed = _settings.choices_of(field)
    value = allowed[-1] if allowed else _other(_settings.kind_of(PrivacyConfig, name), None, name)
    with pytest.raises(ArgumentError, match='has no such parameter') as caught:
        PrivacyConfig(mechanism=mechanism, **{name: value})
    assert caught.value.name == name


@pytest.mark.parametrize('kind', [TrainConfig, *map(standard, _ALL[1:])])
def test_every_value_changes_the_digest(kind):
    """A setting that is added later must be in the JSON form, too; and what it needs, given."""
    config, needing = kind(), set()
    for field, of_value in _fields(kind).items():
        name = field.name
        other = _other(of_value, config.flat()[name], name)
        try:
            changed = config.with_values({name: other})
        except ArgumentError as error:  # Not allowed by itself.
            needing |= {name} if str(error).startswith(f'{name}={other}: needs ') else set()
            continue
        assert changed.digest() != config.digest(), name
        assert kind.from_dict(json.loads(json.dumps(changed.to_dict()))) == changed, name
    # What needs another setting to be given, which it is not by default.
    assert needing >= {each.name for each in _fields(kind) if () in each.metadata['needs'].values()}


def _fields(kind):
    """The fields of a configuration and of its groups, each with the kind of its values."""
    found = {}
    for field in dataclasses.fields(kind):
        nested = _settings.nested(kind, field.name)
        found |= {field: _settings.kind_of(kind, field.name)} if nested is None else _fields(nested)
    return found


def _other(kind, value, name):
    if kind.is_tuple:
        return {float: (0.5,), str: ('a',)}.get(kind.scalar, ((2, 0.5),))
    if kind.scalar is bool:
        return not value
    if kind.scalar is int:
        return (value or 4) + 1
    if kind.scalar is float:
        return (value or 0.25) * 0.5
    return {'mechanism': 'tree'}.get(name, 'other')


@pytest.mark.parametrize('kind', _ALL)
def test_no_two_settings_have_one_name(kind):
    counts = collections.Counter(field.name for field in _fields(kind))
    assert [name for name, count in counts.items() if count > 1] == []


@pytest.mark.parametrize(
    'values, message',
    [
        ({'sead': 1}, 'sead: is not a setting of TrainConfig'),
        ({'privacy': {'clip': 1}}, 'clip: is not a setting of PrivacyConfig'),
        ({'privacy': 3}, 'PrivacyConfig=3: must be an object'),
        ({'seed': True}, 'seed=True: must be an integer'),
        ({'privacy': {'delta': '1e-6'}}, 'delta=1e-6: must be a finite number'),
        ({'privacy': {'mechanism': 3}}, 'mechanism=3: must be a name or a mechanism'),
        ({'privacy': {'restart_first': 3}}, 'restart_first=3: needs restart_every'),
        ({'privacy': {'clip_schedule': [[1]]}}, 'clip_schedule=.*: must be pairs'),
        ({'task': {'data': {'download': 1}}}, 'download=1: must be true or false'),
        ({'execution': {'ray': 'a'}}, 'ray=a: must be local, auto or host:port'),
    ],
)
def test_bad_values_are_named(values, message):
    with pytest.raises(ArgumentError, match=message):
        TrainConfig.from_dict(values)


def _settings_classes(kind=_settings.Settings):
    for each in kind.__subclasses__():
        yield each
        yield from _settings_classes(each)


def _beyond(bounds):
    """Values next to the bounds of a setting, and what is no number."""
    for name, bound in bounds.items():
        step = {'minimum': -1, 'above': 0, 'maximum': max(1, abs(bound) // 9), 'below': 0}[name]
        yield bound + step
    yield math.nan
    yield math.inf


@pytest.mark.parametrize('kind', sorted(_settings_classes(), key=lambda kind: kind.__name__))
def test_every_bound_of_a_setting_is_enforced(kind):
    fields = dataclasses.fields(kind)
    needed = {field.name: 1 for field in fields if field.default is dataclasses.MISSING}
    for field in fields:
        scalar = _settings.kind_of(kind, field.name)
        if not field.metadata.get('bounds') or scalar.is_tuple:
            continue
        for value in _beyond(field.metadata['bounds']):
            with pytest.raises(ArgumentError) as caught:
                kind(**{**needed, field.name: value})
            assert caught.value.name == field.name and '\n' not in str(caught.value)


# --- The optimizer of the server.


@pytest.mark.parametrize(
    'schedule, expected',
    [
        ('constant', [1, 1, 1, 1]),
        ('linear', [1, 1, 1, 1, 1, 1, 0.55, 0.1]),
        # No rate is 0, however few the rounds are.
        ('linear', [0.1]),
        ('linear', [1, 0.1]),
    ],
)
def test_learning_rates_by_hand(schedule, expected):
    config = ServerConfig(server_learning_rate=3.0, server_schedule=schedule)
    rates = config.rates(len(expected))
    np.testing.assert_allclose(rates, 3 * np.array(expected), rtol=1e-12)


def test_a_report_says_how_the_server_makes_its_steps():
    config = ServerConfig(server_momentum=0.5, server_nesterov=True, server_schedule='linear')
    assert config.describe(8).startswith(
        "The server uses SGD with Nesterov's momentum 0.5 and a learning rate with a linear "
        'cooldown over the last 2 rounds: each model is a linear function'
    )
    adam = ServerConfig(server_optimizer='adam')
    assert adam.describe(8).startswith(
        'The server uses Adam with a constant learning rate. It divides'
    )
