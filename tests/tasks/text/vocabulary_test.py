"""Where the words of a vocabulary come from, and which files are refused."""

import pytest

from dpfl.tasks.text import tokenization, vocabulary
from dpfl.tasks.text.token_ids import NUM_SPECIAL_TOKENS


def test_a_file_of_words_or_of_words_and_counts(tmp_path):
    path = tmp_path / 'words'
    path.write_bytes(b'\xef\xbb\xbfthe 100\r\nof\t90\n\n<URL> 3\n')
    words = vocabulary.load(path)
    assert words.words == ('the', 'of', '<URL>')
    assert words.ids == {'the': 4, 'of': 5, '<URL>': 6}
    assert words.num_tokens == 3 + NUM_SPECIAL_TOKENS
    assert vocabulary.load(path, 2).words == ('the', 'of')
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


def test_public_text_is_counted_and_ties_are_broken_by_the_word(tmp_path):
    path = tmp_path / 'text'
    path.write_text('B b a. C c\na d')
    assert vocabulary.count_public_text(path, 4).words == ('a', 'b', 'c', '.')
    assert vocabulary.count_public_text(path, 9).words == ('a', 'b', 'c', '.', 'd')
    path.write_text('\n')
    with pytest.raises(ValueError, match=r'vocabulary_text=.*: must have words'):
        vocabulary.count_public_text(path, 4)


def test_a_client_counts_once_for_a_word():
    loud, others = [['spam', 'spam'], ['spam']], [['ham'], ['eggs', 'ham']]
    assert vocabulary.count_clients([loud, others, others], 2).words == ('eggs', 'ham')
    with pytest.raises(ValueError, match='no word'):
        vocabulary.count_clients([[], []], 2)


def test_counting_forgets_rare_words_only(monkeypatch, tmp_path):
    monkeypatch.setattr(vocabulary, '_MOST_COUNTED', 50)
    path = tmp_path / 'text'
    path.write_text('\n'.join(f'common frequent rare{i}' for i in range(1000)))
    assert vocabulary.count_public_text(path, 2).words == ('common', 'frequent')
