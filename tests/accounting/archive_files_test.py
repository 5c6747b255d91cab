"""Files of a run: added, dropped, linked, or named so that they could lead elsewhere."""

import os
import shutil
import subprocess

import pytest

from dpfl.accounting.records import archive, verification
from tests.accounting import archives


@pytest.mark.parametrize('name', ['saved_model/more', 'plots/new.png', 'notes.txt', 'a\nb', 'a\\b'])
def test_a_file_that_was_added_is_named(tmp_path, name):
    path = archives.write(tmp_path) / name
    path.parent.mkdir(exist_ok=True)
    path.write_text('new')
    shown = name.replace('\n', ' ')  # Every difference is one line.
    assert verification.verify(tmp_path).differences == (
        f'{shown}: was added, SHA256SUMS does not list it',
    )
    assert archives.with_new_digests(tmp_path) == ()
    path.unlink()
    differences = verification.verify(tmp_path).differences
    assert differences == (f'{shown}: is missing, SHA256SUMS lists it',)


def test_the_list_lacks_no_file_and_names_none_twice_or_elsewhere(tmp_path):
    sums = archives.write(tmp_path) / archive.SUMS
    lines = sums.read_text().splitlines(keepends=True)
    for i in range(len(lines)):
        name = lines[i].split()[1]
        sums.write_text(''.join(lines[:i] + lines[i + 1 :]))
        assert any(name in each for each in verification.verify(tmp_path).differences), name
    outside = ['/etc/hostname', '../elsewhere', 'a/../../elsewhere', '', lines[-1].split()[1]]
    for name in outside:
        sums.write_text(''.join([f'{"0" * 64}  {name}\n', *lines]))
        number = 1 if name in outside[:-1] else len(lines) + 1
        assert verification.verify(tmp_path).differences == (
            f'SHA256SUMS: line {number} is not a digest and the name of another file',
        )


@pytest.mark.parametrize(
    'name',
    ['saved_model', 'plots', archive.PLAN, archive.SUMS, archive.LEDGER, archive.CHECKPOINTS],
)
def test_links_are_named_and_not_followed(tmp_path, name):
    directory, elsewhere = tmp_path / 'run', tmp_path / 'elsewhere'
    path = archives.write(directory) / name
    if path.exists():
        path.rename(elsewhere)
    else:
        elsewhere.write_text('of another')
    path.symlink_to(elsewhere)
    found = verification.verify(directory).differences
    assert any(each.startswith(f'{name}: is a link') for each in found)
    if name != archive.SUMS:
        assert name not in {line.split()[1] for line in archive.digests(directory).splitlines()}


def test_a_pipe_is_named_and_not_read(tmp_path):
    os.mkfifo(archives.write(tmp_path) / 'pipe')
    assert verification.verify(tmp_path).differences == ('pipe: is neither a file nor a folder',)


def test_checkpoints_are_not_listed_and_may_be_deleted(tmp_path):
    archives.write(tmp_path)
    assert archive.CHECKPOINTS not in (tmp_path / archive.SUMS).read_text()
    shutil.rmtree(tmp_path / archive.CHECKPOINTS)
    assert verification.verify(tmp_path).differences == ()


def test_sha256sum_reads_the_list_whatever_the_names(tmp_path):
    archives.write(tmp_path)
    for name in ('two\nlines', 'back\\slash', 'blank  s', 'saved_model/\u2028'):
        (tmp_path / name).write_text(name)
    assert archives.with_new_digests(tmp_path) == ()
    done = subprocess.run(
        ['sha256sum', '--check', '--strict', archive.SUMS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / os.fsdecode(b'no text \xff')).write_text('')
    assert archives.with_new_digests(tmp_path) == ()
