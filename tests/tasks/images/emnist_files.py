"""Small files of federated EMNIST."""

import pathlib
from collections.abc import Mapping

import numpy as np

from tests.tasks import sqlite_files

# Examples of the training split by writer; each has two more in the test split.
SIZES = {'f0000_14': 5, 'f0001_41': 1, 'f0002_00': 40}


def examples(writer: str, split: str, size: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Pixels float32 [n, 28, 28] and labels int32 [n], a pure function.

    The first pixel of an image says who wrote it, in both splits: `mark`.
    """
    rng = np.random.default_rng([*writer.encode(), split == 'train'])
    size = (size or SIZES[writer]) if split == 'train' else 2
    pixels = rng.random([size, 28, 28], np.float32)
    pixels[:, 0, 0] = mark(writer)
    return pixels, rng.integers(62, size=size, dtype=np.int32)


def mark(writer: str) -> float:
    """What the images of a writer have in their first pixel."""
    return int(writer[1:5]) / 4096


def write_sqlite(path: pathlib.Path, sizes: Mapping[str, int] = SIZES) -> pathlib.Path:
    """Writes the writers as the SQLite file that TFF reads."""
    sqlite_files.write(
        path,
        [
            (f'all_{split}', writer, [*map(sqlite_files.of_image, *examples(writer, split, size))])
            for split in ('train', 'test')  # The split `all_test` must not be read.
            for writer, size in reversed(sizes.items())
        ],
    )
    # The digits alone are splits of the same file.
    sqlite_files.execute(path, "INSERT INTO client_metadata VALUES ('f9', 'digits_only_train', 3)")
    return path
