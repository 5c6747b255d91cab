"""Lets chosen system calls of a child process fail, among those that change files.

The child is forked. A seccomp filter (Linux 5.5 and newer, x86-64; no privileges needed) asks this
process about every such call before the kernel executes it. It covers all threads of the child,
those of native code included. So a disk that is full at the k-th write looks to the child like a
real one: `write` returns ENOSPC. No code of the child is replaced.
"""

import array
import contextlib
import ctypes
import dataclasses
import errno
import fcntl
import os
import pathlib
import platform
import select
import socket
import struct
import traceback
from collections.abc import Callable
from typing import NoReturn

# Numbers of system calls on x86-64, by their first arguments: a file descriptor, a path, or a
# directory and a path in it.
_DESCRIPTOR = {
    1: 'write',
    18: 'pwrite',
    20: 'writev',
    40: 'sendfile',
    74: 'fsync',
    75: 'fdatasync',
    77: 'ftruncate',
    285: 'fallocate',
    326: 'copy_file_range',
}
_PATH = {2: 'open', 82: 'rename', 83: 'mkdir', 84: 'rmdir', 85: 'creat', 87: 'unlink'}
_PATH_IN = {
    257: 'open',
    258: 'mkdir',
    263: 'unlink',
    264: 'rename',
    316: 'rename',
    437: 'open',
}
_OPEN = {2: 1, 257: 2}  # Index of the argument with the flags.
_FOR_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_MAX_PATH = 4096

_PR_SET_NO_NEW_PRIVS, _SYS_SECCOMP, _SET_MODE_FILTER, _NEW_LISTENER = 38, 317, 1, 8
_ALLOW, _ASK = 0x7FFF0000, 0x7FC00000
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ASKED = struct.Struct('=QIIiIQ6Q')
_ANSWER = struct.Struct('=QqiI')
_RECEIVE, _SEND, _IS_VALID, _CONTINUE = 0xC0502100, 0xC0182101, 0x40082102, 1


@dataclasses.dataclass(frozen=True)
class Call:
    """A system call that is about to be executed.

    Attributes:
      name: its name, such as `write`.
      path: absolute path of the file or folder; the old path if it is renamed.
      process: id of the calling thread.
    """

    name: str
    path: pathlib.Path
    process: int


class Child:
    """A forked process. This process decides which of its system calls on files fail.

    Args:
      work: called in the child with `ask`, a function that sends bytes to `answer` and returns the
        result. The child exits with the status that `work` returns, or 1 if it raises.
      decide: returns the error number with which a call fails, or 0 to execute it. Called in this
        process, while the calling thread of the child waits.
      answer: called in this process with the messages of `ask`.

    Raises:
      OSError: if the kernel does not support such filters (older than 5.5), or forbids them.
    """

    def __init__(
        self,
        work: Callable[[Callable[[bytes], bytes]], int],
        decide: Callable[[Call], int],
        answer: Callable[[bytes], bytes] = lambda message: b'',
    ):
        if platform.machine() != 'x86_64':
            raise OSError(errno.ENOSYS, f'{platform.machine()}: system calls have other numbers')
        self._decide, self._answer = decide, answer
        ours, childs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = os.fork()
        if self.process == 0:
            ours.close()
            _child(work, childs)
        childs.close()
        self._socket = ours
        message, ancillary, *_ = ours.recvmsg(64, socket.CMSG_SPACE(4))
        if not ancillary:
            os.waitpid(self.process, 0)
            number = int(message or b'0')
            raise OSError(number, f'seccomp: {os.strerror(number)}')
        self._listener = array.array('i', ancillary[0][2])[0]

    def wait(self) -> int:
        """Answers the child until it ends; returns its exit status, negative for a signal."""
        with self._socket, contextlib.ExitStack() as stack:
            stack.callback(os.close, self._listener)
            poll = select.poll()
            poll.register(self._listener, select.POLLIN)
            poll.register(self._socket, select.POLLIN)
            while True:
                for descriptor, event in poll.poll(100):
                    if descriptor == self._listener:
                        if event & select.POLLIN:
                            self._decide_one()
                        else:
                            poll.unregister(descriptor)
                    elif message := self._socket.recv(1 << 16):
                        with contextlib.suppress(OSError):  # The child has ended meanwhile.
                            self._socket.send(self._answer(message) or b'\0')
                    else:
                        poll.unregister(descriptor)
                ended, status = os.waitpid(self.process, os.WNOHANG)
                if ended:
                    return os.waitstatus_to_exitcode(status)

    def _decide_one(self) -> None:
        buffer = bytearray(_ASKED.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, buffer)
        except OSError as error:
            if error.errno == errno.ENOENT:  # The calling thread has ended.
                return
            raise
        identity, thread, _, number, _, _, *arguments = _ASKED.unpack(buffer)
        found = _call(thread, number, arguments)
        refused = self._decide(found) if found else 0
        answer = _ANSWER.pack(identity, 0, -refused, 0 if refused else _CONTINUE)
        with contextlib.suppress(FileNotFoundError):
            fcntl.ioctl(self._listener, _SEND, bytearray(answer))


