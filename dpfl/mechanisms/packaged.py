"""The strategies that are installed with the package, by name: files in dpfl/strategies."""

import os
import pathlib

from dpfl import errors

FOLDER = pathlib.Path(__file__).parents[1] / 'strategies'


def names() -> tuple[str, ...]:
    """Names of all strategies of the package, sorted.

    Example:
      >>> 'blt_b400' in names()
      True
    """
    return tuple(sorted(path.stem for path in FOLDER.glob('*.npz')))


def path(name_or_path: str | os.PathLike[str]) -> pathlib.Path:
    """The file of a strategy: one that exists, or the packaged one of that name.

    Raises:
      ArgumentError: if it is a mere name, and there is neither a file nor a strategy of that name.
    """
    given = pathlib.Path(name_or_path)
    is_name = given.name == str(name_or_path) and given.suffix != '.npz'
    if not is_name or given.is_file():
        return given
    if given.name not in names():
        raise errors.ArgumentError(
            'path', name_or_path, f'must be a file or one of {", ".join(names())}'
        )
    return FOLDER / f'{given.name}.npz'
