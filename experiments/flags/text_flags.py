"""Flags of the tasks with real text, and the tasks that they make."""

import dataclasses
import functools
import sys

import tqdm
from absl import flags

from dpfl.tasks import federated_task
from dpfl.tasks.text import stackoverflow, user_text, vocabulary, word_clients
from experiments.command import command_line
from experiments.flags import data_flags

flags.adopt_module_key_flags(data_flags)
_CLIENT_COLUMN = flags.DEFINE_string(
    'client_column', 'client', 'Where --task=user_text finds the client of a text.'
)
_TEXT_COLUMN = flags.DEFINE_string('text_column', 'text', 'Where --task=user_text finds a text.')
_STRICT = flags.DEFINE_bool(
    'strict', False, 'Do not train if a record is malformed; otherwise such records are left out.'
)
_VOCABULARY_SIZE = flags.DEFINE_integer(
    'vocabulary_size',
    None,
    'Words in the vocabulary; four special tokens are added. By default 9996, or the whole '
    '--vocabulary_file.',
)
_VOCABULARY_FILE = flags.DEFINE_string(
    'vocabulary_file',
    None,
    'Text file with a word in each line, the most frequent first. What follows a word, such as a '
    'count, is ignored.',
)
_VOCABULARY_TEXT = flags.DEFINE_string(
    'vocabulary_text', None, 'Text file with public text, of whose words the vocabulary is made.'
)
_VOCABULARY_PRIVATE = flags.DEFINE_bool(
    'vocabulary_from_private_data',
    False,
    'Make the vocabulary of the words that most training clients use. THIS IS NOT PRIVATE: no '
    'guarantee covers it.',
)
_SENTENCE_LENGTH = flags.DEFINE_integer('sentence_length', 20, 'Longer sentences are cut.')
_CLIENT_MAX_TOKENS = flags.DEFINE_integer(
    'client_max_tokens',
    1600,
    'Most words of a client that are used, its first ones; 0 for all. For real text; 1600 in '
    'document 001.',
    lower_bound=0,
)
_DEFAULT_SIZE = 9_996
_NOT_PRIVATE = (
    'The vocabulary: it was counted on the text of the training clients, without noise. Whoever '
    'sees it, or the size of the model, learns which words they use.'
)
_COUNTS = (
    'What data.json says about the data: how many clients and records there are, and what was left '
    'out, are exact counts.'
)


@dataclasses.dataclass(frozen=True)
class TextData:
    """A task with real text, without a model."""

    task: word_clients.WordTask
    description: dict
    fingerprints: dict
    not_covered: tuple[str, ...]

    def with_model(self, model) -> federated_task.FederatedTask:
        """The task as training takes it."""
        return federated_task.FederatedTask(
            model=model,
            population=self.task.training.count,
            client_batches=self.task.client_batches,
            heldout=self.task.heldout_dataset,
            description=self.description,
            fingerprints=self.fingerprints,
            not_covered=self.not_covered,
        )


def sentence_length() -> int:
    """Value of --sentence_length."""
    return _SENTENCE_LENGTH.value


def synthetic_vocabulary_size() -> int:
    """Value of --vocabulary_size for a task that makes its own words.

    Raises:
      UsageError: if a flag says where words come from.
    """
    for flag in (_VOCABULARY_FILE, _VOCABULARY_TEXT, _VOCABULARY_PRIVATE):
        if flag.value:
            raise command_line.UsageError(
                f'--{flag.name}: --task={flags.FLAGS.task} makes its own vocabulary'
            )
    return _DEFAULT_SIZE if _VOCABULARY_SIZE.value is None else _VOCABULARY_SIZE.value


def num_tokens() -> int:
    """Number of tokens of the model; reads the data only if the vocabulary is made of them."""
    words = _public_vocabulary()
    return load().task.vocabulary.num_tokens if words is None else words.num_tokens


def num_clients() -> int:
    """Number of clients to train on."""
    return load().task.training.count


@functools.cache
def load() -> TextData:
    """The task of the flags; data are opened once. What is found goes to standard error.

    Raises:
      UsageError: if a flag cannot be used; for a bad file this names --data_path.
      DataError: if a download fails.
    """
    name = flags.FLAGS.task
    words = _public_vocabulary()  # A bad one is refused before the data are read.
    fingerprints = {}
    with command_line.refusing_bad_values():
        if name == 'stackoverflow':
            path = data_flags.downloadable_path(stackoverflow.URL, 'stackoverflow.sqlite')
            training, heldout, description = stackoverflow.open_clients(
                path, data_flags.heldout_fraction()
            )
        else:
            path = data_flags.required_path()
            training, heldout, description, fingerprints['data'] = user_text.open_clients(
                path,
                _CLIENT_COLUMN.value,
                _TEXT_COLUMN.value,
                data_flags.heldout_fraction(),
                _STRICT.value,
            )
        print(_told(path, description), file=sys.stderr)
        words = words or _private_vocabulary(training)
        task = word_clients.WordTask(
            training, heldout, words, _SENTENCE_LENGTH.value, _CLIENT_MAX_TOKENS.value or None
        )
    source = _vocabulary_source()
    description['vocabulary'] = {'words': len(words.words), 'from': source}
    fingerprints['vocabulary'] = words.digest()
    private = (_NOT_PRIVATE,) if source == _VOCABULARY_PRIVATE.name else ()
    return TextData(task, description, fingerprints, (*private, _COUNTS))


def _vocabulary_source() -> str:
    """Name of the flag that says where the vocabulary comes from."""
    sources = (_VOCABULARY_FILE, _VOCABULARY_TEXT, _VOCABULARY_PRIVATE)
    given = [flag.name for flag in sources if flag.value]
    if len(given) > 1:
        raise command_line.UsageError(f'--{given[1]}: goes without --{given[0]}')
    if not given:
        raise command_line.UsageError(
            '--vocabulary_file: must be given, or --vocabulary_text with public text (words '
            "counted on the clients' own text are not private: --vocabulary_from_private_data)"
        )
    return given[0]


@functools.cache
def _public_vocabulary() -> vocabulary.Vocabulary | None:
    """The vocabulary of a file or of public text; None if it is to be made of the data."""
    source, size = _vocabulary_source(), _VOCABULARY_SIZE.value
    with command_line.refusing_bad_values():
        if source == _VOCABULARY_FILE.name:
            return vocabulary.load(_VOCABULARY_FILE.value, size)
        if source == _VOCABULARY_TEXT.name:
            return vocabulary.count_public_text(
                _VOCABULARY_TEXT.value, _DEFAULT_SIZE if size is None else size
            )
    return None


def _private_vocabulary(training: word_clients.WordClients) -> vocabulary.Vocabulary:
    clients = tqdm.tqdm(range(training.count), 'vocabulary', unit='client', delay=2, leave=False)
    size = _VOCABULARY_SIZE.value
    return vocabulary.count_clients(
        map(training.sentences, clients), _DEFAULT_SIZE if size is None else size
    )


def _told(path, description: dict) -> str:
    clients = description['clients']
    left_out = {reason: count for reason, count in description.get('left_out', {}).items() if count}
    text = f'{path}: {clients["training"]} clients to train on, {clients["heldout"]} held out'
    if left_out:
        text += '; records left out: ' + ', '.join(
            f'{count} ({reason})' for reason, count in left_out.items()
        )
    if 'first_malformed' in description:
        text += f'; the first malformed one: {description["first_malformed"]}'
    return text
