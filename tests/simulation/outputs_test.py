import pytest

from dpfl.simulation import outputs


def test_an_earlier_run_is_not_lost_by_accident(tmp_path):
    outputs.RunDirectory(tmp_path).write_text('flags.txt', 'mine')
    with pytest.raises(ValueError, match='must not hold an earlier run .flags.txt exists'):
        outputs.RunDirectory(tmp_path)
    assert (tmp_path / 'flags.txt').read_text() == 'mine'


def test_overwriting_removes_the_files_of_the_run_and_no_others(tmp_path):
    directory = outputs.RunDirectory(tmp_path)
    directory.write_text('flags.txt', 'mine')
    (tmp_path / 'plots').mkdir()
    (tmp_path / 'plots' / 'a.png').touch()
    (tmp_path / 'notes.txt').touch()
    outputs.RunDirectory(tmp_path, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ['notes.txt']


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / 'file').touch()
    with pytest.raises(ValueError, match='output_dir=.*/file/run: must be writable'):
        outputs.RunDirectory(tmp_path / 'file' / 'run')


def test_files_are_whole_or_not_there(tmp_path, monkeypatch):
    directory = outputs.RunDirectory(tmp_path)
    directory.write_text('flags.txt', 'old')

    def fail(*args):
        raise OSError('disk full')

    monkeypatch.setattr(outputs.os, 'fsync', fail)
    with pytest.raises(OSError, match='disk full'):
        directory.write_text('flags.txt', 'new')
    assert (tmp_path / 'flags.txt').read_text() == 'old'
