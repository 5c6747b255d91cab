"""Tasks with text, as their configuration describes them: clients, a vocabulary, and a word model.

[McMahan18], appendix D, trains models with dictionaries of 10,000, 20,000 and 30,000 words on the
same text. So a synthetic language may have more words than the model knows; the others are outside
its vocabulary. The metric `accuracy_with_oov` compares such models fairly.
"""

import abc
import collections
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from dpfl import _files, _progress
from dpfl.errors import NOT_SHOWN, ArgumentError, renaming
from dpfl.tasks import before_training, data_sets
from dpfl.tasks.before_training import BeforeTraining
from dpfl.tasks.config import (
    COUNTED_ON_CLIENTS,
    PRIVATE_VOCABULARY,
    VOCABULARY_SOURCES,
    WORD_MODELS,
    WORDS,
    TaskConfig,
    TextConfig,
    TextTaskConfig,
    not_covered_of_text,
    paths_of,
)
from dpfl.tasks.federated_task import FederatedTask, TaskSource
from dpfl.tasks.text import (
    client_texts,
    git_log,
    synthetic_text,
    text_statistics,
    vocabulary,
)
from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS
from dpfl.tasks.text.vocabulary import Vocabulary
from dpfl.tasks.text.word_clients import ENDLESS, Packing, WordClients, WordTask

_DEFAULT_VOCABULARY_SIZE = 9_996
# Of the random order in which clients prefer words that they use equally often.
_CHOICE_SEED = 0
# Held-out clients whose words are counted at the start of a run.
_COVERAGE_CLIENTS = 50
# Sentences of public text that are encoded at a time.
_SENTENCES = 1_000


def packing_of(config: TextConfig) -> Packing:
    """How the sentences of a client become rows."""
    return Packing(
        config.packing,
        config.sentence_length,
        config.client_max_tokens or None,
        config.client_min_tokens,
    )


class _TextTask(TaskSource):
    """Text with a word model."""

    def __init__(self, config: TaskConfig, seed: int):
        self._config = config
        self._seed = seed
        self._model = config.model or WORD_MODELS[0]

    @property
    @abc.abstractmethod
    def _vocabulary(self) -> Vocabulary:
        """The words that the model knows."""

    def language_model(self) -> tuple[str, Sequence[str]]:
        """Name of the model and its vocabulary."""
        return self._model, self._vocabulary.words

    def _size(self, num_words: int) -> int:
        """Number of parameters of a model with this many words."""
        from dpfl.tasks.text.models import saved_models

        with renaming(num_tokens='vocabulary_size'):
            architecture = saved_models.WORD_MODELS[self._model]
            return architecture.num_parameters(num_words + NUM_SPECIAL_TOKENS)

    def _built(self, words: Vocabulary) -> Any:
        """The untrained model."""
        from dpfl.tasks.text.models import saved_models

        length = self._config.text.sentence_length
        with renaming(num_tokens='vocabulary_size'):
            return saved_models.build(self._model, words.num_tokens, length, self._seed)


def vocabulary_size(config: TextConfig) -> int:
    """Number of words of a language that makes its own.

    Raises:
      ArgumentError: if a setting says where words come from.
    """
    for name in VOCABULARY_SOURCES:
        if getattr(config, name):
            raise ArgumentError(name, NOT_SHOWN, 'task=synthetic_text makes its own vocabulary')
    return config.vocabulary_size or _DEFAULT_VOCABULARY_SIZE


