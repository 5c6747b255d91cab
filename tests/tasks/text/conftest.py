import contextlib
import io

import pytest

from dpfl import _parquet
from dpfl.tasks.text import record_files


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The cache directory, which has the key of the names of authors."""
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path / 'cache'))
    return tmp_path / 'cache'


@pytest.fixture
def parquet_in_process(monkeypatch):
    """Reads Parquet without a child process, which takes a second."""

    @contextlib.contextmanager
    def rows(file, reader, *arguments):
        lines = io.BytesIO()
        try:
            record_files.write_json(file, lines, *arguments)
        except SystemExit as error:
            raise _parquet.FailedError(1, error.code.encode()) from None
        lines.seek(0)
        yield lines

    monkeypatch.setattr(_parquet, 'rows', rows)
