"""Public text of any size: read line by line, never as a whole.

A file is plain text, or JSON Lines (`.jsonl`, `.ndjson`) with a text in each object; either may be
compressed by gzip (`.gz` at the end of the name). Files are UTF-8, with or without a byte order
mark. A Parquet file has a column of texts. In place of a file there may be comma-separated
directories of git repositories, whose commit messages are the text.
"""

import gzip
import io
import json
import os
import pathlib
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from dpfl import _files, _json, _parquet, errors
from dpfl.tasks.text import tokenization
from dpfl.tasks.text.files import record_files
from dpfl.tasks.text.messages import git_history

_JSON_LINES = ('.jsonl', '.ndjson')
# Longest part of a line of plain text that is read at a time, in characters.
_LINE = 1 << 20
# Longest line of JSON, in characters: it cannot be read in parts.
_RECORD = 1 << 22


def lines(name: str, path: str | os.PathLike[str], most: int = _LINE) -> Iterator[tuple[int, str]]:
    """Line numbers, from 1, and lines of a file. Long lines come in parts.

    Args:
      name: the argument that errors name.
      path: a UTF-8 file; compressed if its name ends in `.gz`.
      most: characters of the longest part.

    Raises:
      ArgumentError: if the file cannot be read, or is not UTF-8 text.
    """
    number = 0
    try:
        with _files.open_regular(path) as raw, _text(raw, path) as file:
            ended = True
            while line := file.readline(most):
                number += ended
                ended = line.endswith('\n')
                yield number, line
    except UnicodeDecodeError:
        raise errors.ArgumentError(
            name, path, f'must be UTF-8 text (after line {number})'
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise errors.ArgumentError(
            name, path, f'must be a whole gzip file (after line {number})'
        ) from None
    except OSError as error:
        raise errors.ArgumentError(name, path, f'cannot be read ({error.strerror})') from None


def texts(name: str, path: str | os.PathLike[str], text_column: str = 'text') -> Iterator[str]:
    """The texts of a file, its lines or those of its objects or rows; or of repositories.

    Args:
      name: the argument that errors name.
      path: of the file, or comma-separated directories of repositories.
      text_column: the key of the text in JSON objects, or its column in a Parquet file.

    Raises:
      ArgumentError: if the file cannot be read, or a line or row has no text; or if a repository
        cannot be read.
    """
    if os.path.isdir(os.fspath(path).split(',')[0]):
        with errors.renaming(data_path=name):
            yield from git_history.texts(os.fspath(path))
    elif _stem(path).endswith(_parquet.SUFFIXES):
        yield from _of_parquet(name, path, text_column)
    elif _stem(path).endswith(_JSON_LINES):
        yield from _of_json_lines(name, path, text_column)
    else:
        yield from (line for _, line in lines(name, path))


def sentences(
    name: str, path: str | os.PathLike[str], text_column: str = 'text'
) -> Iterator[list[str]]:
    """The sentences of a file, lists of words; as `texts`."""
    return tokenized(texts(name, path, text_column))


def tokenized(texts: Iterable[str]) -> Iterator[list[str]]:
    """The sentences of texts, lists of words."""
    return (sentence for text in texts for sentence in tokenization.sentences(text))


def _of_json_lines(name: str, path: str | os.PathLike[str], text_column: str) -> Iterator[str]:
    for number, line in lines(name, path, _RECORD):
        if not line.strip():
            continue
        try:
            value: Any = _json.loads(line)
        except ValueError:
            value = None
        text = value.get(text_column) if isinstance(value, dict) else None
        if not isinstance(text, str):
            raise errors.ArgumentError(
                name, path, f'line {number} must be a JSON object with a text {text_column!r}'
            )
        yield text


def _of_parquet(name: str, path: str | os.PathLike[str], text_column: str) -> Iterator[str]:
    try:
        with (
            _files.open_regular(path) as file,
            record_files.parquet_as_json(file, text_column, text_column) as rows,
        ):
            for number, line in enumerate(rows, 1):
                try:
                    text = json.loads(line)['text']
                except ValueError:
                    text = None
                if not isinstance(text, str):
                    raise ValueError(f'row {number} must have a text {text_column!r}')
                yield text
    except OSError as error:
        raise errors.ArgumentError(name, path, f'cannot be read ({error.strerror})') from None
    except errors.ArgumentError:
        allowed = f'must have a column {text_column!r} of text'
        raise errors.ArgumentError(name, path, allowed) from None
    except ValueError as error:
        raise errors.ArgumentError(name, path, str(error)) from None


def _stem(path: str | os.PathLike[str]) -> str:
    return pathlib.Path(path).name.lower().removesuffix('.gz')


def _text(raw: Any, path: str | os.PathLike[str]) -> io.TextIOWrapper:
    is_compressed = pathlib.Path(path).name.lower().endswith('.gz')
    file: Any = gzip.GzipFile(fileobj=raw) if is_compressed else raw
    return io.TextIOWrapper(file, encoding='utf-8-sig')
