"""Pages load nothing, are light or dark, and figures show their values under the pointer."""

import re
from xml.etree import ElementTree

import numpy as np
from matplotlib.figure import Figure

from dpfl.reporting import html_page

_SVG = '{http://www.w3.org/2000/svg}'


def _figure() -> Figure:
    figure = Figure(figsize=(4, 3), layout='constrained')
    axes = figure.subplots()
    axes.plot([1, 2, 3], [0.5, 0.25, np.nan], marker='s', markersize=4, label='BLT & tree')
    axes.axhline(0.4)
    axes.bar([2.5], [0.3], width=0.5, color='none')
    axes.set(xlabel='round', ylabel='accuracy', xlim=(0, 4), ylim=(0, 1))
    return figure


def test_points_and_bars_have_their_values_where_they_are_drawn():
    figure = _figure()
    root = ElementTree.fromstring(html_page.svg(figure))
    circles = list(root.iter(f'{_SVG}circle'))
    texts = [each.find(f'{_SVG}title').text for each in circles]
    assert texts == [
        'BLT & tree\nround: 1\naccuracy: 0.5',
        'BLT & tree\nround: 2\naccuracy: 0.25',
    ]
    (bar,) = [each for each in root.iter(f'{_SVG}rect') if each.find(f'{_SVG}title') is not None]
    assert bar.find(f'{_SVG}title').text == 'round: 2.25 to 2.75\naccuracy: 0 to 0.3'
    # The markers that matplotlib drew are at the same places.
    uses = [each for each in root.iter(f'{_SVG}use') if 'y' in each.attrib]
    drawn = {(round(float(u.get('x')), 1), round(float(u.get('y')), 1)) for u in uses}
    for each in circles:
        x, y = float(each.get('cx')), float(each.get('cy'))
        assert min(abs(x - a) + abs(y - b) for a, b in drawn) < 0.21


def test_equal_figures_give_equal_text():
    assert html_page.svg(_figure()) == html_page.svg(_figure())


def test_long_lines_have_few_titles():
    figure = Figure()
    figure.subplots().plot(np.arange(5_000.0))
    assert 100 < html_page.svg(figure).count('<title>') <= 200


def test_a_page_is_light_or_dark_and_loads_nothing():
    page = html_page.document('a < b', '<p>text</p>', '.own { color: var(--good); }')
    assert '<title>a &lt; b</title>' in page and 'prefers-color-scheme: dark' in page
    assert 'http' not in page and '.own' in page
    known = set(re.findall(r'(--[a-z-]+):', page))
    assert set(re.findall(r'var\((--[a-z-]+)\)', page)) <= known
