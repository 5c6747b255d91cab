"""Downloads compressed data sets. Downloads are verified, can be resumed, and appear atomically.

A file gets its final name only when it is complete; until then it is called `<name>.partial`. An
interrupted download resumes where it stopped if the server's file is unchanged (same ETag). Before
the file is unpacked its digest is checked: a SHA-256 given by the caller, or else the MD5 stated
by the server (`x-goog-hash` of Google Cloud Storage, or `Content-MD5`). A file with neither is
refused.
"""

import base64
import binascii
import contextlib
import hashlib
import http.client
import json
import lzma
import os
import pathlib
import time
import urllib.error
import urllib.request

from dpfl import _cache, _progress
from dpfl.errors import NOT_SHOWN, ArgumentError, DataError
from dpfl.tasks.config import DataConfig

_BLOCK = 1 << 20
_ATTEMPTS = 5
_TIMEOUT = 60  # Seconds without a byte.
_FAILURES = (OSError, http.client.HTTPException)


def fetch_lzma(
    url: str, path: str | os.PathLike[str], sha256: str | None = None, pause: float = 2.0
) -> pathlib.Path:
    """Downloads and unpacks an LZMA or XZ file. Does nothing if the unpacked file exists.

    Progress is shown on standard error.

    Args:
      url: URL of the compressed file.
      path: path of the unpacked file.
      sha256: SHA-256 of the compressed file, in hexadecimal.
      pause: seconds before the second attempt; doubled before each further attempt.

    Returns:
      The path of the unpacked file.

    Raises:
      DataError: if the file cannot be downloaded, has the wrong digest, or cannot be written. A
        partial download is kept for the next call unless its digest is wrong.
    """
    path = pathlib.Path(path)
    if path.exists():
        return path
    packed = path.with_name(path.name + '.lzma')
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not packed.exists():
            _download(url, packed, sha256, pause)
        _unpack(packed, path)
    except OSError as error:
        raise DataError(f'{error.filename or path}: {error.strerror or error}') from None
    packed.unlink()
    return path


def _download(url: str, packed: pathlib.Path, sha256: str | None, pause: float) -> None:
    partial = packed.with_name(packed.name + '.partial')
    headers = {}
    for attempt in range(_ATTEMPTS):
        try:
            headers = _append(url, partial)
            break
        except _FAILURES as error:
            answered = isinstance(error, urllib.error.HTTPError)
            if isinstance(error, urllib.error.HTTPError) and error.code < 500:
                raise DataError(f'{url}: the server says {_reason(error)}') from None
            if isinstance(error, OSError) and not answered and error.filename is not None:
                raise  # An error of the disk, not of the network.
            unreachable = isinstance(error, urllib.error.URLError) and not answered
            if attempt + 1 == _ATTEMPTS or (attempt == 0 and unreachable):
                received = partial.stat().st_size if partial.exists() else 0
                raise DataError(
                    f'{url}: cannot be downloaded ({_reason(error)}); {received} bytes are kept, '
                    'the next attempt continues after them'
                ) from None
            time.sleep(pause * 2**attempt)
    _verify(url, partial, headers, sha256)
    os.replace(partial, packed)
    with contextlib.suppress(FileNotFoundError):
        _tag_path(partial).unlink()


def _append(url: str, partial: pathlib.Path) -> dict[str, str]:
    """Downloads the rest of the partial file. Returns the response headers, names in lower case.

    Raises:
      OSError, HTTPException: if the connection is lost or ends before the announced length.
    """
    have = partial.stat().st_size if partial.exists() else 0
    try:
        request = urllib.request.Request(url)
    except ValueError as error:
        raise DataError(f'{url}: must be a URL ({error})') from None
    tag = _read_tag(partial)
    if have and tag:
        request.add_header('Range', f'bytes={have}-')
        request.add_header('If-Range', tag)
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # Range not satisfiable: the partial file is complete or too long.
            raise
        partial.unlink()
        return _append(url, partial)
    with response:
        headers = {name.lower(): value for name, value in response.headers.items()}
        if response.status != 206:
            have = 0  # The file has changed, or the server does not support ranges.
        total = None if response.length is None else have + response.length
        _tag_path(partial).write_text(json.dumps(headers.get('etag')))
        with (
            open(partial, 'ab' if have else 'wb') as file,
            _progress.bar(
                total=total, initial=have, desc='download', unit='B', unit_scale=True, delay=2
            ) as bar,
        ):
            while block := response.read(_BLOCK):
                file.write(block)
                bar.update(len(block))
            file.flush()
            os.fsync(file.fileno())
            if total is not None and file.tell() != total:
                raise ConnectionError(f'received {file.tell()} of {total} bytes')
    return headers


