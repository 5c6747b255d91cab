"""Criteria of selections: what they say, and what is refused."""

import numpy as np
import pytest

from dpfl.errors import ArgumentError
from dpfl.tasks.config import TaskConfig
from dpfl.tasks.selection_config import Criterion, SelectionConfig


@pytest.mark.parametrize(
    'text, criterion',
    [
        ('oov_rate>=0.2', Criterion('oov_rate', '>=', 0.2)),
        (' length < 5 ', Criterion('length', '<', 5.0)),
        ('length<=1e1', Criterion('length', '<=', 10.0)),
        ('length>-1', Criterion('length', '>', -1.0)),
    ],
)
def test_a_criterion_is_a_measure_a_relation_and_a_number(text, criterion):
    assert SelectionConfig(select_examples=(text,)).of_examples == (criterion,)


@pytest.mark.parametrize(
    'relation, expected',
    [('<', [1, 0, 0, 0]), ('<=', [1, 1, 0, 0]), ('>', [0, 0, 1, 0]), ('>=', [0, 1, 1, 0])],
)
def test_relations_hold_for_numbers_only(relation, expected):
    found = Criterion('length', relation, 2.0).holds(np.array([1.0, 2.0, 3.0, np.nan]))
    assert found.tolist() == [bool(each) for each in expected]


@pytest.mark.parametrize(
    'values, name, message',
    [
        ({'select_examples': ('length',)}, 'select_examples', 'must be a measure'),
        ({'select_examples': ('length=5',)}, 'select_examples', 'must be a measure'),
        ({'select_clients': ('length>nan',)}, 'select_clients', 'nan must be a finite number'),
        ({'select_clients': ('length>five',)}, 'select_clients', 'five must be a finite number'),
        ({'select_examples': ('sentences>1',)}, 'select_examples', 'sentences must be one of'),
        ({'select_clients': ('age>1',)}, 'select_clients', 'age must be one of'),
        ({'select_clients': ('loss>1',)}, 'select_clients', 'loss needs selection_model'),
        ({'select_examples': ('accuracy>1',)}, 'select_examples', 'needs selection_model'),
        ({'selection_model': 'm'}, 'selection_model', 'needs a criterion of loss or accuracy'),
        (
            {'selection_model': 'm', 'select_examples': ('length>1',)},
            'selection_model',
            'needs a criterion',
        ),
        ({'select_min_examples': 2}, 'select_min_examples', 'needs select_examples or'),
        ({'select_clients': ('length>q0.5',)}, 'select_clients', 'needs selection_epsilon'),
        ({'select_clients': ('length>q1',)}, 'select_clients', 'q1 must be a quantile such as'),
        ({'select_clients': ('length>q',)}, 'select_clients', 'q must be a quantile such as'),
        ({'select_clients': ('length>qnan',)}, 'select_clients', 'qnan must be a quantile'),
        ({'selection_epsilon': 1.0}, 'selection_epsilon', 'needs a criterion with a quantile'),
    ],
)
def test_what_cannot_be_used_is_refused(values, name, message):
    with pytest.raises(ArgumentError, match=message) as raised:
        SelectionConfig(**values)
    assert raised.value.name == name


def test_tasks_without_text_have_no_selection():
    with pytest.raises(ArgumentError, match='must not be given for task=emnist') as raised:
        TaskConfig(task='emnist', selection=SelectionConfig(select_clients=('length>1',)))
    assert raised.value.name == 'select_clients'


def test_the_report_says_what_is_selected():
    assert SelectionConfig().remarks() == ()
    (said,) = SelectionConfig(
        select_clients=('sentences>=5',),
        select_examples=('oov_rate>0', 'length<9'),
        select_min_examples=2,
    ).remarks()
    assert said.startswith(
        'Selection: the model is trained on clients with sentences>=5, of sentences with '
        'oov_rate>0 and length<9, of clients with at least 2 selected sentences only.'
    )


def test_a_quantile_is_a_number_that_is_found_later():
    config = SelectionConfig(
        select_examples=('length>2', 'length<q0.9'),
        select_clients=('length<q0.25',),
        selection_epsilon=1.0,
    )
    quantiles = {'select_examples:length<q0.9': 0.9, 'select_clients:length<q0.25': 0.25}
    assert {name: each.quantile for name, each in config.quantiles.items()} == quantiles
    with pytest.raises(ArgumentError, match='q0.25: must be known'):
        config.of_clients[0].holds(1.0)
    found = {'select_examples:length<q0.9': 7.0, 'select_clients:length<q0.25': 3.0}
    examples, clients = config.resolved(found)
    assert [(each.relation, each.bound) for each in examples] == [('>', 2.0), ('<', 7.0)]
    assert clients[0].holds(2.0) and not clients[0].holds(3.0)
    assert 'the guarantee counts that' in config.remarks()[0]
    assert 'quantile' not in SelectionConfig(select_clients=('length>1',)).remarks()[0]
