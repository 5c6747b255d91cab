"""Histories of git as text of clients: what is read, what does not matter, and what is kept."""

import collections
import os
import shutil
import subprocess

import pytest

from dpfl.errors import ArgumentError
from dpfl.tasks.config import TaskConfig
from dpfl.tasks.text import client_texts, git_log, text_task
from dpfl.tasks.text.author_texts import MAX_BYTES
from tests.tasks.text import repositories
from tests.tasks.text.repositories import Commit

pytestmark = pytest.mark.usefixtures('cache')


def _read(*paths):
    counts = collections.Counter()
    found = list(
        git_log.read_messages(git_log.find_repositories(','.join(map(str, paths))), counts)
    )
    return [(each.author, each.source, each.text) for each in found], counts


def _refused(path, message):
    with pytest.raises(ArgumentError, match=message) as caught:
        git_log.find_repositories(str(path))
    assert caught.value.name == 'data_path' and len(str(caught.value).splitlines()) == 1


@pytest.fixture(name='two')
def _two(tmp_path):
    return repositories.make(tmp_path / 'a', [Commit('a@x.org', 'One'), Commit('b@x.org', 'Two')])


_LATIN = Commit('a@x.org', 'caf\xe9'.encode('latin-1'), encoding='ISO-8859-1')
# Commits, what is read of them (author and text), and what is counted besides the commits.
_HISTORIES = {
    'addresses in lower case': (
        [Commit('A@Example.org', 'One\n\nBody\n'), Commit('b@example.org', '')],
        [('a@example.org', 'One\n\nBody\n'), ('b@example.org', '')],
        {},
    ),
    'names for want of an address': (
        [Commit('Some Body <>', 'One'), Commit('X <>', 'Two')],
        [('some body', 'One'), ('x', 'Two')],
        {},
    ),
    'merges': (
        [Commit('a@x.org', 'One'), Commit('a@x.org', 'Two'), Commit('a@x.org', 'M', merged=(1,))],
        [('a@x.org', 'One'), ('a@x.org', 'Two')],
        {'merge_commits': 1},
    ),
    'encodings and their damage': (
        [
            _LATIN,
            Commit('a@x.org', b'caf\xe9 au lait'),
            Commit('a@x.org', b'\xff\xfe', encoding='no-such-encoding'),
            Commit('a@x.org', 'Größe'),
        ],
        [('a@x.org', text) for text in ('caf\xe9', 'caf\ufffd au lait', '\ufffd\ufffd', 'Größe')],
        {'not_utf8': 2},
    ),
}


@pytest.mark.parametrize('bare', [True, False])
@pytest.mark.parametrize('history', _HISTORIES)
def test_what_is_read_of_a_history(history, bare, tmp_path):
    commits, expected, counted = _HISTORIES[history]
    path = repositories.make(tmp_path / 'a', commits, bare)
    found, counts = _read(path)
    assert found == [(author, 0, text) for author, text in expected]
    assert +counts == {'commits': len(commits), **counted}
    (repository,) = git_log.find_repositories(str(path))
    assert repository.heads == (repositories.git(path, 'rev-parse', 'main'),)


@pytest.mark.parametrize('bare', [True, False])
def test_the_committed_mailmap_joins_addresses_and_no_other_does(bare, tmp_path):
    commits = [
        Commit('old@x.org', 'One'),
        Commit('New <new@x.org>', 'Two', mailmap='New <new@x.org> <old@x.org>\n'),
    ]
    path = repositories.make(tmp_path / 'a', commits, bare)
    expected = [('new@x.org', 0, 'One'), ('new@x.org', 0, 'Two')]
    assert _read(path)[0] == expected
    # One that is not committed does not change what the head stands for.
    (path / '.mailmap').write_text('Other <other@x.org> <old@x.org>\n')
    repositories.git(path, 'config', 'mailmap.file', str(path / '.mailmap'))
    assert _read(path)[0] == expected


def test_a_message_of_any_length_is_cut(tmp_path):
    commits = [Commit('a@x.org', 'word ' * 600_000), Commit('b@x.org', 'next')]
    found, counts = _read(repositories.make(tmp_path / 'a', commits))
    assert MAX_BYTES - 200 < len(found[0][2]) <= MAX_BYTES and counts['cut'] == 1
    assert [author for author, _, _ in found] == ['a@x.org', 'b@x.org'] and found[1][2] == 'next'


def test_an_author_of_any_length_is_refused(tmp_path):
    path = repositories.make(tmp_path / 'a', [Commit(f'{"a" * (MAX_BYTES + 1)}@x.org', 'One')])
    with pytest.raises(ArgumentError, match=f'a: has an author of more than {MAX_BYTES} bytes'):
        _read(path)


