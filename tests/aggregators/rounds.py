"""Plans, and rounds of a query, for tests of aggregators."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl import Participation, accounting, mechanisms
from dpfl.aggregators import query as query_lib

ROUNDS = 6
CLIP_NORM, NOISE_MULTIPLIER = 0.5, 2.0


def blt(rounds: int = ROUNDS) -> mechanisms.Blt:
    return mechanisms.Blt(rounds, [0.9, 0.4], [0.2, 0.3])


def plan(
    mechanism: mechanisms.Mechanism | None = None, clients: int = 2, **changes: Any
) -> accounting.PrivacyPlan:
    """A plan for all rounds of a mechanism, by default `blt()`; `changes` replace its fields."""
    mechanism = blt() if mechanism is None else mechanism
    fields = dict(
        mechanism=mechanism,
        participation=Participation(mechanism.rounds),
        clip_norm=CLIP_NORM,
        noise_multiplier=NOISE_MULTIPLIER,
        clients_per_round=clients,
    )
    return accounting.PrivacyPlan(**{**fields, **changes})


def flat(value: Any) -> np.ndarray:
    """The entries of all tensors of a structure, in one vector."""
    return np.concatenate([np.ravel(leaf) for leaf in tf.nest.flatten(value)])


def norm(value: Any) -> float:
    """Norm of all tensors of a structure together, in float64."""
    return float(np.linalg.norm(flat(value).astype(np.float64)))


def clipped(update: list[np.ndarray], clip_norm: float) -> list[np.ndarray]:
    """An update scaled down to the clip norm, by the definition."""
    return [leaf * min(1, clip_norm / max(norm(update), 1e-30)) for leaf in update]


def sent(query: Any, state: Any, records: Iterable[Any]) -> list[Any]:
    """What clients send to the server."""
    params = query.derive_sample_params(state)
    return [
        query.preprocess_record(params, tf.nest.map_structure(tf.convert_to_tensor, record))
        for record in records
    ]


def total(query: Any, state: Any, records: Iterable[Any], specs: Any) -> Any:
    """The sum of what clients send, before any noise; `specs` are those of a record."""
    sample = query.initial_sample_state(specs)
    for record in sent(query, state, records):
        sample = query.accumulate_preprocessed_record(sample, record)
    return sample


def run(query: Any, state: Any, cohorts: Iterable[Any], specs: Any, ring: Any = None) -> Any:
    """Released vectors, [rounds, coordinates], and the state after them.

    Args:
      query, state: where to begin; None for the state of the first round.
      cohorts: the records of each round.
      specs: of a record.
      ring: supplies the noise of each round, if given.
    """
    rows, state = [], query.initial_global_state() if state is None else state
    for cohort in cohorts:
        if ring is not None:
            state = ring.supply(state, cohort)
        sample = total(query, state, cohort, specs)
        result, state, _ = query.get_noised_result(sample, state)
        rows.append(flat(result))
    return np.array(rows), state


def clip_norm(query_state: Any) -> float:
    """The clip norm in use, from the state of a query for a mean."""
    return float(query_lib.innermost(query_state.numerator_state).clip_norm)
