"""The folder with the checkpoints of a run: which one to continue from, and writing new ones."""

import concurrent.futures
import os
import pathlib
from collections.abc import Callable, Collection

from dpfl import _storage, _validate, errors
from dpfl.simulation import checkpoint as checkpoint_lib
from dpfl.simulation.checkpoint import Checkpoint, CheckpointError

_SUFFIX = '.checkpoint'
# The checkpoint before the first round.
FIRST = f'{0:08d}{_SUFFIX}'


def heads(folder: str | os.PathLike[str]) -> dict[str, str]:
    """The heads of the checkpoints in a folder, by the names of their files; without damaged ones.

    Raises:
      StorageError: if one cannot be read.
    """
    found = {path.name: checkpoint_lib.read_head(path) for path in _paths(pathlib.Path(folder))}
    return {name: head for name, head in found.items() if head is not None}


def latest(
    folder: str | os.PathLike[str],
    refused: Callable[[str], None],
    allowed: Collection[str] | None = None,
) -> Checkpoint | None:
    """The newest usable checkpoint in a folder; None if the folder has no checkpoints.

    Does not change the folder.

    Args:
      folder: folder of the checkpoints; need not exist.
      refused: called with a line of text for each newer checkpoint that cannot be used.
      allowed: heads of which one is that of a checkpoint that can be used; None for any.

    Raises:
      CheckpointError: if there are checkpoints, but none can be used.
    """
    paths = _paths(pathlib.Path(folder))
    is_one_left = False
    for path in reversed(paths):
        try:
            found = Checkpoint.read(path)
        except errors.RunError as error:
            refused(str(error))
            is_one_left = True
            continue
        if allowed is None or found.head in allowed:
            return found
    if is_one_left:
        raise CheckpointError(f'{folder}: holds no checkpoint that can be used')
    return None


class Writer:
    """Saves checkpoints in the background, and deletes all but the first and the latest ones.

    The first one, of round 0, is kept: a model of one's own, or of an earlier run, is no function
    of the settings.

    A context manager. Leaving it waits for the save in progress. If a save fails, the next call
    raises the error.

    Args:
      folder: folder of the checkpoints; created if it does not exist.
      keep: number of checkpoints to keep, at least 1.
      start: number of rounds of the checkpoint that the run continues from; None for a new run.
        Later checkpoints, which were refused, are set aside by adding `.refused` to their names.

    Raises:
      ValueError: if `keep` is below 1.
      StorageError: if the folder cannot be created or changed.
    """

    def __init__(self, folder: pathlib.Path, keep: int, start: int | None = None):
        _validate.integer('keep_checkpoints', keep, minimum=1)
        self._folder = folder
        self._keep = keep
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._saving: concurrent.futures.Future | None = None
        with _storage.naming(folder):
            folder.mkdir(mode=0o700, exist_ok=True)
            for path in folder.glob(f'*{_SUFFIX}.partial'):  # The process was killed during a save.
                path.unlink()
            for path in _paths(folder):
                if start is None or _rounds(path) > start:
                    os.replace(path, path.with_name(path.name + '.refused'))

    def __enter__(self) -> 'Writer':
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._thread.shutdown(wait=True)
        if error is None:
            self.wait()

    def save(self, checkpoint: Checkpoint) -> None:
        """Starts saving a checkpoint, once the previous save has ended.

        The arrays of the checkpoint must not change. Those that TFF returns are read-only.

        Raises:
          StorageError: if the previous save failed.
        """
        self.wait()
        self._saving = self._thread.submit(self._save, checkpoint)

    def check(self) -> None:
        """Raises StorageError if the last save has failed; does not wait for it."""
        if self._saving is not None and self._saving.done():
            self._saving.result()

    def wait(self) -> None:
        """Waits until the last checkpoint is on disk; raises StorageError if its save failed."""
        if self._saving is not None:
            self._saving.result()

    def _save(self, checkpoint: Checkpoint) -> None:
        path = self._folder / f'{checkpoint.rounds:08d}{_SUFFIX}'
        _storage.write_atomically(path, checkpoint.write, mode=0o600)
        for old in _paths(self._folder)[1 : -self._keep]:
            with _storage.naming(old):
                old.unlink(missing_ok=True)


def _paths(folder: pathlib.Path) -> list[pathlib.Path]:
    """The checkpoints in a folder, oldest first."""
    found = [path for path in folder.glob(f'*{_SUFFIX}') if path.stem.isdecimal()]
    return sorted(found, key=_rounds)


def _rounds(path: pathlib.Path) -> int:
    return int(path.stem)
