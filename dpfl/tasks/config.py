"""Which task is trained: its data set, where the data come from, and the model. No TensorFlow.

And what the guarantee of a run does not cover because of its task, as sentences. A task of one's
own has sentences of its own.
"""

import dataclasses
import os
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError
from dpfl.tasks.selection import SelectionConfig

if TYPE_CHECKING:
    from dpfl.tasks.before_training import BeforeTraining
    from dpfl.tasks.federated_task import TaskSource

# In the order in which a device that has several of them applies them.
IMAGE_FAULTS = (
    'duplicated_client',
    'swapped_labels',
    'transposed',
    'encoding',
    'truncated',
    'inverted',
)
# Tasks with text that people wrote.
REAL_TASKS = ('stackoverflow', 'user_text', 'git_log')
TEXT_TASKS = ('synthetic_text', *REAL_TASKS)
IMAGE_TASKS = ('synthetic_glyphs', 'emnist')
# Tasks whose clients are drawn from the seed of the run: an endless population.
SYNTHETIC_TASKS = ('synthetic_text', 'synthetic_glyphs')
# A task of the caller's own, which `training.train` gets as an object.
CUSTOM = 'custom'
WORD_MODELS = (
    'small',
    'cifg_670',
    'tiny',
    'micro',
    'lstm_256',
    'lstm_tiny',
    'lstm_670',
    'lstm_dense_tiny',
)
IMAGE_MODELS = ('small', 'cnn', 'tiny')
PACKINGS = ('sentences', 'windows')
# Settings that say where the vocabulary comes from; real text needs exactly one.
VOCABULARY_SOURCES = ('vocabulary_file', 'vocabulary_text', 'vocabulary')
# Values of `vocabulary` for words that are counted on the text of the clients: without noise, and
# with a guarantee.
DATA_VOCABULARY, PRIVATE_VOCABULARY = 'data', 'private'
# How the description of a run's data names a vocabulary of words of its own clients, found without
# noise.
COUNTED_ON_CLIENTS = 'vocabulary_from_private_data'
# The draw before training that finds the words of a private vocabulary.
WORDS = 'words'
_OF_FILES: Mapping[str, Any] = {
    'needs': {'task': ('user_text',)},
    'draws': (WORDS,),
}
_OF_PRIVATE_WORDS: Mapping[str, Any] = {
    'needs': {'vocabulary': (PRIVATE_VOCABULARY,)},
    'draws': (WORDS,),
}
_OF_TEXT: Mapping[str, Any] = {'needs': {'task': TEXT_TASKS}}
# Released rounds whose data a run that continues reads again, from the first to the last.
COMPARED_ROUNDS = 8
NOT_FINGERPRINTED = (
    'Changes of the data while the run was interrupted: the data of this task have no digest, so a '
    f'run that continues compares those of at most {COMPARED_ROUNDS} released rounds.'
)
# About runs that train a generator of images.
NOT_COVERED_OF_GENERATORS = (
    'Losses, accuracy and critic gap: they compare with images of held-out clients, who are not '
    'protected. The generator and all images that it makes are covered: see gan_report.md.',
    'Who belongs to the population, and its size, where clients or examples were selected.',
    NOT_FINGERPRINTED,
)
_COUNTS = (
    'What data.json says about the data: how many clients and records there are, and what was left '
    'out, are exact counts.'
)
COUNTED_WORDS = (
    'The vocabulary: it was counted on the text of the training clients, without noise. Whoever '
    'sees it, or the size of the model, learns which words they use.'
)
_GIT_LOG = (
    'The heads of the repositories in data.json: they name the whole history.',
    'An author with several addresses that no .mailmap joins: each address is a client of its own, '
    'and the guarantee is one for each.',
    'Names of other people: what an author writes about somebody is text of that author.',
)
NOT_COVERED_OF_DUPLICATES = (
    'The client whose data other devices were given on purpose (the fault duplicated_client): the '
    'guarantee is for one device, and the data of that client are on several.'
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageFaultConfig(Settings):
    """Faults of some devices, to see whether they are found."""

    inject: tuple[str, ...] = setting(
        (),
        'Faults that some devices of a task of images get, comma-separated. inverted: black for '
        'white. swapped_labels: classes 2k and 2k + 1 have the label of each other. transposed: '
        'rows for columns. truncated: the lower half is blank. encoding: samples of 16 bits are '
        'read as bytes. duplicated_client: the device has the examples of client 0. Held-out '
        'clients have none.',
        choices=IMAGE_FAULTS,
        needs={'task': IMAGE_TASKS},
    )
    inject_share: float = setting(
        0.5,
        'Share of the devices that have a fault of --inject; each fault is drawn by itself.',
        minimum=0,
        maximum=1,
        needs='inject',
    )

    def check(self) -> None:
        """Checks that each fault is named once."""
        if len(set(self.inject)) < len(self.inject):
            raise ArgumentError('inject', ','.join(self.inject), 'must name each fault once')


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig(Settings):
    """Where the data of the clients come from.

    Example:
      >>> TaskConfig(task='emnist', data=DataConfig(download=True)).data.download
      True
    """

    data_path: str | None = setting(
        None,
        'File with the data of the clients; with --task=git_log directories of repositories, '
        'comma-separated.',
    )
    download: bool = setting(
        False,
        'Download the data set of TFF to --data_path (by default a place in the cache directory) '
        'unless it is there. An interrupted download continues where it stopped.',
    )
    heldout_fraction: float = setting(
        0.1,
        'Share of the clients that are held out for evaluation, where the data do not say which '
        'clients those are: whole clients, the same ones in every run.',
        above=0,
        below=1,
        needs={'task': (*REAL_TASKS, 'emnist')},
        draws=(WORDS,),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextConfig(Settings):
    """How text is read, and which words a model knows.

    Example:
      >>> TextConfig(vocabulary='private')
      Traceback (most recent call last):
      dpfl.errors.ArgumentError: vocabulary=private: needs vocabulary_epsilon
    """

    client_column: str = setting(
        'client', 'Column of --task=user_text that names the client.', **_OF_FILES
    )
    text_column: str = setting(
        'text', 'Column of --task=user_text that holds the text.', **_OF_FILES
    )
    vocabulary_size: int | None = setting(
        None,
        'Words in the vocabulary; four special tokens are added. By default 9996, or the whole '
        '--vocabulary_file.',
        minimum=1,
        **_OF_TEXT,
    )
    vocabulary_file: str | None = setting(
        None,
        'Text file with one word per line, the most frequent first. What follows a word on its '
        'line, such as a count, is ignored. A file that has none of the 32 punctuation marks of '
        'ASCII gets them at its end: in the text of clients every mark is a token of its own.',
        **_OF_TEXT,
    )
    vocabulary_text: str | None = setting(
        None,
        'Public text; the vocabulary is made of its most frequent words. A text file, a file with '
        'a column text, as for --task=user_text, or directories of public repositories, whose '
        'commit messages are read.',
        **_OF_TEXT,
    )
    vocabulary: str | None = setting(
        None,
        'Make the vocabulary of the words that most training clients use. data: THIS IS NOT '
        'PRIVATE, no guarantee covers it. private: find them before training with '
        '--vocabulary_epsilon; the guarantee of the run counts it '
        '(docs/own_data.md).',
        choices=(DATA_VOCABULARY, PRIVATE_VOCABULARY),
        **_OF_TEXT,
    )
    vocabulary_epsilon: float | None = setting(
        None,
        'Epsilon of finding the words of --vocabulary=private, at --delta. Epsilon of the run is '
        'that of words and training together.',
        above=0,
        **_OF_PRIVATE_WORDS,
    )
    vocabulary_words_per_client: int = setting(
        300,
        'Most words that a client contributes in each round of --vocabulary=private. More words '
        'have less weight each.',
        minimum=1,
        maximum=1_000_000,
        **_OF_PRIVATE_WORDS,
    )
    language_size: int | None = setting(
        None,
        'Words of the language of --task=synthetic_text, of which the model knows the '
        '--vocabulary_size most frequent ones. By default it knows all.',
        minimum=1,
        needs={'task': ('synthetic_text',)},
    )
    packing: str = setting(
        'sentences',
        "How a client's words become the rows of its batches. sentences: a row is a sentence, cut "
        'to --sentence_length words. windows: its sentences are joined, with an end-of-sentence '
        'token after each, and cut into windows of --sentence_length tokens; nothing is dropped '
        '([McMahan18]: windows of 10 tokens, 8 in a batch).',
        choices=PACKINGS,
        **_OF_TEXT,
    )
    sentence_length: int = setting(
        20,
        'Words that a model predicts in a row: longer sentences are cut to this many. Tokens in a '
        'window with --packing=windows. Sentences of --task=synthetic_text are not longer.',
        minimum=1,
        **_OF_TEXT,
    )
    client_max_tokens: int = setting(
        1600,
        'How many words of a client are used, its first ones; 0 for all. With --packing=windows '
        'ends of sentences count as words. 1600 in [McMahan18]. It depends on the data of one '
        'client only, so the guarantee is the same.',
        minimum=0,
        **_OF_TEXT,
    )
    client_min_tokens: int = setting(
        0,
        'A training client with fewer words (counted as for --client_max_tokens) sends a zero '
        'update when it is chosen; 1600 in [McMahan18]. It depends on the data of one client only, '
        'so the guarantee is the same, and covers whether a client has enough. Such clients stay '
        'in the population and in the denominator of the mean.',
        minimum=0,
        **_OF_TEXT,
    )

    def check(self) -> None:
        """Checks that a private vocabulary has an epsilon."""
        if self.vocabulary == PRIVATE_VOCABULARY and self.vocabulary_epsilon is None:
            raise ArgumentError('vocabulary', self.vocabulary, 'needs vocabulary_epsilon')


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTaskConfig(Settings):
    """A task with text, without a model."""

    task: str = setting('synthetic_text', 'Data set.', choices=TEXT_TASKS)
    data: DataConfig = DataConfig()
    text: TextConfig = TextConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageTaskConfig(Settings):
    """A task with images of letters and digits, without a model.

    Example:
      >>> ImageTaskConfig(task='emnist').task
      'emnist'
    """

    task: str = setting('synthetic_glyphs', 'Data set of images.', choices=IMAGE_TASKS)
    data: DataConfig = DataConfig()
    faults: ImageFaultConfig = ImageFaultConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskConfig(Settings):
    """A data set with a model.

    Example:
      >>> TaskConfig(task='synthetic_glyphs', model='tiny').model
      'tiny'
    """

    task: str = setting(
        'synthetic_text', 'Data set and metrics.', choices=(*TEXT_TASKS, *IMAGE_TASKS, CUSTOM)
    )
    model: str | None = setting(
        None,
        'Model that is trained; by default a small one for the task. cifg_670 is the model of '
        '[Xu23], lstm_256 that of [McMahan18], lstm_670 that of the StackOverflow benchmark in '
        '[McMahan24]. docs/reference/presets.md has their sizes; a run prints that of its model.',
        choices=tuple(sorted({*WORD_MODELS, *IMAGE_MODELS})),
    )
    warm_start: str | None = setting(
        None,
        'Start from this language model instead of random weights: a SavedModel of '
        "dpfl pretrain or of an earlier run, or that run's directory. The guarantee is that of "
        'both runs together, unless --warm_start_is_public is set; a model that is not in the '
        'directory of a run needs that flag.',
    )
    data: DataConfig = DataConfig()
    text: TextConfig = TextConfig()
    faults: ImageFaultConfig = ImageFaultConfig()
    selection: SelectionConfig = SelectionConfig()

    def check(self) -> None:
        """Checks that only sentences of text are selected."""
        if self.selection.is_given and self.text.packing != 'sentences':
            raise ArgumentError(
                'packing',
                self.text.packing,
                'must be sentences: the criteria of select_examples and select_clients are about '
                'sentences',
            )
        if self.selection.is_given and self.task not in TEXT_TASKS:
            name = 'select_examples' if self.selection.select_examples else 'select_clients'
            given = getattr(self.selection, name)
            raise ArgumentError(name, given, f'must not be given for task={self.task}')
        self.selection.require_possible({'length': self.text.sentence_length})

    def open(
        self,
        seed: int,
        tell: Callable[[str], None],
        before: 'BeforeTraining | None' = None,
    ) -> 'TaskSource':
        """The source of the task, which opens its data when they are needed.

        Args:
          seed: of synthetic data and of the initial model.
          tell: gets sentences about the data that were found.
          before: how a private vocabulary is found; None where nothing may be released.
        """
        if self.task in IMAGE_TASKS:
            from dpfl.tasks.images.image_task import ImageTask

            return ImageTask(self, seed)
        from dpfl.tasks.text.text_task import TextTask

        return TextTask(self, seed, tell, before)


def not_covered_of_task(
    config: TaskConfig | ImageTaskConfig, data: Mapping[str, Any]
) -> tuple[str, ...]:
    """The sentences about a run; none of a task of one's own.

    Args:
      config: the task.
      data: the description of its data that the run has recorded, of any form.
    """
    own: tuple[str, ...] = ()
    if isinstance(config, TaskConfig) and config.task in REAL_TASKS:
        own = not_covered_of_text(config, data)
    elif config.task in IMAGE_TASKS and config.task not in SYNTHETIC_TASKS:
        heldout = _recorded(data, 'clients', 'heldout')
        number = heldout if isinstance(heldout, int) else 0
        own = not_covered_of_writers(number, config.faults.inject)
    return (*own, *(config.selection.not_covered() if isinstance(config, TaskConfig) else ()))


def not_covered_of_writers(heldout: int, faults: Collection[str]) -> tuple[str, ...]:
    """The sentences about the images of federated EMNIST, and about faults that devices get."""
    return (
        *([NOT_COVERED_OF_DUPLICATES] if 'duplicated_client' in faults else []),
        'What data.json says about the data: how many clients there are is an exact count.',
        f'Held-out writers ({heldout}): they are no clients, and their images are used without '
        'noise.',
    )


def not_covered_of_text(
    config: TaskConfig | TextTaskConfig, data: Mapping[str, Any]
) -> tuple[str, ...]:
    """The sentences about the text of real people, of one of `REAL_TASKS`; as the above."""
    return (
        *([COUNTED_WORDS] if has_words_of_clients(config, data) else []),
        _COUNTS,
        *(_GIT_LOG if config.task == 'git_log' else ()),
    )


def has_words_of_clients(config: TaskConfig | TextTaskConfig, data: Mapping[str, Any]) -> bool:
    """Whether words of the clients are in the vocabulary of a run, counted without noise.

    The settings say so, or the run has found that its public text is the text of its clients.

    Args:
      config: the task.
      data: the description of its data that the run has recorded, of any form.
    """
    given = config.text.vocabulary_text, config.data.data_path
    public, private = ({os.path.normpath(path) for path in paths_of(some)} for some in given)
    return (
        config.text.vocabulary == DATA_VOCABULARY
        or bool(public & private)
        or _recorded(data, 'vocabulary', 'from') == COUNTED_ON_CLIENTS
    )


def _recorded(data: Mapping[str, Any], group: str, name: str) -> Any:
    values = data.get(group)
    return values.get(name) if isinstance(values, dict) else None


def paths_of(given: str | None) -> tuple[str, ...]:
    """The paths that a setting may mean: a file, or comma-separated repositories."""
    return (given, *given.split(',')) if given else ()
