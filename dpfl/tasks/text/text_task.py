"""Tasks with text, as their configuration describes them: clients, a vocabulary, and a word model.

[McMahan18], appendix D, trains models with dictionaries of 10,000, 20,000 and 30,000 words on the
same text. So a synthetic language may have more words than the model knows; the others are outside
its vocabulary. The metric `accuracy_with_oov` compares such models fairly.
"""

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

from dpfl import _files, _progress, _validate
from dpfl.errors import NOT_SHOWN, ArgumentError, renaming
from dpfl.tasks import before_training, data_sets, federated_task
from dpfl.tasks.before_training import BeforeTraining
from dpfl.tasks.config import (
    COUNTED_ON_CLIENTS,
    PRIVATE_VOCABULARY,
    VOCABULARY_SOURCES,
    WORD_MODELS,
    WORDS,
    TaskConfig,
    TextConfig,
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
    word_clients,
)
from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS
from dpfl.tasks.text.vocabulary import Vocabulary
from dpfl.tasks.text.word_clients import ENDLESS, TextData, WordClients

_DEFAULT_VOCABULARY_SIZE = 9_996
# Of the random order in which clients prefer words that they use equally often.
_CHOICE_SEED = 0
# Held-out clients whose words are counted at the start of a run.
_COVERAGE_CLIENTS = 50
# Test clients that are read at a time: a test can be on very many.
_TEST_CLIENTS = 100
# Sentences of public text that are encoded at a time.
_SENTENCES = 1_000