class SyntheticTextTask(_TextTask):
    """Synthetic text with a word model."""

    def num_parameters(self) -> int:
        """Number of parameters of the model."""
        return self._size(vocabulary_size(self._config.text))

    def load(self) -> FederatedTask:
        """The task."""
        data_sets.refuse(self._config.data, self._config.task)
        language, words, text = self._language, self._vocabulary, self._config.text
        model = self._built(words)

        def clients(tokens: Callable[[int], np.ndarray]) -> WordClients:
            return WordClients(ENDLESS, lambda client: language.sentences(tokens(client)))

        ceilings = {}
        if text.language_size is None:  # They are those of a model that knows every word.
            ceilings = {
                'unigram_accuracy': language.ceilings.unigram,
                'bigram_accuracy': language.ceilings.bigram,
                'best_accuracy': language.ceilings.best,
            }
        task = WordTask(
            clients(language.tokens),
            clients(language.heldout_tokens),
            words,
            packing_of(text),
            clients(language.test_tokens),
            ceilings,
        )
        return task.with_model(model)

    @functools.cached_property
    def _vocabulary(self) -> Vocabulary:
        language = self._language
        if self._config.text.language_size is None:
            return Vocabulary(tuple(language.vocabulary))
        return Vocabulary(language.most_frequent(vocabulary_size(self._config.text)))

    @functools.cached_property
    def _language(self) -> synthetic_text.SyntheticText:
        size = vocabulary_size(self._config.text)
        language_size = self._config.text.language_size
        if language_size is not None and language_size < size:
            raise ArgumentError(
                'language_size', language_size, f'must be >= {size}, vocabulary_size'
            )
        names = {} if language_size is None else {'vocabulary_size': 'language_size'}
        with renaming(**names):
            return synthetic_text.SyntheticText(
                vocabulary_size=language_size or size,
                sentence_length=self._config.text.sentence_length,
                seed=self._seed,
            )


def _vocabulary_source(config: TextConfig) -> str:
    """Name of the setting that says where the vocabulary comes from.

    Raises:
      ArgumentError: unless exactly one does.
    """
    given = [name for name in VOCABULARY_SOURCES if getattr(config, name)]
    if len(given) > 1:
        raise ArgumentError(given[1], NOT_SHOWN, f'cannot be combined with {given[0]}')
    if not given:
        raise ArgumentError(
            'vocabulary_file',
            NOT_SHOWN,
            'must be given, or vocabulary_text with public text, or vocabulary=private (words '
            "counted on the clients' own text are not private: vocabulary=data)",
        )
    return given[0]


def _public_vocabulary(config: TextConfig) -> Vocabulary | None:
    """The vocabulary of a file or of public text; None if it is to be made of the data."""
    _vocabulary_source(config)
    size = config.vocabulary_size
    if config.vocabulary_file:
        return vocabulary.load(config.vocabulary_file, size).with_marks()
    if config.vocabulary_text:
        return vocabulary.count_public_text(
            config.vocabulary_text, size or _DEFAULT_VOCABULARY_SIZE
        )
    return None


@dataclasses.dataclass(frozen=True)
class OpenedText:
    """Real text of clients, without a vocabulary: nothing was drawn from it.

    Attributes:
      training, heldout: clients; `test` also, if the data have such clients.
      description: facts about the data, as in `FederatedTask`.
      fingerprints: digests of the files, as in `FederatedTask`.
      words: the vocabulary, if it is public.
    """

    training: WordClients
    heldout: WordClients
    test: WordClients | None
    description: Mapping[str, Any]
    fingerprints: Mapping[str, str]
    words: Vocabulary | None


