"""The documentation site: its pages, what they are made from, and the check of the built HTML.

The gate of .ci/run builds the site, with warnings as errors, and checks what was built.
"""

import re

import griffe
import pytest

import dpfl
from dpfl.cli import catalogue
from dpfl.mechanisms import registry
from scripts.site import (
    api_pages,
    check,
    command_pages,
    griffe_comments,
)
from tests import paths


@pytest.mark.standard
def test_public_names_are_those_of_the_package():
    names = set(api_pages.public_names())
    assert {f'dpfl.{name}' for name in dpfl.__all__ if not name.startswith('_')} <= names
    kinds = {kind.__name__ for kind in registry.TYPES.values()}
    assert {f'dpfl.mechanisms.{kind}' for kind in kinds} <= names
    assert {'dpfl.errors', 'dpfl.errors.ArgumentError', 'dpfl.simulation.training.train'} <= names
    assert not any(part.startswith('_') for name in names for part in name.split('.'))


@pytest.fixture(scope='module')
def tree():
    """The package as mkdocstrings reads it."""
    extensions = griffe.load_extensions(griffe_comments.Comments)
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
    for name in api_pages.public_names():
        found = _member(tree, name)
        found = found.final_target if found.is_alias else found
        if found.is_function and found.docstring is not None:
            arguments = {each.name.lstrip('*') for each in found.parameters}
            stated = {each.strip('*') for each in _documented_arguments(found)}
            wrong += [f'{name}: {each}' for each in sorted(stated - arguments)]
    assert wrong == []


@pytest.fixture(scope='module')
def commands():
    return command_pages.read()


@pytest.mark.standard
def test_every_command_has_a_page_with_its_flags(commands):
    pages = command_pages.pages(commands)
    names = [*catalogue.binaries(), *catalogue.studies()]
    assert [command['name'] for command in commands] == names
    for command in commands:
        page = pages[f'{command_pages.FOLDER}/{command["name"]}.md']
        for flag in command['flags']:
            assert page.count(f'{{ #{flag["name"]} }}') == 1 and flag['help']


@pytest.mark.standard
def test_flags_have_their_types_bounds_and_defaults(commands):
    (train,) = [command for command in commands if command['name'] == 'train']
    flags = {flag['name']: flag for flag in train['flags']}
    assert flags['rounds']['kind'] == 'integer ≥ 1'
    assert flags['vocabulary_delta']['kind'] == 'number > 0 and < 1'
    assert flags['resume']['default'] == 'false' and flags['ray']['default'] is None
    assert 'blt' in flags['mechanism']['choices']


def _problems(folder, **files):
    for name, text in files.items():
        (folder / name.replace('__', '.')).write_text(text)
    wrong = [*check._wrong_links(folder), *check._external(folder)]
    check._read.cache_clear()
    return wrong


def test_dead_links_and_anchors_are_found(tmp_path):
    page = '<a href="b.html#there"></a><a href="{}"></a><img src="{}">'
    other = '<h1 id="there"></h1>'
    fine = page.format('#', 'b.html')
    assert _problems(tmp_path, a__html=fine.replace('#"', 'b.html"'), b__html=other) == []
    (wrong,) = _problems(tmp_path, a__html=page.format('b.html#not', 'b.html'))
    assert 'no such anchor' in wrong
    (wrong,) = _problems(tmp_path, a__html=page.format('c.html', 'b.html'))
    assert 'does not exist' in wrong
    (wrong,) = _problems(tmp_path, a__html=page.format('https://a.b/', 'no.png'))
    assert 'does not exist' in wrong


@pytest.mark.parametrize(
    'name, text',
    [
        ('a__html', '<script src="https://a.b/c.js"></script>'),
        ('a__html', '<link rel="stylesheet" href="//a.b/c.css">'),
        ('a__html', '<img src="http://a.b/c.png">'),
        ('a__css', '@font-face{src:url(https://a.b/c.woff)}'),
        ('a__css', '@import "//a.b/c.css";'),
        ('a__js', 'load("https://a.b/c.js")'),
        ('a__js', 'load(`//cdn.a.b/c.js`)'),
    ],
)
def test_what_is_external_is_found(tmp_path, name, text):
    found = _problems(tmp_path, **{name: text})
    assert any('loads' in each for each in found)


def test_names_and_comments_in_scripts_are_not_external(tmp_path):
    text = '/* https://a.b/ */ // http://a.b/\nx("http://www.w3.org/2000/svg", "//")'
    assert _problems(tmp_path, a__js=text, b__html='<a href="https://a.b/">x</a>') == []
