"""The documentation site: its pages, what they are made from, and the check of the built HTML.

The gate of .ci/run builds the site, with warnings as errors, and checks what was built.
"""

import html
import importlib
import itertools
import json
import os
import re
import subprocess
import sys

import griffe
import pytest

from dpfl.cli import catalogue
from scripts.site import check, griffe_settings
from tests import browser, paths
from tests.repository import command_flags

_NAMES = (paths.ROOT / 'docs' / 'reference' / 'public_names.md').read_text()
_SHOWN = re.findall(r'^::: (dpfl[\w.]*)$', _NAMES, re.MULTILINE)


def _exports():
    """Full names of what packages export, by package."""
    found = {}
    for path in (paths.ROOT / 'dpfl').rglob('__init__.py'):
        package = '.'.join(path.relative_to(paths.ROOT).parent.parts)
        names = getattr(importlib.import_module(package), '__all__', ())
        found[package] = [f'{package}.{name}' for name in names if not name.startswith('_')]
    return {package: names for package, names in found.items() if names}


@pytest.mark.standard
def test_what_packages_export_is_on_the_page_of_public_names():
    exports = _exports()
    assert set(exports) <= set(_SHOWN)
    assert sum(map(len, exports.values())) < 200


@pytest.fixture(scope='module')
def tree():
    """The package as mkdocstrings reads it."""
    extensions = griffe.load_extensions(griffe_settings.HelpTexts)
    loader = griffe.GriffeLoader(
        search_paths=[paths.ROOT],
        extensions=extensions,
        docstring_parser='google',
        docstring_options={'warnings': False},
        allow_inspection=False,
    )
    return loader.load('dpfl')


def _member(tree, name):
    return tree[name.removeprefix('dpfl').removeprefix('.')] if name != 'dpfl' else tree


def _documented_arguments(found):
    """Names under `Args:` of a docstring; a line may be about several."""
    for section in found.docstring.parsed:
        if section.kind is griffe.DocstringSectionKind.parameters:
            for argument in section.value:
                yield from re.split(r',\s*', argument.name)


@pytest.mark.standard
def test_documented_arguments_are_arguments(tree):
    wrong = []
    for name in itertools.chain(*_exports().values()):
        found = _member(tree, name)
        found = found.final_target if found.is_alias else found
        if found.is_function and found.docstring is not None:
            arguments = {each.name.lstrip('*') for each in found.parameters}
            stated = {each.strip('*') for each in _documented_arguments(found)}
            wrong += [f'{name}: {each}' for each in sorted(stated - arguments)]
    assert wrong == []


@pytest.mark.standard
def test_the_page_has_every_command_with_its_flags():
    # A process of its own: others of these tests have defined flags.
    code = 'from scripts.site import commands; print(commands.page())'
    page = subprocess.check_output([sys.executable, '-c', code], cwd=paths.ROOT, text=True)
    helps = command_flags.helps()
    assert [*helps] == [*catalogue.binaries(), *catalogue.studies()]
    for name, of_flags in helps.items():
        section = page.partition(f'\n## {name}\n')[2].partition('\n## ')[0]
        for flag, text in of_flags.items():
            assert re.search(rf'--(?:\[no\])?{flag}:', section) and text, (name, flag)


_PAGE = '<a href="b.html#there"></a><a href="{}"></a><img src="{}">'


@pytest.mark.parametrize(
    'name, text, wrong',
    [
        ('a.html', _PAGE.format('b.html', 'b.html'), ''),
        ('a.html', _PAGE.format('b.html#not', 'b.html'), 'no such anchor'),
        ('a.html', _PAGE.format('c.html', 'b.html'), 'does not exist'),
        ('a.html', _PAGE.format('https://a.b/', 'no.png'), 'does not exist'),
        ('a.html', '<script src="https://a.b/c.js"></script>', 'loads'),
        ('a.html', '<link rel="stylesheet" href="//a.b/c.css">', 'loads'),
        ('a.html', '<img src="http://a.b/c.png">', 'loads'),
        ('a.css', '@font-face{src:url(https://a.b/c.woff)}', 'loads'),
        ('a.css', '@import "//a.b/c.css";', 'loads'),
        ('a.js', 'load("https://a.b/c.js")', 'loads'),
        ('a.js', 'load(`//cdn.a.b/c.js`)', 'loads'),
        # Names and comments are not loaded.
        ('a.js', '/* https://a.b/ */ // http://a.b/\nx("http://www.w3.org/2000/svg", "//")', ''),
        ('a.html', '<a href="https://a.b/">x</a>', ''),
    ],
)
def test_dead_links_anchors_and_what_is_external_are_found(tmp_path, name, text, wrong):
    (tmp_path / 'b.html').write_text('<h1 id="there"></h1>')
    (tmp_path / name).write_text(text)
    found = [*check._wrong_links(tmp_path), *check._external(tmp_path)]
    check._read.cache_clear()
    assert len(found) == bool(wrong) and all(wrong in each for each in found)


# Puts into the title what is selected, and so copied, where a reader selects a block of code.
_SELECTIONS = """<script>window.addEventListener('load', () => {
  document.title = JSON.stringify([...document.querySelectorAll('article pre code')].map(block => {
    const selection = getSelection(), range = document.createRange();
    range.selectNodeContents(block);
    selection.removeAllRanges();
    selection.addRange(range);
    return selection.toString();
  }));
});</script></head>"""
_FENCED = re.compile(r'^( *)```[^\n]*\n(.*?)^\1```$', re.DOTALL | re.MULTILINE)


@pytest.mark.exhaustive
@pytest.mark.skipif(browser.BROWSER is None, reason='there is no chromium')
def test_blocks_of_code_are_copied_as_they_are_written(tmp_path):
    site, docs = tmp_path / 'site', paths.ROOT / 'docs'
    build = [sys.executable, '-m', 'mkdocs', 'build', '--quiet', f'--site-dir={site}']
    environment = {**os.environ, 'NO_MKDOCS_2_WARNING': 'true'}
    subprocess.run(build, cwd=paths.ROOT, env=environment, check=True)
    compared = 0
    for source in sorted(docs.rglob('*.md')):
        written = [
            re.sub(f'^{indent}', '', block, flags=re.MULTILINE).rstrip('\n')
            for indent, block in _FENCED.findall(source.read_text())
        ]
        page = site / source.relative_to(docs).with_suffix('.html')
        page.write_text(page.read_text().replace('</head>', _SELECTIONS))
        shown = browser.browse('--virtual-time-budget=3000', '--dump-dom', page=page)
        title = html.unescape(re.search('<title>(.*?)</title>', shown, re.DOTALL)[1])
        copied = [block.rstrip('\n') for block in json.loads(title)]
        assert [block for block in written if block not in copied] == [], source
        compared += len(written)
    assert compared > 100