def open_text(
    config: TextTaskConfig | TaskConfig,
    tell: Callable[[str], None],
    words: Vocabulary | None = None,
) -> OpenedText:
    """Opens real text, and draws nothing from it.

    Args:
      config: of one of `REAL_TASKS`.
      tell: gets a sentence about the data.
      words: the `_public_vocabulary`, if it was read already.

    Raises:
      ArgumentError: if a setting cannot be used; for a bad file it names data_path.
      DataError: if a download fails.
    """
    task, data, text = config.task, config.data, config.text
    if _inodes(text.vocabulary_file) & _inodes(data.data_path):
        raise ArgumentError(
            'vocabulary_file', text.vocabulary_file, 'must not be the data of the clients'
        )
    words = words or _public_vocabulary(text)  # A bad one is refused before the data are read.
    fingerprints: dict[str, str] = {}
    test = None
    if task == 'stackoverflow':
        path = data_sets.downloadable(
            data, task, client_texts.STACKOVERFLOW_URL, 'stackoverflow.sqlite'
        )
        training, heldout, tested, description = client_texts.open_stackoverflow(
            path, data.heldout_fraction
        )
        test = tested if tested.count else None
    else:
        path, fraction = data_sets.required(data, task), data.heldout_fraction
        training, heldout, description, fingerprints['data'] = (
            git_log.open_clients(str(data.data_path), fraction)
            if task == 'git_log'
            else client_texts.open_user_text(path, text.client_column, text.text_column, fraction)
        )
    clients = description['clients']
    line = f'{path}: {clients["training"]} clients to train on, {clients["heldout"]} held out'
    left_out = [
        f'{count} ({reason})' for reason, count in description.get('left_out', {}).items() if count
    ]
    if left_out:
        line += f'; records left out: {", ".join(left_out)}'
    if 'first_malformed' in description:
        line += f'; the first malformed one: {description["first_malformed"]}'
    tell(line)
    return OpenedText(training, heldout, test, description, fingerprints, words)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealText(WordTask):
    """Real text of clients under a vocabulary, without a model.

    Attributes:
      description: facts about the data, as in `FederatedTask`.
      fingerprints: digests of the files, as in `FederatedTask`.
      not_covered: limits of the guarantee, a sentence each.
      public_text: file of the public text that the vocabulary was made of, if it was.
      found: results of the private draws before training, as in `FederatedTask`.
    """

    description: Mapping[str, Any]
    fingerprints: Mapping[str, str]
    not_covered: tuple[str, ...]
    public_text: str | None
    found: Mapping[str, Any]

    def facts(self) -> dict[str, Any]:
        """As in the base class."""
        return {
            **super().facts(),
            'baselines': self.baselines,
            'description': self.description,
            'fingerprints': self.fingerprints,
            'not_covered': self.not_covered,
            'found': self.found,
        }

    def baselines(self, num_clients: int) -> dict[str, float]:
        """Accuracies of predictors that count, on the first held-out clients, by name.

        The counts are those of the other half of these clients, of all other held-out clients, and
        of the public text that the vocabulary was made of, up to a number of words.
        """

        def public_tokens() -> Iterator[np.ndarray]:
            if self.public_text is not None:
                sentences = vocabulary.public_sentences('vocabulary_text', self.public_text)
                while some := list(itertools.islice(sentences, _SENTENCES)):
                    yield self.encoded(some)

        clients = list(self.heldout_tokens(0, num_clients))
        others = itertools.chain(self.heldout_tokens(num_clients), public_tokens())
        return text_statistics.baselines(clients, others)


def load(
    config: TextTaskConfig | TaskConfig,
    tell: Callable[[str], None],
    before: BeforeTraining | None = None,
    opened: OpenedText | None = None,
) -> RealText:
    """Opens real text, and finds its vocabulary.

    Args:
      config, tell: as in `open_text`.
      before: how a private vocabulary is found; None where nothing may be released.
      opened: the text, if it was opened already.

    Raises:
      ArgumentError, DataError: as in `open_text`.
    """
    text = config.text
    is_private = text.vocabulary == PRIVATE_VOCABULARY
    if is_private and (before is None or before.words is None):
        raise ArgumentError(
            'vocabulary',
            PRIVATE_VOCABULARY,
            'can only be used by a training run, whose guarantee counts it; give the words of a '
            'run as vocabulary_file',
        )
    opened = opened or open_text(config, tell)
    words = opened.words
    if is_private:
        assert before is not None
        words = _found_privately(opened.training, text, before, tell)
    if words is None:
        sentences = _sentences(opened.training)
        words = vocabulary.count_clients(
            sentences, text.vocabulary_size or _DEFAULT_VOCABULARY_SIZE
        )
    if is_private:
        origin = 'vocabulary_found_privately'
    elif text.vocabulary or _is_of_clients(config, opened):
        origin = COUNTED_ON_CLIENTS
        if text.vocabulary_text:
            tell(
                'warning: vocabulary_text is the text of the clients. No guarantee covers this '
                'vocabulary; vocabulary=private finds words with one'
            )
    else:
        origin = _vocabulary_source(text)
    description = {**opened.description, 'vocabulary': {'words': len(words.words), 'from': origin}}
    return RealText(
        training=opened.training,
        heldout=opened.heldout,
        vocabulary=words,
        packing=packing_of(text),
        test=opened.test,
        description=description,
        fingerprints={**opened.fingerprints, 'vocabulary': words.digest()},
        not_covered=not_covered_of_text(config, description),
        public_text=None if origin == COUNTED_ON_CLIENTS else text.vocabulary_text,
        found={WORDS: list(words.words)} if is_private else {},
    )