def test_settings_and_variables_of_git_do_not_matter(two, tmp_path, monkeypatch):
    other = repositories.make(tmp_path / 'b', [Commit('c@x.org', 'Other')])
    expected = _read(two)
    run, program = tmp_path / 'ran', tmp_path / 'program'
    program.write_text(f'#!/bin/sh\ntouch {run}\n')
    program.chmod(0o755)
    for name, value in (
        ('log.showSignature', 'true'),
        ('gpg.program', str(program)),
        ('core.pager', str(program)),
        ('format.pretty', 'oneline'),
        ('i18n.logOutputEncoding', 'latin-1'),
        ('color.ui', 'always'),
        ('log.mailmap', 'false'),
    ):
        repositories.git(two, 'config', name, value)
    # Commits that others stand for are read as they were.
    repositories.git(two, 'replace', 'main', 'main~1')
    monkeypatch.setenv('GIT_DIR', str(other))
    monkeypatch.setenv('GIT_WORK_TREE', str(tmp_path))
    assert _read(two) == expected and not run.exists()


def test_a_head_without_its_branch_stands_for_all_branches(two):
    repositories.git(two, 'symbolic-ref', 'HEAD', 'refs/heads/gone')
    repositories.git(two, 'branch', 'old', 'main~1')
    assert [text for _, _, text in _read(two)[0]] == ['One', 'Two']
    (repository,) = git_log.find_repositories(str(two))
    heads = [repositories.git(two, 'rev-parse', name) for name in ('main', 'old')]
    assert repository.heads == tuple(sorted(heads))


def test_what_is_no_whole_repository_is_refused(two, tmp_path, monkeypatch):
    (tmp_path / 'file').write_text('text')
    (tmp_path / 'folder').mkdir()
    # The repository that a folder is in is another one.
    outer = repositories.make(tmp_path / 'outer', [Commit('a@x.org', 'One')], bare=False)
    (outer / 'inner').mkdir()
    repositories.make(tmp_path / 'empty', [])
    repositories.make(tmp_path / 'empty too', [], bare=False)
    repositories.git(tmp_path, 'clone', '--quiet', '--depth=1', f'file://{two}', 'shallow')
    for name, message in (
        ('absent', r'cannot be read \(No such file or directory\)'),
        ('file', r'cannot be read \(Not a directory\)'),
        ('folder', 'is no git repository'),
        ('outer/inner', 'is no git repository'),
        ('empty', 'is a repository without commits'),
        ('empty too', 'is a repository without commits'),
        ('shallow', 'is a shallow clone, .* complete it by git fetch --unshallow'),
    ):
        _refused(tmp_path / name, f'{name}: {message}')
    monkeypatch.setenv('PATH', str(tmp_path))
    _refused(two, 'data_path: needs the program git, which is not installed')


def _damage(path, revision):
    """Overwrites the object of a commit."""
    name = repositories.git(path, 'rev-parse', revision)
    file = path / 'objects' / name[:2] / name[2:]
    file.chmod(0o644)
    file.write_bytes(b'damaged')


@pytest.fixture(name='loose')
def _loose(two, tmp_path):
    """A repository with each object in a file of its own."""
    for pack in [*(two / 'objects' / 'pack').glob('*.pack')]:
        moved = shutil.move(pack, tmp_path)
        pack.with_suffix('.idx').unlink()
        with open(moved, 'rb') as file:
            subprocess.run(['git', '-C', two, 'unpack-objects', '-q'], stdin=file, check=True)
    return two


def test_a_history_that_breaks_off_or_has_no_head_is_refused(loose):
    _damage(loose, 'main~1')
    with pytest.raises(ArgumentError, match=r'a: has a history that git cannot read \(.*\)$'):
        _read(loose)
    _damage(loose, 'main')
    _refused(loose, r'a: cannot be read by git \(.*\)$')
    (loose / 'refs' / 'heads').mkdir(exist_ok=True)
    (loose / 'packed-refs').unlink(missing_ok=True)
    (loose / 'refs' / 'heads' / 'main').write_text('nonsense\n')
    _refused(loose, r'a: cannot be read by git \(.*\)$')


def test_no_child_is_left_if_reading_ends_early(tmp_path, monkeypatch):
    children = []
    start = subprocess.Popen

    def kept(command, *args, **kwargs):
        children.append(start(command, *args, **kwargs))
        return children[-1]

    commits = [Commit('a@x.org', 'word ' * 50_000) for _ in range(20)]
    found = git_log.find_repositories(str(repositories.make(tmp_path / 'a', commits)))
    monkeypatch.setattr(git_log.subprocess, 'Popen', kept)
    read = git_log.read_messages(found, collections.Counter())
    next(read)
    (child,) = children
    assert child.poll() is None  # It waits until somebody reads more.
    read.close()
    assert child.poll() is not None


