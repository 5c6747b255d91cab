"""Refuses `==` and `!=` of tensors where they compare identity.

Elsewhere TensorFlow compares values. In the graphs that TFF builds, and in functions that are
traced there, Python compares objects, without an error: the result of `==` is False.
"""

import pathlib
import sys

from tests import paths

_PACKAGE = paths.ROOT / 'dpfl'


def refuse(monkeypatch) -> None:
    """Such a comparison in a module of dpfl is an AssertionError, while the patches last."""
    import tensorflow as tf

    for name in ('__eq__', '__ne__'):
        monkeypatch.setattr(tf.Tensor, name, _checked(getattr(tf.Tensor, name)))


def _checked(compare):
    def checked(tensor, other):
        result = compare(tensor, other)
        caller = pathlib.Path(sys._getframe(1).f_code.co_filename)
        if isinstance(result, bool) and other is not None and caller.is_relative_to(_PACKAGE):
            raise AssertionError(f'{caller}: compares tensors by identity; tf.equal does not')
        return result

    return checked
