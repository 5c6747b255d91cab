"""Flags of the task and its model, and the task that they make. TensorFlow: on demand only."""

import dataclasses
from collections.abc import Callable, Sequence

from absl import flags

from dpfl.tasks import federated_task
from dpfl.tasks.text import token_ids
from experiments.command import command_line
from experiments.flags import data_flags, image_flags, text_flags

flags.adopt_module_key_flags(text_flags)
flags.adopt_module_key_flags(image_flags)
WORD_MODELS = ('small', 'cifg_670', 'tiny', 'micro', 'lstm_256', 'lstm_tiny')


@dataclasses.dataclass(frozen=True)
class Entry:
    """What a name of --task stands for.

    Attributes:
      models: names that --model may have, the default first.
      load: from the name of a model and a seed to the task.
      num_parameters: of the model of a name.
      num_clients: number of clients to train on; None for an endless population.
    """

    models: tuple[str, ...]
    load: Callable[[str, int], federated_task.FederatedTask]
    num_parameters: Callable[[str], int]
    num_clients: Callable[[], int] | None = None


def _synthetic_language(seed: int):
    from dpfl.tasks.text import synthetic_text

    return synthetic_text.SyntheticText(
        vocabulary_size=text_flags.synthetic_vocabulary_size(),
        sentence_length=text_flags.sentence_length(),
        seed=seed,
    )


def _synthetic_text(model: str, seed: int) -> federated_task.FederatedTask:
    from dpfl.tasks.text.models import catalog

    data_flags.refuse()
    task = _synthetic_language(seed)
    return federated_task.FederatedTask(
        model=catalog.build(model, task.num_tokens, task.sentence_length, seed),
        population=None,
        client_batches=task.client_batches,
        heldout=task.heldout_dataset,
        reference_accuracies={
            'unigram_accuracy': task.unigram_accuracy,
            'bigram_accuracy': task.bigram_accuracy,
            'best_accuracy': task.best_accuracy,
        },
    )


def _synthetic_text_parameters(model: str) -> int:
    from dpfl.tasks.text.models import catalog

    num_tokens = text_flags.synthetic_vocabulary_size() + token_ids.NUM_SPECIAL_TOKENS
    return catalog.WORD_MODELS[model].num_parameters(num_tokens)


def _real_text(model: str, seed: int) -> federated_task.FederatedTask:
    from dpfl.tasks.text.models import catalog

    data = text_flags.load()
    return data.with_model(
        catalog.build(model, data.task.vocabulary.num_tokens, data.task.sentence_length, seed)
    )


def _real_text_parameters(model: str) -> int:
    from dpfl.tasks.text.models import catalog

    return catalog.WORD_MODELS[model].num_parameters(text_flags.num_tokens())


TASKS = {
    'synthetic_text': Entry(WORD_MODELS, _synthetic_text, _synthetic_text_parameters),
    'stackoverflow': Entry(WORD_MODELS, _real_text, _real_text_parameters, text_flags.num_clients),
    'user_text': Entry(WORD_MODELS, _real_text, _real_text_parameters, text_flags.num_clients),
    'synthetic_glyphs': Entry(image_flags.MODELS, image_flags.load, image_flags.num_parameters),
    'emnist': Entry(
        image_flags.MODELS, image_flags.load, image_flags.num_parameters, image_flags.num_clients
    ),
}
# Of a population that has no end, where --population does not say how much of it.
_DEFAULT_POPULATION = 10_000

_TASK = flags.DEFINE_enum('task', 'synthetic_text', list(TASKS), 'Data set and metrics.')
_MODEL = flags.DEFINE_enum(
    'model',
    None,
    sorted({name for entry in TASKS.values() for name in entry.models}),
    'What is trained; by default a small model for the task. cifg_670 is that of document 000 and '
    'lstm_256 that of document 001.',
)


def num_parameters() -> int:
    """Number of parameters of the model."""
    with command_line.refusing_bad_values(num_tokens='vocabulary_size'):
        return TASKS[_TASK.value].num_parameters(_model())


def load(seed: int) -> federated_task.FederatedTask:
    """The task of the flags.

    Raises:
      UsageError: if a flag cannot be used.
      DataError: if data cannot be downloaded.
    """
    name = _model()
    with command_line.refusing_bad_values():
        return TASKS[_TASK.value].load(name, seed)


def population(given: int | None) -> int:
    """The number of clients to train on.

    Args:
      given: value of --population, or None for all that there are.

    Raises:
      UsageError: if the data have fewer.
      DataError: if data cannot be downloaded.
    """
    num_clients = TASKS[_TASK.value].num_clients
    if num_clients is None:
        return _DEFAULT_POPULATION if given is None else given
    there = num_clients()
    if given is not None and given > there:
        raise command_line.UsageError(
            f'--population={given}: must be <= {there}, the clients to train on that the data have'
        )
    return there if given is None else given


def language_model(seed: int) -> tuple[str, Sequence[str]] | None:
    """Name of the model and its vocabulary; None for a task that is not about words."""
    if _TASK.value in ('stackoverflow', 'user_text'):
        return _model(), text_flags.load().task.vocabulary.words
    if _TASK.value == 'synthetic_text':
        with command_line.refusing_bad_values():
            return _model(), _synthetic_language(seed).vocabulary
    return None


def _model() -> str:
    allowed = TASKS[_TASK.value].models
    name = _MODEL.value or allowed[0]
    if name not in allowed:
        raise command_line.UsageError(
            f'--model={name}: must be one of {", ".join(allowed)} for --task={_TASK.value}'
        )
    return name
