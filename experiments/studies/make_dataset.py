r"""Makes a data set of clients from messages: commits of git, mailboxes, or texts in JSON Lines.

Example:
  python -m experiments.studies.make_dataset --from=git --data_path=linux,git \
      --output=commits.parquet

One author is one client, under a name that nobody can trace to the address without the key in the
cache directory. What is no prose is removed: trailers, quotes, code, diffs, links, addresses and
hashes. The Parquet file has a sentence in each row, with the columns client, source, text and
sentence; --task=user_text reads it. What was removed, and what stays, is counted and printed. NOT
private: the file has the text of the authors.

Left out of mailboxes are quotes and the lines that introduce them, signatures (from the line `-- `
on), patches, attachments, and older messages below a line `-----Original Message-----`.
"""

import collections
import contextlib
import email
import email.message
import email.utils
import importlib.util
import itertools
import mailbox
import operator
import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from absl import flags

from dpfl import _files, _storage, errors
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.reporting import plain_text
from dpfl.tasks.config import DataConfig, TextConfig
from dpfl.tasks.text import author_texts, git_log, record_files
from dpfl.tasks.text.author_texts import MAX_BYTES, Message, decoded

_ROWS_OF_A_GROUP = 50_000
_OF_FILES = ('records', 'malformed')
# What is counted of mailboxes.
_OF_MAIL = ('messages', 'without_author', 'not_text', 'endings', 'attributions', 'not_utf8', 'cut')
_ENDING = re.compile(
    r'^(?:--[ \t]?|---|-{2,} ?Original Message ?-{2,}|diff --git .*|Index: .*)$',
    re.MULTILINE | re.IGNORECASE,
)
_ATTRIBUTION = re.compile(
    r'^(?:On [^\n]{1,200}(?:\n[^\n]{1,200})?|[^\n>][^\n]{0,200})\s(?:wrote|writes):$', re.MULTILINE
)


def mailbox_messages(paths: Sequence[str], counts: collections.Counter[str]) -> Iterator[Message]:
    """The text of all messages that have an author and plain text.

    The author is the address of the header From, in lower case; the header where it has none.

    Args:
      paths: of the mailboxes.
      counts: gets the numbers that `_OF_MAIL` names: of messages; of those without a header From or
        without plain text; of endings and attributions that are left out; of messages that are not
        in the encoding they state; and of those that are cut after 256 KiB.

    Raises:
      ArgumentError: if a file cannot be read or has no message; it names `data_path`.
    """
    for source, path in enumerate(paths):
        with _opened(path) as file:
            if file.read(5) != b'From ':
                raise errors.ArgumentError(
                    'data_path', path, 'must be in mbox format, which begins with "From "'
                )
            for data in _raw_mails(path):
                counts['messages'] += 1
                parsed = email.message_from_bytes(data)
                author, text = _mail_author(parsed), _mail_text(parsed, counts)
                counts['without_author'] += not author
                counts['not_text'] += text is None
                if author and text is not None:
                    yield Message(author, source, without_quotes(text, counts))


@contextlib.contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """A file; what cannot be read of it is the fault of `data_path`."""
    try:
        with _files.open_regular(path) as file:
            yield file
    except OSError as error:
        raise errors.ArgumentError(
            'data_path', path, f'cannot be read ({error.strerror})'
        ) from None


def without_quotes(text: str, counts: collections.Counter[str]) -> str:
    """A message without its ending and the lines that introduce quotes."""
    text = '\n'.join(text.splitlines())
    if ending := _ENDING.search(text):
        counts['endings'] += 1
        text = text[: ending.start()]
    text, count = _ATTRIBUTION.subn('', text)
    counts['attributions'] += count
    return text


def _raw_mails(path: str) -> Iterator[bytes]:
    box = mailbox.mbox(path, create=False)
    try:
        for key in box.iterkeys():
            yield box.get_bytes(key)
    finally:
        box.close()


def _mail_author(parsed: email.message.Message) -> str:
    """The address of the sender; of archives that write `name at host`, too."""
    sender = ' '.join(str(parsed.get('From', '')).split())
    if '@' not in sender:
        sender = re.sub(r'(\S+) at (\S+\.\S+)', r'\1@\2', sender)
    _, address = email.utils.parseaddr(sender)
    return (address if '@' in address else sender).lower()


def _mail_text(parsed: email.message.Message, counts: collections.Counter[str]) -> str | None:
    """The first part with plain text that is no attachment."""
    for part in parsed.walk():
        if part.get_content_type() != 'text/plain':
            continue
        if part.get_content_disposition() == 'attachment':
            continue
        data = part.get_payload(decode=True)
        if not isinstance(data, bytes):
            continue
        counts['cut'] += len(data) > MAX_BYTES
        data = data[:MAX_BYTES]
        charset = part.get_content_charset('utf-8')
        try:
            if charset not in ('utf-8', 'us-ascii'):
                return data.decode(charset)
        except (LookupError, UnicodeError, ValueError):
            pass
        text, is_damaged = decoded(data)
        counts['not_utf8'] += is_damaged
        return text
    return None


