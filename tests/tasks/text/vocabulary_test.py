"""Where the words of a vocabulary come from, public text in all its forms, and what is refused."""

import json
import os
import shutil

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from dpfl.errors import ArgumentError
from dpfl.tasks.before_training import WordCounts, WordRelease
from dpfl.tasks.config import TaskConfig, TextConfig, not_covered_of_task, not_covered_of_text
from dpfl.tasks.text import synthetic_text, text_task, tokenization, vocabulary
from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS
from dpfl.tasks.text.vocabulary import Vocabulary
from tests.studies import scripts_of_studies
from tests.tasks.text import repositories, small_files
from tests.tasks.text.repositories import Commit

word_recall = scripts_of_studies.load('compare_vocabularies')
_SAID = 'it was counted on the text of the training clients'


def test_a_file_of_words_or_of_words_and_counts(tmp_path):
    path = tmp_path / 'words'
    path.write_bytes(b'\xef\xbb\xbfthe 100\r\nof\t90\n\n<URL> 3\n')
    words = vocabulary.load(path)
    assert words.words == ('the', 'of', '<URL>')
    assert words.ids == {'the': 4, 'of': 5, '<URL>': 6}
    assert words.num_tokens == 3 + NUM_SPECIAL_TOKENS
    assert vocabulary.load(path, 2).words == ('the', 'of')
    path.write_text('the 1' + ' and' * 500_000 + '\nof\n')  # Read in parts.
    assert vocabulary.load(path).words == ('the', 'of')
    assert vocabulary.load(path, 2).digest() != words.digest()


def test_marks_are_added_to_plain_words_only():
    plain = vocabulary.Vocabulary(('the', 'of'))
    marked = plain.with_marks()
    assert marked.words[:2] == plain.words and len(marked.words) == 2 + 32
    assert all(tokenization.words(mark) == [mark] for mark in vocabulary.MARKS)
    assert marked.with_marks() == marked
    one = vocabulary.Vocabulary(('the', ','))
    assert one.with_marks() == one


@pytest.mark.parametrize(
    'content, size, message',
    [
        (b'a\nb\na\n', None, r'vocabulary_file=.*: line 3 repeats the word of line 1'),
        (b' \n', None, r'vocabulary_file=.*: must have one word per line'),
        (b'a\nb\n', 3, r'vocabulary_size=3: must be <= 2, the words of '),
        (b'a\n', 0, r'vocabulary_size=0: must be an integer >= 1'),
        (b'a\n\xff\n', None, r'vocabulary_file=.*: must be UTF-8 text'),
        (None, None, r'vocabulary_file=.*: cannot be read \(No such file'),
    ],
)
def test_bad_files(content, size, message, tmp_path):
    path = tmp_path / 'words'
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        vocabulary.load(path, size)


def test_public_text_is_counted_and_ties_are_broken_by_the_word(tmp_path, monkeypatch):
    path = tmp_path / 'text'
    path.write_text('B b a. C c\na d')
    assert vocabulary.count_public_text(path, 4).words == ('a', 'b', 'c', '.')
    assert vocabulary.count_public_text(path, 9).words == ('a', 'b', 'c', '.', 'd')
    path.write_text('\n')
    with pytest.raises(ValueError, match=r'vocabulary_text=.*: must have words'):
        vocabulary.count_public_text(path, 4)
    # Only rare words are forgotten where there are too many.
    monkeypatch.setattr(vocabulary, '_MOST_COUNTED', 50)
    path.write_text('\n'.join(f'common frequent rare{i}' for i in range(1000)))
    assert vocabulary.count_public_text(path, 2).words == ('common', 'frequent')


@pytest.mark.parametrize(
    'task, data_path, vocabulary_text, is_said',
    [
        ('user_text', 'a/b.jsonl', 'a/./b.jsonl', True),
        ('user_text', 'a.jsonl', 'b.jsonl', False),
        ('git_log', 'a,b/', 'c,b', True),
        ('git_log', 'a,b', 'c', False),
    ],
)
def test_text_of_clients_that_is_called_public_is_said(task, data_path, vocabulary_text, is_said):
    values = {'task': task, 'data_path': data_path, 'vocabulary_text': vocabulary_text}
    said = ' '.join(not_covered_of_text(TaskConfig().with_values(values), {}))
    assert (_SAID in said) == is_said


