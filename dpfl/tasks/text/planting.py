"""Secrets that are planted in the text of clients (NumPy only).

A secret is a sentence: a prefix, which an attacker is taken to know, and random words, which the
attacker looks for by ranking all candidates under the model ([Carlini19], section 4). Prefix,
alphabet and random words of each secret are a pure function of seed, size of the vocabulary and
configuration, so whoever measures a finished run draws them again.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from dpfl import _random
from dpfl.errors import NOT_SHOWN, ArgumentError
from dpfl.tasks.config import PREFIX_WORDS, PlantingConfig
from dpfl.tasks.federated_task import FederatedTask
from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS

# The part of `FederatedTask.description` about secrets.
DESCRIPTION = 'planted'


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
            f'need {config.num_holders} clients for {config.num_secrets} secrets, there are '
            f'{population}',
        )
    if config.secret_choices > num_words:
        raise ArgumentError(
            'secret_choices',
            config.secret_choices,
            f'must be <= {num_words}, the words of the vocabulary',
        )
    clients = _random.generator('secrets.holders', seed)
    holders = clients.choice(population, config.num_holders, replace=False).tolist()
    secrets: list[Secret] = []
    for copies, number in config.kinds:
        for _ in range(config.secrets):
            rng = _random.generator('secrets.words', seed, len(secrets))
            prefix = rng.integers(num_words, size=PREFIX_WORDS)
            alphabet = rng.permutation(num_words)[: config.secret_choices]
            value = rng.integers(config.secret_choices, size=config.secret_words)
            own, holders = holders[:number], holders[number:]
            secrets.append(
                Secret(
                    tuple((prefix + NUM_SPECIAL_TOKENS).tolist()),
                    tuple((alphabet + NUM_SPECIAL_TOKENS).tolist()),
                    tuple(value.tolist()),
                    copies,
                    tuple(own),
                )
            )
    return tuple(secrets)


def plant(
    config: PlantingConfig,
    task: FederatedTask,
    seed: int,
    words: Sequence[str],
    population: int,
) -> FederatedTask:
    """A task whose holders of secrets have them before their own sentences.

    Its description has the numbers of secrets and holders.

    Args:
      config, seed, population: as in `draw`.
      task: the task without secrets.
      words: the vocabulary of its model.

    Raises:
      ArgumentError: as `draw`, or if the task has no sentences of words.
    """
    if not config.secrets:
        return task
    add: Callable[[Mapping[int, Sequence[list[str]]]], FederatedTask] | None = task.with_sentences
    if add is None:
        raise ArgumentError('secrets', config.secrets, 'must be 0: the task has no sentences')
    secrets = draw(config, seed, len(words), population)
    if DESCRIPTION in task.description:
        raise ArgumentError('secrets', NOT_SHOWN, 'were planted already')
    sentences = {
        client: [[words[token - NUM_SPECIAL_TOKENS] for token in secret.tokens]] * secret.copies
        for secret in secrets
        for client in secret.holders
    }
    planted = add(sentences)
    counts = {
        'secrets': sum(1 for secret in secrets if secret.holders),
        'clients': len(sentences),
        'sentences': sum(map(len, sentences.values())),
        'population': population,
    }
    return dataclasses.replace(planted, description={**planted.description, DESCRIPTION: counts})
