"""Ends the worker process of TFF's default context. Imports TFF only if it is in use."""

import gc
import sys
from typing import Any

_is_refused = False


def refuse() -> None:
    """Refuses computations outside of a runtime in this process, a program of dpfl.

    No worker process is then started, which could be left behind or wait at the end.
    """
    global _is_refused
    _is_refused = True
    drop()


def imported() -> None:
    """Called when TFF has just been imported."""
    if _is_refused:
        drop()


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
            raise RuntimeError('computations run within dpfl.runtime.contexts.local_runtime')

    tff.framework.get_context_stack().set_default_context(NoContext())
    gc.collect()
