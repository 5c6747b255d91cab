"""Checks a built site: links and anchors lead somewhere, and nothing is external.

MkDocs checks the links of the pages that are written; this checks the HTML, so also docstrings,
help texts, images and what the theme adds. It needs no network.

Run: python -m scripts.site.check site
"""

import functools
import html.parser
import pathlib
import re
import sys
import urllib.parse
from collections.abc import Iterator

# Where a style or a script names an address: in a string or in url(...), not in a comment. What
# begins with www.w3.org is a name of XML.
_ADDRESS = re.compile(r'(?:["\'`]|url\()\s*((?:https?:)?//(?!www\.w3\.org/)[\w-]+\.[\w./@-]+)')
# What a browser loads by itself, by tag; of every other tag, its `src`.
_LOADED = {'link': 'href', 'object': 'data'}


class _Page(html.parser.HTMLParser):
    """What a page links to and loads, and the anchors it has."""

    def __init__(self) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {values[name] or '' for name in ('id', 'name') if name in values}
        target = values.get(_LOADED.get(tag, 'src'))
        if target:
            self.loads.add(target)
        if tag == 'a' and values.get('href'):
            self.links.add(values['href'] or '')


def _wrong_links(site: pathlib.Path) -> Iterator[str]:
    for path in sorted(site.rglob('*.html')):
        place, page = path.relative_to(site), _read(path)
        for target in sorted(page.loads | page.links):
            parts = urllib.parse.urlsplit(target)
            if target in page.loads and (parts.netloc or parts.scheme in ('http', 'https')):
                yield f'{place}: loads {target}'
            if parts.scheme or parts.netloc:
                continue
            if place.name == '404.html' and parts.path.startswith('/'):
                continue  # Shown by a server, at any address.
            file = path.parent / urllib.parse.unquote(parts.path) if parts.path else path
            if not file.is_file():
                yield f'{place}: a link to {target}, which does not exist'
            elif parts.fragment and file.suffix == '.html' and not _has(file, parts.fragment):
                yield f'{place}: a link to {target}, which has no such anchor'


def _has(path: pathlib.Path, anchor: str) -> bool:
    anchors = _read(path).anchors
    return anchor in anchors or urllib.parse.unquote(anchor) in anchors


@functools.cache
def _read(path: pathlib.Path) -> _Page:
    page = _Page()
    page.feed(path.read_text())
    return page


def _external(site: pathlib.Path) -> Iterator[str]:
    """Addresses in styles and scripts; the index of the search is text."""
    for path in sorted(site.rglob('*')):
        if path.suffix in ('.css', '.js') and path.parent.name != 'search':
            for address in sorted(set(_ADDRESS.findall(path.read_text()))):
                yield f'{path.relative_to(site)}: loads {address}'


if __name__ == '__main__':
    site = pathlib.Path(sys.argv[1])
    found = [*_wrong_links(site), *_external(site)]
    print('\n'.join(found))
    sys.exit(1 if found else 0)
