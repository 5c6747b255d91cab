"""What can go wrong with a computation, each in one line."""

import grpc

from dpfl.simulation import files

_WORKER_IS_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION)


class WorkerError(files.RunError):
    """A worker could not be started, died, or is no longer reachable."""


class OutOfMemoryError(files.RunError):
    """A computation needs more memory than this process can have."""


class ComputationError(RuntimeError):
    """A computation failed, for instance by an error of TensorFlow in one client."""


def one_line(message: str) -> str:
    """The message of an error of TensorFlow, without the places in the graph that it names."""
    what = message.removeprefix('Graph execution error:').partition('\n\t [[')[0]
    return ' '.join(what.split())


def out_of_memory(message: str) -> OutOfMemoryError:
    """The error that TensorFlow describes, without the place in the graph, which comes first."""
    line = one_line(message)
    return OutOfMemoryError(f'out of memory: {line[max(line.find("OOM when"), 0):]}')


def details(error: grpc.RpcError) -> str:
    """What a failed call says of itself, in one line."""
    return ' '.join(str(error.details()).split())


def is_of_worker(error: grpc.RpcError) -> bool:
    """Whether a call failed for the worker's absence; otherwise for what was computed."""
    return error.code() in _WORKER_IS_GONE
