"""Rounds of the toy experiment in a runtime, for comparison bit for bit."""

import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tree

from dpfl.runtime import contexts
from dpfl.simulation import data_digest
from tests.simulation import toy_experiment


def bits(values: Any) -> list[bytes]:
    """The bytes of each array of a structure."""
    return [np.asarray(value).tobytes() for value in tree.flatten(values)]


@functools.cache
def _process(rounds: int) -> Any:
    return toy_experiment.experiment(rounds=rounds).process


def train(
    runtime: contexts.Runtime,
    client_data: Callable[[Any], Any],
    turns: Sequence[Sequence[Any]],
    shards: int,
    ends: list[float] | None = None,
) -> tuple[list[bytes], list[Any]]:
    """The bits of the outputs of all rounds, and the descriptions of the data.

    Args:
      runtime: where the rounds are computed.
      client_data: the data of what is in `turns`.
      turns: the cohort of each round.
      shards: number of shards of a cohort.
      ends: gets the moment at which each round ends.
    """
    process, seen, outputs = _process(len(turns)), [], []
    cohorts = runtime.sharded_cohorts(
        turns, client_data, shards, seen.append, data_digest.of_client
    )
    state = process.initialize()
    with contextlib.closing(cohorts):
        for cohort in cohorts:
            outputs.append(process.next(state, cohort))
            state = outputs[-1].state
            if ends is not None:
                ends.append(time.monotonic())
    return bits(outputs), seen
