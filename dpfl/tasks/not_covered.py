"""What the guarantee of a run does not cover because of its task, as sentences. No TensorFlow.

They follow from the settings alone. A task of one's own has sentences of its own.
"""

from dpfl.tasks.config import (
    DATA_VOCABULARY,
    IMAGE_TASKS,
    REAL_TASKS,
    TaskConfig,
    TextConfig,
)
from dpfl.tasks.selection_config import SelectionConfig

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
_EMNIST = (
    'What data.json says about the data: how many clients there are is an exact count.',
    'Loss and accuracy: they are measured, without noise, on other images of the training clients.',
)
_SELECTION_MODEL = (
    'The model that selects {}: what it was trained on, unless its own guarantee is added.'
)


def of_task(config: TaskConfig) -> tuple[str, ...]:
    """The sentences about a run of `train`, the gravest first; none of a task of one's own."""
    if config.task in REAL_TASKS:
        return (*of_text(config.task, config.text), *of_selection(config.selection, 'sentences'))
    if config.task in IMAGE_TASKS:
        return _EMNIST if config.task == 'emnist' else ()
    return of_selection(config.selection, 'sentences')


def of_text(task: str, text: TextConfig) -> tuple[str, ...]:
    """The sentences about the text of real people.

    Args:
      task: one of `REAL_TASKS`.
      text: its settings.
    """
    is_counted = text.vocabulary == DATA_VOCABULARY
    return (
        *([_COUNTED_WORDS] if is_counted else []),
        _COUNTS,
        *(_GIT_LOG if task == 'git_log' else ()),
    )


def of_selection(selection: SelectionConfig, examples: str) -> tuple[str, ...]:
    """The sentence about a model that selects clients or examples; empty without one."""
    if selection.selection_model is None:
        return ()
    return (_SELECTION_MODEL.format(f'clients or {examples}'),)
