"""The tasks of benchmarks/mechanisms.py, solved by dpfl."""

import dataclasses

import protocol

from dpfl import mechanisms
from dpfl.participation import Participation


def _fields(mechanism) -> dict:
    values = {field.name: getattr(mechanism, field.name) for field in dataclasses.fields(mechanism)}
    return {name: value for name, value in values.items() if value is not None}


def blt(schema, size, loss, time_limit):
    del time_limit  # here and below: it needs none
    return _fields(mechanisms.optimize_blt(Participation(*schema), size, loss=loss))


def banded(schema, size, loss, time_limit):
    del time_limit
    return _fields(mechanisms.optimize_banded(Participation(*schema), size, loss=loss))


def banded_toeplitz(schema, size, loss, time_limit):
    del time_limit
    return _fields(mechanisms.optimize_banded_toeplitz(Participation(*schema), size, loss=loss))


def banded_inverse(schema, size, loss, time_limit):
    del time_limit
    return _fields(mechanisms.optimize_banded_inverse(Participation(*schema), size, loss=loss))


if __name__ == '__main__':
    protocol.serve(
        {
            'blt': blt,
            'banded': banded,
            'banded_toeplitz': banded_toeplitz,
            'banded_inverse': banded_inverse,
        }
    )
