"""The table of docs/reference/threat_model.md: what files of a run reveal, and who may see them."""

import fnmatch
import pathlib
import re

from tests import paths

_PAGE = paths.ROOT / 'docs' / 'reference' / 'threat_model.md'


def table() -> dict[str, str]:
    """For whom files are, by the patterns of their names."""
    rows = re.findall(r'^\| `([^`]+)` \|.*\| ([^|]+) \|$', _PAGE.read_text(), re.MULTILINE)
    return {name: reader for name, reader in rows if name != 'file'}


def readers(path: pathlib.Path) -> dict[str, str | None]:
    """For whom each file of a run is, by its name; None where the table does not name it."""
    patterns = table()
    found = {}
    for file in sorted(path.rglob('*')):
        if not file.is_dir():
            name = file.relative_to(path).as_posix()
            matching = [each for each in patterns if fnmatch.fnmatchcase(name, each)]
            found[name] = patterns[matching[0]] if len(matching) == 1 else None
    return found


def shared_by_mistake(path: pathlib.Path) -> list[str]:
    """Files of a run that the table does not name, or that others may read though it is not so."""
    return [
        name
        for name, reader in readers(path).items()
        if reader is None or reader.startswith('owner') and not _is_closed(path, name)
    ]


def _is_closed(path: pathlib.Path, name: str) -> bool:
    """Whether only the owner reads a file: by its permissions, or those of a folder of the run."""
    parts = pathlib.PurePosixPath(name).parts
    steps = [path.joinpath(*parts[: length + 1]) for length in range(len(parts))]
    return any(not step.stat().st_mode & 0o077 for step in steps)
