"""`SHA256SUMS`: digests of all files of a directory and its folders, as `sha256sum` writes them.

Links are never followed: the list holds only files that are in the directory itself.
"""

import hashlib
import os
import pathlib
import re
import stat

from dpfl import _files
from dpfl.accounting.records import signatures

NAME, SIGNATURE = 'SHA256SUMS', f'privacy_report.json{signatures.SUFFIX}'
_ESCAPES = {'\\': '\\\\', '\n': '\\n', '\r': '\\r'}
_UNESCAPED = {'\\\\': '\\', '\\n': '\n', '\\r': '\r'}


def walk(directory: pathlib.Path, without: str) -> tuple[dict[str, pathlib.Path], dict[str, str]]:
    """The files of a directory and of its folders, and everything else in them.

    Args:
      directory: the directory.
      without: name of a folder in it that is left out.

    Returns:
      The files by their names in the list, sorted, without the list itself and the signature of the
      report, which comes later; and by name, what is wrong with links, sockets and the like.
    """
    files: dict[str, pathlib.Path] = {}
    others: dict[str, str] = {}

    def listed_as(path: pathlib.Path) -> str:
        # In names that are not UTF-8, the other bytes are listed as escapes.
        name = os.fsencode(path.relative_to(directory).as_posix())
        return name.decode('utf-8', 'backslashreplace')

    def cannot_be_read(error: OSError) -> None:
        others[listed_as(pathlib.Path(error.filename))] = f'cannot be read ({error.strerror})'

    for folder, folders, names in os.walk(directory, onerror=cannot_be_read):
        here = pathlib.Path(folder)
        if here == directory:
            folders[:] = [name for name in folders if name != without or (here / name).is_symlink()]
        for name in (*folders, *names):
            path = here / name
            listed, mode = listed_as(path), os.lstat(path).st_mode
            if listed in files:
                others[listed] = 'is the name of two files in the list'
            elif stat.S_ISLNK(mode):
                others[listed] = 'is a link; links are not followed, and no file of a run is one'
            elif stat.S_ISREG(mode):
                files[listed] = path
            elif not stat.S_ISDIR(mode):
                others[listed] = 'is neither a file nor a folder'
    files.pop(NAME, None)
    if SIGNATURE in files and os.lstat(files[SIGNATURE]).st_size == signatures.BYTES:
        del files[SIGNATURE]
    return dict(sorted(files.items())), others


def render(files: dict[str, pathlib.Path]) -> str:
    """The text of the list, for files by name."""
    lines = []
    for name, path in files.items():
        escaped = ''.join(_ESCAPES.get(letter, letter) for letter in name)
        mark = '' if escaped == name else '\\'
        lines.append(f'{mark}{sha256(path)}  {escaped}\n')
    return ''.join(lines)


def parse(text: str) -> dict[str, str]:
    """The digests by name that the text of a list holds.

    Raises:
      ValueError: if a line is not a digest and the name of a file, or a name occurs twice.
    """
    digests: dict[str, str] = {}
    lines = text.split('\n')  # Not `splitlines`: it also cuts at characters that a name may have.
    for number, line in enumerate(lines[:-1] if lines[-1] == '' else lines, 1):
        digest, separator, name = line.removeprefix('\\').partition('  ')
        if line.startswith('\\'):
            name = re.sub(r'\\[nr\\]', lambda match: _UNESCAPED[match[0]], name)
        is_digest = len(digest) == 64 and not set(digest) - set('0123456789abcdef')
        parts = pathlib.PurePosixPath(name).parts
        is_inside = bool(parts) and not name.startswith('/') and '..' not in parts
        if not (separator and is_digest and is_inside) or name in digests:
            raise ValueError(f'line {number} is not a digest and the name of another file')
        digests[name] = digest
    return digests


def sha256(path: pathlib.Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with _files.open_regular(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
