"""Small git repositories for tests, made by one call of `git fast-import`. They need git."""

import os
import pathlib
import shutil
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

_ENVIRONMENT = {
    'HOME': os.devnull,
    'GIT_CONFIG_NOSYSTEM': '1',
    'LC_ALL': 'C',
    'PATH': os.environ['PATH'],
}


class Commit(NamedTuple):
    """A commit on the branch `main`.

    Attributes:
      address: of the author; `Name <address>` for another name than 'Somebody'.
      message: text, or bytes in `encoding`.
      encoding: that the commit states.
      merged: numbers, from 1, of commits that it also has as parents.
      mailmap: content of the file `.mailmap` from here on.
    """

    address: str
    message: str | bytes
    encoding: str | None = None
    merged: tuple[int, ...] = ()
    mailmap: str | None = None


def git(path: pathlib.Path, *arguments: str) -> str:
    """What git prints; the tests of real text cannot do without it."""
    assert shutil.which('git'), 'the tests of git_log need the program git'
    return subprocess.run(
        ['git', '-C', str(path), *arguments],
        env=_ENVIRONMENT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def make(path: pathlib.Path, commits: Sequence[Commit], bare: bool = True) -> pathlib.Path:
    """Makes a repository, or adds commits to the one that is there."""
    is_new = not path.exists()
    if is_new:
        path.mkdir()
        git(path, 'init', '--quiet', '--initial-branch=main', *(['--bare'] if bare else []))
    lines: list[bytes] = []
    start = 0 if is_new else int(git(path, 'rev-list', '--count', 'main'))
    for number, commit in enumerate(commits, 1):
        author = commit.address if '<' in commit.address else f'Somebody <{commit.address}>'
        message = commit.message
        data = message.encode() if isinstance(message, str) else message
        lines += [b'commit refs/heads/main', f'mark :{number}'.encode()]
        lines += [f'author {author} {start + number} +0000'.encode()]
        lines += [f'committer C <c@example.org> {start + number} +0000'.encode()]
        lines += [f'encoding {commit.encoding}'.encode()] if commit.encoding else []
        lines += [f'data {len(data)}'.encode(), data]
        lines += [b'from refs/heads/main^0'] if number == 1 and not is_new else []
        lines += [f'merge :{merged}'.encode() for merged in commit.merged]
        if commit.mailmap is not None:
            content = commit.mailmap.encode()
            lines += [b'M 644 inline .mailmap', f'data {len(content)}'.encode(), content]
    subprocess.run(
        ['git', '-C', str(path), 'fast-import', '--quiet'],
        env=_ENVIRONMENT,
        check=True,
        input=b''.join(line + b'\n' for line in lines),
    )
    return path


def of_authors(path: pathlib.Path, authors: int, commits: int = 4) -> pathlib.Path:
    """A repository in which each author has some commits of two sentences."""
    verbs = ('fix', 'add', 'remove', 'test', 'move')
    things = ('parser', 'reader', 'writer', 'index', 'cache', 'flag', 'page')
    return make(
        path,
        [
            Commit(
                f'author{author}@example.org',
                f'{verbs[(author + i) % 5]} the {things[(author * i + i) % 7]} of part {i}\n\n'
                f'The {things[(author + 2 * i) % 7]} was slow with {things[i % 7]} {author % 9}.\n',
            )
            for i in range(commits)
            for author in range(authors)
        ],
    )
