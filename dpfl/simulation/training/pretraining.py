"""`pretrain`: trains a word model centrally on public text, for a warm start of `train`."""

import dataclasses
import os
import pathlib
from typing import Any

import numpy as np
import tqdm

from dpfl import _storage
from dpfl._settings import Settings, setting
from dpfl.errors import NOT_SHOWN, ArgumentError, renaming
from dpfl.tasks.config import WORD_MODELS
from dpfl.tasks.text import token_ids

# The first synthetic client that writes public text. These clients are neither trained on nor held
# out.
_FIRST_PUBLIC = 3 * 2**62


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainConfig(Settings):
    """Central training on public text ([McMahan18], appendix B)."""

    public_text: str | None = setting(
        None, 'UTF-8 text file with public text; by default synthetic text.'
    )
    vocabulary_size: int = setting(
        9_996, 'Number of words in the vocabulary; four special tokens are added.', minimum=1
    )
    vocabulary_file: str | None = setting(
        None,
        'Text file with one word per line; by default the most frequent words of the public text.',
    )
    sentence_length: int = setting(20, 'Longer sentences are cut to this many words.', minimum=1)
    model: str = setting('small', 'Name of the model, as in --model of train.', choices=WORD_MODELS)
    public_clients: int = setting(
        300, 'Number of clients that write the synthetic text.', minimum=1
    )
    epochs: int = setting(1, 'Passes over the text.', minimum=1)
    batch_size: int = setting(64, 'Sentences in a step.', minimum=1)
    learning_rate: float = setting(0.003, "Adam's learning rate.", above=0)
    seed: int = setting(0, 'Seed of synthetic text, initial model and order.', minimum=0)


@dataclasses.dataclass(frozen=True)
class PretrainResult:
    """A model that was trained on public text.

    Attributes:
      output: the folder of the SavedModel.
      vocabulary_file: a file with its words, for the setting `vocabulary_file` of a task.
      num_words: size of the vocabulary.
      num_sentences: sentences of the public text.
      losses: loss of each step.
    """

    output: pathlib.Path
    vocabulary_file: pathlib.Path
    num_words: int
    num_sentences: int
    losses: np.ndarray


def pretrain(
    config: PretrainConfig, output: str | os.PathLike[str], *, progress: bool = True
) -> PretrainResult:
    """Trains a word model on public text, and saves it as a SavedModel. NOT private.

    Args:
      config: the model, the text and the training.
      output: the folder of the SavedModel; replaced if it exists. The file with the vocabulary is
        written beside it.
      progress: show a progress bar on standard error.

    Raises:
      ArgumentError: if a value is not allowed, or the text cannot be used.
      StorageError: if the model cannot be written.
    """
    from dpfl.tasks.text.models import catalog, pretraining, saved_models

    output = pathlib.Path(output)
    words, tokens = _synthetic(config) if config.public_text is None else _public(config)
    architecture = catalog.WORD_MODELS[config.model]
    initial = architecture.initial_weights(len(words) + token_ids.NUM_SPECIAL_TOKENS, config.seed)
    losses: list[float] = []
    steps = config.epochs * (len(tokens) // config.batch_size)
    with tqdm.tqdm(total=steps, unit='step', dynamic_ncols=True, disable=not progress) as bar:

        def report(step: int, loss: float) -> None:
            losses.append(loss)
            bar.set_postfix(loss=f'{loss:.4g}')
            bar.update()

        weights = pretraining.train(
            architecture,
            initial,
            tokens,
            epochs=config.epochs,
            batch_size=config.batch_size,
            learning_rate=config.learning_rate,
            seed=config.seed,
            report=report,
        )
    vocabulary_file = output.with_name(output.name + '.vocabulary.txt')
    with _storage.naming(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        saved_models.save(saved_models.LanguageModel(config.model, weights, words), output)
    listed = ''.join(f'{word}\n' for word in words).encode()
    _storage.write_atomically(vocabulary_file, lambda file: file.write(listed))
    return PretrainResult(output, vocabulary_file, len(words), len(tokens), np.array(losses))


def _synthetic(config: PretrainConfig) -> tuple[tuple[str, ...], np.ndarray]:
    """Vocabulary and token ids of synthetic text."""
    from dpfl.tasks.text import synthetic_text

    if config.vocabulary_file is not None:
        raise ArgumentError(
            'vocabulary_file',
            NOT_SHOWN,
            'cannot be used with synthetic text, which has its own vocabulary',
        )
    language = synthetic_text.SyntheticText(
        vocabulary_size=config.vocabulary_size,
        sentence_length=config.sentence_length,
        seed=config.seed,
    )
    clients = range(_FIRST_PUBLIC, _FIRST_PUBLIC + config.public_clients)
    return tuple(language.vocabulary), np.concatenate([language.tokens(c) for c in clients])


def _public(config: PretrainConfig) -> tuple[tuple[str, ...], Any]:
    """Vocabulary and token ids of the text file."""
    from dpfl.tasks.text import tokenization, vocabulary, word_clients

    path = config.public_text
    assert path is not None
    with renaming(vocabulary_text='public_text'):
        if config.vocabulary_file is not None:
            words = vocabulary.load(config.vocabulary_file, None)
        else:
            words = vocabulary.count_public_text(path, config.vocabulary_size)
    try:
        with open(path, encoding='utf-8-sig') as file:
            sentences = (words for line in file for words in tokenization.sentences(line))
            tokens = word_clients.encode(sentences, words.ids, config.sentence_length)
    except OSError as error:
        raise ArgumentError('public_text', path, f'cannot be read ({error.strerror})') from None
    except UnicodeDecodeError:
        raise ArgumentError('public_text', path, 'must be UTF-8 text') from None
    if not len(tokens):
        raise ArgumentError('public_text', path, 'must have sentences')
    return words.words, tokens
