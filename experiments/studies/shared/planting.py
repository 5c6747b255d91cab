"""Secrets that are planted in the text of clients, and runs on such text.

A secret is a sentence: a prefix, which an attacker is taken to know, and random words, which the
attacker looks for by ranking all candidates under the model ([Carlini19], section 4). Prefix,
alphabet and random words of each secret are a pure function of seed, size of the vocabulary and
configuration, so whoever measures a finished run draws them again.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from dpfl import _random
from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError
from dpfl.simulation import training
from dpfl.simulation.training import TrainConfig, TrainResult, execution
from dpfl.tasks.config import CUSTOM, TEXT_TASKS, TaskConfig
from dpfl.tasks.federated_task import FederatedTask
from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS

# The part of `FederatedTask.description` about secrets.
DESCRIPTION = 'planted'
# What the names of their settings begin with in the record of a run.
_RECORDED = 'planting.'
# Words with which a secret begins, which an attacker knows.
PREFIX_WORDS = 3
# Candidates for a secret that are ranked one by one; more scores may not fit into memory.
MOST_CANDIDATES = 2**24
# Secrets of each kind: all of them are drawn and kept in memory.
_MOST_SECRETS = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlantingConfig(Settings):
    """Secrets: sentences that begin in a known way and end with words drawn at random.

    Each is planted in the text of clients of its own ([Carlini19]).
    """

    secrets: int = setting(
        0,
        'Secrets to plant for each pair of --secret_copies and --secret_holders: sentences that '
        'end with random words, and that nobody wrote.',
        minimum=0,
        maximum=_MOST_SECRETS,
    )
    secret_copies: tuple[int, ...] = setting(
        (1,),
        'How often a client that holds a secret has it, before its own sentences; several values '
        'make several kinds of secrets.',
        minimum=1,
        needs='secrets',
    )
    secret_holders: tuple[int, ...] = setting(
        (1,),
        'Clients that hold a secret, random ones that hold no other; several values make several '
        'kinds of secrets. 0: drawn but not planted, to compare with.',
        minimum=0,
        needs='secrets',
    )
    secret_words: int = setting(
        2,
        'Random words with which a secret ends, which an attacker does not know.',
        minimum=1,
        needs='secrets',
    )
    secret_choices: int = setting(
        64,
        'Words of the vocabulary, other ones for each secret, from which each of its random words '
        'is drawn: --secret_choices to the power of --secret_words candidates.',
        minimum=2,
        needs='secrets',
    )

    def check(self) -> None:
        """Checks that there are kinds of secrets, all of them different, with few candidates."""
        candidates = self.secret_choices**self.secret_words
        if candidates > MOST_CANDIDATES:
            raise ArgumentError(
                'secret_words',
                self.secret_words,
                f'must leave at most {MOST_CANDIDATES} candidates to rank, not {candidates}',
            )
        for name in ('secret_copies', 'secret_holders'):
            values = getattr(self, name)
            if not values or len({*values}) < len(values):
                raise ArgumentError(name, values, 'must be different values, and at least one')

    @property
    def kinds(self) -> tuple[tuple[int, int], ...]:
        """Copies and holders of each kind of secret."""
        return tuple(
            (copies, holders) for copies in self.secret_copies for holders in self.secret_holders
        )

    @property
    def num_holders(self) -> int:
        """Number of clients that hold a secret."""
        return self.secrets * sum(holders for _, holders in self.kinds)

    def check_run(self, config: TrainConfig) -> None:
        """Checks that the clients of a run are on text, and train on whole secrets.

        Raises:
          ArgumentError: if not.
        """
        task, text, how = config.task.task, config.task.text, config.optimization
        if task not in TEXT_TASKS:
            raise ArgumentError('task', task, f'must be one of {", ".join(TEXT_TASKS)}')
        if config.task.selection.is_given or config.task.warm_start is not None:
            reason = 'must not be given with a selection or a first model, if secrets are planted'
            raise ArgumentError('task', task, reason)
        length, copies = PREFIX_WORDS + self.secret_words, max(self.secret_copies)
        if text.packing == 'sentences' and length > text.sentence_length:
            raise ArgumentError(
                'sentence_length', text.sentence_length, f'must be >= {length}, for a secret'
            )
        tokens = copies * (length + 1)
        if 0 < text.client_max_tokens < tokens:
            raise ArgumentError(
                'client_max_tokens',
                text.client_max_tokens,
                f'must be >= {tokens}, for {copies} copies of a secret',
            )
        most = how.client_max_batches
        if most is not None and most * how.client_batch_size < copies:
            raise ArgumentError(
                'secret_copies',
                self.secret_copies,
                f'must be <= {most * how.client_batch_size}, the examples that a client trains on',
            )


@dataclasses.dataclass(frozen=True)
class Secret:
    """A secret and the clients that hold it.

    Attributes:
      prefix: token ids with which it begins.
      alphabet: token ids from which each of its random tokens was drawn uniformly, all different.
      value: positions in the alphabet of its random tokens.
      copies: how often each holder has it.
      holders: ids of the clients that hold it.
    """

    prefix: tuple[int, ...]
    alphabet: tuple[int, ...]
    value: tuple[int, ...]
    copies: int = 1
    holders: tuple[int, ...] = ()

    @property
    def tokens(self) -> tuple[int, ...]:
        """Token ids of the sentence, without special tokens."""
        return (*self.prefix, *(self.alphabet[position] for position in self.value))


def draw(config: PlantingConfig, seed: int, num_words: int, population: int) -> tuple[Secret, ...]:
    """The secrets of a run, one kind after the other.

    Args:
      config: how many secrets there are, and of which form.
      seed: of the run.
      num_words: words of the model's vocabulary.
      population: number of clients to train on.

    Raises:
      ArgumentError: if there are fewer clients than holders, or fewer words than choices.
    """
    if config.num_holders > population:
        raise ArgumentError(
            'secret_holders',
            config.secret_holders,
            f'need {config.num_holders} clients, there are {population}',
        )
    if config.secret_choices > num_words:
        raise ArgumentError(
            'secret_choices',
            config.secret_choices,
            f'must be <= {num_words}, the words of the vocabulary',
        )
    clients = _random.generator('secrets.holders', seed)
    holders = clients.choice(population, config.num_holders, replace=False).tolist()
    found: list[Secret] = []
    for copies, number in config.kinds:
        for _ in range(config.secrets):
            rng = _random.generator('secrets.words', seed, len(found))
            prefix = rng.integers(num_words, size=PREFIX_WORDS)
            alphabet = rng.permutation(num_words)[: config.secret_choices]
            value = rng.integers(config.secret_choices, size=config.secret_words)
            own, holders = holders[:number], holders[number:]
            found.append(
                Secret(
                    tuple((prefix + NUM_SPECIAL_TOKENS).tolist()),
                    tuple((alphabet + NUM_SPECIAL_TOKENS).tolist()),
                    tuple(value.tolist()),
                    copies,
                    tuple(own),
                )
            )
    return tuple(found)


def plant(
    config: PlantingConfig,
    task: FederatedTask,
    seed: int,
    words: Sequence[str],
    population: int,
) -> FederatedTask:
    """A task whose holders of secrets have them before their own sentences.

    Its description counts what was planted.

    Args:
      config, seed, population: as in `draw`.
      task: the task without secrets.
      words: the vocabulary of its model.

    Raises:
      ArgumentError: as `draw`.
    """
    assert task.with_sentences is not None  # All tasks of text have sentences.
    secrets = draw(config, seed, len(words), population)
    sentences = {
        client: [[words[token - NUM_SPECIAL_TOKENS] for token in secret.tokens]] * secret.copies
        for secret in secrets
        for client in secret.holders
    }
    planted = task.with_sentences(sentences)
    counts = {
        'secrets': sum(1 for secret in secrets if secret.holders),
        'clients': len(sentences),
        'sentences': sum(map(len, sentences.values())),
        'population': population,
    }
    return dataclasses.replace(planted, description={**planted.description, DESCRIPTION: counts})


def of_run(settings: Mapping[str, Any]) -> PlantingConfig:
    """The secrets of a run, from all settings that a run which continues must share, by name."""
    values = {
        name.removeprefix(_RECORDED): value
        for name, value in settings.items()
        if name.startswith(_RECORDED)
    }
    return PlantingConfig().with_values(values)


def train(
    config: TrainConfig,
    planted: PlantingConfig,
    directory: str | os.PathLike[str],
    *,
    progress: bool = True,
    **options: Any,
) -> TrainResult:
    """Trains on text with secrets; without secrets as `training.train`.

    The run records the settings of its task and of its secrets.

    Args:
      config: the configuration of the run.
      planted: the secrets.
      directory: the directory of the run.
      progress, options: as in `training.train`.

    Raises:
      ArgumentError: if a value is not allowed, or clients cannot hold the secrets.
      RunError, DataError: as `training.train`.
    """
    if not planted.secrets:
        return training.train(config, directory, progress=progress, **options)
    planted.check_run(config)
    opened = config.task.open(config.seed, execution.teller(progress))
    population = opened.population(config.sampling.population)
    task = opened.load()
    # It is a task of text.
    assert task.language_model is not None and task.language_model[1] is not None
    task = dataclasses.replace(
        plant(planted, task, config.seed, task.language_model[1], population),
        made_from={**config.task.flat(), **{_RECORDED + k: v for k, v in planted.flat().items()}},
    )
    config = dataclasses.replace(config, task=TaskConfig(task=CUSTOM))
    return training.train(config, directory, task=task, progress=progress, **options)
