"""What a worker process of Ray computes for a run: shards of a round.

Ray calls `run` in any of its processes, on any node. A process keeps what it has compiled and
opened, so that a round sends it little more than the model. No result depends on what it has kept:
Ray may end a process at any time, and another one computes the same bits.
"""

import collections
import functools
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

# Programs that a process keeps; a run has few, each compiled once.
_MAX_PROGRAMS = 4


class Setting(NamedTuple):
    """What a process needs to compute the bits of the driver.

    Attributes:
      environment: variables that TensorFlow reads when it is imported.
      versions: of the packages that compute, by name.
    """

    environment: Mapping[str, str]
    versions: Mapping[str, str]


class Kept(NamedTuple):
    """An object in Ray's store that a process reads once.

    Attributes:
      key: digest of the object.
      reference: to it, in a list: Ray would replace a bare reference by its object in every call.
    """

    key: str
    reference: list[Any]


@functools.cache
def _versions() -> dict[str, str]:
    import tensorflow as tf
    import tensorflow_federated as tff

    import dpfl

    return {'dpfl': dpfl.__version__, 'TensorFlow': tf.__version__, 'TFF': tff.__version__}


def setting() -> Setting:
    """The setting of this process."""
    environment = {name: value for name, value in os.environ.items() if name.startswith('TF_')}
    return Setting(environment, _versions())


def run(wanted: Setting, name: str, *arguments: Any) -> Any:
    """Calls a function of this module in a worker process.

    Args:
      wanted: the setting of the driver.
      name: of the function.
      *arguments: of the function.

    Raises:
      RuntimeError: if the node has other versions of packages than the driver.
    """
    # Before the first import of TensorFlow in this process.
    os.environ.update(wanted.environment)
    if _versions() != wanted.versions:
        here, there = (
            ', '.join(f'{package} {version}' for package, version in versions.items())
            for versions in (wanted.versions, _versions())
        )
        raise RuntimeError(f'a node of the cluster has {there}; this process has {here}')
    return _FUNCTIONS[name](*arguments)


def _update(work: Kept, message: Any, shard: Any) -> Any:
    """The update of one shard.

    Args:
      work: bytes of the computation `work` of a `split_round.SplitRound`.
      message: what its `begin` has computed.
      shard: its data, as `values.from_python` gives them.
    """
    interpreter, computation = _program(work)
    return interpreter.execute(computation, (message, [shard]))


_programs: collections.OrderedDict[str, Any] = collections.OrderedDict()


def _program(work: Kept) -> Any:
    """An interpreter and the computation; the first execution compiles it."""
    import ray

    from dpfl.runtime import compilation, interpreter, memory

    if work.key not in _programs:
        memory.keep_freed()
        while len(_programs) >= _MAX_PROGRAMS:
            _programs.popitem(last=False)[1][0].close()
        computation = compilation.from_bytes(ray.get(work.reference[0]).tobytes())
        _programs[work.key] = interpreter.Interpreter(1), computation
    _programs.move_to_end(work.key)
    return _programs[work.key]


_FUNCTIONS = {'update': _update}
