"""Histories of git as text of clients: what is read, what does not matter, and what is kept."""

import collections
import json
import os
import shutil
import stat
import subprocess

import pytest

from dpfl.errors import ArgumentError
from dpfl.tasks.text import git_log
from dpfl.tasks.text.author_texts import MAX_BYTES
from tests.tasks.text import repositories
from tests.tasks.text.repositories import Commit


@pytest.fixture(name='cache', autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path / 'cache'))
    return tmp_path / 'cache'


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


@pytest.mark.parametrize('bare', [True, False])
def test_commits_come_in_order_with_addresses_in_lower_case(bare, tmp_path):
    commits = [Commit('A@Example.org', 'One\n\nBody\n'), Commit('b@example.org', 'Two')]
    path = repositories.make(tmp_path / 'a', commits, bare)
    found, counts = _read(path)
    assert found == [('a@example.org', 0, 'One\n\nBody\n'), ('b@example.org', 0, 'Two')]
    assert +counts == {'commits': 2}
    (repository,) = git_log.find_repositories(str(path))
    assert repository.heads == (repositories.git(path, 'rev-parse', 'main'),)


def test_merges_are_counted_and_left_out(tmp_path):
    commits = [
        Commit('a@x.org', 'One'),
        Commit('a@x.org', 'Two'),
        Commit('a@x.org', "Merge branch 'x'", merged=(1,)),
    ]
    found, counts = _read(repositories.make(tmp_path / 'a', commits))
    assert [text for _, _, text in found] == ['One', 'Two']
    assert counts['commits'] == 3 and counts['merge_commits'] == 1


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


def test_an_author_without_an_address_has_the_name(tmp_path):
    path = repositories.make(tmp_path / 'a', [Commit('Some Body <>', 'One'), Commit('X <>', 'Two')])
    assert [author for author, _, _ in _read(path)[0]] == ['some body', 'x']


def test_encodings_and_their_damage(tmp_path):
    commits = [
        Commit('a@x.org', 'caf\xe9'.encode('latin-1'), encoding='ISO-8859-1'),
        Commit('a@x.org', b'caf\xe9 au lait'),
        Commit('a@x.org', b'\xff\xfe', encoding='no-such-encoding'),
        Commit('a@x.org', 'Größe'),
    ]
    found, counts = _read(repositories.make(tmp_path / 'a', commits))
    assert [text for _, _, text in found] == [
        'caf\xe9', 'caf\ufffd au lait', '\ufffd\ufffd', 'Größe'
    ]  # fmt: skip
    assert counts['not_utf8'] == 2


def test_a_message_of_any_length_is_cut(tmp_path):
    commits = [
        Commit('a@x.org', 'word ' * 600_000),
        Commit('b@x.org', 'next'),
        Commit('b@x.org', ''),
    ]
    found, counts = _read(repositories.make(tmp_path / 'a', commits))
    assert [author for author, _, _ in found] == ['a@x.org', 'b@x.org', 'b@x.org']
    assert MAX_BYTES - 200 < len(found[0][2]) <= MAX_BYTES and found[1][2] == 'next'
    assert found[2][2] == '' and counts['cut'] == 1


def test_an_author_of_any_length_is_refused(tmp_path):
    path = repositories.make(tmp_path / 'a', [Commit(f'{"a" * (MAX_BYTES + 1)}@x.org', 'One')])
    with pytest.raises(ArgumentError, match=f'a: has an author of more than {MAX_BYTES} bytes'):
        _read(path)


def test_settings_and_variables_of_git_do_not_matter(tmp_path, monkeypatch):
    path = repositories.make(tmp_path / 'a', [Commit('a@x.org', 'One'), Commit('b@x.org', 'Two')])
    other = repositories.make(tmp_path / 'b', [Commit('c@x.org', 'Other')])
    expected = _read(path)
    run = tmp_path / 'ran'
    program = tmp_path / 'program'
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
        repositories.git(path, 'config', name, value)
    monkeypatch.setenv('GIT_DIR', str(other))
    monkeypatch.setenv('GIT_WORK_TREE', str(tmp_path))
    assert _read(path) == expected and not run.exists()


def test_replaced_commits_are_read_as_they_were(tmp_path):
    path = repositories.make(tmp_path / 'a', [Commit('a@x.org', 'One'), Commit('b@x.org', 'Two')])
    expected = _read(path)
    repositories.git(path, 'replace', 'main', 'main~1')
    assert _read(path) == expected


