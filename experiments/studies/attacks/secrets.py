"""Measures how far the model of a finished run has memorised the secrets planted in its clients."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfl import _random
from dpfl.errors import NOT_SHOWN, ArgumentError
from dpfl.tasks.text import planting
from experiments.studies.attacks import exposure
from experiments.studies.attacks.exposure_config import ExposureConfig
from experiments.studies.attacks.finished_run import FinishedRun

if TYPE_CHECKING:
    from dpfl.tasks.text.models import saved_models

_EXACT = ExposureConfig()


@dataclasses.dataclass(frozen=True)
class Kind:
    """The exposures of secrets with equally many copies and holders.

    Attributes:
      copies: how often each holder has the secret.
      holders: clients that hold a secret.
      most_bits: the largest exposure that there can be, log2 of the number of candidates.
      took_part: secrets of which at least one holder took part in the run.
      participations: mean number of participations of the holders of a secret, added up.
      exposures: of each secret, in bits.
      p_value: of the hypothesis that the model is independent of the secrets (`exposure.chance`);
        None for exposures that are fitted, for which no such value is known.
      ceiling: the largest mean exposure that the guarantee allows, in bits (`exposure.ceiling`);
        None for exposures that are fitted, and if there is no guarantee for so many clients.
    """

    copies: int
    holders: int
    most_bits: float
    took_part: int
    participations: float
    exposures: tuple[float, ...]
    p_value: float | None
    ceiling: float | None

    @property
    def mean(self) -> float:
        """Mean exposure in bits; 1 / ln 2 = 1.44 on average by chance, or less."""
        return math.fsum(self.exposures) / len(self.exposures)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            'copies': self.copies,
            'holders': self.holders,
            'secrets': len(self.exposures),
            'most_bits': self.most_bits,
            'took_part': self.took_part,
            'participations': self.participations,
            'mean_exposure': self.mean,
            'median_exposure': float(np.median(self.exposures)),
            'largest_exposure': max(self.exposures),
            'p_value': self.p_value,
            'ceiling': self.ceiling,
            'exposures': list(self.exposures),
        }


@dataclasses.dataclass(frozen=True)
class Exposures:
    """The exposures of a run.

    Attributes:
      directory: that of the run.
      epsilon: of the run; infinity without a guarantee.
      delta: of the run.
      candidates: number of candidates of each secret.
      kinds: what was measured, by kind of secret.
    """

    directory: str
    epsilon: float
    delta: float
    candidates: int
    kinds: tuple[Kind, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON values; an infinite epsilon is None."""
        return {
            'run_dir': self.directory,
            'epsilon': None if math.isinf(self.epsilon) else self.epsilon,
            'delta': self.delta,
            'candidates': self.candidates,
            'kinds': [kind.to_dict() for kind in self.kinds],
        }


def of_model(
    model: 'saved_models.LanguageModel',
    secrets: Sequence[planting.Secret],
    config: ExposureConfig = _EXACT,
) -> list[float]:
    """Exposures of secrets under a model of words or of characters, in bits.

    Args:
      model: the model.
      secrets: the secrets, in token ids of the model.
      config: how they are ranked.

    Raises:
      ArgumentError: if there are too many candidates to rank all of them.
    """
    from dpfl.tasks.text import oov_ranking
    from dpfl.tasks.text.models import generation

    special = oov_ranking.BYTES if model.vocabulary is None else generation.WORDS
    predict = generation.build(model.architecture, model.weights, special.begin)
    return [_exposure(predict, secret, config, i) for i, secret in enumerate(secrets)]


def _exposure(
    predict: exposure.NextTokens, secret: planting.Secret, config: ExposureConfig, number: int
) -> float:
    size, length = len(secret.alphabet), len(secret.value)
    if config.ranking == 'exact':
        if size**length > exposure.MOST_EXACT:
            raise ArgumentError(
                'ranking', 'exact', f'must be another one: there are {size**length} candidates'
            )
        found = exposure.all_scores(predict, secret.prefix, secret.alphabet, length)
        return exposure.of_rank(exposure.rank(found, secret.value, size), size**length)
    rng = _random.generator('secrets.sample', config.sample_seed, number)
    values = np.concatenate([[secret.value], rng.integers(size, size=(config.samples, length))])
    own, *others = exposure.scores(predict, secret.prefix, secret.alphabet, values)
    if config.ranking == 'sampled':
        return exposure.by_sampling(own, np.array(others))
    return exposure.by_fit(own, np.array(others), size**length)


def measure(run: FinishedRun, config: ExposureConfig = _EXACT) -> Exposures:
    """The exposures of the secrets of a run (settings `secrets`, `secret_copies` and so on).

    Args:
      run: the run.
      config: how they are ranked.

    Raises:
      ArgumentError: if the run has no secrets, or too many candidates to rank all of them.
      StorageError: if a file cannot be read.
    """
    from dpfl.tasks.text.models import saved_models

    planted = run.config.task.planting
    counts = run.data().get(planting.DESCRIPTION)
    if not planted.secrets or counts is None:
        raise ArgumentError('run_dir', run.directory, 'must be a run with secrets')
    model = saved_models.load(run.directory)
    if model.vocabulary is None:
        raise ArgumentError('run_dir', NOT_SHOWN, 'must have a model of words')
    secrets = planting.draw(
        planted, run.config.seed, len(model.vocabulary), int(counts['population'])
    )
    exposures = of_model(model, secrets, config)
    candidates = planted.secret_choices**planted.secret_words
    kinds = []
    for i, (copies, holders) in enumerate(planted.kinds):
        part = slice(i * planted.secrets, (i + 1) * planted.secrets)
        clients = np.array([secret.holders for secret in secrets[part]], np.int64)
        taken = run.participations(clients.reshape(planted.secrets, holders)).sum(axis=1)
        found, p_value, ceiling = exposures[part], None, None
        if config.ranking != 'fitted':
            p_value, ceiling = exposure.chance(found), _ceiling(run, holders, candidates)
        kinds.append(
            Kind(
                copies,
                holders,
                math.log2(candidates),
                int(np.count_nonzero(taken)),
                float(taken.mean()),
                tuple(found),
                p_value,
                ceiling,
            )
        )
    return Exposures(str(run.directory), run.epsilon, run.delta, candidates, tuple(kinds))


def _ceiling(run: FinishedRun, holders: int, candidates: int) -> float | None:
    """The largest mean exposure of secrets with so many holders; None if nothing bounds it."""
    if not holders:
        return exposure.ceiling(0.0, 0.0, candidates)
    epsilon = run.epsilon_of_group(holders)
    return None if epsilon is None else exposure.ceiling(epsilon, run.delta, candidates)
