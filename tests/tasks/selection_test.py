"""Criteria of selections of sentences: what is refused, and what stays."""

import numpy as np
import pytest

from dpfl.errors import ArgumentError
from dpfl.tasks import federated_task, selection
from dpfl.tasks.config import TaskConfig
from dpfl.tasks.federated_task import FederatedTask
from dpfl.tasks.selection import SelectionConfig
from dpfl.tasks.text import word_clients
from dpfl.tasks.text.models import generation, metrics, saved_models
from dpfl.tasks.text.tokenization import BOS_ID, EOS_ID, OOV_ID, PAD_ID
from tests.tasks.text.models import reference


def _of_text(**values):
    return TaskConfig(selection=SelectionConfig(**values))


def _of_emnist(**values):
    return TaskConfig(task='emnist', selection=SelectionConfig(**values))


def _of_windows(**values):
    return TaskConfig().with_values({'packing': 'windows', **values})


# The argument that is named is the first one.
@pytest.mark.parametrize(
    'make, values, message',
    [
        (_of_text, dict(select_examples=('length',)), 'must be a measure'),
        (_of_text, dict(select_clients=('length>nan',)), 'must be a finite'),
        (_of_text, dict(select_examples=('sentences>1',)), 'must be one of'),
        (_of_text, dict(select_clients=('age>1',)), 'age must be one of'),
        (_of_text, dict(select_clients=('loss>1',)), 'needs selection_model'),
        (_of_text, dict(selection_model='m'), 'criterion of loss or accuracy'),
        (_of_text, dict(select_clients=('length>q0.5',)), 'q0.5 must be a finite number'),
        (_of_text, dict(select_clients=('length>20',)), 'selects nothing: no length meets it'),
        (_of_text, dict(select_examples=('oov_rate<0',)), 'no oov_rate meets it'),
        (_of_text, dict(select_examples=('oov_rate>1',)), 'no oov_rate meets it'),
        (
            _of_text,
            dict(select_examples=('length>=3', 'oov_rate>0', 'length<3')),
            'selects nothing: no length meets it',
        ),
        (_of_emnist, dict(select_clients=('length>1',)), 'must not be given for task=emnist'),
        (_of_windows, dict(select_clients=('sentences>=5',)), 'are about sentences'),
    ],
)
def test_what_cannot_be_used_is_refused(make, values, message):
    with pytest.raises(ArgumentError, match=message) as raised:
        make(**values)
    assert raised.value.name == ('packing' if make is _of_windows else next(iter(values)))


def test_the_report_says_what_is_selected():
    assert SelectionConfig().remarks() == ()
    examples = dict(select_examples=('oov_rate>0', 'length<9'))
    (text,) = SelectionConfig(select_clients=('sentences>=5',), **examples).remarks()
    assert text.startswith(
        'Selection: the model is trained on clients with sentences>=5, of sentences with '
        'oov_rate>0 and length<9 only.'
    )


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
        return federated_task.batches(
            word_clients.examples(_ROWS[rows]), batch_size, epochs, max_batches
        )

    return FederatedTask(
        model=None, population=len(clients), client_batches=client_batches, heldout=None
    )


def _kept(config, rows, scores=None, batch_size=2, epochs=1, max_batches=None):
    """The rows of the batches of a client, by their numbers."""
    task = selection.select(config, _task(of_0=rows), scores)
    batches = task.client_batches(0, batch_size, epochs, max_batches)
    for batch in batches:
        np.testing.assert_array_equal(batch['x'][:, 1:], batch['y'][:, :-1])
        assert batch['x'].dtype == batch['y'].dtype == np.int32
    return [[_Y.tolist().index(row) for row in batch['y'].tolist()] for batch in batches]


def test_measures_are_those_computed_by_hand():
    found = selection.of_sentences(_X, _Y, _scores)
    each, total = found.of_examples, found.of_client
    np.testing.assert_array_equal(each('length'), [3, 1, 2, 4, 0])
    np.testing.assert_array_equal(each('oov_rate'), [1 / 3, 0, 1, 0, np.nan])
    np.testing.assert_allclose(each('loss'), [0.05, 0.05, 0.03, 0.07, 0.02])
    np.testing.assert_array_equal(each('accuracy'), [1 / 2, 1, np.nan, 1 / 4, np.nan])
    assert total('sentences') == 5 and total('length') == 2
    assert total('oov_rate') == 3 / 10 and total('accuracy') == 3 / 7
    assert total('loss') == pytest.approx((0.2 + 0.1 + 0.09 + 0.28 + 0.02) / 14)


@pytest.mark.parametrize(
    'criteria, expected',
    [
        (('oov_rate>0',), [0, 2]),
        (('oov_rate<=0',), [1, 3]),  # A sentence without words has no rate.
        (('length>=1', 'length<=3'), [0, 1, 2]),
        ((' length < 1 ',), [4]),
        (('length>-1',), [0, 1, 2, 3, 4]),
        (('length>1', 'length<4'), [0, 2]),
        (('oov_rate>0', 'length>3'), []),
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
    with pytest.raises(ArgumentError, match='model: must be given'):
        selection.select(needs, task)
    (said,) = selection.select(needs, task, _scores).not_covered
    assert said.startswith('The model that selects')


def test_scores_of_a_model_are_its_metrics():
    model = saved_models.ALL['micro']
    weights = reference.random_weights(model, 10)
    scores = generation.scorer(model, weights)
    losses, right = scores(_X, _Y)
    logits = model.logits(weights, _X)
    np.testing.assert_allclose(losses, reference.losses(logits, _Y).sum(axis=1), rtol=1e-5)
    for row in range(len(_Y)):
        expected, _ = metrics.hits(_Y[row : row + 1], logits[row : row + 1])
        assert right[row] == expected.numpy()[0]
    assert [part.shape for part in scores(_X[:0], _Y[:0])] == [(0,), (0,)]
