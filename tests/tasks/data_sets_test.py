"""Downloads from a local server: complete, interrupted, changed, and damaged."""

import base64
import contextlib
import dataclasses
import hashlib
import http.server
import json
import lzma
import threading

import pytest

from dpfl.errors import DataError
from dpfl.tasks import data_sets

_DATA = bytes(range(256)) * 3000
_PACKED = lzma.compress(_DATA + hashlib.sha256(b'').digest() * 10_000, format=lzma.FORMAT_ALONE)
_WHOLE = lzma.decompress(_PACKED)


@dataclasses.dataclass
class _Server:
    """A server of one file.

    Attributes:
      content: what it serves.
      cut: how many bytes of each response it sends before it closes the connection; None for all.
      digest: whether it states the MD5.
      status: of every response, if it is not None.
      requests: the Range header of each request, or None.
    """

    content: bytes = _PACKED
    cut: int | None = None
    digest: bool = True
    status: int | None = None
    requests: list = dataclasses.field(default_factory=list)

    @contextlib.contextmanager
    def running(self):
        test = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):  # noqa: N802
                test.answer(self)

            def log_message(self, *args):
                pass

        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f'http://127.0.0.1:{server.server_port}/data.lzma'
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def answer(self, handler):
        wanted = handler.headers.get('Range')
        self.requests.append(wanted)
        if self.status is not None:
            handler.send_error(self.status)
            return
        md5 = hashlib.md5(self.content).digest()
        tag = f'"{md5.hex()}"'
        first = 0
        if wanted and handler.headers.get('If-Range') == tag:
            first = int(wanted.removeprefix('bytes=').removesuffix('-'))
        if first >= len(self.content):
            handler.send_error(416)
            return
        handler.send_response(206 if first else 200)
        handler.send_header('Content-Length', str(len(self.content) - first))
        handler.send_header('ETag', tag)
        if self.digest:
            encoded = base64.b64encode(md5).decode()
            handler.send_header('x-goog-hash', f'md5={encoded}')
            handler.send_header('x-goog-hash', 'crc32c=AAAAAA==')
        handler.end_headers()
        last = None if self.cut is None else first + self.cut
        handler.wfile.write(self.content[first:last])


def _fetch(server, path, sha256=None):
    with server.running() as url:
        return data_sets.fetch_lzma(url, path, sha256)


def _refused(server, path, message, *sha256):
    with pytest.raises(DataError, match=message):
        _fetch(server, path, *sha256)
    assert not path.exists()


@pytest.fixture(name='path')
def _path(tmp_path):
    return tmp_path / 'folder' / 'data.sqlite'


def _names(path):
    return sorted(p.name for p in path.parent.iterdir())


def test_a_file_is_downloaded_once(path):
    server = _Server()
    assert _fetch(server, path) == path
    assert path.read_bytes() == _WHOLE
    assert _names(path) == ['data.sqlite']
    _fetch(server, path)
    assert server.requests == [None]


def test_what_has_arrived_is_kept_for_the_next_call(path):
    server = _Server(cut=10)
    _refused(server, path, 'cannot be downloaded .*; 10 bytes are kept')
    assert (path.parent / 'data.sqlite.lzma.partial').read_bytes() == _PACKED[:10]
    server.cut = None
    _fetch(server, path)
    assert server.requests[-1] == 'bytes=10-'
    assert path.read_bytes() == _WHOLE
    assert _names(path) == ['data.sqlite']


def test_a_file_that_changed_meanwhile_is_downloaded_from_its_start(path):
    old = lzma.compress(b'old' * 1000, format=lzma.FORMAT_ALONE)
    _refused(_Server(old, cut=2), path, 'cannot be downloaded')
    _fetch(_Server(), path)
    assert path.read_bytes() == _WHOLE


def test_a_partial_file_that_is_already_complete(path):
    path.parent.mkdir()
    partial = path.parent / 'data.sqlite.lzma.partial'
    partial.write_bytes(_PACKED)
    tag = f'"{hashlib.md5(_PACKED).hexdigest()}"'
    partial.with_name(partial.name + '.etag').write_text(json.dumps(tag))
    _fetch(_Server(), path)
    assert path.read_bytes() == _WHOLE


def test_a_digest_that_is_given_counts(path):
    _refused(_Server(), path, 'has the SHA256 .*, must have 00', '00' * 32)
    assert _names(path) == ['data.sqlite.lzma.partial.etag']
    server = _Server(digest=False)
    _refused(server, path, 'states no MD5')
    _fetch(server, path, hashlib.sha256(_PACKED).hexdigest().upper())
    assert path.read_bytes() == _WHOLE


def test_bytes_that_are_not_those_of_the_stated_digest_are_deleted(path, monkeypatch):
    monkeypatch.setattr(hashlib, 'md5', lambda data: hashlib.new('md5', data + b'?'))
    _refused(_Server(), path, 'has the MD5 .*; deleted')
    assert not (path.parent / 'data.sqlite.lzma.partial').exists()


@pytest.mark.parametrize('content', [_PACKED[:-20], _PACKED + b'more', b'not compressed'])
def test_a_file_that_cannot_be_unpacked_is_not_there(content, path):
    _refused(_Server(content), path, 'cannot be unpacked')
    assert 'data.sqlite.partial' not in _names(path)


@pytest.mark.parametrize('status', [404, 503])
def test_what_the_server_refuses(status, path):
    _refused(_Server(status=status), path, f'{status} ')


@pytest.mark.parametrize('url', ['http://127.0.0.1:1/x', 'nonsense', 'http://[', 'file:///nowhere'])
def test_a_url_that_leads_nowhere_is_one_line(url, path):
    with pytest.raises(DataError) as caught:
        data_sets.fetch_lzma(url, path)
    assert '\n' not in str(caught.value) and url in str(caught.value)


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / 'file').touch()
    with pytest.raises(DataError, match=r'file: (File exists|Not a directory)'):
        data_sets.fetch_lzma('http://127.0.0.1:1/x', tmp_path / 'file' / 'a')
