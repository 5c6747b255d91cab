"""Which task is trained: its data set, where the data come from, and the model. No TensorFlow."""

import dataclasses
from collections.abc import Sequence

from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError
from dpfl.tasks.selection_config import ImageSelectionConfig, SelectionConfig

# In the order in which a device that has several of them applies them.
IMAGE_FAULTS = (
    'duplicated_client',
    'swapped_labels',
    'transposed',
    'encoding',
    'truncated',
    'inverted',
)
_DEFAULT_SHARE = 0.5


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
    )
    inject_share: float = setting(
        _DEFAULT_SHARE,
        'Share of the devices that have a fault of --inject; each fault is drawn by itself.',
        minimum=0,
        maximum=1,
    )

    def check(self) -> None:
        """Checks that each fault is named once, and that a share has a fault."""
        if len(set(self.inject)) < len(self.inject):
            raise ArgumentError('inject', ','.join(self.inject), 'must name each fault once')
        if not self.inject and self.inject_share != _DEFAULT_SHARE:
            raise ArgumentError('inject_share', self.inject_share, 'needs inject')


# Random words of all secrets of a run at most: they are drawn and kept in memory.
_MOST_SECRETS = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlantingConfig(Settings):
    """Secrets: sentences that begin in a known way and end with words drawn at random.

    Each is planted in the text of clients of its own ([Carlini19]).
    """

    secrets: int = setting(
        0,
        'Secrets to plant for each pair of --secret_copies and --secret_holders: sentences that '
        'end with random words. experiments/studies/measure_exposure.py says how far the model '
        'memorises them. They are no text that anyone wrote: plant them in simulations only.',
        minimum=0,
        maximum=_MOST_SECRETS,
    )
    secret_copies: tuple[int, ...] = setting(
        (1,),
        'How often a client that holds a secret has it, before its own sentences; several values '
        'make several kinds of secrets.',
        minimum=1,
    )
    secret_holders: tuple[int, ...] = setting(
        (1,),
        'Clients that hold a secret, random ones that hold no other; several values make several '
        'kinds of secrets. 0: drawn but not planted, to compare with.',
        minimum=0,
    )
    secret_prefix: int = setting(
        3, 'Words with which a secret begins, which an attacker knows.', minimum=0
    )
    secret_words: int = setting(
        2, 'Random words with which a secret ends, which an attacker does not know.', minimum=1
    )
    secret_choices: int = setting(
        64,
        'Words of the vocabulary, other ones for each secret, from which each of its random words '
        'is drawn: --secret_choices to the power of --secret_words candidates.',
        minimum=2,
    )

    def check(self) -> None:
        """Checks that there are kinds, and no setting of secrets without secrets."""
        for name in ('secret_copies', 'secret_holders'):
            values = getattr(self, name)
            if not values or len({*values}) < len(values):
                raise ArgumentError(name, values, 'must be different values, and at least one')
        if self.secrets:
            return
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                raise ArgumentError(field.name, value, 'needs secrets > 0')

    @property
    def kinds(self) -> tuple[tuple[int, int], ...]:
        """Copies and holders of each kind of secret."""
        return tuple(
            (copies, holders) for copies in self.secret_copies for holders in self.secret_holders
        )

    @property
    def num_secrets(self) -> int:
        """Number of secrets of all kinds."""
        return self.secrets * len(self.kinds)

    @property
    def num_holders(self) -> int:
        """Number of clients that hold a secret."""
        return self.secrets * sum(holders for _, holders in self.kinds)

    @property
    def length(self) -> int:
        """Number of words of a secret."""
        return self.secret_prefix + self.secret_words


