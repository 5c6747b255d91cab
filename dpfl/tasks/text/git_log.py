"""Commit messages as text of clients: one author of any number of repositories is one client.

git runs as a child process and its output is read as it comes. The result depends on nothing but
the heads: neither on settings of git, nor on replaced commits, nor on a `.mailmap` that is not
committed. git starts no other program and loads nothing from elsewhere.
"""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import json
import operator
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

from dpfl import errors
from dpfl.tasks.text import author_texts, client_texts, record_files
from dpfl.tasks.text.author_texts import MAX_BYTES, Message, decoded
from dpfl.tasks.text.word_clients import TextData

# Words of an author that are read, the first ones in whole sentences.
MAX_WORDS = 3000
# A text of an author has no more characters, or one sentence.
_RECORD = 1 << 16
# Names of the counts of `read_messages`.
COUNTED = ('commits', 'merge_commits', 'not_utf8', 'cut')
_BLOCK = 1 << 20
_FORMAT = '%aE%n%aN%n%P%n%B'
# Variables of the caller that lead git to another repository, or to another history of this one.
_MISLEADING = (
    'GIT_DIR',
    'GIT_WORK_TREE',
    'GIT_INDEX_FILE',
    'GIT_COMMON_DIR',
    'GIT_OBJECT_DIRECTORY',
    'GIT_ALTERNATE_OBJECT_DIRECTORIES',
    'GIT_NAMESPACE',
    'GIT_SHALLOW_FILE',
    'GIT_PREFIX',
)


@dataclasses.dataclass(frozen=True)
class Repository:
    """A repository with commits.

    Attributes:
      path: where it is, as given.
      git_dir: where git keeps it.
      heads: ids of the commits whose history is read: that of HEAD, or if HEAD has none, as in a
        bare repository without its branch, those of all branches.
    """

    path: str
    git_dir: str
    heads: tuple[str, ...]

    @property
    def name(self) -> str:
        """The last part of the path, without `.git`."""
        return pathlib.Path(self.path).resolve().name.removesuffix('.git')


def find_repositories(paths: str) -> list[Repository]:
    """The repositories at comma-separated paths.

    Args:
      paths: directories, each a clone with or without a work tree.

    Raises:
      ArgumentError: if git is not installed, or a path has no repository, or one that is damaged,
        shallow or empty, or if two are the same; the argument named is `data_path`.
    """
    if shutil.which('git') is None:
        raise errors.ArgumentError(
            'data_path', errors.NOT_SHOWN, 'needs the program git, which is not installed'
        )
    repositories: list[Repository] = []
    for path in paths.split(','):
        try:
            os.listdir(path)
        except OSError as error:
            raise _refused(path, f'cannot be read ({error.strerror})') from None
        git_dir = _output(path, 'rev-parse', '--absolute-git-dir')
        if _output(path, 'rev-parse', '--is-shallow-repository') == 'true':
            raise _refused(
                path,
                'is a shallow clone, whose history is cut off; complete it by git fetch '
                '--unshallow',
            )
        done = _run(path, 'rev-parse', '--verify', '--quiet', 'HEAD')
        heads = done.stdout.decode().split()
        if not heads:
            done = _run(
                path, 'for-each-ref', '--format=%(objectname)', 'refs/heads', 'refs/remotes'
            )
            heads = sorted(set(done.stdout.decode().split()))
            if done.stderr:
                raise _refused(path, f'cannot be read by git ({_reason(done.stderr)})')
            if not heads:
                raise _refused(path, 'is a repository without commits')
        for head in heads:
            _output(path, 'cat-file', '-e', f'{head}^{{commit}}')
        if any(git_dir == other.git_dir for other in repositories):
            raise _refused(path, 'is the same repository as another one')
        repositories.append(Repository(path, git_dir, tuple(heads)))
    return repositories


def read_messages(
    repositories: Sequence[Repository], counts: collections.Counter[str]
) -> Iterator[Message]:
    """The messages of all commits except merges, those of a repository in order of their dates.

    The author is the address, in lower case, after `.mailmap`; the name where there is none.

    Args:
      repositories: from `find_repositories`.
      counts: gets the numbers that `COUNTED` names: of commits, of merges among them, of messages
        that are not UTF-8, and of those that are cut after 256 KiB.

    Raises:
      ArgumentError: if git cannot read a history to its end; it names `data_path`.
    """
    for source, repository in enumerate(repositories):
        for commit in _commits(repository):
            counts['commits'] += 1
            parts = commit[:MAX_BYTES].split(b'\n', 3)
            if len(parts) < 4:
                raise _refused(repository.path, f'has an author of more than {MAX_BYTES} bytes')
            address, name, parents, body = parts
            if b' ' in parents:
                counts['merge_commits'] += 1
                continue
            counts['cut'] += len(commit) > MAX_BYTES
            text, is_damaged = decoded(body)
            counts['not_utf8'] += is_damaged
            author = (address.strip() or name.strip()).decode(errors='replace').lower()
            yield Message(author, source, text)


def prose_of_commits(paths: str) -> Iterator[str]:
    """The prose of each commit; a sentence in each line.

    Args:
      paths: comma-separated directories, as for `find_repositories`.

    Raises:
      ArgumentError: if a repository cannot be read; it names `data_path`.
    """
    counts: collections.Counter[str] = collections.Counter()
    for message in read_messages(find_repositories(paths), counts):
        if sentences := author_texts.prose(message.text, counts):
            yield '\n'.join(sentences)


