"""Hooks of MkDocs: pages of commands and tutorials, links of mentions, nothing external.

MkDocs calls the functions that begin with `on_`; mkdocs.yml names this file.
"""

import functools
import html
import pathlib
import posixpath
import re
import shutil
from typing import Any

import nbformat
from mkdocs.structure.files import File, Files

from scripts import tutorials
from scripts.site import commands

# What the theme's script would load for diagrams, repositories and old browsers; no page needs it.
_EXTERNAL = re.compile(r'https://(?:unpkg\.com|api\.github\.com)/|https://\$\{\w+\}/api/v4/')
_REFERENCES = 'papers/references.md'
_KEY = r'[A-Z][a-z]+(?:[A-Z][a-z]+)?\d{2}(?:-[a-z]+)?'
# Docstrings name pages as docs/choosing.md, and everything cites papers as [Xu23], section 2.
_MENTION = re.compile(rf'docs/(?P<page>[\w/]+\.md)|\[(?P<key>{_KEY})(?=[,\]])')
_TAG = re.compile(r'(<[^>]*>)')
# Tags whose text stays as it is.
_OPAQUE = re.compile(r'<(/?)(a|code|pre|script|style|h1|svg)\b')


def on_files(files: Files, config: Any) -> Files:
    """Adds the page of the commands, and those of the tutorials with their notebooks."""
    files.append(File.generated(config, commands.PAGE, content=commands.page()))
    for name in tutorials.names():
        page = f'tutorials/{name}.md'
        files.append(File.generated(config, page, content=tutorials.page(name)))
        notebook = nbformat.writes(tutorials.notebook(name))
        files.append(File.generated(config, f'tutorials/{name}.ipynb', content=notebook))
    return files


def on_page_content(content: str, page: Any, files: Files, **_: Any) -> str:
    """Makes links of the keys of papers, and of the pages that docstrings name."""
    place = page.file.src_uri
    if place == _REFERENCES:
        return re.sub(rf'<td>\[({_KEY})\]</td>', _anchored, content)
    depth, parts = 0, []
    for part in _TAG.split(content):
        tag = _OPAQUE.match(part)
        if tag:
            depth += -1 if tag[1] else 1
        if not depth and not part.startswith('<'):
            part = _MENTION.sub(functools.partial(_link, place=place, files=files), part)
        parts.append(part)
    return ''.join(parts)


def on_post_build(config: Any) -> None:
    """Removes what the theme would load from the network, and search in other languages."""
    for script in pathlib.Path(config.site_dir, 'assets').rglob('*.js'):
        script.write_text(_EXTERNAL.sub('data:,', script.read_text()))
    shutil.rmtree(pathlib.Path(config.site_dir, 'assets/javascripts/lunr'))


def _anchored(match: re.Match[str]) -> str:
    return f'<td id="{match[1].lower()}">[{match[1]}]</td>'


def _link(match: re.Match[str], place: str, files: Files) -> str:
    key = match['key']
    file = files.get_file_from_path(_REFERENCES if key else match['page'])
    if file is None:
        return match[0]
    target = posixpath.relpath(file.dest_uri, posixpath.dirname(place) or '.')
    if key:
        return f'[<a href="{target}#{key.lower()}">{key}</a>'
    return f'<a href="{target}">{html.escape(match["page"])}</a>'
