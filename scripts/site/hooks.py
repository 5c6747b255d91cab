"""Hooks of MkDocs: pages made from other files, links to files of the repository, nothing external.

MkDocs calls the functions that begin with `on_`; mkdocs.yml names this file.
"""

import functools
import pathlib
import posixpath
import re
import shutil
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from scripts.site import api_pages, command_pages, mentions, places, signatures

# What the theme's script would load for diagrams, repositories and old browsers; no page needs it.
_EXTERNAL = re.compile(r'https://(?:unpkg\.com|api\.github\.com)/|https://\$\{\w+\}/api/v4/')
# A cell of a table with so much text that it needs some width.
_LONG_CELL = re.compile(r'<td>(?=(?:(?!</td>).){80})', re.DOTALL)
# Code in a line of text, and its longest word that is not broken at a hyphen.
_INLINE_CODE = re.compile(r'<code>([^<]+)</code>')
_LONGEST_WORD = 40
_commands = functools.cache(command_pages.read)


def on_config(config: Any) -> Any:
    """Puts the pages that are made into the navigation, in place of the folders named there."""
    signatures.install()
    made = {
        f'{command_pages.FOLDER}/': command_pages.navigation(_commands()),
        f'{api_pages.FOLDER}/': api_pages.navigation(),
    }
    config.nav = _filled(config.nav, made)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are made, and the files that pages link to."""
    for source, page in places.PAGES.items():
        text = places.moved((places.ROOT / source).read_text(), '', page)
        files.append(File.generated(config, page, content=text))
    for page, text in (command_pages.pages(_commands()) | api_pages.pages()).items():
        files.append(File.generated(config, page, content=text))
    for path in sorted(_linked(files)):
        place = places.in_site(path)
        files.append(File.generated(config, place, abs_src_path=str(places.ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Makes links to files outside of docs/ links to their copies in the site."""
    return places.moved(markdown, _folder(page.file), page.file.src_uri, _titles(files))


def on_page_content(html: str, page: Any, files: Files, **_: Any) -> str:
    """Makes links of the papers' keys, and of the pages that docstrings and help texts name."""
    html = mentions.linked(html, page.file.src_uri, _titles(files))
    return _INLINE_CODE.sub(_whole, _LONG_CELL.sub('<td class="long">', html))


def on_post_build(config: Any) -> None:
    """Removes what the theme would load from the network."""
    for script in pathlib.Path(config.site_dir, 'assets').rglob('*.js'):
        text = script.read_text()
        local = _EXTERNAL.sub('data:,', text)
        if local != text:
            script.write_text(local)
    for source_map in pathlib.Path(config.site_dir, 'assets').rglob('*.map'):
        source_map.unlink()
    # Search in other languages than English.
    shutil.rmtree(pathlib.Path(config.site_dir, 'assets/javascripts/lunr'))


@functools.cache
def _titles(files: Files) -> dict[str, str]:
    """The first headings of all pages."""
    found = {}
    for file in files.documentation_pages():
        heading = re.search(r'^# (.+)$', file.content_string, re.MULTILINE)
        found[file.src_uri] = heading[1].replace('`', '') if heading else file.name
    return found


def _filled(entry: Any, made: dict[str, list[Any]]) -> Any:
    """A part of the navigation, with lists of pages in place of the names of folders."""
    if isinstance(entry, list):
        return [_filled(each, made) for each in entry]
    if isinstance(entry, dict):
        return {title: _filled(each, made) for title, each in entry.items()}
    return made.get(entry, entry)


def _whole(match: re.Match[str]) -> str:
    """Inline code whose words, such as flags, stay whole."""
    words = [
        f'<span class="whole">{word}</span>' if '-' in word and len(word) <= _LONGEST_WORD else word
        for word in match[1].split(' ')
    ]
    return f'<code>{" ".join(words)}</code>'


def _folder(file: File) -> str:
    """The folder of a page, as seen from the root of the repository."""
    return posixpath.join('docs', posixpath.dirname(file.src_uri))


def _linked(files: Files) -> set[str]:
    """Files of the repository outside of docs/ that pages link to."""
    written = [file for file in files.documentation_pages() if not file.generated_by]
    texts = [(_folder(file), file.content_string) for file in written]
    texts += [('', (places.ROOT / source).read_text()) for source in places.PAGES]
    found = set()
    for folder, text in texts:
        for path in places.targets(text, folder):
            if places.in_site(path).startswith(f'{places.COPIES}/'):
                if not (places.ROOT / path).is_file():
                    raise PluginError(f'{folder}: a link to {path}, which is no file')
                found.add(path)
    return found
