"""Lets TensorFlow Federated 0.87 and tensorflow-privacy 0.9 be imported on current Pythons.

Both are pure Python, and work beside the current TensorFlow once the modules of the table below are
replaced. `import dpfl` imports this module, which puts `FINDER` on `sys.meta_path`. It acts when
one of the two packages is imported; nothing is imported before that.

`drop_default_context` ends the worker process of TFF's default context, if TFF is in use.
"""

import gc
import sys
from typing import Any

# Packages that `Finder` serves, with their versions.
VERSIONS = {'tensorflow_federated': '0.87.0', 'tensorflow_privacy': '0.9.0'}
# Modules that are replaced by empty ones, with all modules below them, and the reason.
_REPLACED = {
    'tensorflow_federated.python.core.environments.jax': 'needs JAX 0.4.14, which was withdrawn',
    'tensorflow_federated.python.core.backends.xla': 'needs JAX 0.4.14, which was withdrawn',
    'vizier': 'google-vizier is not installed; it tunes hyperparameters in tff.learning.programs',
    'tensorflow_model_optimization': 'has no release for Keras 3; it compresses updates',
}


class Finder:
    """Finder of `sys.meta_path` for the packages of `VERSIONS` and the modules they lack."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Finds a package of `VERSIONS` or a replaced module; None leaves it to other finders."""
        reason = next((why for at, why in _REPLACED.items() if f'{name}.'.startswith(at + '.')), '')
        if name not in VERSIONS and not reason:
            return None
        from importlib import machinery

        spec = machinery.PathFinder.find_spec(name, path, target)
        if reason and (spec is None or name.startswith('tensorflow_federated')):
            return machinery.ModuleSpec(name, _Empty(name, reason), is_package=True)  # type: ignore
        if spec is None or reason:
            return spec
        # The package's loader looks at the version first.
        loader: Any = spec.loader
        execute = loader.exec_module

        def checked(module: Any) -> None:
            from importlib import metadata

            version = metadata.version(name)
            if version != VERSIONS[name]:
                raise ImportError(f'{name} is {version}, and dpfl needs {VERSIONS[name]}')
            if any(other.startswith(f'{name}.') for other in sys.modules):  # what it leaves behind
                raise ImportError(
                    f'an import of {name} has failed here: start Python again, import dpfl first'
                )
            if name == 'tensorflow_privacy':
                module.__getattr__ = _on_demand(loader.get_source(name))
            else:
                _use_keras_2()
                execute(module)
                if name == 'tensorflow_federated' and _is_refused:
                    drop_default_context()

        loader.exec_module = checked
        return spec


class _Empty:
    """An attribute of a replaced module, which cannot be called; and the module's loader."""

    def __init__(self, name: str, reason: str):
        self._name, self._reason = name, reason

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        module.__getattr__ = self.__getattr__

    def __getattr__(self, attribute: str) -> '_Empty':
        if attribute.startswith('__'):
            raise AttributeError(attribute)
        return _Empty(f'{self._name}.{attribute}', self._reason)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise ImportError(f'{self._name} is not available: {self._reason}')


def _use_keras_2() -> None:
    """Makes `tf.keras` the package tf_keras, for which TFF was written. Keras 3 is `keras`."""
    import os

    os.environ.setdefault('TF_USE_LEGACY_KERAS', '1')
    import tensorflow as tf

    if tf.keras.Model.__module__.startswith('keras.'):
        import warnings

        warnings.warn(
            'tf.keras was used before TFF was imported, and is Keras 3, which TFF cannot use',
            stacklevel=2,
        )


def _on_demand(source: str) -> Any:
    """`__getattr__` that imports the names of a package on demand: half need TensorFlow 1."""
    import ast

    homes = {
        alias.name: node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module not in (None, 'tensorflow_privacy')
        for alias in node.names
    }

    def attribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f'tensorflow_privacy has no attribute {name}')
        return getattr(__import__(str(homes[name]), fromlist=[name]), name)

    return attribute


FINDER = Finder()
sys.meta_path.insert(0, FINDER)


_is_refused = False


def refuse_default_context() -> None:
    """Refuses computations outside of a runtime in this process, a program of dpfl.

    No worker process is then started, which could be left behind or wait at the end.
    """
    global _is_refused
    _is_refused = True
    drop_default_context()


def drop_default_context() -> None:
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
