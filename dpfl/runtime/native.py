"""TFF's own runtime, without the process that it leaves behind.

TFF's native context starts a worker process and ends it in a finalizer: late, and with a traceback
or not at all if the interpreter is shutting down or something still refers to the context.
"""

import contextlib
import inspect
import subprocess
from collections.abc import Iterator
from typing import Any

import tensorflow_federated as tff

# How long the worker has to end by itself.
_SECONDS = 5.0


@contextlib.contextmanager
def native_runtime(*, max_concurrent_clients: int | None = None) -> Iterator[None]:
    """Context manager within which TFF's native runtime executes computations.

    For what `contexts.local_runtime` does not support. The worker process starts with the first
    computation, and has ended when the block is left, however it is left.

    Args:
      max_concurrent_clients: how many calls of a computation run at a time; None for no limit.
    """
    # What `create_sync_local_cpp_execution_context` makes, with the factory at hand.
    factory = tff.framework.local_cpp_executor_factory(
        max_concurrent_computation_calls=max_concurrent_clients or -1
    )
    context = tff.framework.SyncExecutionContext(
        executor_fn=factory,
        compiler_fn=tff.backends.native.desugar_and_transform_to_native,
        transform_args=tff.tensorflow.transform_args,
        transform_result=tff.tensorflow.transform_result,
    )
    try:
        with tff.framework.get_context_stack().install(context):
            yield
    finally:
        _end_worker(factory)


def _end_worker(factory: Any) -> None:
    """Ends the worker process of a factory, if it was started."""
    variables = inspect.getclosurevars(factory._executor_stack_fn).nonlocals
    manager = variables['service_manager']
    worker: subprocess.Popen | None = manager._process
    manager._process = None  # Otherwise its finalizer would end a process of this number again.
    if worker is None:
        return
    worker.terminate()
    try:
        worker.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
