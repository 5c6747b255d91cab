"""Configuration of the study: what it compares, and its models. No TensorFlow."""

import dataclasses

from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError
from dpfl.simulation.training import TrainConfig
from dpfl.tasks.config import WORD_MODELS

WORD, CHAR = 'word', 'char'
KINDS = (WORD, CHAR)
CHAR_MODELS = ('char_cifg_256', 'char_small', 'char_tiny')


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudyConfig(Settings):
    """The rates of the bug, the two models for each rate, and what these models write."""

    bug_rates: tuple[float, ...] = setting(
        (0.0, 0.01, 0.1, 1.0),
        'Shares of sentences with the bug, comma-separated, 0 first. Each share is one setting of '
        'the study.',
    )
    word_model: str = setting(
        'micro', 'The word model, one of those of train --model.', choices=WORD_MODELS
    )
    char_model: str = setting(
        'char_tiny',
        'The character model; [Augenstein20] uses char_cifg_256.',
        choices=CHAR_MODELS,
    )
    word_length: int = setting(
        24, 'Bytes of a word, including its end; longer words are cut.', minimum=2
    )
    word_clip_norm: float = setting(0.2, 'Clip norm of the word model.', above=0)
    char_clip_norm: float = setting(0.1, 'Clip norm of the character model.', above=0)
    samples: int = setting(
        20_000,
        'Number of sentences or words that each model writes (100000 in [Augenstein20]).',
        minimum=100,
    )
    top: int = setting(20, 'Number of words in a ranking.', minimum=1)

    def check(self) -> None:
        """Checks that the rates are different shares, the first of them 0."""
        rates = self.bug_rates
        valid = all(0 <= rate <= 1 for rate in rates) and len(set(rates)) == len(rates)
        if not rates or rates[0] != 0 or not valid:
            raise ArgumentError(
                'bug_rates',
                ','.join(f'{rate:g}' for rate in rates),
                'must be different numbers >= 0 and <= 1, the first of them 0',
            )

    def model(self, kind: str) -> str:
        """Name of the model of a kind, one of `KINDS`."""
        return self.word_model if kind == WORD else self.char_model

    def train_config(self, base: TrainConfig, kind: str) -> TrainConfig:
        """Training configuration of the model of a kind."""
        norm = self.word_clip_norm if kind == WORD else self.char_clip_norm
        return base.with_values({'clip_norm': norm})

    def made_from(self, kind: str, rate: float) -> dict[str, object]:
        """What the task of a model depends on besides the text, by name."""
        values: dict[str, object] = {'kind': kind, 'bug_rate': rate, 'model': self.model(kind)}
        return values if kind == WORD else {**values, 'word_length': self.word_length}
