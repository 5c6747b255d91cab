"""Keeps the data of figures on disk, so that a second call only draws them.

An entry is used by exactly the code that computed it: its key has a digest of all files of `dpfl`
and the versions of the libraries for numbers. Only computed numbers are kept, never whether they
match. The directory is that of the optimisers' results (`dpfl.mechanisms.optimize.cache`); without
one, nothing is kept.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import tempfile

import dpfl
from dpfl import _files
from dpfl.mechanisms.optimize import cache
from dpfl.published.figures.drawn import Drawn, Recipe

_LIBRARIES = ('numpy', 'scipy', 'dp-accounting')
_SOURCES = pathlib.Path(dpfl.__file__).parent


def drawn(recipe: Recipe) -> Drawn:
    """The data of a figure: kept ones if there are any, else computed and kept."""
    directory = cache.cache_directory()
    if directory is None or not recipe.is_kept:
        return recipe.compute()
    key = hashlib.sha256(f'{recipe.name} {_sources()}'.encode()).hexdigest()
    path = directory / f'figure-{key}.json'
    known = _read(path)
    if known is not None:
        return known
    computed = recipe.compute()
    # On a full disk, or in a directory without write permission, the result is still returned.
    with contextlib.suppress(OSError):
        _write(path, _sealed(json.dumps(computed.to_dict())))
    return computed


@functools.cache
def _sources() -> str:
    """Digest of everything that the numbers depend on."""
    digest = hashlib.sha256()
    for name in _LIBRARIES:
        digest.update(f'{name} {importlib.metadata.version(name)}\n'.encode())
    for path in sorted(_SOURCES.rglob('*')):
        if path.suffix in ('.py', '.json', '.npz'):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f'{path.relative_to(_SOURCES)} {content}\n'.encode())
    return digest.hexdigest()


def _sealed(text: str) -> str:
    """The text after a line with its digest, so that a damaged entry is not used."""
    return f'{hashlib.sha256(text.encode()).hexdigest()}\n{text}'


def _read(path: pathlib.Path) -> Drawn | None:
    try:
        content = _files.read_text(path)
    except (OSError, ValueError):
        return None
    text = content.partition('\n')[2]
    return Drawn.from_dict(json.loads(text)) if content == _sealed(text) else None


def _write(path: pathlib.Path, text: str) -> None:
    """Writes an entry under a temporary name first, so that readers see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix='.unfinished-')
    try:
        with os.fdopen(handle, 'w', encoding='utf-8') as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
