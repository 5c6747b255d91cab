"""Targets: data and models whose readers need TensorFlow."""

import json
import pathlib
import tempfile

import numpy as np

from dpfl import errors
from dpfl.accounting.records import archive
from dpfl.errors import DataError
from dpfl.simulation.training import run_model
from dpfl.tasks.images import emnist
from dpfl.tasks.text import client_texts
from dpfl.tasks.text.models import saved_models
from tests.attacks.hostile.campaign import Target
from tests.tasks import sqlite_files


def _database(splits, example) -> list[dict[str, bytes]]:
    """The file of six clients, in two splits in turn, with two examples each."""
    with tempfile.TemporaryDirectory() as folder:
        parts = [(splits[i % 2], f'c{i}', [example(i), example(i + 1)]) for i in range(6)]
        path = sqlite_files.write(pathlib.Path(folder, 'data.sqlite'), parts)
        return [{path.name: path.read_bytes()}]


def stackoverflow() -> Target:
    def read(folder):
        path = folder / 'data.sqlite'
        data = client_texts.open_stackoverflow(path, 0.3)
        json.dumps(data.description)
        for part in filter(None, (data.training, data.heldout, data.test)):
            for client in range(part.count):
                list(part.sentences(client))

    examples = _database(('train', 'heldout'), lambda i: sqlite_files.of_sentence(f'words of {i}'))
    return Target(examples, read, (ValueError, DataError))


def images() -> Target:
    def read(folder):
        found = emnist.EmnistFile(folder / 'data.sqlite')
        for writer in found.writers:
            found.read(writer)

    pixels = np.linspace(0, 1, 784)
    examples = _database(('all_train', 'all_test'), lambda i: sqlite_files.of_image(pixels, i))
    return Target(examples, read, (DataError,))


def saved_model() -> Target:
    """Only the description and the small files beside the weights vary."""
    name = next(iter(saved_models.CHAR_MODELS))
    shapes = saved_models.ALL[name].weight_shapes(7)
    weights = tuple(np.ones(shape, np.float32) for shape in shapes.values())
    with tempfile.TemporaryDirectory() as folder:
        whole = pathlib.Path(folder, 'model')
        saved_models.save(saved_models.LanguageModel(name, weights), whole)
        files = (path for path in whole.rglob('*') if path.is_file())
        example = {path.relative_to(whole).as_posix(): path.read_bytes() for path in files}
    return Target([example], saved_models.load)


def model_weights() -> Target:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, archive.MODEL)
        np.savez(path, **{str(i): np.arange(i + 1, dtype=np.float32) for i in range(3)})
        examples = [{archive.MODEL: path.read_bytes()}]
    return Target(examples, run_model.weights, (errors.RunError,))


TARGETS = (stackoverflow, images, saved_model, model_weights)