def _is_of_clients(config: TextTaskConfig | TaskConfig, opened: OpenedText) -> bool:
    """Whether public text is the text of the clients: by any path, or as a copy."""
    given = config.text.vocabulary_text
    if not given:
        return False
    if _inodes(given) & _inodes(config.data.data_path):
        return True
    # A file that cannot be read, or is another kind of data, is no copy.
    with contextlib.suppress(OSError, ArgumentError):
        if config.task == 'git_log':
            known = [entry['heads'] for entry in opened.description['repositories']]
            return any([*of.heads] in known for of in git_log.find_repositories(given))
        with _files.open_regular(given) as file:
            digest = hashlib.file_digest(cast(Any, file), 'sha256').hexdigest()
        return digest == opened.fingerprints.get('data')
    return False


def _inodes(given: str | None) -> set[tuple[int, int]]:
    """Device and inode of the files or directories that a setting names, whatever the path."""
    found = set()
    for path in paths_of(given):
        with contextlib.suppress(OSError, ValueError):
            status = os.stat(path)
            found.add((status.st_dev, status.st_ino))
    return found


def _sentences(training: WordClients) -> Iterator[Iterable[list[str]]]:
    """The sentences of each client; shows the progress."""
    clients = _progress.bar(
        range(training.count), 'vocabulary', unit='client', delay=2, leave=False
    )
    return map(training.sentences, clients)


def _found_privately(
    training: WordClients,
    config: TextConfig,
    before: BeforeTraining,
    tell: Callable[[str], None],
) -> Vocabulary:
    """The words of the run if it continues, or else those that are found now."""
    size = config.vocabulary_size or _DEFAULT_VOCABULARY_SIZE
    if WORDS in before.kept:
        return Vocabulary(tuple(before.kept[WORDS][:size]))
    assert before.words is not None  # As checked when the data were opened.
    counts = before_training.WordCounts.of(
        (
            collections.Counter(word for sentence in sentences for word in sentence)
            for sentences in _sentences(training)
        ),
        _CHOICE_SEED,
    )
    text = '\n'.join(counts.words).encode('utf-8', 'surrogatepass')
    data = [np.frombuffer(text, np.uint8), counts.owners, counts.ids, counts.counts]
    words = before.find(data, functools.partial(before.words.find, counts))
    if not words:
        raise ArgumentError(
            'vocabulary_epsilon',
            config.vocabulary_epsilon,
            'found no word: too few clients use the same ones. This answer is a release too: add '
            'its guarantee to those of later runs on the same clients',
        )
    tell(f'vocabulary: {len(words)} words found privately; the first {min(len(words), size)} count')
    return Vocabulary(tuple(words[:size]))


class RealTextTask(_TextTask):
    """Real text with a word model."""

    def __init__(
        self,
        config: TaskConfig,
        seed: int,
        tell: Callable[[str], None],
        before: BeforeTraining | None = None,
    ):
        super().__init__(config, seed)
        self._before = before
        self._tell = tell

    @functools.cached_property
    def _public(self) -> Vocabulary | None:
        """The public vocabulary; its text may be large, and is read once."""
        return _public_vocabulary(self._config.text)

    @functools.cached_property
    def opened(self) -> OpenedText:
        """The text, which is opened once."""
        return open_text(self._config, self._tell, self._public)

    @functools.cached_property
    def data(self) -> RealText:
        """The text with its vocabulary, which is found once."""
        return load(self._config, self._tell, self._before, self.opened)

    @property
    def _vocabulary(self) -> Vocabulary:
        return self.data.vocabulary

    def num_clients(self) -> int:
        """Number of clients to train on. Draws nothing."""
        return self.opened.training.count

    def num_parameters(self) -> int:
        """Number of parameters; reads the data only if the vocabulary is made of them."""
        words = self._public or self._vocabulary
        return self._size(len(words.words))

    def most_parameters(self) -> int:
        """The largest number that `num_parameters` may give; draws nothing."""
        if self._config.text.vocabulary != PRIVATE_VOCABULARY:
            return self.num_parameters()
        return self._size(self._config.text.vocabulary_size or _DEFAULT_VOCABULARY_SIZE)

    def load(self) -> FederatedTask:
        """The task."""
        model = self._built(self.data.vocabulary)
        heldout = self.data.heldout
        clients = range(min(_COVERAGE_CLIENTS, heldout.count))
        for line in text_statistics.coverage(map(heldout.sentences, clients), self.data.vocabulary):
            self._tell(line)
        return self.data.with_model(model)