@pytest.mark.parametrize('link', [None, os.symlink, os.link, shutil.copy])
def test_text_of_clients_is_known_by_any_path(link, tmp_path, monkeypatch):
    """A run records that its vocabulary is of its clients, and says so wherever it is read."""
    file = small_files.write_json_lines(tmp_path / 'texts.jsonl')
    other = file if link is None else tmp_path / 'other.jsonl'
    if link:
        link(file, other)
    monkeypatch.chdir(tmp_path)
    values = {'task': 'user_text', 'data_path': file.name, 'vocabulary_text': str(other)}
    config = TaskConfig().with_values(values)
    told = []
    task = text_task.TextTask(config, 0, told.append).word_task
    assert 'vocabulary_text is the text of the clients' in told[-1]
    assert _SAID in task.not_covered[0]
    assert task.public_text is None  # Held-out clients are not predicted from their own text.
    description = task.data.description
    assert description['vocabulary']['from'] == 'vocabulary_from_private_data'
    monkeypatch.chdir('/')
    assert not_covered_of_task(config, description) == task.not_covered
    assert not_covered_of_task(config, {'vocabulary': 'x'}) == task.not_covered[1:]


def test_the_data_of_clients_are_no_file_of_words(tmp_path):
    (tmp_path / 'a.csv').write_text('client,text\nid1,private\nid2,other\n')
    os.symlink(tmp_path / 'a.csv', tmp_path / 'words')
    values = {'task': 'user_text', 'data_path': str(tmp_path / 'a.csv')}
    config = TaskConfig().with_values({**values, 'vocabulary_file': str(tmp_path / 'words')})
    with pytest.raises(ValueError, match=r'words: must not be the data of the clients$'):
        _ = text_task.TextTask(config, 0, print).word_task


def test_public_text_is_read_once_for_a_run(tmp_path, monkeypatch):
    reads = []
    count = vocabulary.count_public_text
    monkeypatch.setattr(
        vocabulary, 'count_public_text', lambda *args: reads.append(args) or count(*args)
    )
    file = small_files.write_json_lines(tmp_path / 'texts.jsonl')
    values = {'task': 'user_text', 'data_path': str(file), 'vocabulary_text': str(file)}
    opened = TaskConfig().with_values(values).open(0, lambda text: None)
    opened.num_parameters(), opened.num_clients(), opened.most_parameters(), opened.load()
    assert len(reads) == 1


def test_a_client_counts_once_for_a_word():
    loud, others = [['spam', 'spam'], ['spam']], [['ham'], ['eggs', 'ham']]
    assert vocabulary.count_clients([loud, others, others], 2).words == ('eggs', 'ham')
    with pytest.raises(ValueError, match='no word'):
        vocabulary.count_clients([[], []], 2)


_LANGUAGE = synthetic_text.SyntheticText(vocabulary_size=60, sentence_length=8, seed=3)


def test_the_known_words_are_the_most_frequent_ones():
    known = Vocabulary(_LANGUAGE.most_frequent(25))
    tokens = np.concatenate([_LANGUAGE.tokens(client) for client in range(2000)])
    counts = np.bincount(tokens.ravel(), minlength=64)[4:]
    by_id = [_LANGUAGE.vocabulary[word] for word in np.argsort(-counts, kind='stable')]
    # Words of nearly equal frequency may change places in a sample.
    assert known.words[:5] == tuple(by_id[:5])
    assert len({*known.words} & {*by_id[:25]}) >= 23
    assert len(known.words) == len({*known.words}) == 25 and known.num_tokens == 29


def _source(**text):
    config = TaskConfig(model='micro', text=TextConfig(sentence_length=8, **text))
    return text_task.TextTask(config, 3, print)


@pytest.mark.parametrize('packing', ['sentences', 'windows'])
def test_models_of_all_sizes_have_the_same_text(packing):
    small = _source(vocabulary_size=25, language_size=60, packing=packing)
    large = _source(vocabulary_size=60, language_size=60, packing=packing)
    tasks = small.load(), large.load()
    (_, few), (_, all_words) = (task.language_model for task in tasks)
    assert few == all_words[:25] and {*all_words} == {*_LANGUAGE.vocabulary}
    assert small.num_parameters() < large.num_parameters()
    for read in (
        *(lambda task, i=i: task.client_batches(i, 10**4, 1, None)[0]['y'] for i in range(4)),
        lambda task: next(iter(task.heldout(3, 10**4)))['y'].numpy(),
    ):
        rows, every = map(read, tasks)
        np.testing.assert_array_equal(rows, np.where(every >= 4 + 25, 3, every))
        assert (rows == 3).mean() > (every == 3).mean()
    # The ceilings of the language are not those of a model that knows a part of it.
    assert not tasks[0].reference_accuracies
    assert _source(vocabulary_size=60).load().reference_accuracies


