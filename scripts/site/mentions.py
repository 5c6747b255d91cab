"""Links in the HTML of a page where its text mentions a page or a paper.

Docstrings and help texts name pages as `docs/how_to/several_machines.md`, and papers by keys such
as `[Xu23]`, which docs/papers/references.md resolves.
"""

import html
import posixpath
import re
from collections.abc import Mapping

_REFERENCES = 'papers/references.md'
_KEY = r'[A-Z][a-z]+(?:[A-Z][a-z]+)?\d{2}(?:-[a-z]+)?'
_MENTION = re.compile(rf'docs/(?P<page>[\w/]+\.md)|\[(?P<key>{_KEY})(?P<place>,[^\]]*)?\]')
_TAG = re.compile(r'(<[^>]*>)')
# Tags whose text stays as it is.
_OPAQUE = re.compile(r'<(/?)(a|code|pre|script|style|h1|svg)\b')


def linked(content: str, page: str, titles: Mapping[str, str]) -> str:
    """The HTML with links in place of mentions.

    Args:
      content: HTML of a page.
      page: its place in docs/.
      titles: titles of all pages, by their places in docs/.
    """
    if page == _REFERENCES:
        return re.sub(rf'<td>\[({_KEY})\]</td>', _anchor, content)
    depth, parts = 0, []
    for part in _TAG.split(content):
        tag = _OPAQUE.match(part)
        if tag:
            depth += -1 if tag[1] else 1
        if not depth and not part.startswith('<'):
            part = _MENTION.sub(lambda match: _link(match, page, titles), part)
        parts.append(part)
    return ''.join(parts)


def anchor(key: str) -> str:
    """The anchor of a key in the page of references."""
    return key.lower()


def _anchor(match: re.Match[str]) -> str:
    return f'<td id="{anchor(match[1])}">[{match[1]}]</td>'


def _link(match: re.Match[str], page: str, titles: Mapping[str, str]) -> str:
    if match['key']:
        target = f'{_relative(_REFERENCES, page)}#{anchor(match["key"])}'
        return f'[<a href="{target}">{match["key"]}</a>{match["place"] or ""}]'
    title = titles.get(match['page'])
    if title is None:
        return match[0]
    return f'<a href="{_relative(match["page"], page)}">{html.escape(title)}</a>'


def _relative(target: str, page: str) -> str:
    path = posixpath.relpath(target, posixpath.dirname(page) or '.')
    return path.removesuffix('.md') + '.html'
