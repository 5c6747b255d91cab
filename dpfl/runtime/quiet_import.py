"""Keeps the lines that TensorFlow logs during its import off standard error, if asked to.

TensorFlow heeds TF_CPP_MIN_LOG_LEVEL, but not while it is imported: then its libraries write lines
of information straight to the file descriptor.
"""

import os
import re
import sys
from typing import Any

# A line of Abseil's log below an error, and the line that announces such lines.
_LOGGED = re.compile(rb'[IW]\d{4} .*\n?|WARNING: All log messages before absl::InitializeLog.*\n?')


class Finder:
    """Finder of `sys.meta_path` for TensorFlow, where TF_CPP_MIN_LOG_LEVEL is 2 or more."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec of TensorFlow, with a loader that filters the log; None for anything else."""
        if name != 'tensorflow' or os.environ.get('TF_CPP_MIN_LOG_LEVEL', '0') < '2':
            return None
        from importlib import machinery

        spec = machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module
            loader.exec_module = lambda module: _filtered(execute, module)
        return spec


def _filtered(execute: Any, module: Any) -> None:
    """Executes a module; what it wrote to standard error follows, without lines of the log."""
    import tempfile

    try:
        kept = os.dup(2)
    except OSError:  # Standard error is closed.
        return execute(module)
    with tempfile.TemporaryFile() as written, os.fdopen(kept, 'wb', buffering=0) as stderr:
        if sys.stderr is not None:
            sys.stderr.flush()
        os.dup2(written.fileno(), 2)
        try:
            execute(module)
        finally:
            if sys.stderr is not None:
                sys.stderr.flush()
            os.dup2(stderr.fileno(), 2)
            written.seek(0)
            for line in written:
                if not _LOGGED.fullmatch(line):
                    stderr.write(line)


sys.meta_path.insert(0, Finder())
