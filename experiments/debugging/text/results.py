"""What the study leaves: the findings of each setting, as values that JSON has."""

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
    """A share of faulty sentences, and what its two models say.

    Attributes:
      rate: the share.
      name: what it is called.
      positions: words outside the vocabulary in the sentences that the word model writes.
      heldout_oov_rate: their share in the data of held-out clients; not private.
      phrases: some of those sentences.
      ranking: the most probable words of the character model.
      models: for each kind, what its run reached and its guarantee.
      together: the guarantee of both models, which learn from the same clients.
      conclusion: against the setting without the fault; None for that one.
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
        """All of it, in values that JSON has."""
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
    """Lets the two models of a setting write, and concludes.

    Args:
      rate: of the setting.
      text: the data without the fault, of which only the vocabulary is read.
      tasks: of the two kinds of models.
      trained: the models.
      clean: the setting without the fault; None if this is it.
      samples: how many sentences and how many words are drawn.
      top: how many words are ranked.
      seed: of the draws.
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
    """Epsilon of several models of the same clients at the first report's delta; None if infinite.

    Each may depend on those before it.
    """
    import dp_accounting

    event = dp_accounting.ComposedDpEvent([report.dp_event() for report in reports])
    epsilon = accounting.epsilon_of_event(event, reports[0].deltas[0], reports[0].accountant)
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
