"""A child process, and its system calls that change files, of which chosen ones fail.

A seccomp filter (Linux 5.5 and newer, x86-64; no privileges needed) asks this
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
import signal
import socket
import struct
import time
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
# Limit on the time that a child takes for a request.
_SECONDS = 600.0

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
    """A forked process that carries out requests, one after the other.

    A fork needs no imports, which take longer than a short run. TensorFlow must not have computed
    anything in this process before. A context manager, which kills the process in the end.

    Args:
      make: called in the child; the result takes a request and returns the answer. The child is
        ready for requests when the constructor returns.
      log: file to which the child adds what it writes to standard error.
      is_watched: whether this process is asked about system calls on files.

    Raises:
      OSError: if the kernel does not support such filters (older than 5.5), or forbids them.
      RuntimeError: if the child ends with an error. So do the methods.
    """

    def __init__(
        self, make: Callable[[], Callable[[str], str]], log: pathlib.Path, is_watched: bool = False
    ):
        if is_watched and platform.machine() != 'x86_64':
            raise OSError(errno.ENOSYS, f'{platform.machine()}: system calls have other numbers')
        self._log, self._listener = log, None
        self._socket, childs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = os.fork()
        if self._process == 0:
            self._socket.close()
            _work(make, log, is_watched, childs)
        childs.close()
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        if is_watched:
            message, ancillary, *_ = self._socket.recvmsg(64, socket.CMSG_SPACE(4))
            if not ancillary:
                os.waitpid(self._process, 0)
                number = int(message or b'0')
                raise OSError(number, f'seccomp: {os.strerror(number)}')
            self._listener = array.array('i', ancillary[0][2])[0]
            self._poll.register(self._listener, select.POLLIN)
        self.answer()

    def __enter__(self) -> 'Child':
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def call(self, request: object, decide: Callable[[Call], int] = lambda call: 0) -> str:
        """The answer to a request; `decide` as in `answer`."""
        self.begin(request)
        return self.answer(decide)

    def begin(self, request: object) -> None:
        """Lets the child begin with a request."""
        self._socket.send(str(request).encode())

    def answer(self, decide: Callable[[Call], int] = lambda call: 0) -> str:
        """Waits for the answer to the request.

        Args:
          decide: returns the error number with which a system call fails, or 0 to execute it.
            Called while the calling thread of the child waits.

        Raises:
          TimeoutError: if there is no answer for ten minutes.
        """
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            for descriptor, event in self._poll.poll(100):
                if descriptor == self._socket.fileno():
                    if message := self._socket.recv(1 << 16):
                        return message[1:].decode()
                    raise self._failed()
                if event & select.POLLIN:
                    self._decide_one(decide)
                else:
                    self._poll.unregister(descriptor)
        raise TimeoutError(f'waited {_SECONDS:g} seconds')

    def kill(self) -> bool:
        """Kills the process; False if it had answered before, or was killed already."""
        if not self._process:
            return False
        os.kill(self._process, signal.SIGKILL)
        _, status = os.waitpid(self._process, 0)
        self._process = 0
        with self._socket:
            message = self._socket.recv(1 << 16)
        if self._listener is not None:
            os.close(self._listener)
        if not os.WIFSIGNALED(status):
            raise self._failed()
        return not message

    def _failed(self) -> RuntimeError:
        return RuntimeError(f'the child has failed: {self._log.read_text()[-2000:]}')

    def _decide_one(self, decide: Callable[[Call], int]) -> None:
        buffer = bytearray(_ASKED.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, buffer)
        except OSError as error:
            if error.errno == errno.ENOENT:  # The calling thread has ended.
                return
            raise
        identity, thread, _, number, _, _, *arguments = _ASKED.unpack(buffer)
        found = _call(thread, number, arguments)
        refused = decide(found) if found else 0
        answer = _ANSWER.pack(identity, 0, -refused, 0 if refused else _CONTINUE)
        with contextlib.suppress(FileNotFoundError):
            fcntl.ioctl(self._listener, _SEND, bytearray(answer))


def _work(make, log: pathlib.Path, is_watched: bool, parent: socket.socket) -> NoReturn:
    """Carries out requests in the forked process, until the parent has ended, and exits."""
    try:
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        if is_watched:
            try:
                listener = _install()
            except OSError as error:
                parent.send(str(error.errno).encode())
                raise
            descriptors = array.array('i', [listener])
            parent.sendmsg([b'.'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
            os.close(listener)
        work, answer = make(), ''
        while True:
            # With a byte before it, so that no answer is empty: that is the end.
            parent.send(b'.' + answer.encode())
            if not (request := parent.recv(1 << 16)):
                break
            answer = work(request.decode())
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


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