def _json_messages(
    paths: Sequence[str], client_column: str, text_column: str, counts: collections.Counter[str]
) -> Iterator[Message]:
    """The texts of JSON Lines, with their authors; counts what `_OF_FILES` names.

    Raises:
      ArgumentError: if a file cannot be read, or no record is well-formed; it names `data_path`.
    """
    first = ''
    for source, path in enumerate(paths):
        with _opened(path) as file:
            for record in record_files.json_lines(file, client_column, text_column):
                counts['records'] += 1
                if record.reason:
                    counts['malformed'] += 1
                    first = first or f'{path}, line {record.line}: {record.reason}'
                else:
                    yield Message(record.client, source, record.text)
    if first and counts['malformed'] == counts['records']:
        raise errors.ArgumentError(
            'data_path',
            errors.NOT_SHOWN,
            f'all records are malformed (client_column={client_column}, '
            f'text_column={text_column}); the first one: {first}',
        )


_FROM = flags.DEFINE_enum(
    'from',
    'git',
    ['git', 'mbox', 'jsonl'],
    'What the messages are: commits of git repositories, mailboxes in mbox format, or JSON Lines.',
)
_DATA = SettingsFlags(
    DataConfig,
    only=('data_path',),
    help={'data_path': 'Repositories, mailboxes or files, comma-separated.'},
)
_TEXT = SettingsFlags(
    TextConfig,
    only=('client_column', 'text_column'),
    help={
        'client_column': 'Key of the author in JSON Lines.',
        'text_column': 'Key of the text in JSON Lines.',
    },
)
_MAX_WORDS = flags.DEFINE_integer(
    'author_max_words',
    git_log.MAX_WORDS,
    'Words of an author, the first ones in whole sentences; 0 for all.',
    lower_bound=0,
)
_OUTPUT = SettingsFlags(
    output_flags.OutputConfig, help={'output': 'Parquet file; replaced if it exists.'}
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags, writes the file, and prints the counts."""
    paths = command_line.required(_DATA.read(), 'data_path')
    output, text = command_line.required(_OUTPUT.read(), 'output'), _TEXT.read()
    kind = _FROM.value
    for name in ('client_column', 'text_column'):
        if kind != 'jsonl' and getattr(text, name) != getattr(TextConfig(), name):
            raise command_line.UsageError(f'--{name}={getattr(text, name)}: needs --from=jsonl')
    command_line.check_writable(output, None)
    with command_line.refusing_bad_values():
        made = make(
            kind,
            paths,
            output,
            max_words=_MAX_WORDS.value,
            client_column=text.client_column,
            text_column=text.text_column,
        )
    values = {'clients': made['clients'], 'sources': ', '.join(made['sources'])}
    for group in ('history', 'kept'):
        values |= made[group]
    values |= {f'removed {name}': count for name, count in made['removed'].items()}
    output_flags.show(_FORMAT, {'output': output, **made}, plain_text.table(values))


def make(
    kind: str,
    paths: str,
    output: str | os.PathLike[str],
    *,
    max_words: int,
    client_column: str = 'client',
    text_column: str = 'text',
) -> dict[str, Any]:
    """Writes the file; it replaces an older one when it is complete.

    Args:
      kind: 'git', 'mbox' or 'jsonl'.
      paths: comma-separated repositories, mailboxes or files of JSON Lines.
      output: path of the Parquet file.
      max_words: of an author; 0 for any number.
      client_column, text_column: keys of the author and the text in JSON Lines.

    Returns:
      The numbers of clients and rows, and what `author_texts.described` says.

    Raises:
      ArgumentError: if `paths` cannot be read (`data_path`), or pyarrow is missing (`output`).
      StorageError: if the file cannot be written.
    """
    if importlib.util.find_spec('pyarrow') is None:
        raise errors.ArgumentError('output', output, 'Parquet needs the package pyarrow')
    counts: collections.Counter[str] = collections.Counter()
    files = paths.split(',')
    counted: tuple[str, ...] = _OF_FILES
    names = [pathlib.Path(path).name for path in files]
    if kind == 'git':
        repositories, counted = git_log.find_repositories(paths), git_log.COUNTED
        names = [repository.name for repository in repositories]
        messages = git_log.read_messages(repositories, counts)
    elif kind == 'mbox':
        messages, counted = mailbox_messages(files, counts), _OF_MAIL
    else:
        messages = _json_messages(files, client_column, text_column, counts)
    sentences = author_texts.by_author(messages, author_texts.load_key(), max_words, counts)
    _storage.write_atomically(
        pathlib.Path(output),
        lambda file: _write(file, _rows(sentences, names, counts)),
        _storage.PRIVATE,
    )
    return {
        'clients': counts['clients'],
        'sources': names,
        **author_texts.described(counts, counted),
    }


def _rows(
    sentences: Iterable[tuple[str, int, str]],
    sources: list[str],
    counts: collections.Counter[str],
) -> Iterator[tuple[str, str, str, int]]:
    for _, own in itertools.groupby(sentences, operator.itemgetter(0)):
        counts['clients'] += 1
        for number, (client, source, sentence) in enumerate(own):
            yield client, sources[source], sentence, number
    if not counts['clients']:
        raise errors.ArgumentError('data_path', errors.NOT_SHOWN, 'has no sentence')


def _write(file: BinaryIO, rows: Iterator[tuple[str, str, str, int]]) -> None:
    import pyarrow
    from pyarrow import parquet

    schema = pyarrow.schema(
        {
            'client': pyarrow.string(),
            'source': pyarrow.string(),
            'text': pyarrow.string(),
            'sentence': pyarrow.int32(),
        }
    )
    with parquet.ParquetWriter(file, schema, compression='zstd') as writer:
        while group := list(itertools.islice(rows, _ROWS_OF_A_GROUP)):
            columns = [list(column) for column in zip(*group, strict=True)]
            writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))


if __name__ == '__main__':
    command_line.run(main)
