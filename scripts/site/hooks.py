"""Hooks of MkDocs: pages made from other files, links to files of the repository, nothing external.

MkDocs calls the functions that begin with `on_`; mkdocs.yml names this file.
"""

import pathlib
import posixpath
import re
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# Pages that are files of the repository's root.
_PAGES = {'CONTRIBUTING.md': 'contributing.md', 'CHANGELOG.md': 'changelog.md'}
# Where the site has other files of the repository that pages link to.
_COPIES = 'repository'
_LINK = re.compile(r'(!?\[[^\]]*\])\(([^)\s]+)\)')
_FENCE = re.compile(r'(^ *```.*?^ *```)', re.DOTALL | re.MULTILINE)
# What the theme's script would load for diagrams, repositories and old browsers; no page needs it.
_EXTERNAL = re.compile(r'https://(?:unpkg\.com|api\.github\.com)/|https://\$\{\w+\}/api/v4/')


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are made, and the files that pages link to."""
    for source, page in _PAGES.items():
        text = _moved((_ROOT / source).read_text(), '', page)
        files.append(File.generated(config, page, content=text))
    for path in sorted(_linked(files)):
        copy = File.generated(config, f'{_COPIES}/{path}', abs_src_path=str(_ROOT / path))
        files.append(copy)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Makes links to files outside of docs/ links to their copies in the site."""
    if page.file.generated_by:
        return markdown
    return _moved(markdown, f'docs/{posixpath.dirname(page.file.src_uri)}', page.file.src_uri)


def on_post_build(config: Any) -> None:
    """Removes what the theme would load from the network."""
    for script in pathlib.Path(config.site_dir, 'assets').rglob('*.js'):
        text = script.read_text()
        local = _EXTERNAL.sub('data:,', text)
        if local != text:
            script.write_text(local)
    for source_map in pathlib.Path(config.site_dir, 'assets').rglob('*.map'):
        source_map.unlink()


def _moved(markdown: str, folder: str, page: str) -> str:
    """The text of a file in a folder of the repository, as that of a page: its links rewritten."""

    def link(match: re.Match[str]) -> str:
        target, mark, anchor = match[2].partition('#')
        if not target or re.match(r'[a-z]+:', target):
            return match[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        where = _in_site(path)
        return (
            f'{match[1]}({posixpath.relpath(where, posixpath.dirname(page) or ".")}{mark}{anchor})'
        )

    parts = _FENCE.split(markdown)
    return ''.join(part if index % 2 else _LINK.sub(link, part) for index, part in enumerate(parts))


def _in_site(path: str) -> str:
    """Where the site has a file of the repository."""
    if path in _PAGES:
        return _PAGES[path]
    if path == 'README.md':
        return 'index.md'
    if path.startswith('docs/'):
        return path.removeprefix('docs/')
    return f'{_COPIES}/{path}'


def _linked(files: Files) -> set[str]:
    """Files of the repository outside of docs/ that pages link to."""
    texts = [(f'docs/{posixpath.dirname(f.src_uri)}', f.content_string) for f in _written(files)]
    texts += [('', (_ROOT / source).read_text()) for source in _PAGES]
    found = set()
    for folder, text in texts:
        for _, target in _LINK.findall(_FENCE.sub('', text)):
            target = target.partition('#')[0]
            if target and not re.match(r'[a-z]+:', target):
                path = posixpath.normpath(posixpath.join(folder, target))
                if _in_site(path).startswith(f'{_COPIES}/'):
                    if not (_ROOT / path).is_file():
                        raise PluginError(f'{folder}: a link to {path}, which is no file')
                    found.add(path)
    return found


def _written(files: Files) -> list[File]:
    return [file for file in files.documentation_pages() if not file.generated_by]
