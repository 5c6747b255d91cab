"""TFF's own context, for comparison, without the worker process that it leaves behind.

TFF's native context starts a worker process and ends it in a finalizer: late, and with a traceback
or not at all if the interpreter is shutting down or something still refers to the context.
"""

import contextlib
import inspect
import subprocess
from collections.abc import Iterator

import tensorflow_federated as tff

# How long the worker has to end by itself.
_SECONDS = 5.0


@contextlib.contextmanager
def native_runtime() -> Iterator[None]:
    """Context manager within which TFF's native runtime executes computations.

    The worker starts with the first computation, and has ended when the block is left.
    """
    # What `create_sync_local_cpp_execution_context` makes, with the factory at hand.
    factory = tff.framework.local_cpp_executor_factory()
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
        variables = inspect.getclosurevars(factory._executor_stack_fn).nonlocals
        _end(variables['service_manager'])


def _end(manager) -> None:
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
