"""Flags of the tasks with images of letters and digits, and the tasks that they make."""

import functools
import pathlib

from absl import flags

from dpfl import errors
from dpfl.tasks import federated_task
from experiments.command import command_line
from experiments.flags import data_flags

flags.adopt_module_key_flags(data_flags)
_INVERTED_SHARE = flags.DEFINE_float(
    'inverted_share', 0.0, 'Share of the devices whose images have black for white.'
)
MODELS = ('small', 'cnn', 'tiny')
_COUNTS = 'What data.json says about the data: how many clients there are is an exact count.'
_SAME_WRITERS = (
    'Loss and accuracy: they are measured, without noise, on other images of the training clients.'
)


def data(name: str, inverted_share: float, seed: int):
    """The clients of a task of images.

    Args:
      name: 'synthetic_glyphs' or 'emnist'; the latter is read from --data_path.
      inverted_share: share of the devices with the bug.
      seed: of the synthetic clients, and of which devices have the bug.

    Returns:
      A `SyntheticGlyphs` or an `Emnist`.

    Raises:
      UsageError: if a flag cannot be used; for a bad file this names --data_path.
      DataError: if a download fails.
    """
    from dpfl.tasks.images import emnist, synthetic_glyphs

    with command_line.refusing_bad_values():
        if name == 'synthetic_glyphs':
            data_flags.refuse()
            return synthetic_glyphs.SyntheticGlyphs(seed=seed, inverted_share=inverted_share)
        path = data_flags.downloadable_path(emnist.URL, 'emnist_all.sqlite', emnist.SHA256)
        return emnist.Emnist(_files(path), inverted_share=inverted_share, seed=seed)


@functools.cache
def _files(path: pathlib.Path):
    from dpfl.tasks.images import emnist_files

    try:
        files = emnist_files.open_files(path)
        if not files.writers('train'):
            raise errors.DataError(f'{path}: has no writer of 62 classes')
    except errors.DataError as error:
        reason = str(error).removeprefix(f'{path}: ')
        raise command_line.UsageError(f'--data_path={path}: {reason}') from None
    return files


def num_clients() -> int:
    """Number of clients to train on, for --task=emnist."""
    return data('emnist', 0.0, 0).population


def load(model: str, seed: int) -> federated_task.FederatedTask:
    """The task of the flags."""
    from dpfl.tasks.images import classifiers

    name = flags.FLAGS.task
    task = data(name, _INVERTED_SHARE.value, seed)
    shared = dict(
        model=classifiers.build_image_classifier(model, seed),
        client_batches=task.client_batches,
        heldout=functools.partial(_heldout, task),
    )
    if name == 'synthetic_glyphs':
        return federated_task.FederatedTask(population=None, **shared)
    return federated_task.FederatedTask(
        population=task.population,
        description={'clients': {'training': task.population}},
        not_covered=(_COUNTS, _SAME_WRITERS),
        **shared,
    )


def num_parameters(model: str) -> int:
    """Number of parameters of a classifier."""
    from dpfl.tasks.images import classifiers

    return classifiers.PRESETS[model].num_parameters


def _heldout(task, num_clients: int, batch_size: int):
    import tensorflow as tf

    from dpfl.tasks.images import image_batches

    batches = image_batches.batches(*task.heldout_examples(num_clients), batch_size)
    return tf.data.Dataset.from_generator(
        lambda: batches, output_signature=image_batches.element_spec()
    )