def test_a_head_without_its_branch_stands_for_all_branches(tmp_path):
    path = repositories.make(tmp_path / 'a', [Commit('a@x.org', 'One'), Commit('b@x.org', 'Two')])
    repositories.git(path, 'symbolic-ref', 'HEAD', 'refs/heads/gone')
    repositories.git(path, 'branch', 'old', 'main~1')
    assert [text for _, _, text in _read(path)[0]] == ['One', 'Two']
    (repository,) = git_log.find_repositories(str(path))
    heads = [repositories.git(path, 'rev-parse', name) for name in ('main', 'old')]
    assert repository.heads == tuple(sorted(heads))


def test_what_is_no_repository_is_refused(tmp_path):
    _refused(tmp_path / 'absent', r'absent: cannot be read \(No such file or directory\)')
    (tmp_path / 'file').write_text('text')
    _refused(tmp_path / 'file', r'file: cannot be read \(Not a directory\)')
    (tmp_path / 'folder').mkdir()
    _refused(tmp_path / 'folder', 'folder: is no git repository')
    # The repository that a folder is in is another one.
    outer = repositories.make(tmp_path / 'outer', [Commit('a@x.org', 'One')], bare=False)
    (outer / 'inner').mkdir()
    _refused(outer / 'inner', 'inner: is no git repository')


def test_an_empty_repository_is_refused(tmp_path):
    for bare in (True, False):
        path = repositories.make(tmp_path / f'{bare}', [], bare)
        _refused(path, 'is a repository without commits')


def test_a_shallow_clone_is_refused(tmp_path):
    path = repositories.make(tmp_path / 'a', [Commit('a@x.org', 'One'), Commit('b@x.org', 'Two')])
    repositories.git(tmp_path, 'clone', '--quiet', '--depth=1', f'file://{path}', 'shallow')
    _refused(tmp_path / 'shallow', 'is a shallow clone, .* complete it by git fetch --unshallow')


def test_a_missing_git_is_named(tmp_path, monkeypatch):
    path = repositories.make(tmp_path / 'a', [Commit('a@x.org', 'One')])
    monkeypatch.setenv('PATH', str(tmp_path))
    _refused(path, 'data_path: needs the program git, which is not installed')


def _damage(path, revision):
    """Overwrites the object of a commit."""
    name = repositories.git(path, 'rev-parse', revision)
    file = path / 'objects' / name[:2] / name[2:]
    file.chmod(0o644)
    file.write_bytes(b'damaged')


@pytest.fixture(name='loose')
def _loose(tmp_path):
    """A repository with each object in a file of its own."""
    path = repositories.make(tmp_path / 'a', [Commit('a@x.org', 'One'), Commit('b@x.org', 'Two')])
    packs = list((path / 'objects' / 'pack').glob('*.pack'))
    for pack in packs:
        moved = shutil.move(pack, tmp_path)
        pack.with_suffix('.idx').unlink()
        with open(moved, 'rb') as file:
            subprocess.run(['git', '-C', path, 'unpack-objects', '-q'], stdin=file, check=True)
    return path


def test_a_repository_with_a_damaged_head_is_refused(loose):
    _damage(loose, 'main')
    _refused(loose, r'a: cannot be read by git \(.*\)$')


def test_a_history_that_breaks_off_is_refused(loose):
    _damage(loose, 'main~1')
    found = git_log.find_repositories(str(loose))
    with pytest.raises(ArgumentError, match=r'a: has a history that git cannot read \(.*\)$'):
        list(git_log.read_messages(found, collections.Counter()))


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


def test_a_damaged_branch_is_refused(loose):
    (loose / 'refs' / 'heads').mkdir(exist_ok=True)
    (loose / 'packed-refs').unlink(missing_ok=True)
    (loose / 'refs' / 'heads' / 'main').write_text('nonsense\n')
    _refused(loose, r'a: cannot be read by git \(.*\)$')


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


def _open(path, max_words=0, fraction=0.3):
    return git_log.open_clients(str(path), max_words, fraction)


def _texts(opened):
    return {
        tuple(' '.join(sentence) for sentence in clients.sentences(client))
        for clients in opened[:2]
        for client in range(clients.count)
    }


def _count_reads(monkeypatch):
    reads = []
    read = git_log.read_messages
    monkeypatch.setattr(
        git_log, 'read_messages', lambda *args: reads.append(args) or read(*args)
    )  # fmt: skip
    return reads


