"""What the guarantee of a run does not cover because of its task, as sentences. No TensorFlow.

They follow from the settings alone. A task of one's own has sentences of its own.
"""

import os

from dpfl.tasks.config import (
    DATA_VOCABULARY,
    IMAGE_TASKS,
    REAL_TASKS,
    SYNTHETIC_TASKS,
    ImageTaskConfig,
    TaskConfig,
    TextTaskConfig,
)
from dpfl.tasks.selection_config import SelectionConfig

# Released rounds whose data a run that continues reads again, from the first to the last.
COMPARED_ROUNDS = 8
NOT_FINGERPRINTED = (
    'Changes of the data while the run was interrupted: the data of this task have no digest, so a '
    f'run that continues compares those of at most {COMPARED_ROUNDS} released rounds.'
)
# About runs that train a generator of images.
OF_GENERATORS = (
    'Losses, accuracy and critic gap: they compare with images of held-out clients, who are not '
    'protected. The generator and all images that it makes are covered: see gan_report.md.',
    'Who belongs to the population, and its size, where clients or examples were selected.',
    NOT_FINGERPRINTED,
)
_COUNTS = (
    'What data.json says about the data: how many clients and records there are, and what was left '
    'out, are exact counts.'
)
_COUNTED_WORDS = (
    'The vocabulary: it was counted on the text of the training clients, without noise. Whoever '
    'sees it, or the size of the model, learns which words they use.'
)
_GIT_LOG = (
    'The heads of the repositories in data.json: they name the whole history.',
    'An author with several addresses that no .mailmap joins: each address is a client of its own, '
    'and the guarantee is one for each.',
    'Names of other people: what an author writes about somebody is text of that author.',
)
_SELECTION_MODEL = (
    'The model that selects {}: what it was trained on, unless its own guarantee is added.'
)


def of_task(config: TaskConfig | ImageTaskConfig, heldout: int) -> tuple[str, ...]:
    """The sentences about a run; none of a task of one's own.

    Args:
      config: the task.
      heldout: number of held-out clients of a task of real images.
    """
    if isinstance(config, ImageTaskConfig) or config.task in IMAGE_TASKS:
        is_real = config.task not in SYNTHETIC_TASKS
        own, examples = of_writers(heldout) if is_real else (), 'images'
    else:
        own = of_text(config) if config.task in REAL_TASKS else ()
        examples = 'sentences'
    return (*own, *of_selection(config.selection, examples))


def of_writers(heldout: int) -> tuple[str, ...]:
    """The sentences about the images of federated EMNIST."""
    return (
        'What data.json says about the data: how many clients there are is an exact count.',
        f'Held-out writers ({heldout}): they are no clients, and their images are used without '
        'noise.',
    )


def of_text(config: TaskConfig | TextTaskConfig) -> tuple[str, ...]:
    """The sentences about the text of real people, of one of `REAL_TASKS`."""
    text = config.text
    # Who gives the text of the clients as public text has its words counted all the same.
    is_own = bool(_paths(text.vocabulary_text) & _paths(config.data.data_path))
    is_counted = text.vocabulary == DATA_VOCABULARY or is_own
    return (
        *([_COUNTED_WORDS] if is_counted else []),
        _COUNTS,
        *(_GIT_LOG if config.task == 'git_log' else ()),
    )


def _paths(given: str | None) -> set[str]:
    """A file, or comma-separated repositories, in the shortest form."""
    return {os.path.normpath(path) for path in (given, *given.split(','))} if given else set()


def of_selection(selection: SelectionConfig, examples: str) -> tuple[str, ...]:
    """The sentence about a model that selects clients or examples; empty without one."""
    if selection.selection_model is None:
        return ()
    return (_SELECTION_MODEL.format(f'clients or {examples}'),)