def _child(work: Callable[[Callable[[bytes], bytes]], int], parent: socket.socket) -> NoReturn:
    """Runs in the forked process, and exits."""
    status = 1
    try:
        try:
            listener = _install()
        except OSError as error:
            parent.send(str(error.errno).encode())
            os._exit(1)
        descriptors = array.array('i', [listener])
        parent.sendmsg([b'.'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        os.close(listener)

        def ask(message: bytes) -> bytes:
            parent.send(message)
            return parent.recv(1 << 16)

        status = work(ask)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _install() -> int:
    """Installs the filter in this thread and those it starts; returns the listening descriptor."""
    numbers = [*_DESCRIPTOR, *_PATH, *_PATH_IN]
    program = [(_LOAD, 0, 0, 0)]  # Loads the number of the call.
    for i, number in enumerate(numbers):
        program.append((_EQUAL, len(numbers) - i, 0, number))
    program += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ASK)]
    code = ctypes.create_string_buffer(b''.join(struct.pack('=HBBI', *line) for line in program))
    header = ctypes.create_string_buffer(
        struct.pack('=HxxxxxxQ', len(program), ctypes.addressof(code))
    )
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), 'prctl')
    listener = library.syscall(_SYS_SECCOMP, _SET_MODE_FILTER, _NEW_LISTENER, header)
    if listener < 0:
        raise OSError(ctypes.get_errno(), 'seccomp')
    return listener


def _call(thread: int, number: int, arguments: list[int]) -> Call | None:
    """The call that a thread is about to make; None if it does not change a file with a name."""
    try:
        if number in _DESCRIPTOR:
            descriptor = arguments[0] if number != 326 else arguments[2]
            path = os.readlink(f'/proc/{thread}/fd/{descriptor}')
            return Call(_DESCRIPTOR[number], pathlib.Path(path), thread)
        if number in _OPEN and not arguments[_OPEN[number]] & _FOR_WRITING:
            return None
        folder, address = (None, arguments[0]) if number in _PATH else arguments[:2]
        name = _text(thread, address)
        if not os.path.isabs(name):
            here = folder is None or ctypes.c_int(folder).value == -100
            start = os.readlink(f'/proc/{thread}/cwd' if here else f'/proc/{thread}/fd/{folder}')
            name = os.path.join(start, name)
        return Call({**_PATH, **_PATH_IN}[number], pathlib.Path(name), thread)
    except OSError:  # A bad argument, which the kernel will refuse; or the thread has ended.
        return None


def _text(thread: int, address: int) -> str:
    """The string at an address in the memory of a thread."""
    with open(f'/proc/{thread}/mem', 'rb', buffering=0) as memory:
        memory.seek(address)
        data = memory.read(min(_MAX_PATH, 4096 - address % 4096))
        if b'\0' not in data:
            data += memory.read(_MAX_PATH)
    return os.fsdecode(data.partition(b'\0')[0])