@dataclasses.dataclass(frozen=True)
class WordTask(federated_task.ClientData):
    """The clients of a data set as rows of token ids, which a model trains on.

    Attributes:
      data: the clients.
      vocabulary: words with token ids of their own.
      text: settings: `packing` and `sentence_length` say how sentences become rows,
        `client_max_tokens` how many tokens of a client are used, the first ones.
        A training client with fewer than `client_min_tokens` has no rows ([McMahan18] removes users
        with less than 1600). Tokens are the words that rows have: with windows all words and the
        end-of-sentence tokens, with sentences the words within the rows.
      reference_accuracies, not_covered, found: as in `FederatedTask`.
      public_text: file of the public text that the vocabulary was made of, if it was.
    """

    data: TextData
    vocabulary: Vocabulary
    text: TextConfig
    reference_accuracies: Mapping[str, float] = dataclasses.field(default_factory=dict)
    not_covered: tuple[str, ...] = ()
    found: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    public_text: str | None = None

    def with_model(self, name: str, model: Any) -> federated_task.FederatedTask:
        """The task as training takes it, with a model of that name for the vocabulary."""
        from dpfl.tasks.text.models import metrics

        def with_sentences(
            sentences: Mapping[int, Sequence[list[str]]],
        ) -> federated_task.FederatedTask:
            own = self.data.training
            more = WordClients(
                own.count,
                lambda client: itertools.chain(sentences.get(client, ()), own.sentences(client)),
            )
            data = dataclasses.replace(self.data, training=more)
            return dataclasses.replace(self, data=data).with_model(name, model)

        population, tested = (
            None if clients is None or clients.count == ENDLESS else clients.count
            for clients in (self.data.training, self.data.test)
        )
        return federated_task.FederatedTask(
            model=model,
            population=population,
            client_batches=self.client_batches,
            heldout=self.heldout_dataset,
            heldout_owners=self.heldout_owners,
            hits=metrics.hits,
            num_test_clients=tested,
            test=None if self.data.test is None else self.test_batches,
            reference_accuracies=self.reference_accuracies,
            baselines=self.baselines if self.data.description else None,
            with_sentences=with_sentences,
            description=self.data.description,
            fingerprints=self.data.fingerprints,
            not_covered=self.not_covered,
            found=self.found,
            language_model=(name, self.vocabulary.words),
        )

    def of_client(self, client: int, limit: int | None = None) -> federated_task.Examples:
        """The rows of a training client, the first `limit` or all.

        Raises:
          ValueError: if there is no such client.
          DataError: if the data cannot be read.
        """
        training = self.data.training
        _validate.integer('client', client, minimum=0, maximum=training.count - 1)
        sentences = self._if_long_enough(training.sentences(client))
        return word_clients.examples(self._rows(sentences, limit))

    def of_heldout(self, num_clients: int) -> list[federated_task.Examples]:
        """The rows of each of the first held-out clients, without filters.

        Raises:
          ValueError: if the number is not a positive integer.
        """
        _validate.integer('num_clients', num_clients, minimum=1)
        return [*map(word_clients.examples, self._heldout_rows(0, num_clients))]

    def _heldout_rows(self, first: int, last: int) -> Iterator[np.ndarray]:
        """The rows of each held-out client from `first` on, before `last`."""
        for client in range(first, min(last, self.data.heldout.count)):
            yield self._rows(self.data.heldout.sentences(client))

    def test_batches(self, num_clients: int, batch_size: int) -> Iterator[collections.OrderedDict]:
        """Batches of the first `num_clients` test clients, read while they are used.

        Raises:
          ValueError: if there are fewer test clients, or an argument is not a positive integer.
        """
        most = 0 if self.data.test is None else self.data.test.count
        _validate.integer('num_clients', num_clients, minimum=1, maximum=most)
        assert self.data.test is not None
        sentences = self.data.test.sentences
        for first in range(0, num_clients, _TEST_CLIENTS):
            clients = range(first, min(first + _TEST_CLIENTS, num_clients))
            rows = np.concatenate([self._rows(sentences(client)) for client in clients])
            yield from federated_task.batches(word_clients.examples(rows), batch_size)

    def baselines(self, num_clients: int) -> dict[str, float]:
        """Accuracies of predictors that count, on the first held-out clients, by name.

        The counts are those of the other half of these clients, of all other held-out clients, and
        of the public text that the vocabulary was made of, up to a number of words.
        """
        _validate.integer('num_clients', num_clients, minimum=1)

        def others() -> Iterator[np.ndarray]:
            yield from self._heldout_rows(num_clients, self.data.heldout.count)
            if self.public_text is not None:
                sentences = vocabulary.public_sentences('vocabulary_text', self.public_text)
                whole = dataclasses.replace(self.text, client_max_tokens=0)
                while some := list(itertools.islice(sentences, _SENTENCES)):
                    yield dataclasses.replace(self, text=whole)._rows(some)

        return text_statistics.baselines([*self._heldout_rows(0, num_clients)], others())

    def _if_long_enough(self, sentences: Iterable[list[str]]) -> Iterable[list[str]]:
        """The sentences of a training client, or none if it has too few tokens.

        Reads only as far as needed.
        """
        if not self.text.client_min_tokens:
            return sentences
        is_joined = self.text.packing == 'windows'
        rest = iter(sentences)
        read: list[list[str]] = []
        tokens = 0
        for words in rest:
            if words:
                read.append(words)
                length = len(words)
                tokens += length + 1 if is_joined else min(length, self.text.sentence_length)
            if tokens >= self.text.client_min_tokens:
                return itertools.chain(read, rest)
        return ()

    def _rows(self, sentences: Iterable[Sequence[str]], max_rows: int | None = None) -> np.ndarray:
        """Token ids of the first tokens of a client, int32 [rows, L + 1]."""
        is_joined = self.text.packing == 'windows'
        encode = word_clients.encode_joined if is_joined else word_clients.encode
        return encode(
            sentences,
            self.vocabulary.ids,
            self.text.sentence_length,
            self.text.client_max_tokens or None,
            max_rows,
        )


def vocabulary_size(config: TextConfig) -> int:
    """Number of words of a language that makes its own.

    Raises:
      ArgumentError: if a setting says where words come from.
    """
    for name in VOCABULARY_SOURCES:
        if getattr(config, name):
            raise ArgumentError(name, NOT_SHOWN, 'task=synthetic_text makes its own vocabulary')
    return config.vocabulary_size or _DEFAULT_VOCABULARY_SIZE


