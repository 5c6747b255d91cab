"""What a study of text trains and compares follows from its settings; nonsense is refused."""

import dataclasses

import numpy as np
import pytest

from dpfl import errors
from dpfl.debugging.text import clients, config
from dpfl.debugging.text import study as study_lib
from dpfl.debugging.text.config import Case, StudyConfig
from dpfl.simulation.training import TrainConfig
from dpfl.tasks import federated_task
from dpfl.tasks.config import TextConfig, TextTaskConfig, has_words_of_clients
from dpfl.tasks.text import tokenization, word_clients
from dpfl.tasks.text.text_task import WordTask
from dpfl.tasks.text.vocabulary import Vocabulary
from dpfl.tasks.text.word_clients import TextData, WordClients
from tests import text_files


def test_names_of_cases():
    study = StudyConfig(inject=('truncated', 'encoding'), inject_share=(0.01, 1.0))
    names = 'as it is; truncated, 1%; truncated, 100%; encoding, 1%; encoding, 100%'
    assert '; '.join(case.name for case in study.cases) == names
    folders = 'as_it_is truncated_0.01 truncated_1 encoding_0.01 encoding_1'
    assert ' '.join(case.folder for case in study.cases) == folders
    close = StudyConfig(inject=('encoding',), inject_share=(0.1, 0.1000001)).cases
    assert len({case.folder for case in close}) == len({case.name for case in close}) == 3
    assert StudyConfig(inject=('encoding',)).cases == (Case(), Case('encoding', 0.1))
    assert StudyConfig().cases == (Case(),)


@pytest.mark.parametrize(
    'inspect, generators',
    [
        ('T1,T3', 'word,char'),
        ('T2', 'wrong,right'),
        ('T4,T1', 'word,poor,good'),
        ('T6,T5', 'word'),
    ],
)
def test_generators_of_what_is_inspected(inspect, generators):
    inspected = tuple(inspect.split(','))
    model = 'model' if {*inspected} - {'T1', 'T3'} else None
    study = StudyConfig(inspect=inspected, primary_model=model)
    assert ','.join(generator.name for generator in study.generators) == generators


def test_parts_of_the_text_are_selected_by_the_model_and_cover_all():
    study = StudyConfig(inspect=('T2', 'T4'), primary_model='model', poor_accuracy=0.2)
    (wrong, right), (poor, good) = study.pairs
    assert wrong.selection.select_examples == ('accuracy<=0.1',)
    assert right.selection.select_examples == ('accuracy>0.1',)
    assert poor.selection.select_clients == ('accuracy<=0.2',)
    assert good.selection.select_clients == ('accuracy>0.2',)
    # A third is a third: a sentence with one of three words right is predicted badly.
    (wrong, right), _ = dataclasses.replace(study, wrong_accuracy=1 / 3).pairs
    criteria = (part.selection.select_examples for part in (wrong, right))
    assert [float(text.split('>')[-1].split('=')[-1]) for (text,) in criteria] == [1 / 3] * 2
    # A run goes on with the same selection only.
    assert study.made_from(poor, Case())['poor_accuracy'] == 0.2
    assert study.made_from(poor, Case()) != study.made_from(good, Case())


@pytest.mark.parametrize(
    'values, name',
    [
        (dict(inspect=()), 'inspect'),
        (dict(inspect=('T7',)), 'inspect'),
        (dict(inspect=('T1', 'T1')), 'inspect'),
        (dict(primary_model='model'), 'primary_model'),
        (dict(inject_share=(0.1,)), 'inject_share'),
        (dict(inject=('encoding',), inject_share=(0.0,)), 'inject_share'),
        (dict(inject=('encoding',), inject_share=(0.1, 0.1)), 'inject_share'),
    ],
)
def test_what_makes_no_sense_is_refused(values, name):
    with pytest.raises(errors.ArgumentError) as refused:
        StudyConfig(**values)
    assert refused.value.name == name