def _commits(repository: Repository) -> Iterator[bytes]:
    """The commits in the form `_FORMAT`; of a long one only the beginning."""
    command = [
        *_git('--bare', f'--git-dir={repository.git_dir}'),
        *('-c', f'mailmap.blob={repository.heads[0]}:.mailmap', '-c', 'mailmap.file='),
        *('-c', 'log.showSignature=false'),
        *('log', '--stdin', '--reverse', '-z', '--no-color', '--no-patch', '--encoding=UTF-8'),
        f'--format={_FORMAT}',
    ]
    with contextlib.ExitStack() as stack:
        heads = stack.enter_context(tempfile.TemporaryFile(prefix='dpfl-'))
        problems = stack.enter_context(tempfile.TemporaryFile(prefix='dpfl-'))
        heads.write('\n'.join(repository.heads).encode())
        heads.seek(0)
        child = subprocess.Popen(
            command,
            stdin=heads,
            stdout=subprocess.PIPE,
            stderr=problems,
            env=_environment(repository.path),
        )
        assert child.stdout is not None
        stack.callback(child.stdout.close)
        stack.callback(child.wait)
        stack.callback(child.kill)  # First: git may still be writing.
        yield from _between_zeros(child.stdout)
        if child.wait():
            problems.seek(0)
            reason = _reason(problems.read())
            raise _refused(repository.path, f'has a history that git cannot read ({reason})')


def _between_zeros(stream: IO[bytes]) -> Iterator[bytes]:
    """The parts of a stream that zero bytes end; of a long one the beginning, and one byte more."""
    rest = b''
    while block := stream.read(_BLOCK):
        first, *parts = block.split(b'\0')
        rest += first[: MAX_BYTES + 1 - len(rest)]
        for part in parts:
            yield rest
            rest = part[: MAX_BYTES + 1]


def _output(path: str, *arguments: str) -> str:
    """The output of a git command. Raises ArgumentError if it fails."""
    done = _run(path, *arguments)
    if done.returncode:
        if b'not a git repository' in done.stderr:
            raise _refused(path, 'is no git repository')
        raise _refused(path, f'cannot be read by git ({_reason(done.stderr)})')
    return os.fsdecode(done.stdout.rstrip(b'\n'))


def _run(path: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*_git('-C', path), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        env=_environment(path),
    )


def _git(*arguments: str) -> list[str]:
    return ['git', '--no-pager', '--no-replace-objects', *arguments]


def _environment(path: str) -> dict[str, str]:
    """Variables under which git reads this repository only, and tells errors in English."""
    kept = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    return kept | {
        'LC_ALL': 'C',
        'GIT_ALLOW_PROTOCOL': 'none',
        'GIT_CEILING_DIRECTORIES': str(pathlib.Path(path).resolve().parent),
        'GIT_GRAFT_FILE': os.devnull,
        'GIT_OPTIONAL_LOCKS': '0',
        'GIT_TERMINAL_PROMPT': '0',
    }


def _reason(stderr: bytes) -> str:
    """The first line of an error of git."""
    lines = stderr.decode(errors='replace').strip().splitlines() or ['it does not say why']
    return errors.shown(lines[0].removeprefix('fatal: ').removeprefix('error: '), 150)


def _refused(path: str, allowed: str) -> errors.ArgumentError:
    return errors.ArgumentError('data_path', path, allowed)


def open_clients(paths: str, heldout_fraction: float) -> TextData:
    """Reads the histories of repositories.

    The description has the heads, and counts of what was removed.

    Args:
      paths: comma-separated directories, each a clone with or without a work tree.
      heldout_fraction: share of the clients to hold out.

    Raises:
      ArgumentError: if a repository cannot be read, has fewer than two authors with text, or the
        directory for temporary files is full.
    """
    repositories = find_repositories(paths)
    key = author_texts.load_key()
    counts: collections.Counter[str] = collections.Counter()
    total = hashlib.sha256()

    def records() -> Iterator[tuple[str, str]]:
        messages = read_messages(repositories, counts)
        for client, text in _texts(author_texts.by_author(messages, key, MAX_WORDS, counts)):
            record = json.dumps({'client': client, 'text': text}, ensure_ascii=False)
            total.update(f'{record}\n'.encode())
            yield client, text

    with record_files.refusing('data_path', paths):
        texts = client_texts.ClientTexts(records())
    facts = {
        'repositories': [
            {'name': repository.name, 'heads': list(repository.heads)}
            for repository in repositories
        ],
        **author_texts.described(counts, COUNTED),
    }
    return client_texts.divided(texts, paths, heldout_fraction, 'git', facts, total.hexdigest())


def _texts(sentences: Iterable[tuple[str, int, str]]) -> Iterator[tuple[str, str]]:
    """Clients and texts: many sentences of one client in each, separated by line breaks."""
    for client, own in itertools.groupby(sentences, operator.itemgetter(0)):
        lines: list[str] = []
        size = 0
        for _, _, sentence in own:
            if lines and size + len(sentence) > _RECORD:
                yield client, '\n'.join(lines)
                lines, size = [], 0
            lines.append(sentence)
            size += len(sentence)
        yield client, '\n'.join(lines)