def test_an_author_is_a_client(path):
    opened = _open(path)
    expected = {('fix it', 'it was wrong .', 'see'), ('add here',), ('say',)}
    assert _texts(opened) == expected
    training, heldout, description, digest = opened
    assert (training.count, heldout.count) == (2, 1) and len(digest) == 64
    removed = description['removed']
    assert description == {
        'format': 'git',
        'clients': {'training': 2, 'heldout': 1},
        'repositories': [{'name': 'a', 'heads': [repositories.git(path, 'rev-parse', 'main')]}],
        'history': {'commits': 5, 'merge_commits': 0, 'not_utf8': 0, 'cut': 0, 'authors': 4},
        'removed': removed,
        'kept': {'sentences': 5, 'words': 10},
    }
    counts = dict(trailers=1, code_lines=1, links=1, inline_code=1, without_letters=1)
    assert {name: n for name, n in removed.items() if n} == {**counts, 'repeated_sentences': 1}


def test_what_is_kept_is_read_without_git_log_and_a_commit_changes_that(path, monkeypatch):
    first = _open(path)
    reads = _count_reads(monkeypatch)
    second = _open(path)
    assert not reads and second[2:] == first[2:] and _texts(second) == _texts(first)
    repositories.make(path, [Commit('b@x.org', 'Another one')])
    third = _open(path)
    assert len(reads) == 1 and third[2]['history']['commits'] == 6 and third[3] != first[3]
    assert ('add here', 'another one') in _texts(third)
    # So does another setting, or another key.
    _open(path, 3)
    assert len(reads) == 2
    _open(path, 3, 0.5)
    assert len(reads) == 2


def test_clients_are_the_same_as_long_as_the_key_is(path, tmp_path, cache):
    def order(opened):
        return [list(opened[0].sentences(client)) for client in range(opened[0].count)]

    first = order(_open(path))
    for file in cache.glob('git_log-*'):
        file.unlink()
    assert order(_open(path)) == first
    digest = _open(path)[3]
    (cache / 'authors.key').unlink()
    assert _open(path)[3] != digest


def test_kept_files_are_private_and_name_nobody(path, cache):
    _open(path)
    names = sorted(name.partition('-')[0] for name in os.listdir(cache))
    assert names == ['authors.key', 'git_log', 'git_log']
    for file in cache.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
        assert b'x.org' not in file.read_bytes()


@pytest.mark.parametrize('damage', ['cut', 'no counts', 'bad counts', 'no text'])
def test_damaged_files_are_made_again(damage, path, cache, monkeypatch):
    first = _open(path)
    texts = _texts(first)
    (text,), (facts,) = cache.glob('git_log-*.jsonl'), cache.glob('git_log-*.json')
    if damage == 'cut':
        os.truncate(text, 10)
    elif damage == 'no counts':
        facts.unlink()
    elif damage == 'bad counts':
        facts.write_text(json.dumps({'size': text.stat().st_size, 'counts': {'links': 'x'}}))
    else:
        text.unlink()
    reads = _count_reads(monkeypatch)
    again = _open(path)
    assert len(reads) == 1 and again[2:] == first[2:] and _texts(again) == texts


def test_a_history_that_cannot_be_read_leaves_nothing(path, cache, monkeypatch):
    def fail(repositories, counts):
        yield from ()
        raise ArgumentError('data_path', 'a', 'has a history that git cannot read')

    monkeypatch.setattr(git_log, 'read_messages', fail)
    with pytest.raises(ArgumentError, match='cannot read'):
        _open(path)
    assert os.listdir(cache) == ['authors.key']


def test_too_few_authors_are_refused_by_the_name_of_the_repository(tmp_path):
    path = repositories.make(tmp_path / 'one', [Commit('a@x.org', 'One')])
    with pytest.raises(ArgumentError, match=f'^data_path={path}: must have texts of at least 2'):
        _open(path)
    path = repositories.make(tmp_path / 'none', [Commit('a@x.org', '1')])
    with pytest.raises(ArgumentError, match=f'^data_path={path}: must have texts .* has 0'):
        _open(path)
    with pytest.raises(ArgumentError, match='^heldout_fraction=1'):
        _open(repositories.make(tmp_path / 'two', _COMMITS), fraction=1)


def test_many_sentences_are_in_records_that_readers_take(tmp_path, monkeypatch):
    monkeypatch.setattr(git_log, '_RECORD', 50)
    sentences = [f'sentence number {chr(97 + i)}' for i in range(20)]
    commits = [Commit('a@x.org', '\n\n'.join(sentences)), Commit('b@x.org', 'Two')]
    opened = _open(repositories.make(tmp_path / 'b', commits))
    assert _texts(opened) == {tuple(sentences), ('two',)}
