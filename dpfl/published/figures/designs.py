"""Mechanisms of the figures, with their errors and sensitivities computed once."""

import functools
import math

import numpy as np

from dpfl import Participation, mechanisms
from dpfl.mechanisms import rounding


class Design:
    """A mechanism over a fixed number of rounds, and its losses for any schema within them.

    Args:
      mechanism: the mechanism.
    """

    def __init__(self, mechanism: mechanisms.Mechanism):
        self.mechanism = mechanism
        self._squared: dict[Participation, float] = {}

    @functools.cached_property
    def squared_error(self) -> np.ndarray:
        """Variances of the prefix sums for unit noise, [rounds]."""
        return self.mechanism.squared_error()

    def squared_sensitivity(self, schema: Participation) -> float:
        """Squared sensitivity for clip norm 1; never below the truth."""
        if schema not in self._squared:
            self._squared[schema] = self.mechanism.sensitivity_bound(schema).squared
        return self._squared[schema]

    def loss(self, schema: Participation, kind: str) -> float:
        """Max loss or RMS loss ([McMahan24], equations 9 and 10).

        The noise of a round does not depend on later rounds, so a schema with fewer rounds than
        the mechanism has the error of the first of them.

        Args:
          schema: the schema that the mechanism is used with.
          kind: 'max' or 'rms'.
        """
        errors = self.squared_error[: schema.rounds]
        error = errors.max() if kind == 'max' else errors.mean()
        return math.sqrt(error) * rounding.root_up(self.squared_sensitivity(schema))


@functools.cache
def banded(rounds: int, bands: int) -> Design:
    """BandMF, optimised for RMS loss with equal column norms."""
    return Design(mechanisms.optimize_banded(Participation(rounds, bands), bands))


@functools.cache
def blt(
    rounds: int, separation: int, participations: int | None, buffers: int, loss: str
) -> Design:
    """A BLT that is optimised for a schema."""
    schema = Participation(rounds, separation, participations)
    return Design(mechanisms.optimize_blt(schema, buffers, loss))


@functools.cache
def full_honaker_tree(rounds: int) -> Design:
    """TreeAgg-Full: all nodes of the forest, decoded by least squares."""
    return Design(mechanisms.FullHonakerTree(rounds))