def test_repositories_follow_each_other_and_have_names(tmp_path):
    first = repositories.make(tmp_path / 'a.git', [Commit('a@x.org', 'One')])
    second = repositories.make(tmp_path / 'b', [Commit('a@x.org', 'Two')])
    assert _read(second, first)[0] == [('a@x.org', 0, 'Two'), ('a@x.org', 1, 'One')]
    assert [each.name for each in git_log.find_repositories(f'{first},{second}')] == ['a', 'b']
    _refused(f'{first},{second},{tmp_path}/./a.git', 'is the same repository as another one')


_COMMITS = [
    Commit('A@x.org', 'Fix it\n\nIt was wrong. See https://x.org\n\nSigned-off-by: A <a@x.org>\n'),
    Commit('b@x.org', 'Add `f(x)` here'),
    Commit('a@X.org', 'Fix it'),
    Commit('c@x.org', 'Say\n\n    code\n'),
    Commit('d@x.org', '12'),
]


@pytest.fixture(name='path')
def _path(tmp_path):
    return repositories.make(tmp_path / 'a', _COMMITS)


def _open(path):
    return git_log.open_clients(str(path), 0.3)


def _texts(opened):
    return {
        tuple(' '.join(sentence) for sentence in clients.sentences(client))
        for clients in (opened.training, opened.heldout)
        for client in range(clients.count)
    }


def test_an_author_is_a_client(path):
    opened = _open(path)
    expected = {('fix it', 'it was wrong .', 'see'), ('add here',), ('say',)}
    assert _texts(opened) == expected
    assert (opened.training.count, opened.heldout.count) == (2, 1)
    assert len(opened.fingerprints['data']) == 64
    removed = opened.description['removed']
    assert opened.description == {
        'format': 'git',
        'clients': {'training': 2, 'heldout': 1},
        'repositories': [{'name': 'a', 'heads': [repositories.git(path, 'rev-parse', 'main')]}],
        'history': {'commits': 5, 'merge_commits': 0, 'not_utf8': 0, 'cut': 0, 'authors': 4},
        'removed': removed,
        'kept': {'sentences': 5, 'words': 10},
    }
    counts = dict(trailers=1, code_lines=1, links=1, inline_code=1, without_letters=1)
    assert {name: n for name, n in removed.items() if n} == {**counts, 'repeated_sentences': 1}


def test_a_commit_changes_the_digest_and_long_authors_are_cut(path, monkeypatch):
    first = _open(path)
    repositories.make(path, [Commit('b@x.org', 'Another one')])
    later = _open(path)
    assert later.description['history']['commits'] == 6
    assert later.fingerprints != first.fingerprints
    assert ('add here', 'another one') in _texts(later)
    monkeypatch.setattr(git_log, 'MAX_WORDS', 2)
    assert _texts(_open(path)) == {('fix it',), ('add here',), ('say',)}


def test_clients_are_the_same_as_long_as_the_key_is(path, cache):
    def order(opened):
        clients = opened.training
        return [list(clients.sentences(client)) for client in range(clients.count)]

    first = _open(path)
    # Nothing but the key is kept.
    assert os.listdir(cache) == ['authors.key']
    again = _open(path)
    assert again.description == first.description and again.fingerprints == first.fingerprints
    assert order(again) == order(first)
    (cache / 'authors.key').unlink()
    assert _open(path).fingerprints != first.fingerprints


def test_too_few_authors_are_refused_by_the_name_of_the_repository(tmp_path):
    for text, has in (('One', 1), ('1', 0)):
        few = repositories.make(tmp_path / text, [Commit('a@x.org', text)])
        message = f'^data_path={few}: must have texts of at least 2 .* has {has}'
        with pytest.raises(ArgumentError, match=message):
            _open(few)


def test_a_full_disk_for_the_copy_is_named(path, monkeypatch):
    monkeypatch.setattr(
        client_texts.tempfile, 'TemporaryFile', lambda prefix: open('/dev/full', 'wb')
    )
    with pytest.raises(ArgumentError, match='^data_path=.*TMPDIR'):
        _open(path)


def test_many_sentences_are_in_records_that_readers_take(tmp_path, monkeypatch):
    monkeypatch.setattr(git_log, '_RECORD', 50)
    sentences = [f'sentence number {chr(97 + i)}' for i in range(20)]
    commits = [Commit('a@x.org', '\n\n'.join(sentences)), Commit('b@x.org', 'Two')]
    opened = _open(repositories.make(tmp_path / 'b', commits))
    assert _texts(opened) == {tuple(sentences), ('two',)}


def test_a_clone_of_the_repositories_of_clients_is_no_public_text(path, tmp_path):
    clone = shutil.copytree(path, tmp_path / 'clone')
    values = {'task': 'git_log', 'data_path': str(path), 'vocabulary_text': str(clone)}
    task = text_task.TextTask(TaskConfig().with_values(values), 0, lambda text: None).word_task
    assert task.data.description['vocabulary']['from'] == 'vocabulary_from_private_data'