def _study(directory, **values):
    opened = clients.OpenedText(TextTaskConfig().with_values(values), seed=0)
    return study_lib.Study(
        config=StudyConfig(), base=TrainConfig(), opened=opened, directory=directory
    )


def test_a_generator_is_saved_by_its_run_which_knows_where_the_words_are_from(
    tmp_path, monkeypatch
):
    text_files.write_clients(tmp_path / 'a.jsonl', 20)
    tasks = []
    monkeypatch.setattr(study_lib, 'train', lambda *_, task, **__: tasks.append(task))
    values = dict(task='user_text', data_path=str(tmp_path / 'a.jsonl'), vocabulary='data')
    study = _study(tmp_path, **values)
    for generator in study.config.generators:
        study._train(generator, Case(), study._task(generator.kind, Case()))
    word, char = tasks
    # A SavedModel that is written after the run has ended would fail its verification.
    assert word.language_model == ('micro', study.opened.text.vocabulary.words)
    assert char.language_model == ('char_tiny', None)
    assert has_words_of_clients(TrainConfig().task, word.description)
    assert has_words_of_clients(TrainConfig().task, char.description)


def test_another_study_in_the_same_directory_is_not_written_over(tmp_path):
    # One of other generators, whose runs have folders of their own.
    (tmp_path / 'study.json').write_text('{}')
    with pytest.raises(errors.ArgumentError, match='must not hold an earlier study'):
        _study(tmp_path).run()


_SENTENCES = [['good', 'day', 'to', 'käse'], ['xyz', 'good'], ['day']]
_CLIENTS = WordClients(4, lambda client: [words[:] for words in _SENTENCES])
_HELDOUT = WordClients(2, _CLIENTS.sentences)
_WORDS = Vocabulary(('good', 'day', 'to'))
_TEXT = WordTask(TextData(_CLIENTS, _HELDOUT), _WORDS, TextConfig())


def _task(kind, share, text=_TEXT, **changes):
    case = config.Case('joined_words', share) if share else config.Case()
    study = StudyConfig(word_length=changes.pop('word_length', 9))
    return clients.task(kind, text, case, study, changes.pop('sentence_length', 4), 5, seed=0)


def test_the_word_model_sees_joined_words_as_one_outside_the_vocabulary():
    clean, faulty = _task('word', 0), _task('word', 1)
    assert clean.rows(1).tolist() == [[1, 4, 5, 6, 3], [1, 3, 4, 2, 0], [1, 5, 2, 0, 0]]
    assert faulty.rows(1).tolist() == [[1, 3, 6, 3, 2], [1, 3, 2, 0, 0], [1, 5, 2, 0, 0]]
    assert clean.num_tokens == 7 and clean.length == 4
    np.testing.assert_array_equal(clean.heldout, np.concatenate([clean.rows(0)] * 2))
    (batch, last) = federated_task.batches(word_clients.examples(clean.rows(1)), 2)
    assert batch['x'].tolist() == [[1, 4, 5, 6], [1, 3, 4, 2]]
    assert last['y'].tolist() == [[5, 2, 0, 0]]


def test_the_character_model_sees_the_words_outside_the_vocabulary_only():
    def words(rate, **changes):
        task = _task('char', rate, **changes)
        assert task.num_tokens == tokenization.NUM_BYTE_TOKENS
        return tokenization.decode_words(task.rows(2)[:, 1:])

    assert words(0) == ['käse', 'xyz']
    assert words(1) == ['good day', 'käse', 'xyz good']
    assert words(1, word_length=4) == ['good', 'käs', 'xyz ']
    assert words(0, sentence_length=3) == ['xyz']


@pytest.mark.parametrize('kind', config.KINDS)
def test_a_client_gives_at_most_its_first_words(kind):
    text = WordTask(TextData(_CLIENTS, _CLIENTS), _WORDS, TextConfig(client_max_tokens=5))
    rows = _task(kind, 0, text).rows(0)
    assert len(rows) == 2
    if kind == 'word':
        assert rows.tolist() == [[1, 4, 5, 6, 3], [1, 3, 2, 0, 0]]
