"""Binaries whose standard streams are closed, broken or on a full disk; and what is refused."""

import os
import subprocess
import sys

import pytest

from dpfl.cli.command import command_line
from tests import binaries


def _run(code, *, closed=(), **streams):
    """Runs code that is the `main` of a binary."""
    program = (
        'import os, signal, sys, time\n'
        'from dpfl.cli.command import command_line\n'
        'def main():\n'
        + ''.join(f'    {line}\n' for line in code.splitlines())
        + 'command_line.run(main)\n'
    )
    command = [sys.executable, '-c', program]
    if closed:
        # By a shell: code between fork and exec runs in a process that may have threads of gRPC.
        redirections = ' '.join(f'{descriptor}>&-' for descriptor in closed)
        command = ['sh', '-c', f'exec "$0" "$@" {redirections}', *command]
    return subprocess.run(
        command,
        cwd=binaries.ROOT,
        text=True,
        check=False,
        env={**os.environ},
        **{
            'stdin': subprocess.DEVNULL,
            'stdout': subprocess.PIPE,
            'stderr': subprocess.PIPE,
            **streams,
        },
    )


@pytest.mark.parametrize('closed', [[0, 2]])
def test_closed_streams_are_the_null_device(closed):
    code = (
        "print('a message', file=sys.stderr)\n"
        f"print([os.readlink(f'/proc/self/fd/{{i}}') for i in {closed}])"
    )
    done = _run(code, closed=closed)
    assert done.returncode == 0
    assert done.stdout == f'{["/dev/null"] * len(closed)}\n'


def test_no_file_takes_the_place_of_a_closed_stream(tmp_path):
    code = (
        f"file = open('{tmp_path}/ledger', 'wb')\n"
        "os.system('echo from a library >&2')\n"
        'file.close()'
    )
    assert _run(code, closed=[0, 1, 2]).returncode == 0
    assert (tmp_path / 'ledger').read_bytes() == b''


def test_messages_that_cannot_be_written_do_not_end_the_work():
    with open('/dev/full', 'w') as full:
        done = _run("print('message', file=sys.stderr)\nprint('result')", stderr=full)
    assert done.returncode == 0 and done.stdout == 'result\n'
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, 'w') as broken:
        done = _run("print('message', file=sys.stderr)\nprint('result')", stderr=broken)
    assert done.returncode == 0 and done.stdout == 'result\n'


def test_results_that_cannot_be_written_are_one_line():
    with open('/dev/full', 'w') as full:
        done = _run("print('result')", stdout=full)
    assert done.returncode == 1
    assert done.stderr == 'error: standard output: No space left on device\n'


def test_a_reader_of_results_may_leave():
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, 'w') as broken:
        done = _run("print('result')", stdout=broken)
    assert done.returncode == 1 and done.stderr == ''


@pytest.mark.parametrize(
    'code, message',
    [
        ("open('/nowhere/at.all')", '/nowhere/at.all: No such file or directory'),
        ('raise MemoryError', 'out of memory'),
        ("from dpfl import errors\nraise errors.RunError('is in use')", 'is in use'),
        ('raise RuntimeError("can\'t start new thread")', "out of memory: can't start new thread"),
        ('raise OSError("of a\\nlibrary")', 'of a library'),
    ],
)
def test_what_the_machine_refuses_is_one_line_and_status_1(code, message):
    done = _run(code)
    assert done.returncode == 1 and done.stderr == f'error: {message}\n'


def test_many_interrupts_are_one_line():
    code = (
        'class Slow:\n'
        '    def __exit__(self, *error):\n'
        '        os.kill(os.getpid(), signal.SIGINT)\n'
        '        time.sleep(9)\n'
        '    def __enter__(self):\n'
        '        pass\n'
        'with Slow():\n'
        '    os.kill(os.getpid(), signal.SIGINT)\n'
        '    time.sleep(9)'
    )
    done = _run(code)
    assert done.returncode == 130 and done.stderr == 'error: interrupted\n'


def test_an_interrupt_that_makes_a_library_fail_is_one_line():
    """TensorFlow's stacks of contexts assert their order, which an interrupt can upset."""
    code = (
        'try:\n'
        '    os.kill(os.getpid(), signal.SIGINT)\n'
        '    time.sleep(9)\n'
        'finally:\n'
        '    assert not "in order", "Concurrent access?"'
    )
    done = _run(code)
    assert done.returncode == 130 and done.stderr == 'error: interrupted\n'


@pytest.mark.standard
def test_a_tensorflow_that_main_imports_compares_the_elements_of_tensors():
    code = (
        'import tensorflow as tf\n'
        'count = tf.function(lambda x: tf.math.count_nonzero(x == 3))\n'
        'print(int(count(tf.constant([1, 3, 3]))))'
    )
    done = _run(code)
    assert done.returncode == 0 and done.stdout == '2\n'


def test_a_bug_still_shows_its_traceback():
    done = _run('raise KeyError("a bug")')
    assert done.returncode == 1 and 'Traceback' in done.stderr


@pytest.mark.parametrize(
    'name', ['two\nlines', ' at its end ', 'a\0b', b'\xff'.decode(errors='surrogateescape')]
)
def test_names_that_no_line_of_flags_can_hold_are_refused(name):
    from dpfl.cli.flags import output_flags

    config = output_flags.RunDirectoryConfig(output_dir=name)
    with pytest.raises(command_line.UsageError, match='must have printable characters') as caught:
        output_flags.directory(config)
    assert '\n' not in str(caught.value) and str(caught.value).isascii()
