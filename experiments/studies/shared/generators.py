"""Trained generators that are compared: the runs of two sides, and their guarantees together."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpfl.accounting.reports import two_reports
from dpfl.errors import ArgumentError, renaming
from dpfl.simulation.training import TrainConfig
from dpfl.tasks.text.tokenization import NUM_BYTE_TOKENS, NUM_SPECIAL_TOKENS
from experiments.studies.shared.finished_run import IMAGES, KINDS, WORD, FinishedRun, open_run

# The generators of a side of a comparison, by their kind.
Side = Mapping[str, FinishedRun]


def open_side(name: str, directories: Sequence[str]) -> dict[str, FinishedRun]:
    """The generators of a side by their kind.

    Args:
      name: name of the side, 'a' or 'b', for messages.
      directories: directories of finished runs.

    Raises:
      ArgumentError: if there is none, one is not a finished run with a generator, or two are of the
        same kind.
      StorageError: if a file cannot be read.
    """
    if not directories:
        raise ArgumentError(name, '', 'must have at least one directory of a run')
    opened: dict[str, FinishedRun] = {}
    for directory in directories:
        with renaming(run_dir=name):
            generator = open_run(directory)
            kind = generator.kind
            if kind == IMAGES:
                _ = generator.gan_config  # Refuses a run whose generator cannot be built.
        if kind in opened:
            reason = f'is a second generator of kind {kind}; a side has one of each kind'
            raise ArgumentError(name, directory, reason)
        opened[kind] = generator
    return {kind: opened[kind] for kind in KINDS if kind in opened}


def check_pair(first: Side, second: Side) -> None:
    """Checks that two sides can be compared.

    Raises:
      ArgumentError: if they have different kinds of generators, or word models of different
        vocabularies. It names `b`.
    """
    if list(first) != list(second):
        raise ArgumentError(
            'b',
            ','.join(str(generator.directory) for generator in second.values()),
            f'must have the kinds of generators of a ({" and ".join(first)}), '
            f'has {" and ".join(second)}',
        )
    if WORD not in first:
        return
    words, others = first[WORD].vocabulary, second[WORD].vocabulary
    if words != others:
        raise ArgumentError(
            'b',
            second[WORD].directory,
            f'must have the vocabulary of {first[WORD].directory}: {len(others):,} words '
            f'against {len(words):,}, {len({*words} & {*others}):,} in common'
            + (', in another order' if {*words} == {*others} else ''),
        )


def guarantees(sides: tuple[Side, Side]) -> list[dict[str, Any]]:
    """Epsilons of the runs of each side, and of all runs, for a client that all learn from.

    Returns:
      A row for each: `of` ('a', 'b' or 'both'), `runs`, `delta`, and `epsilon`, which is None if it
      is infinite or cannot be composed; `remark` then says why.
    """
    rows = []
    for name, chosen in (('a', sides[:1]), ('b', sides[1:]), ('both', sides)):
        reports = [generator.report for side in chosen for generator in side.values()]
        try:
            epsilon = two_reports.guarantee(reports).finite_epsilon
            remark = '' if epsilon is not None else 'infinite'
        except ArgumentError as error:
            epsilon, remark = None, f'the runs cannot be composed: {error}'
        counts = {'of': name, 'runs': len(reports), 'delta': reports[0].deltas[0]}
        rows.append({**counts, 'epsilon': epsilon, 'remark': remark})
    return rows


def sentence_length(generator: FinishedRun) -> int:
    """Words of a sentence in the training of a word model; 0 if that is not known."""
    config = generator.recorded
    return config.task.text.sentence_length if isinstance(config, TrainConfig) else 0


def unlearned(generator: FinishedRun) -> str | None:
    """Evidence that a language model has learned nothing, so that its text says nothing.

    That is so if it predicts held-out tokens no better than uniform draws. None if it does, or if
    that is not known.
    """
    loss = generator.metrics.get('loss')
    if generator.kind == IMAGES or loss is None:
        return None
    words = generator.model.vocabulary
    num_tokens = NUM_BYTE_TOKENS if words is None else len(words) + NUM_SPECIAL_TOKENS
    if loss < math.log(num_tokens):
        return None
    return (
        f'{generator.directory} has a held-out loss of {loss:.2f} nats, and uniform draws have '
        f'{math.log(num_tokens):.2f}'
    )


def to_dict(generator: FinishedRun) -> dict[str, Any]:
    """The run of a generator as JSON values."""
    plan, config = generator.report.plan, generator.recorded
    if generator.kind == IMAGES:
        model = f'gan {generator.gan_config.optimization.model}'
    else:
        model = generator.model.name
    weights = generator.weights
    return {
        'directory': str(generator.directory),
        'kind': generator.kind,
        'task': 'unknown' if config is None else config.task.task,
        'model': model,
        'parameters': sum(int(weight.size) for weight in weights),
        'rounds': plan.participation.rounds,
        'clients_per_round': plan.clients_per_round,
        'mechanism': plan.mechanism.name,
        'clip_norm': plan.clip_norm,
        'noise_multiplier': plan.noise_multiplier,
        'seed': None if config is None else config.seed,
        'accuracy': generator.metrics.get('accuracy'),
        'epsilon': generator.epsilon if math.isfinite(generator.epsilon) else None,
        'delta': generator.delta,
        'noise_is_seeded': generator.report.noise_is_seeded,
    }
