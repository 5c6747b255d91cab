"""Ends the worker process of TFF's default context. Imports TFF only if it is in use."""

import gc
import sys
from typing import Any


def drop() -> None:
    """Replaces TFF's default context by one that refuses computations.

    TFF ends the worker process of a context in a finalizer. If that runs while the interpreter
    shuts down, modules are gone already: it prints a traceback and leaves the process behind. Call
    this before.
    """
    if 'tensorflow_federated' not in sys.modules:
        return
    import tensorflow_federated as tff

    class NoContext(tff.framework.SyncContext):
        def invoke(self, comp: Any, arg: Any) -> Any:
            raise RuntimeError('the process is ending')

    tff.framework.get_context_stack().set_default_context(NoContext())
    gc.collect()
