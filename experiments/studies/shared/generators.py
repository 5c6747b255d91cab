"""Trained generators, read from the directories of their runs."""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpfl import accounting
from dpfl.accounting.records import archive
from dpfl.accounting.reports import two_reports
from dpfl.errors import ArgumentError, shown
from dpfl.simulation.training import GanConfig, execution, run_model
from dpfl.tasks.images import gan_models
from dpfl.tasks.text.models import saved_models
from dpfl.tasks.text.tokenization import NUM_BYTE_TOKENS, NUM_SPECIAL_TOKENS

WORD, CHAR, IMAGES = 'word', 'char', 'images'
KINDS = (WORD, CHAR, IMAGES)


@dataclasses.dataclass(frozen=True)
class Generator:
    """A trained generator and the run that it comes from.

    Attributes:
      directory: directory of the run.
      kind: one of `KINDS`.
      values: settings of the run; empty if they are not known.
      report: privacy report of the run.
      model: the language model; None for images.
      weights: weights of the generator.
      metrics: last value of each metric, by name.
    """

    directory: pathlib.Path
    kind: str
    values: Mapping[str, Any]
    report: accounting.PrivacyReport
    model: saved_models.LanguageModel | None
    weights: tuple[np.ndarray, ...]
    metrics: Mapping[str, float]

    @property
    def language_model(self) -> saved_models.LanguageModel:
        """The language model of a generator of text."""
        assert self.model is not None
        return self.model

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The words of a word model; empty for other generators."""
        return () if self.model is None else self.model.vocabulary or ()

    @property
    def sentence_length(self) -> int:
        """Words of a sentence in training; 0 if that is not known."""
        return self.values.get('task', {}).get('text', {}).get('sentence_length') or 0

    @property
    def epsilon(self) -> float:
        """Epsilon of the run at its delta; infinity without a guarantee."""
        epsilon = self.report.guarantee.epsilons[0]
        return math.inf if epsilon is None else epsilon

    @property
    def unlearned(self) -> str | None:
        """Evidence that a language model has learned nothing, so that its text says nothing.

        That is so if it predicts held-out tokens no better than uniform draws. None if it does, or
        if that is not known.
        """
        loss = self.metrics.get('loss')
        if self.model is None or loss is None:
            return None
        words = self.model.vocabulary
        num_tokens = NUM_BYTE_TOKENS if words is None else len(words) + NUM_SPECIAL_TOKENS
        if loss < math.log(num_tokens):
            return None
        return (
            f'{self.directory} has a held-out loss of {loss:.2f} nats, and uniform draws have '
            f'{math.log(num_tokens):.2f}'
        )

    @property
    def gan_config(self) -> GanConfig:
        """The configuration of a run of `train_gan`."""
        return _gan_config('run_dir', self.directory, self.values)

    def image_sampler(self) -> Callable[[int, int], np.ndarray]:
        """Draws images: maps their number and a seed to pixels, float32 [n, 28, 28]."""
        from dpfl import learning
        from dpfl.simulation.training import gan

        config = self.gan_config
        model = gan.build_model(config.optimization, config.seed)
        return lambda number, seed: learning.sample(model, self.weights, number, seed)[..., 0]

    def to_dict(self) -> dict[str, Any]:
        """The run as JSON values."""
        plan = self.report.plan
        return {
            'directory': str(self.directory),
            'kind': self.kind,
            'task': str(self.values.get('task', {}).get('task', 'unknown')),
            'model': self.model.name
            if self.model is not None
            else f'gan {self.values["optimization"]["model"]}',
            'parameters': sum(int(weight.size) for weight in self.weights),
            'rounds': plan.participation.rounds,
            'clients_per_round': plan.clients_per_round,
            'mechanism': plan.mechanism.name,
            'clip_norm': plan.clip_norm,
            'noise_multiplier': plan.noise_multiplier,
            'seed': self.values.get('seed'),
            'accuracy': self.metrics.get('accuracy'),
            'epsilon': self.epsilon if math.isfinite(self.epsilon) else None,
            'delta': self.report.deltas[0],
            'noise_is_seeded': self.report.noise_is_seeded,
        }


# The generators of a side of a comparison, by their kind.
Side = Mapping[str, Generator]


def open_side(name: str, directories: Sequence[str]) -> dict[str, Generator]:
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
    opened: dict[str, Generator] = {}
    for directory in directories:
        generator = _open(name, pathlib.Path(directory))
        if generator.kind in opened:
            reason = f'is a second generator of kind {generator.kind}; a side has one of each kind'
            raise ArgumentError(name, directory, reason)
        opened[generator.kind] = generator
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


def _open(name: str, path: pathlib.Path) -> Generator:
    if not (path / archive.REPORT).is_file() or not archive.has_ended(path):
        raise ArgumentError(name, path, 'must be the directory of a finished run')
    journal = archive.read_journal(path)
    values = {} if journal is None else dict(journal.state.settings or {})
    report = execution.read_report(path)
    metrics = {key: value for row in archive.read_rows(path) for key, value in row.items()}
    if (path / saved_models.IN_RUN).is_dir():
        model = saved_models.load(path)
        kind = CHAR if model.vocabulary is None else WORD
        return Generator(path, kind, values, report, model, model.weights, metrics)
    if (path / gan_models.IN_RUN).is_dir():
        _gan_config(name, path, values)  # Refuses a run whose generator cannot be built.
        return Generator(path, IMAGES, values, report, None, run_model.weights(path), metrics)
    raise ArgumentError(
        name,
        path,
        'must be a run of a language model or of train_gan; it has neither '
        f'{saved_models.IN_RUN}/ nor {gan_models.IN_RUN}/',
    )


def _gan_config(name: str, path: pathlib.Path, values: Mapping[str, Any]) -> GanConfig:
    try:
        return GanConfig.from_dict(dict(values))
    except ValueError as error:
        reason = f'has no configuration of train_gan ({shown(error)})'
        raise ArgumentError(name, path, reason) from None
