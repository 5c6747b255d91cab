"""FIFOs, devices and files of a terabyte are refused within seconds."""

import os

import pytest

from dpfl import ParticipationLog, _files, _npz, errors, mechanisms
from dpfl.accounting.records import archive
from dpfl.errors import DataError
from dpfl.simulation import checkpoint, run_journal
from dpfl.tasks.images import emnist
from dpfl.tasks.text import client_texts, vocabulary
from tests.attacks.hostile.refusals import refused, within_seconds


def test_no_fifo_and_no_device_is_waited_for(tmp_path):
    fifo, zero = tmp_path / 'fifo', tmp_path / 'zero'
    os.mkfifo(fifo)
    zero.symlink_to('/dev/zero')
    (tmp_path / 'ledger.jsonl').symlink_to(fifo)
    refused(lambda: run_journal.RunJournal(tmp_path), errors.RunError)
    refused(lambda: archive.read_journal(tmp_path))
    for path in (fifo, zero):
        for call in (mechanisms.load, ParticipationLog.load, vocabulary.load, _npz.load):
            refused(lambda call=call, path=path: call(path))
        for call in (checkpoint.Checkpoint.read, checkpoint.read_head):
            refused(lambda call=call, path=path: call(path), errors.RunError)
        for suffix in ('.jsonl', '.csv', '.parquet'):
            link = path.with_suffix(suffix)
            link.symlink_to(path)
            refused(lambda link=link: client_texts.open_user_text(link, 'client', 'text', 0.5))
            refused(lambda link=link: next(vocabulary.public_texts('public_text', link)))
        refused(lambda path=path: emnist.EmnistFile(path), DataError)
        refused(lambda path=path: client_texts.open_stackoverflow(path, 0.5))
        with pytest.raises(OSError), within_seconds(10):
            _files.read_bytes(path)


def test_a_text_of_gigabytes_is_not_read(tmp_path):
    path = tmp_path / 'sparse'
    with open(path, 'wb') as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match='too large'):
        _files.read_bytes(path)
    refused(lambda: checkpoint.Checkpoint.read(path), errors.RunError)
