"""Results of the study: the findings of each setting, as JSON values."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpfl import accounting
from dpfl.simulation.training import TrainResult
from dpfl.tasks.text import encoding, oov_ranking
from dpfl.tasks.text.models import generation
from dpfl.tasks.text.token_ids import NUM_SPECIAL_TOKENS, OOV_ID
from experiments.debugging.text import findings, settings
from experiments.debugging.text.config import CHAR, KINDS, WORD

_PHRASES = 10


@dataclasses.dataclass(frozen=True)
class Setting:
    """A share of sentences with the bug, and what the two models of this setting show.

    Attributes:
      rate: Share of sentences with the bug.
      name: Name of the setting.
      positions: Words outside the vocabulary in the sentences that the word model writes.
      heldout_oov_rate: Their share in the data of held-out clients; not private.
      phrases: Some of the sentences that the word model writes.
      ranking: The most probable words of the character model.
      models: Metrics and guarantee of the run of each kind of model.
      together: Epsilon of both models together, which learn from the same clients; None if
        infinite.
      conclusion: Comparison with the setting without the bug; None for that setting itself.
    """

    rate: float
    name: str
    positions: findings.PositionRates
    heldout_oov_rate: float
    phrases: tuple[str, ...]
    ranking: oov_ranking.Ranking
    models: Mapping[str, Mapping[str, Any]]
    together: float | None
    conclusion: findings.Conclusion | None

    @property
    def words(self) -> tuple[str, ...]:
        """The ranked words."""
        return tuple(word.word for word in self.ranking.words)

    def to_dict(self) -> dict[str, Any]:
        """The setting as JSON values."""
        values = dataclasses.asdict(self)
        values['oov_rate_by_position'] = list(self.positions.rates)
        values['oov_rate'] = self.positions.overall
        values['joined_share'] = findings.joined_share(self.words)
        return values


def evaluate(
    rate: float,
    text: settings.Text,
    tasks: Mapping[str, settings.Task],
    trained: Mapping[str, TrainResult],
    clean: Setting | None,
    *,
    samples: int,
    top: int,
    seed: int,
) -> Setting:
    """Samples from the two models of a setting, and draws the conclusion.

    Args:
      rate: Share of sentences with the bug.
      text: The data without the bug; only the vocabulary is read.
      tasks: Tasks of the two kinds of models.
      trained: The trained models.
      clean: The setting without the bug; None if this is it.
      samples: Number of sentences and number of words to draw.
      top: Number of words in the ranking.
      seed: Seed of the draws.
    """
    word_task, char_task = tasks[WORD], tasks[CHAR]
    written = generation.sample(
        word_task.architecture,
        trained[WORD].weights,
        word_task.special,
        count=samples,
        length=word_task.length,
        seed=seed,
    ).tokens
    positions = findings.PositionRates.of(written)
    ranking = oov_ranking.rank(
        char_task.architecture,
        trained[CHAR].weights,
        samples=samples,
        length=char_task.length,
        top=top,
        seed=seed,
        known=text.vocabulary.ids,
    )
    words = tuple(word.word for word in ranking.words)
    return Setting(
        rate=rate,
        name=settings.name(rate),
        positions=positions,
        heldout_oov_rate=_oov_rate(word_task.heldout),
        phrases=tuple(encoding.decode_sentences(written[:_PHRASES], text.vocabulary.words)),
        ranking=ranking,
        models={kind: _model(tasks[kind], trained[kind]) for kind in KINDS},
        together=together([model.report for model in trained.values()]),
        conclusion=None
        if clean is None
        else findings.conclude(positions, clean.positions, words, clean.words),
    )


def together(reports: Sequence[accounting.PrivacyReport]) -> float | None:
    """Epsilon of several models together that learn from the same clients; None if infinite.

    Delta is that of the first report. Each model may depend on the models before it.
    """
    import dp_accounting

    event = dp_accounting.ComposedDpEvent([report.dp_event() for report in reports])
    epsilon = accounting.epsilon_of_event(
        event,
        reports[0].deltas[0],
        reports[0].accountant,
        reports[0].plan.neighbours.adjacency,
    )
    return epsilon if np.isfinite(epsilon) else None


def _model(task: settings.Task, model: TrainResult) -> dict[str, Any]:
    plan, report = model.report.plan, model.report
    epsilon = report.guarantee.epsilons[0]
    return {
        'parameters': task.architecture.num_parameters(task.num_tokens),
        'rounds': plan.participation.rounds,
        'clients_per_round': plan.clients_per_round,
        'mechanism': plan.mechanism.name,
        'clip_norm': plan.clip_norm,
        'noise_multiplier': plan.noise_multiplier,
        'loss': model.last['loss'],
        'accuracy': model.last['accuracy'],
        'epsilon': epsilon if epsilon is not None and np.isfinite(epsilon) else None,
        'delta': report.deltas[0],
        'noise_is_seeded': report.noise_is_seeded,
    }


def _oov_rate(tokens: np.ndarray) -> float:
    """Share of words outside the vocabulary in rows of token ids."""
    outside, words = (tokens == OOV_ID).sum(), (tokens >= NUM_SPECIAL_TOKENS).sum()
    return float(outside / max(outside + words, 1))
