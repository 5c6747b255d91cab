import pytest

from dpfl.tasks.text.files import record_files


@pytest.fixture
def parquet_in_process(monkeypatch):
    """Reads Parquet without a child process, which takes a second."""
    monkeypatch.setattr(record_files, '_convert_in_child', record_files._convert)
