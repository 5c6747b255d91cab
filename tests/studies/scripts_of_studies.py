"""Studies as modules, for tests of their functions.

Two studies may define the same flag, so the flags of each are removed again.
"""

import functools
import importlib

from absl import flags

from dpfl.cli.flags import settings_flags


@functools.cache
def load(name):
    """The module `experiments.studies.<name>`."""
    module = importlib.import_module(f'experiments.studies.{name}')
    for flag in list(flags.FLAGS.flags_by_module_dict().get(module.__name__, [])):
        delattr(flags.FLAGS, flag.name)
    settings_flags._classes.clear()
    return module
