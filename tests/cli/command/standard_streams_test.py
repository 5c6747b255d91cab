"""Binaries whose standard streams are closed, broken or on a full disk; and how they end."""

import contextlib
import os
import subprocess
import sys

import pytest

from tests import binaries


def _run(code, *, closed=(), **streams):
    """Runs code that is the `main` of a binary."""
    lines = ''.join(f'    {line}\n' for line in code.splitlines())
    program = (
        'import os, signal, sys, time\n'
        'from dpfl.cli.command import command_line\n'
        f'def main():\n{lines}command_line.run(main)\n'
    )
    command = [sys.executable, '-c', program]
    if closed:
        # By a shell: code between fork and exec runs in a process that may have threads of gRPC.
        redirections = ' '.join(f'{descriptor}>&-' for descriptor in closed)
        command = ['sh', '-c', f'exec "$0" "$@" {redirections}', *command]
    given = {'stdin': subprocess.DEVNULL, 'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE}
    return subprocess.run(command, cwd=binaries.ROOT, text=True, check=False, **given | streams)


def test_closed_streams_are_the_null_device():
    code = "print('a message', file=sys.stderr)\n"
    code += "print([os.readlink(f'/proc/self/fd/{i}') for i in (0, 2)])"
    done = _run(code, closed=[0, 2])
    assert (done.returncode, done.stdout) == (0, "['/dev/null', '/dev/null']\n")


def test_no_file_takes_the_place_of_a_closed_stream(tmp_path):
    code = (
        f"file = open('{tmp_path}/ledger', 'wb')\n"
        "os.system('echo from a library >&2')\n"
        'file.close()'
    )
    assert _run(code, closed=[0, 1, 2]).returncode == 0
    assert (tmp_path / 'ledger').read_bytes() == b''


@contextlib.contextmanager
def _stream(kind):
    """A stream to which nothing can be written: its disk is full, or nobody reads it."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, 'w') as unread, open('/dev/full', 'w') as full:
        yield {'full': full, 'unread': unread}[kind]


@pytest.mark.parametrize(
    ('lost', 'kind', 'status', 'other'),
    [
        # Messages that cannot be written do not end the work.
        ('stderr', 'full', 0, 'result\n'),
        ('stderr', 'unread', 0, 'result\n'),
        ('stdout', 'full', 1, 'message\nerror: standard output: No space left on device\n'),
        ('stdout', 'unread', 1, 'message\n'),
    ],
)
def test_messages_may_be_lost_and_results_may_not(lost, kind, status, other):
    with _stream(kind) as stream:
        code = "print('message', file=sys.stderr)\nprint('result')"
        done = _run(code, **{lost: stream})
    shown = done.stdout if lost == 'stderr' else done.stderr
    assert (done.returncode, shown) == (status, other)


_SEVERAL_INTERRUPTS = """
class Slow:
    def __exit__(self, *error):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(9)
    def __enter__(self):
        pass
with Slow():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(9)
"""
# TensorFlow's stacks of contexts assert their order, which an interrupt can upset.
_UPSETTING_INTERRUPT = """
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(9)
finally:
    assert not "in order", "Concurrent access?"
"""


@pytest.mark.parametrize(
    ('code', 'status', 'message'),
    [
        ("open('/nowhere/at.all')", 1, '/nowhere/at.all: No such file or directory'),
        ('raise MemoryError', 1, 'out of memory'),
        ("from dpfl import errors\nraise errors.RunError('is in use')", 1, 'is in use'),
        (
            'raise RuntimeError("can\'t start new thread")',
            1,
            "out of memory: can't start new thread",
        ),
        ('raise OSError("of a\\nlibrary")', 1, 'of a library'),
        (_SEVERAL_INTERRUPTS, 130, 'interrupted'),
        (_UPSETTING_INTERRUPT, 130, 'interrupted'),
    ],
)
def test_what_ends_the_work_is_one_line(code, status, message):
    done = _run(code)
    assert (done.returncode, done.stderr) == (status, f'error: {message}\n')


def test_a_bug_still_shows_its_traceback():
    done = _run('raise KeyError("a bug")')
    assert done.returncode == 1 and 'Traceback' in done.stderr


@pytest.mark.standard
def test_a_tensorflow_that_main_imports_compares_the_elements_of_tensors():
    code = (
        'import tensorflow as tf\n'
        'count = tf.function(lambda x: tf.math.count_nonzero(x == 3))\n'
        'print(int(count(tf.constant([1, 3, 3]))))'
    )
    done = _run(code)
    assert (done.returncode, done.stdout) == (0, '2\n')
