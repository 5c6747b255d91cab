"""The two sides of a comparison: runs, read from their directories, and whether they match."""

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpfl import accounting
from dpfl.accounting.records import archive
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
      directory: Directory of the run.
      kind: One of `KINDS`.
      values: Content of `config.json`; empty if the run has none.
      report: Privacy report of the run.
      model: The language model; None for images.
      weights: Weights of the generator.
      metrics: Last value of each metric, by name.
    """

    directory: pathlib.Path
    kind: str
    values: Mapping[str, Any]
    report: accounting.PrivacyReport
    model: saved_models.LanguageModel | None
    weights: tuple[np.ndarray, ...]
    metrics: Mapping[str, float]

    @property
    def task(self) -> str:
        """Name of the task; 'unknown' without a configuration."""
        return str(self.values.get('task', {}).get('task', 'unknown'))

    @property
    def sentence_length(self) -> int | None:
        """Words of a sentence in training, if the configuration says so."""
        return self.values.get('task', {}).get('text', {}).get('sentence_length')

    @property
    def epsilon(self) -> float:
        """Epsilon of the run at its delta; infinity without a guarantee."""
        epsilon = self.report.guarantee.epsilons[0]
        return math.inf if epsilon is None else epsilon

    @property
    def unlearned(self) -> str | None:
        """Why what a language model writes says nothing about its data.

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

    def to_dict(self) -> dict[str, Any]:
        """What the run is, as JSON values."""
        plan = self.report.plan
        return {
            'directory': str(self.directory),
            'kind': self.kind,
            'task': self.task,
            'model': self._model_name,
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

    @property
    def _model_name(self) -> str:
        if self.model is not None:
            return self.model.name
        return f'gan {self.values["optimization"]["model"]}'


Side = Mapping[str, Generator]


def open_side(name: str, directories: Sequence[str]) -> dict[str, Generator]:
    """The generators of a side by their kind.

    Args:
      name: Name of the side, 'a' or 'b', for messages.
      directories: Directories of finished runs.

    Raises:
      ArgumentError: If there is none, one is not a finished run with a generator, or two are of the
        same kind.
      StorageError: If a file cannot be read.
    """
    if not directories:
        raise ArgumentError(name, '', 'must have at least one directory of a run')
    found: dict[str, Generator] = {}
    for directory in directories:
        generator = _open(name, pathlib.Path(directory))
        if generator.kind in found:
            raise ArgumentError(
                name,
                directory,
                f'is a second generator of kind {generator.kind}; a side has one of each kind',
            )
        found[generator.kind] = generator
    return {kind: found[kind] for kind in KINDS if kind in found}


def check_pair(first: Side, second: Side) -> None:
    """Checks that two sides can be compared.

    Raises:
      ArgumentError: If they have different kinds of generators, or word models of different
        vocabularies. It names `b`.
    """
    if list(first) != list(second):
        raise ArgumentError(
            'b',
            ','.join(str(each.directory) for each in second.values()),
            f'must have the kinds of generators of a ({_listed(first)}), has {_listed(second)}',
        )
    if WORD in first:
        words, others = (_vocabulary(side) for side in (first, second))
        if words != others:
            raise ArgumentError(
                'b',
                second[WORD].directory,
                f'must have the vocabulary of {first[WORD].directory}: {len(others):,} words '
                f'against {len(words):,}, {len({*words} & {*others}):,} in common'
                + (', in another order' if {*words} == {*others} else ''),
            )


def _listed(side: Side) -> str:
    return ' and '.join(side)


def _vocabulary(side: Side) -> tuple[str, ...]:
    model = side[WORD].model
    assert model is not None and model.vocabulary is not None  # A word model has one.
    return model.vocabulary


def _open(name: str, path: pathlib.Path) -> Generator:
    if not (path / archive.REPORT).is_file() or not archive.has_ended(path):
        raise ArgumentError(name, path, 'must be the directory of a finished run')
    values, report = _config(path), execution.read_report(path)
    if (path / saved_models.IN_RUN).is_dir():
        with_model = saved_models.load(path)
        kind = CHAR if with_model.vocabulary is None else WORD
        return Generator(path, kind, values, report, with_model, with_model.weights, _last(path))
    if (path / gan_models.IN_RUN).is_dir():
        gan_config(name, path, values)  # Refuses a run whose generator cannot be built.
        weights = run_model.weights(path)
        return Generator(path, IMAGES, values, report, None, weights, _last(path))
    raise ArgumentError(
        name,
        path,
        'must be a run of a language model or of train_gan; it has neither '
        f'{saved_models.IN_RUN}/ nor {gan_models.IN_RUN}/',
    )


def gan_config(name: str, path: pathlib.Path, values: Mapping[str, Any]) -> GanConfig:
    """The configuration of a run of `train_gan`.

    Raises:
      ArgumentError: If it is not one.
    """
    try:
        return GanConfig.from_dict(dict(values))
    except ValueError as error:
        raise ArgumentError(
            name, path, f'has no configuration of train_gan ({shown(error)})'
        ) from None


def _config(path: pathlib.Path) -> dict[str, Any]:
    found = archive.read_journal(path)
    return {} if found is None else dict(found.state.settings or {})


def _last(path: pathlib.Path) -> dict[str, float]:
    """The last value of each metric of a run; empty if it has no metrics."""
    rows = archive.read_rows(path)
    return {name: value for row in rows for name, value in row.items()}