def test_shares_by_hand(monkeypatch):
    clients = [{'a': 3, 'b': 1}, {'a': 1, 'c': 2}, {'b': 1, 'd': 2}]
    counts = WordCounts.of(clients, seed=0)
    monkeypatch.setattr(WordRelease, 'find', lambda *_: ['b', 'd', 'a'])
    config = word_recall.RecallConfig(epsilons=(2.0,), heads=(2, 3), repeats=2)
    exact, found = word_recall.measure(counts, config, seed=0)
    # By clients: a and b two each, c and d one each; by uses: a 4, b 2, c 2, d 2 of 10.
    of_both = dict(recall_2=1, coverage_3=0.8)
    assert exact == pytest.approx(dict(of_both, epsilon=0, words=4, coverage_2=0.6, recall_3=1))
    assert found == pytest.approx(dict(of_both, epsilon=2, words=3, coverage_2=0.4, recall_3=2 / 3))


_PUBLIC = ['The cat sat. It sat!', 'A café \u2019s cat', 'b' * 10]


def _sentences(path):
    return list(vocabulary.public_sentences('public_text', path))


def test_every_form_has_the_same_sentences(tmp_path):
    plain = '\ufeff' + ''.join(f'{text}\n' for text in _PUBLIC)
    lines = ''.join(json.dumps({'text': text, 'other': 1}) + '\n\n' for text in _PUBLIC)
    expected = [tokenization.words(text) for text in ('The cat sat.', 'It sat!', *_PUBLIC[1:])]
    table = 'id,text\n' + ''.join(f'1,"{text}"\n' for text in (*_PUBLIC, ''))
    forms = {'a.txt': plain, 'a.json': lines, 'A.NDJSON': lines, 'a.csv': table}
    for name, text in forms.items():
        (tmp_path / name).write_text(text)
        assert _sentences(tmp_path / name) == expected, name
        assert vocabulary.count_public_text(tmp_path / name, 2).words == ('cat', 'sat')


def test_a_file_is_read_as_far_as_it_is_needed(tmp_path):
    path = tmp_path / 'a.jsonl'
    path.write_text('{"text": "good. line."}\nbad\n')
    sentences = vocabulary.public_sentences('public_text', path)
    assert next(sentences) == ['good', '.'] and next(sentences) == ['line', '.']
    with pytest.raises(ArgumentError, match=r'line 2: not JSON'):
        next(sentences)


@pytest.mark.usefixtures('parquet_in_process')
@pytest.mark.parametrize(
    'name, data, message',
    [
        ('a.jsonl', b'{"texts": "a"}\n', 'line 1: no text'),
        ('a.jsonl', b'[1]\n', 'line 1: not a JSON object'),
        ('a.csv', b'words\na\n', "must have a column 'text'"),
        ('a.tsv', b'client\ttext\nc1\ta\n', 'must not be TSV'),
        ('a.txt', b'good\n\xff\n', 'must be UTF-8 text'),
        ('a.txt', None, r'cannot be read \(No such file'),
        ('a.parquet', None, r'cannot be read \(No such file'),
        ('a.parquet', b'PAR1', 'is not a complete Parquet file'),
        ('a.parquet', pyarrow.table({'texts': ['a']}), "must have a column 'text'"),
        ('a.parquet', pyarrow.table({'text': [1]}), "must have a column 'text' of text"),
    ],
)
def test_bad_public_files_are_refused(name, data, message, tmp_path):
    if isinstance(data, pyarrow.Table):
        parquet.write_table(data, tmp_path / name)
    elif data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ArgumentError, match=f'public_text=.*: {message}'):
        _sentences(tmp_path / name)


def test_repositories_are_text(tmp_path):
    first = repositories.make(tmp_path / 'a', [Commit('a@x.org', 'One\n\nTwo. See `f(x)`')])
    second = repositories.make(tmp_path / 'b', [Commit('b@x.org', 'Three'), Commit('b@x.org', '1')])
    assert _sentences(f'{first},{second}') == [['one'], ['two', '.'], ['see'], ['three']]
    empty = repositories.make(tmp_path / 'c', [])
    with pytest.raises(ArgumentError, match=f'public_text={empty}: is a repository without'):
        _sentences(f'{first},{empty}')
