"""Criteria of selections: what they say, what is refused, which examples and clients stay."""

import numpy as np
import pytest

from dpfl.errors import ArgumentError
from dpfl.tasks import selection
from dpfl.tasks.config import TaskConfig
from dpfl.tasks.federated_task import FederatedTask
from dpfl.tasks.selection_config import Criterion, SelectionConfig
from dpfl.tasks.text import selected_sentences, word_clients
from dpfl.tasks.text.models import metrics, saved_models
from dpfl.tasks.text.tokenization import BOS_ID, EOS_ID, OOV_ID, PAD_ID


@pytest.mark.parametrize(
    'text, criterion',
    [
        ('oov_rate>=0.2', Criterion('oov_rate', '>=', 0.2)),
        (' length < 5 ', Criterion('length', '<', 5.0)),
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
        ({'select_clients': ('length>nan',)}, 'select_clients', 'nan must be a finite number'),
        ({'select_examples': ('sentences>1',)}, 'select_examples', 'sentences must be one of'),
        ({'select_clients': ('age>1',)}, 'select_clients', 'age must be one of'),
        ({'select_clients': ('loss>1',)}, 'select_clients', 'loss needs selection_model'),
        ({'selection_model': 'm'}, 'selection_model', 'needs a criterion of loss or accuracy'),
        ({'select_min_examples': 2}, 'select_min_examples', 'needs select_examples or'),
        ({'select_clients': ('length>q0.5',)}, 'select_clients', 'needs selection_epsilon'),
        ({'select_clients': ('length>q1',)}, 'select_clients', 'q1 must be a quantile such as'),
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


def _is_even(examples):
    return np.asarray(examples) % 2 == 0


@pytest.mark.parametrize(
    'criterion, expected',
    [
        (selection.by_outcome(_is_even), [1, 3, 5, 7, 9]),
        (selection.by_outcome(_is_even, correct=True, min_examples=5), [0, 2, 4, 6, 8]),
        (selection.by_outcome(_is_even, min_examples=6), []),
        (selection.unknown_labels({0, 1, 2, 3, 4, 5, 6}.__contains__), [7, 8, 9]),
        (selection.clients_by_accuracy(_is_even, at_least=0.5), list(range(10))),
        (selection.clients_by_accuracy(_is_even, at_most=0.4), []),
        (selection.unlabeled(_is_even), [1, 3, 5, 7, 9]),
        (selection.underrepresented(np.log, np.log(3.5)), [0, 1, 2, 3]),
        (selection.random_examples(0.0, seed=1), []),
    ],
)
def test_criteria_of_table_1_of_augenstein20(criterion, expected):
    with np.errstate(divide='ignore'):
        assert criterion.apply(3, np.arange(10)).tolist() == expected


def test_random_examples_are_a_function_of_seed_and_client_and_have_the_rate():
    half, many = selection.random_examples(0.5, seed=1), np.arange(10_000)
    chosen = half.apply(3, many)
    np.testing.assert_array_equal(chosen, half.apply(3, many))
    assert len(chosen) == pytest.approx(5_000, abs=300)  # Six standard deviations.
    assert set(chosen) != set(half.apply(4, many))


# Words, and for each of them whether the model of `_scores` is right.
_ROWS = np.array(
    [
        [BOS_ID, 5, OOV_ID, 6, EOS_ID],
        [BOS_ID, 5, EOS_ID, PAD_ID, PAD_ID],
        [BOS_ID, OOV_ID, OOV_ID, EOS_ID, PAD_ID],
        [BOS_ID, 7, 8, 9, 5],
        [BOS_ID, EOS_ID, PAD_ID, PAD_ID, PAD_ID],
    ],
    np.int32,
)
_X, _Y = _ROWS[:, :-1], _ROWS[:, 1:]


def _scores(x, y):
    """Loss: the first target in hundreds for each target. Right: every word with the id 5."""
    del x
    return (y != PAD_ID).sum(1) * y[:, 0] / 100.0, (y == 5).sum(1).astype(float)


def _task(**clients):
    def client_batches(client, batch_size, epochs, max_batches):
        rows = clients[f'of_{client}']
        return word_clients.batches(_ROWS[rows], batch_size, epochs, max_batches)

    return FederatedTask(
        model=None, population=len(clients), client_batches=client_batches, heldout=None
    )


def _kept(config, rows, scores=None, batch_size=2, epochs=1, max_batches=None):
    task = selected_sentences.select(config, _task(of_0=rows), scores)
    found = task.client_batches(0, batch_size, epochs, max_batches)
    for batch in found:
        np.testing.assert_array_equal(batch['x'][:, 1:], batch['y'][:, :-1])
        assert batch['x'].dtype == batch['y'].dtype == np.int32
    return [
        [int(np.flatnonzero((_Y == row).all(axis=1))[0]) for row in batch['y']] for batch in found
    ]


def test_measures_are_those_computed_by_hand():
    sums = selected_sentences.sums(_X, _Y, _scores)
    np.testing.assert_array_equal(sums.measure('length'), [3, 1, 2, 4, 0])
    np.testing.assert_array_equal(sums.measure('oov_rate'), [1 / 3, 0, 1, 0, np.nan])
    np.testing.assert_allclose(sums.measure('loss'), [0.05, 0.05, 0.03, 0.07, 0.02])
    np.testing.assert_array_equal(sums.measure('accuracy'), [1 / 2, 1, np.nan, 1 / 4, np.nan])
    total = sums.total()
    assert total.measure('sentences') == 5 and total.measure('length') == 2
    assert total.measure('oov_rate') == 3 / 10 and total.measure('accuracy') == 3 / 7
    assert total.measure('loss') == pytest.approx((0.2 + 0.1 + 0.09 + 0.28 + 0.02) / 14)


@pytest.mark.parametrize(
    'criteria, expected',
    [
        (('oov_rate>0',), [0, 2]),
        (('oov_rate<=0',), [1, 3]),  # A sentence without words has no rate.
        (('length>=1', 'length<=3'), [0, 1, 2]),
        (('length<1',), [4]),
        (('oov_rate>2',), []),
        (('accuracy<0.5',), [3]),
        (('loss>=0.05',), [0, 1, 3]),
    ],
)
def test_sentences_that_meet_all_criteria_stay_in_their_order(criteria, expected):
    of_model = any(each.startswith(('loss', 'accuracy')) for each in criteria)
    config = SelectionConfig(select_examples=criteria, selection_model='m' if of_model else None)
    found = _kept(config, range(5), _scores)
    assert [row for batch in found for row in batch] == expected
    assert all(len(batch) == 2 for batch in found[:-1])


def test_clients_count_as_a_whole():
    rare = SelectionConfig(select_clients=('oov_rate>=0.25',))
    assert _kept(rare, [0, 1]) == [[0, 1]]  # One of four words.
    assert _kept(rare, [0, 3]) == []  # One of seven.
    both = SelectionConfig(select_clients=('sentences>=2',), select_examples=('length>=3',))
    assert _kept(both, [0, 1]) == [[0]] and _kept(both, [0]) == []
    assert _kept(rare, []) == []


def test_epochs_and_the_most_batches_are_of_the_selection():
    config = SelectionConfig(select_examples=('length>=2',))
    assert _kept(config, range(5), epochs=2) == [[0, 2], [3], [0, 2], [3]]
    assert _kept(config, range(5), epochs=2, max_batches=3) == [[0, 2], [3], [0, 2]]
    # The first selected sentences, also if others are before them.
    assert _kept(config, [1, 4, 0, 2], batch_size=1, max_batches=1) == [[0]]


def test_a_missing_model_is_refused():
    task = _task(of_0=[0])
    needs = SelectionConfig(select_examples=('loss>1',), selection_model='m')
    with pytest.raises(ArgumentError, match='scores'):
        selected_sentences.select(needs, task)
    (said,) = selected_sentences.select(needs, task, _scores).not_covered
    assert said.startswith('The model that selects')


_QUANTILES = SelectionConfig(
    select_clients=('length<q0.5', 'accuracy<q0.2', 'sentences>1'),
    select_examples=('oov_rate>q0.9', 'loss<q0.5'),
    selection_model='m',
    selection_epsilon=1.0,
)


def test_values_for_quantiles_are_measures_of_each_client():
    task = _task(of_0=[0, 1], of_1=[2], of_2=[], of_3=[4], of_4=[3])
    values = selected_sentences.values_of_clients(_QUANTILES, task, _scores, 5, seed=0)
    assert values.keys() == _QUANTILES.quantiles.keys()
    nan = np.nan
    clients = 'select_clients:'
    np.testing.assert_array_equal(values[clients + 'length<q0.5'], [2, 2, nan, 0, 4])
    # Three of four words are known, and two of these are predicted; client 1 knows no word.
    np.testing.assert_allclose(values[clients + 'accuracy<q0.2'], [2 / 3, nan, nan, nan, 1 / 4])
    rates = values['select_examples:oov_rate>q0.9']
    assert rates[0] in (0, 1 / 3)
    np.testing.assert_array_equal(rates[1:], [1, nan, nan, 0])
    np.testing.assert_allclose(values['select_examples:loss<q0.5'][1:], [0.03, nan, 0.02, 0.07])


def test_a_random_sentence_counts_and_depends_on_its_client_alone():
    task = _task(**{f'of_{client}': [0, 1, 3] for client in range(60)})
    name = 'select_examples:oov_rate>q0.9'
    values = selected_sentences.values_of_clients(_QUANTILES, task, _scores, 60, seed=0)[name]
    # Two of three sentences have no unknown word: six standard deviations are 0.37.
    assert abs((values == 0).mean() - 2 / 3) < 0.37 and set(values) == {0, 1 / 3}
    others = _task(**{f'of_{client}': [0, 1, 3] if client % 2 else [2] for client in range(60)})
    again = selected_sentences.values_of_clients(_QUANTILES, others, _scores, 60, seed=0)[name]
    np.testing.assert_array_equal(again[1::2], values[1::2])
    assert (again[::2] == 1).all()


def test_quantiles_select_as_the_numbers_that_were_found():
    config = SelectionConfig(
        select_examples=('length>=q0.5',), select_clients=('oov_rate<q0.9',), selection_epsilon=1.0
    )
    found = {'select_examples:length>=q0.5': 2.0, 'select_clients:oov_rate<q0.9': 0.5}
    numbers = SelectionConfig(select_examples=('length>=2',), select_clients=('oov_rate<0.5',))
    for rows in ([0, 1, 3], [2], [4], []):
        task = _task(of_0=rows)
        by_quantile = selected_sentences.select(config, task, None, found)
        by_number = selected_sentences.select(numbers, task)
        kept = [each.client_batches(0, 9, 1, None) for each in (by_quantile, by_number)]
        assert len(kept[0]) == len(kept[1])
        for one, other in zip(*kept, strict=True):
            np.testing.assert_array_equal(one['x'], other['x'])
    with pytest.raises(ArgumentError, match='thresholds: must be given for quantiles'):
        selected_sentences.select(config, _task(of_0=[0]))


def test_scores_of_a_model_are_its_metrics():
    rng = np.random.default_rng(0)
    shapes = saved_models.ALL['micro'].weight_shapes(10)
    weights = tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes.values())
    model = saved_models.LanguageModel('micro', weights, tuple('abcdef'))
    losses, right = saved_models.of_model(model)(_X, _Y)
    logits = model.architecture.logits(weights, _X).numpy().astype(np.float64)
    logs = logits - np.log(np.exp(logits).sum(axis=2, keepdims=True))
    for row in range(len(_Y)):
        own = [-logs[row, i, y] for i, y in enumerate(_Y[row]) if y != PAD_ID]
        assert losses[row] == pytest.approx(sum(own), rel=1e-5)
        expected, _ = metrics.hits(_Y[row : row + 1], logits[row : row + 1])
        assert right[row] == expected.numpy()[0]
    assert [part.shape for part in saved_models.of_model(model)(_X[:0], _Y[:0])] == [(0,), (0,)]
