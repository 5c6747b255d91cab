"""Where files of the repository are in the site, and links between them."""

import pathlib
import posixpath
import re
from collections.abc import Mapping

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Pages that are files of the repository's root.
PAGES = {'CONTRIBUTING.md': 'contributing.md', 'CHANGELOG.md': 'changelog.md'}
# Where the site has other files of the repository that pages link to.
COPIES = 'repository'
_LINK = re.compile(r'(!?\[[^\]]*\])\(([^)\s]+)\)')
# A link text that is the name of a file, as those who read the files like it.
_NAME = re.compile(r'\[`?[\w/]+\.md`?\]')
_FENCE = re.compile(r'(^ *```.*?^ *```)', re.DOTALL | re.MULTILINE)


def in_site(path: str) -> str:
    """Where the site has a file of the repository."""
    if path == 'README.md':
        return 'index.md'
    if path.startswith('docs/'):
        return path.removeprefix('docs/')
    return PAGES.get(path, f'{COPIES}/{path}')


def moved(markdown: str, folder: str, page: str, titles: Mapping[str, str] | None = None) -> str:
    """The text of a file in a folder of the repository, as that of a page: its links rewritten.

    Args:
      markdown: the text.
      folder: where it is in the repository.
      page: place of the page in docs/.
      titles: titles of pages by their places, in place of link texts that are names of files.
    """

    def link(match: re.Match[str]) -> str:
        target, mark, anchor = match[2].partition('#')
        if not target or _is_address(target):
            return match[0]
        place = in_site(posixpath.normpath(posixpath.join(folder, target)))
        relative = posixpath.relpath(place, posixpath.dirname(page) or '.')
        is_name = _NAME.fullmatch(match[1]) is not None
        text = f'[{titles[place]}]' if titles and is_name and place in titles else match[1]
        return f'{text}({relative}{mark}{anchor})'

    parts = _FENCE.split(markdown)
    return ''.join(part if index % 2 else _LINK.sub(link, part) for index, part in enumerate(parts))


def targets(markdown: str, folder: str) -> set[str]:
    """Files of the repository that the text of a file in `folder` links to."""
    found = (target.partition('#')[0] for _, target in _LINK.findall(_FENCE.sub('', markdown)))
    return {
        posixpath.normpath(posixpath.join(folder, target))
        for target in found
        if target and not _is_address(target)
    }


def _is_address(target: str) -> bool:
    return re.match(r'[a-z]+:', target) is not None