WORD_MODELS = (
    'small',
    'cifg_670',
    'tiny',
    'micro',
    'lstm_256',
    'lstm_tiny',
    'cifg_670_tied',
    'small_tied',
    'lstm_256_untied',
    'lstm_670',
    'lstm_dense_tiny',
)
IMAGE_MODELS = ('small', 'cnn', 'tiny')
# Tasks with text that people wrote.
REAL_TASKS = ('stackoverflow', 'user_text', 'git_log')
TEXT_TASKS = ('synthetic_text', *REAL_TASKS)
PACKINGS = ('sentences', 'windows')
IMAGE_TASKS = ('synthetic_glyphs', 'emnist')
# A task of the caller's own, which `training.train` gets as an object.
CUSTOM = 'custom'
# Settings that say where the vocabulary comes from; real text needs exactly one.
VOCABULARY_SOURCES = ('vocabulary_file', 'vocabulary_text', 'vocabulary')
# Values of `vocabulary` for words that are counted on the text of the clients: without noise, and
# with a guarantee.
DATA_VOCABULARY, PRIVATE_VOCABULARY = 'data', 'private'
# Settings that only a private vocabulary has.
OF_PRIVATE_WORDS = (
    'vocabulary_epsilon',
    'vocabulary_delta',
    'vocabulary_words_per_client',
    'vocabulary_rounds',
    'vocabulary_choice',
)
# Settings of --task=user_text.
_OF_FILES = ('client_column', 'text_column', 'strict')


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig(Settings):
    """Where the data of the clients come from."""

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
    download_url: str | None = setting(
        None, 'Where --download finds the data set; by default the address that TFF uses.'
    )
    download_sha256: str | None = setting(
        None,
        'SHA-256 of the compressed file that --download fetches; by default the one that is known, '
        'or else the MD5 that the server states is compared.',
    )
    heldout_fraction: float = setting(
        0.1,
        'Share of the clients that are held out for evaluation, where the data do not say which '
        'clients those are: whole clients, the same ones in every run.',
        above=0,
        below=1,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextConfig(Settings):
    """How text is read, and which words a model knows."""

    client_column: str = setting('client', 'Column of --task=user_text that names the client.')
    text_column: str = setting('text', 'Column of --task=user_text that holds the text.')
    strict: bool = setting(
        False, 'Refuse data with a malformed record; otherwise such records are left out.'
    )
    vocabulary_size: int | None = setting(
        None,
        'Words in the vocabulary; four special tokens are added. By default 9996, or the whole '
        '--vocabulary_file.',
        minimum=1,
    )
    vocabulary_file: str | None = setting(
        None,
        'Text file with one word per line, the most frequent first. What follows a word on its '
        'line, such as a count, is ignored.',
    )
    vocabulary_marks: bool = setting(
        True,
        'Add the 32 punctuation marks of ASCII to a --vocabulary_file that has none of them: a '
        'list of plain words. In the text of clients every mark is a token of its own.',
    )
    vocabulary_text: str | None = setting(
        None,
        'Public text; the vocabulary is made of its most frequent words. A text file, JSON Lines, '
        'a Parquet file, or directories of public repositories, whose commit messages are read.',
    )
    vocabulary: str | None = setting(
        None,
        'Make the vocabulary of the words that most training clients use. data: THIS IS NOT '
        'PRIVATE, no guarantee covers it. private: find them before training with '
        '--vocabulary_epsilon; the guarantee of the run counts it '
        '(docs/own_data.md).',
        choices=(DATA_VOCABULARY, PRIVATE_VOCABULARY),
    )
    vocabulary_epsilon: float | None = setting(
        None,
        'Epsilon of finding the words of --vocabulary=private, at --vocabulary_delta. Epsilon of '
        'the run is that of words and training together.',
        above=0,
    )
    vocabulary_delta: float | None = setting(
        None,
        'Delta of finding the words of --vocabulary=private, by default --delta. Half of it is '
        'the probability that a word of one client alone is found, which is a part of the delta of '
        'the run.',
        above=0,
        below=1,
    )
    vocabulary_words_per_client: int = setting(
        300,
        'Most words that a client contributes in each round of --vocabulary=private. More words '
        'have less weight each.',
        minimum=1,
        maximum=1_000_000,
    )
    vocabulary_rounds: int = setting(
        3,
        'Rounds that find the words of --vocabulary=private one after the other: words that were '
        'found no longer use up the contributions of clients.',
        minimum=1,
        maximum=100,
    )
    vocabulary_choice: str = setting(
        'frequent',
        'Words that a client contributes to --vocabulary=private. frequent: those that it uses '
        'most often; uniform: random ones.',
        choices=('frequent', 'uniform'),
    )
    language_size: int | None = setting(
        None,
        'Words of the language of --task=synthetic_text, of which the model knows the '
        '--vocabulary_size most frequent ones. By default it knows all.',
        minimum=1,
    )
    packing: str = setting(
        'sentences',
        "How a client's words become the rows of its batches. sentences: a row is a sentence, cut "
        'to --sentence_length words. windows: its sentences are joined, with an end-of-sentence '
        'token after each, and cut into windows of --sentence_length tokens; nothing is dropped '
        '([McMahan18]: windows of 10 tokens, 8 in a batch).',
        choices=PACKINGS,
    )
    sentence_length: int = setting(
        20,
        'Words that a model predicts in a row: longer sentences are cut to this many. Tokens in a '
        'window with --packing=windows. Sentences of --task=synthetic_text are not longer.',
        minimum=1,
    )
    client_max_tokens: int = setting(
        1600,
        'How many words of a client are used, its first ones; 0 for all. With --packing=windows '
        'ends of sentences count as words. 1600 in [McMahan18]. It depends on the data of one '
        'client only, so the guarantee is the same.',
        minimum=0,
    )
    author_max_words: int = setting(
        3000,
        'With --task=git_log: words of an author that are read, the first ones in whole sentences; '
        '0 for all. It depends on the text of one author only, so the guarantee is the same.',
        minimum=0,
    )
    client_min_tokens: int = setting(
        0,
        'A training client with fewer words (counted as for --client_max_tokens) sends a zero '
        'update when it is chosen; 1600 in [McMahan18]. It depends on the data of one client only, '
        'so the guarantee is the same, and covers whether a client has enough. Such clients stay '
        'in the population and in the denominator of the mean.',
        minimum=0,
    )
    client_min_sentences: int = setting(
        0,
        'A training client with fewer sentences sends a zero update when it is chosen; 100 in '
        '[Augenstein20], appendix B.1. What it does to the guarantee is as for '
        '--client_min_tokens.',
        minimum=0,
    )

    def check(self) -> None:
        """Checks that a private vocabulary has an epsilon, and no other one has its settings."""
        if self.vocabulary == PRIVATE_VOCABULARY:
            if self.vocabulary_epsilon is None:
                raise ArgumentError('vocabulary', self.vocabulary, 'needs vocabulary_epsilon')
            return
        for name in OF_PRIVATE_WORDS:
            value = getattr(self, name)
            if value != getattr(TextConfig, name):
                raise ArgumentError(name, value, f'needs vocabulary={PRIVATE_VOCABULARY}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTaskConfig(Settings):
    """A task with text, without a model."""

    task: str = setting('synthetic_text', 'Data set.', choices=TEXT_TASKS)
    data: DataConfig = DataConfig()
    text: TextConfig = TextConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageTaskConfig(Settings):
    """A task with images of letters and digits, without a model."""

    task: str = setting('synthetic_glyphs', 'Data set of images.', choices=IMAGE_TASKS)
    data: DataConfig = DataConfig()
    faults: ImageFaultConfig = ImageFaultConfig()
    selection: ImageSelectionConfig = ImageSelectionConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskConfig(Settings):
    """A data set with a model."""

    task: str = setting(
        'synthetic_text', 'Data set and metrics.', choices=(*TEXT_TASKS, *IMAGE_TASKS, CUSTOM)
    )
    model: str | None = setting(
        None,
        'Model that is trained; by default a small one for the task. cifg_670 is the model of '
        '[Xu23], lstm_256 that of [McMahan18], lstm_670 that of the StackOverflow benchmark in '
        '[McMahan24]. tied: input and output share an embedding. docs/reference/presets.md has '
        'their sizes; a run prints that of its model.',
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
    planting: PlantingConfig = PlantingConfig()
    selection: SelectionConfig = SelectionConfig()

    def check(self) -> None:
        """Checks that settings of text are given for the tasks that have them."""
        language_size = self.text.language_size
        if language_size is not None and self.task != 'synthetic_text':
            raise ArgumentError('language_size', language_size, 'needs task=synthetic_text')
        if self.planting.secrets:
            self._check_planting()
        if self.selection.is_given and self.task not in TEXT_TASKS:
            name = 'select_examples' if self.selection.select_examples else 'select_clients'
            given = getattr(self.selection, name)
            raise ArgumentError(name, given, f'must not be given for task={self.task}')
        if self.task == 'git_log':
            self._refuse(_OF_FILES, 'task=git_log reads no file with columns')
        else:
            self._refuse(('author_max_words',), 'needs task=git_log')
        if self.task not in IMAGE_TASKS:
            if self.faults.inject:
                raise ArgumentError(
                    'inject', ','.join(self.faults.inject), f'task={self.task} has no images'
                )
            return
        self._refuse(
            ('packing', 'client_min_tokens', 'client_min_sentences'),
            f'task={self.task} has no text',
        )

    def _check_planting(self) -> None:
        """Raises ArgumentError if the text of a client would not keep its secret whole."""
        secrets, length = self.planting.secrets, self.planting.length
        if self.task not in TEXT_TASKS:
            raise ArgumentError('secrets', secrets, f'must be 0 for task={self.task}')
        if self.selection.is_given:
            reason = 'must be 0 with a selection, which could leave them out'
            raise ArgumentError('secrets', secrets, reason)
        if self.text.packing == 'sentences' and length > self.text.sentence_length:
            raise ArgumentError(
                'sentence_length', self.text.sentence_length, f'must be >= {length}, for a secret'
            )
        copies = max(self.planting.secret_copies)
        tokens = copies * (length + 1)
        if 0 < self.text.client_max_tokens < tokens:
            raise ArgumentError(
                'client_max_tokens',
                self.text.client_max_tokens,
                f'must be >= {tokens}, for {copies} copies of a secret',
            )

    def _refuse(self, names: Sequence[str], reason: str) -> None:
        """Raises ArgumentError if one of these settings of text is not the default."""
        for name in names:
            value = getattr(self.text, name)
            if value != getattr(TextConfig(), name):
                raise ArgumentError(name, value, reason)
