"""`pretrain`: trains a word model centrally on public text, for a warm start of `train`."""

import dataclasses
import errno
import itertools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from dpfl import _progress, _storage
from dpfl._settings import Settings, setting
from dpfl.errors import NOT_SHOWN, ArgumentError, renaming
from dpfl.tasks.config import WORD_MODELS
from dpfl.tasks.text import tokenization

# The first synthetic client that writes public text. These clients are neither trained on nor held
# out.
_FIRST_PUBLIC = 3 * 2**62
# Sentences that are in memory, and shuffled, at a time.
_CHUNK = 50_000
_Sentences = Callable[[], Iterator[np.ndarray]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainConfig(Settings):
    """Central training on public text ([McMahan18], appendix B).

    Example:
      >>> PretrainConfig(model='tiny', epochs=2).epochs
      2
    """

    public_text: str | None = setting(
        None,
        'File of any size with public text: UTF-8 text, or JSON Lines, CSV or Parquet with a '
        'column "text"; or directories of public repositories, comma-separated. By default '
        'synthetic text.',
    )
    max_sentences: int | None = setting(
        None, 'Use only the first so many sentences of the text; by default all.', minimum=1
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

    def check(self) -> None:
        """Refuses a number of synthetic clients beside a public text."""
        if self.public_text is not None and self.public_clients != PretrainConfig.public_clients:
            raise ArgumentError(
                'public_clients', self.public_clients, 'cannot be combined with public_text'
            )


@dataclasses.dataclass(frozen=True)
class PretrainResult:
    """A model that was trained on public text.

    Attributes:
      output: the folder of the SavedModel.
      vocabulary_file: a file with its words, for the setting `vocabulary_file` of a task.
      num_words: size of the vocabulary.
      num_sentences: sentences of the public text that are trained on.
      losses: loss of each step.

    Example:
      >>> config = PretrainConfig(model='micro', vocabulary_size=40, batch_size=8, public_clients=9)
      >>> pretrain(config, 'model', progress=False).num_words
      40
    """

    output: pathlib.Path
    vocabulary_file: pathlib.Path
    num_words: int
    num_sentences: int
    losses: np.ndarray

    def summary(self) -> dict[str, Any]:
        """Files, sizes and the loss at the end, by name."""
        tail = max(1, len(self.losses) // 10)
        return {
            'output': str(self.output),
            'vocabulary_file': str(self.vocabulary_file),
            'words': self.num_words,
            'sentences': self.num_sentences,
            'steps': len(self.losses),
            'loss': float(np.mean(self.losses[-tail:])),
        }


def pretrain(
    config: PretrainConfig, output: str | os.PathLike[str], *, progress: bool = True
) -> PretrainResult:
    """Trains a word model on public text, and saves it as a SavedModel. NOT private.

    Args:
      config: the model, the text and the training.
      output: the folder of the SavedModel; an earlier SavedModel there is replaced. The file with
        the vocabulary is written beside it.
      progress: show a progress bar on standard error.

    Raises:
      ArgumentError: if a value is not allowed, or the text cannot be used.
      StorageError: if the model cannot be written.

    Example:
      >>> config = PretrainConfig(model='micro', vocabulary_size=40, batch_size=8, public_clients=9)
      >>> pretrain(config, 'model', progress=False).output.name
      'model'
    """
    from dpfl.tasks.text.models import architectures, saved_models

    output = pathlib.Path(output)
    _check_output(output)
    words, sentences = _synthetic(config) if config.public_text is None else _public(config)
    architecture = saved_models.WORD_MODELS[config.model]
    initial = architecture.initial_weights(
        len(words) + tokenization.NUM_SPECIAL_TOKENS, config.seed
    )
    num_sentences = 0

    def chunks() -> Iterator[np.ndarray]:
        nonlocal num_sentences
        num_sentences = 0
        for part in sentences():
            num_sentences += len(part)
            yield part
        if not num_sentences:
            name = 'public_clients' if config.public_text is None else 'public_text'
            raise ArgumentError(name, getattr(config, name), 'must have sentences')

    # How long a file is, nobody knows before it is read.
    with _progress.bar(unit='step', disable=not progress) as bar:

        def report(loss: float) -> None:
            bar.set_postfix(loss=f'{loss:.4g}')
            bar.update()

        trained, losses = architectures.pretrain(
            architecture,
            initial,
            chunks,
            epochs=config.epochs,
            batch_size=config.batch_size,
            learning_rate=config.learning_rate,
            seed=config.seed,
            report=report,
        )
    vocabulary_file = output.with_name(output.name + '.vocabulary.txt')
    with _storage.naming(output):
        saved_models.save(saved_models.LanguageModel(config.model, trained, words), output)
    listed = ''.join(f'{word}\n' for word in words).encode()
    _storage.write_atomically(vocabulary_file, lambda file: file.write(listed))
    return PretrainResult(output, vocabulary_file, len(words), num_sentences, np.array(losses))


def _check_output(output: pathlib.Path) -> None:
    """Refuses a folder that holds anything but a SavedModel, and makes the one around it."""
    is_used = output.exists() and not (output.is_dir() and not any(output.iterdir()))
    if not output.name or is_used and not (output / 'saved_model.pb').is_file():
        raise ArgumentError(
            'output', output, 'must be new, empty, or the folder of a SavedModel, to be replaced'
        )
    with _storage.naming(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(output.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, 'Permission denied')


def _chunks(
    config: PretrainConfig, sentences: Iterable[Any], encode: Callable[[list[Any]], np.ndarray]
) -> Iterator[np.ndarray]:
    """Token ids of the first sentences, some at a time."""
    remaining = itertools.islice(sentences, config.max_sentences)
    while some := list(itertools.islice(remaining, _CHUNK)):
        yield encode(some)


def _synthetic(config: PretrainConfig) -> tuple[tuple[str, ...], _Sentences]:
    """Vocabulary and sentences of synthetic text."""
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

    def sentences() -> Iterator[np.ndarray]:
        rows = itertools.chain.from_iterable(map(language.tokens, clients))
        return _chunks(config, rows, lambda some: np.array(some, np.int32))

    return tuple(language.vocabulary), sentences


def _public(config: PretrainConfig) -> tuple[tuple[str, ...], _Sentences]:
    """Vocabulary and sentences of the file."""
    from dpfl.tasks.text import vocabulary, word_clients

    path = config.public_text
    assert path is not None
    with renaming(vocabulary_text='public_text'):
        if config.vocabulary_file is not None:
            words = vocabulary.load(config.vocabulary_file, None).with_marks()
        else:
            words = vocabulary.count_public_text(path, config.vocabulary_size)

    def sentences() -> Iterator[np.ndarray]:
        read = vocabulary.public_sentences('public_text', path)
        return _chunks(
            config, read, lambda some: word_clients.encode(some, words.ids, config.sentence_length)
        )

    return words.words, sentences