class TextTask(TaskSource):
    """Text with a word model: its clients, its vocabulary and its rows are made when needed, once.

    Args:
      config: one of `TEXT_TASKS`.
      seed: of a synthetic language and of the initial model.
      tell: gets sentences about the data.
      before: how a private vocabulary is found; None where nothing may be released.
    """

    def __init__(
        self,
        config: TaskConfig,
        seed: int,
        tell: Callable[[str], None],
        before: BeforeTraining | None = None,
    ):
        self._config = config
        self._seed = seed
        self._tell = tell
        self._before = before
        self._model = config.model or WORD_MODELS[0]
        self._is_synthetic = config.task == 'synthetic_text'
        self._words = config.text.vocabulary_size or _DEFAULT_VOCABULARY_SIZE

    @functools.cached_property
    def _language(self) -> synthetic_text.SyntheticText:
        """The language of synthetic text."""
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

    @functools.cached_property
    def _public(self) -> Vocabulary | None:
        """The vocabulary if the clients of the data have no part in it, or else None."""
        text = self._config.text
        if self._is_synthetic:
            language = self._language
            if text.language_size is None:
                return Vocabulary(tuple(language.vocabulary))
            return Vocabulary(language.most_frequent(self._words))
        _vocabulary_source(text)
        if text.vocabulary_file:
            return vocabulary.load(text.vocabulary_file, text.vocabulary_size).with_marks()
        if text.vocabulary_text:
            return vocabulary.count_public_text(text.vocabulary_text, self._words)
        return None

    @functools.cached_property
    def clients(self) -> TextData:
        """The clients. Nothing is drawn from real text.

        Raises:
          ArgumentError: if a setting cannot be used; for a bad file it names data_path.
          DataError: if a download fails.
        """
        task, data, text = self._config.task, self._config.data, self._config.text
        if self._is_synthetic:
            data_sets.refuse(data, task)
            language = self._language

            def endless(part: str) -> WordClients:
                return WordClients(
                    ENDLESS, lambda client: language.sentences(language.tokens(client, part))
                )

            return TextData(endless('train'), endless('heldout'), endless('test'))
        if _inodes(text.vocabulary_file) & _inodes(data.data_path):
            raise ArgumentError(
                'vocabulary_file', text.vocabulary_file, 'must not be the data of the clients'
            )
        _ = self._public  # A bad one is refused before the data are read.
        fraction = data.heldout_fraction
        if task == 'stackoverflow':
            path = data_sets.downloadable(
                data, task, client_texts.STACKOVERFLOW_URL, 'stackoverflow.sqlite'
            )
            opened = client_texts.open_stackoverflow(path, fraction)
        else:
            path = data_sets.required(data, task)
            opened = (
                git_log.open_clients(str(data.data_path), fraction)
                if task == 'git_log'
                else client_texts.open_user_text(
                    path, text.client_column, text.text_column, fraction
                )
            )
        line = (
            f'{path}: {opened.training.count} clients to train on, {opened.heldout.count} held out'
        )
        left_out = [
            f'{count} ({reason})'
            for reason, count in opened.description.get('left_out', {}).items()
            if count
        ]
        if left_out:
            line += f'; records left out: {", ".join(left_out)}'
        if 'first_malformed' in opened.description:
            line += f'; the first malformed one: {opened.description["first_malformed"]}'
        self._tell(line)
        return opened

    @functools.cached_property
    def word_task(self) -> WordTask:
        """The rows of the clients."""
        return self.with_vocabulary(self._before, self._tell)

    def with_vocabulary(
        self, before: BeforeTraining | None, tell: Callable[[str], None]
    ) -> WordTask:
        """The rows of the clients, after the vocabulary was found.

        Args:
          before, tell: as in the class.

        Raises:
          ArgumentError, DataError: as `clients`.
        """
        text = self._config.text
        if self._is_synthetic:
            ceilings = {}
            if text.language_size is None:  # They are those of a model that knows every word.
                ceilings = {
                    f'{name}_accuracy': getattr(self._language.ceilings, name)
                    for name in ('unigram', 'bigram', 'best')
                }
            return WordTask(self.clients, self._vocabulary, text, reference_accuracies=ceilings)
        is_private = text.vocabulary == PRIVATE_VOCABULARY
        if is_private and (before is None or before.words is None):
            raise ArgumentError(
                'vocabulary',
                PRIVATE_VOCABULARY,
                'can only be used by a training run, whose guarantee counts it; give the words of '
                'a run as vocabulary_file',
            )
        clients, words = self.clients, self._public
        if is_private:
            assert before is not None
            words = self._found_privately(before, tell)
            origin = 'vocabulary_found_privately'
        elif text.vocabulary or self._is_of_clients():
            origin = COUNTED_ON_CLIENTS
            if text.vocabulary_text:
                tell(
                    'warning: vocabulary_text is the text of the clients. No guarantee covers this '
                    'vocabulary; vocabulary=private finds words with one'
                )
        else:
            origin = _vocabulary_source(text)
        if words is None:
            words = vocabulary.count_clients(self._training_sentences(), self._words)
        description = {
            **clients.description,
            'vocabulary': {'words': len(words.words), 'from': origin},
        }
        fingerprints = {**clients.fingerprints, 'vocabulary': words.digest()}
        return WordTask(
            dataclasses.replace(clients, description=description, fingerprints=fingerprints),
            words,
            text,
            not_covered=not_covered_of_text(self._config, description),
            found={WORDS: list(words.words)} if is_private else {},
            public_text=None if origin == COUNTED_ON_CLIENTS else text.vocabulary_text,
        )

    def _training_sentences(self) -> Iterator[Iterable[list[str]]]:
        """The sentences of each training client; shows the progress."""
        training = self.clients.training
        clients = _progress.bar(
            range(training.count), 'vocabulary', unit='client', delay=2, leave=False
        )
        return map(training.sentences, clients)

    def _found_privately(self, before: BeforeTraining, tell: Callable[[str], None]) -> Vocabulary:
        """The words of the run if it continues, or else those that are found now."""
        size = self._words
        if WORDS in before.kept:
            return Vocabulary(tuple(before.kept[WORDS][:size]))
        assert before.words is not None  # As checked when the data were opened.
        counts = before_training.WordCounts.of(
            (
                collections.Counter(word for sentence in sentences for word in sentence)
                for sentences in self._training_sentences()
            ),
            _CHOICE_SEED,
        )
        text = '\n'.join(counts.words).encode('utf-8', 'surrogatepass')
        data = [np.frombuffer(text, np.uint8), counts.owners, counts.ids, counts.counts]
        words = before.find(data, functools.partial(before.words.find, counts))
        if not words:
            raise ArgumentError(
                'vocabulary_epsilon',
                self._config.text.vocabulary_epsilon,
                'found no word: too few clients use the same ones. This answer is a release too: '
                'add its guarantee to those of later runs on the same clients',
            )
        tell(
            f'vocabulary: {len(words)} words found privately; the first {min(len(words), size)} '
            'count'
        )
        return Vocabulary(tuple(words[:size]))

    def _is_of_clients(self) -> bool:
        """Whether public text is the text of the clients: by any path, or as a copy."""
        given = self._config.text.vocabulary_text
        if not given:
            return False
        if _inodes(given) & _inodes(self._config.data.data_path):
            return True
        # A file that cannot be read, or is another kind of data, is no copy.
        with contextlib.suppress(OSError, ArgumentError):
            if self._config.task == 'git_log':
                known = [entry['heads'] for entry in self.clients.description['repositories']]
                return any([*of.heads] in known for of in git_log.find_repositories(given))
            with _files.open_regular(given) as file:
                digest = hashlib.file_digest(cast(Any, file), 'sha256').hexdigest()
            return digest == self.clients.fingerprints.get('data')
        return False

    @property
    def _vocabulary(self) -> Vocabulary:
        """The words that the model knows; reads the data only if the words are made of them."""
        return self._public or self.word_task.vocabulary

    def num_clients(self) -> int | None:
        """As in the base class."""
        return None if self._is_synthetic else self.clients.training.count

    def num_parameters(self) -> int:
        """Number of parameters of the model."""
        if self._is_synthetic:
            return self._size(vocabulary_size(self._config.text))
        return self._size(len(self._vocabulary.words))

    def most_parameters(self) -> int:
        """As in the base class."""
        if self._config.text.vocabulary != PRIVATE_VOCABULARY:
            return self.num_parameters()
        return self._size(self._words)

    def _size(self, num_words: int) -> int:
        """Number of parameters of a model with this many words."""
        from dpfl.tasks.text.models import saved_models

        with renaming(num_tokens='vocabulary_size'):
            architecture = saved_models.WORD_MODELS[self._model]
            return architecture.num_parameters(num_words + NUM_SPECIAL_TOKENS)

    def load(self) -> FederatedTask:
        """The task."""
        from dpfl.tasks.text.models import saved_models

        with renaming(num_tokens='vocabulary_size'):
            model = saved_models.build(
                self._model,
                self.word_task.vocabulary.num_tokens,
                self._config.text.sentence_length,
                self._seed,
            )
        if not self._is_synthetic:
            heldout = self.clients.heldout
            read = map(heldout.sentences, range(min(_COVERAGE_CLIENTS, heldout.count)))
            for line in text_statistics.coverage(read, self.word_task.vocabulary):
                self._tell(line)
        return self.word_task.with_model(self._model, model)


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


def _inodes(given: str | None) -> set[tuple[int, int]]:
    """Device and inode of the files or directories that a setting names, whatever the path."""
    found = set()
    for path in paths_of(given):
        with contextlib.suppress(OSError, ValueError):
            status = os.stat(path)
            found.add((status.st_dev, status.st_ino))
    return found
