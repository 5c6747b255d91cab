"""What can go wrong with a computation, each in one line."""

import grpc

from dpfl import errors

_MOST_CHARACTERS = 500
_RESOURCE_EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]  # TensorFlow has the same codes.
# Of oneDNN, where its status is 1, dnnl_out_of_memory; TensorFlow calls it an aborted operation.
_NO_PRIMITIVE = 'Status: 1, message: could not create a primitive'
_WORKER_IS_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION)


class WorkerError(errors.RunError):
    """A worker could not be started, died, or is no longer reachable."""


class OutOfMemoryError(errors.RunError):
    """A computation needs more memory than this process can have."""


class ComputationError(RuntimeError):
    """A computation failed, for instance by an error of TensorFlow in one client."""


class RemoteComputationError(WorkerError, ComputationError):
    """A computation failed in a worker, or the worker says so: it can go on elsewhere."""


def one_line(message: str) -> str:
    """The message of an error of TensorFlow, without the places in the graph that it names."""
    what = message.removeprefix('Graph execution error:').partition('\n\t [[')[0]
    return ' '.join(what.split())


def of_tensorflow(error: Any) -> OutOfMemoryError | ComputationError:
    """What an error of TensorFlow, `tf.errors.OpError`, means for the run, in one line."""
    line = one_line(error.message)
    if error.error_code != _RESOURCE_EXHAUSTED and _NO_PRIMITIVE not in line:
        return ComputationError(line)
    # The place in the graph comes first.
    start = max(line.find('OOM when'), line.find(_NO_PRIMITIVE), 0)
    return OutOfMemoryError(f'out of memory: {line[start:]}')


def details(error: grpc.RpcError) -> str:
    """What a failed call says of itself, in one line that is safe to print."""
    return printable(str(error.details()))


def printable(text: str) -> str:
    """Text of a worker in one line of at most 500 characters, without control characters.

    A terminal would execute them.
    """
    line = ' '.join(text.split())
    line = ''.join(character if character.isprintable() else '?' for character in line)
    return line if len(line) <= _MOST_CHARACTERS else f'{line[:_MOST_CHARACTERS]} ...'


def is_of_worker(error: grpc.RpcError) -> bool:
    """Whether a call failed for the worker's absence; otherwise for what was computed."""
    return error.code() in _WORKER_IS_GONE