def _tag_path(partial: pathlib.Path) -> pathlib.Path:
    return partial.with_name(partial.name + '.etag')


def _read_tag(partial: pathlib.Path) -> str | None:
    """The server's strong ETag of the partial file, or None. A weak ETag does not allow ranges."""
    try:
        tag = json.loads(_tag_path(partial).read_text())
    except (OSError, ValueError):
        return None
    return tag if isinstance(tag, str) and tag.startswith('"') else None


def _verify(url: str, partial: pathlib.Path, headers: dict[str, str], sha256: str | None) -> None:
    """Checks the digest of a complete download; deletes the file if the digest is wrong."""
    name, expected = ('sha256', sha256.lower()) if sha256 else ('md5', _stated_md5(headers))
    if expected is None:
        raise DataError(
            f'{url}: cannot be verified: the server states no MD5 and no SHA-256 was given'
        )
    with open(partial, 'rb') as file:
        digest = hashlib.file_digest(file, lambda: hashlib.new(name, usedforsecurity=False))
    if digest.hexdigest() != expected:
        partial.unlink()
        raise DataError(
            f'{url}: has the {name.upper()} {digest.hexdigest()}, must have {expected}; deleted'
        )


def _stated_md5(headers: dict[str, str]) -> str | None:
    """The MD5 stated in the response headers, in hexadecimal, or None."""
    parts = [part.strip() for part in headers.get('x-goog-hash', '').split(',')]
    encoded = [part[len('md5=') :] for part in parts if part.startswith('md5=')]
    encoded += [headers['content-md5']] if 'content-md5' in headers else []
    with contextlib.suppress(IndexError, binascii.Error):
        digest = base64.b64decode(encoded[0], validate=True).hex()
        return digest if len(digest) == 32 else None
    return None


def _unpack(packed: pathlib.Path, path: pathlib.Path) -> None:
    """Unpacks a file. The unpacked file gets its name only when it is complete."""
    partial = path.with_name(path.name + '.partial')
    decompressor = lzma.LZMADecompressor()
    try:
        with (
            open(packed, 'rb') as source,
            open(partial, 'wb') as file,
            _progress.bar(
                total=packed.stat().st_size, desc='unpack', unit='B', unit_scale=True, delay=2
            ) as bar,
        ):
            while not decompressor.eof and (block := source.read(_BLOCK)):
                file.write(decompressor.decompress(block))
                bar.update(len(block))
            if not decompressor.eof or decompressor.unused_data or source.read(1):
                raise lzma.LZMAError('it is truncated, or has data after its end')
            file.flush()
            os.fsync(file.fileno())
    except lzma.LZMAError as error:
        partial.unlink()
        raise DataError(f'{packed}: cannot be unpacked ({error})') from None
    os.replace(partial, path)


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f'{error.code} {error.reason}'
    reason = getattr(error, 'reason', None) or getattr(error, 'strerror', None) or error
    return ' '.join(str(reason).split()) or type(error).__name__


def required(config: DataConfig, task: str) -> pathlib.Path:
    """The path of data that cannot be downloaded.

    Raises:
      ArgumentError: if it is not given, or a download is asked for.
    """
    if config.download:
        raise ArgumentError('download', NOT_SHOWN, f'task={task} has no data set to download')
    if not config.data_path:
        raise ArgumentError('data_path', NOT_SHOWN, f'must be given for task={task}')
    return pathlib.Path(config.data_path)


def downloadable(
    config: DataConfig, task: str, url: str, name: str, sha256: str | None = None
) -> pathlib.Path:
    """The path of a data set that TFF publishes, after its download if it is asked for.

    Args:
      config: where the data are.
      task: named in errors.
      url: address that TFF uses.
      name: of the file in the cache directory.
      sha256: of the compressed file, if it is known.

    Raises:
      ArgumentError: if there is neither a path nor a download.
      DataError: if the download fails.
    """
    path = config.data_path
    if not config.download:
        if not path:
            raise ArgumentError(
                'data_path', NOT_SHOWN, f'must be given for task={task}, or download'
            )
        return pathlib.Path(path)
    directory = _cache.directory()
    if not path and directory is None:
        raise ArgumentError(
            'data_path', NOT_SHOWN, 'must say where to download to; there is no cache directory'
        )
    return fetch_lzma(url, path or pathlib.Path(directory or '') / name, sha256)


def refuse(config: DataConfig, task: str) -> None:
    """Raises ArgumentError if a setting says where data are, for a task that makes its own."""
    for name in ('data_path', 'download'):
        if getattr(config, name):
            raise ArgumentError(name, NOT_SHOWN, f'task={task} makes its own data')
