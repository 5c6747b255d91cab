"""Pages and tables: all that a report says, rounded up, and nothing loaded from elsewhere."""

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.reporting import choice_page, html_parts, plain_text, privacy_page
from tests.accounting import plans

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
    root = ElementTree.fromstring(html_parts.svg(figure))
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


def test_long_lines_have_few_titles():
    figure = Figure()
    figure.subplots().plot(np.arange(5_000.0))
    assert 100 < html_parts.svg(figure).count('<title>') <= 200


def test_a_page_is_light_or_dark_and_loads_nothing():
    page = html_parts.document('a < b', '<p>text</p>', '.own { color: var(--good); }')
    assert '<title>a &lt; b</title>' in page and 'prefers-color-scheme: dark' in page
    assert 'http' not in page and '.own' in page
    known = set(re.findall(r'(--[a-z-]+):', page))
    assert set(re.findall(r'var\((--[a-z-]+)\)', page)) <= known


@pytest.mark.standard
def test_the_page_has_every_candidate_with_its_figures_and_its_verdict():
    schema = Participation(24, 8, 3)
    candidates = mechanisms.choose(schema, dimension=1_000_000, memory_limit=0.02)[1]
    page = choice_page.render(candidates, schema)
    assert f'Taken: <strong>{candidates[0].name}</strong>' in page
    assert 'at most 3 times, at least 8 rounds apart' in page
    for candidate in candidates:
        assert f'<td>{candidate.name}</td>' in page and candidate.verdict in page
        if candidate.loss is not None:
            assert f'<td>{candidate.loss:.4g}</td><td>{candidate.above_bound:.1%}</td>' in page
    assert any(candidate.loss is None for candidate in candidates)  # BandMF does not fit.
    assert '<script' not in page and 'http://www.w3.org' in page


def _report(log=None, accountant='rdp', about=None, **changes):
    return plans.report(plans.plan(**changes), log=log, accountant=accountant, about=about)


_LOG = ParticipationLog([[0, 1], [2, 3], [0, 4]])
_SAMPLED = dict(
    mechanism=mechanisms.Identity(6),
    participation=Participation(6),
    sampling=accounting.Poisson(population=10),
)


@pytest.mark.parametrize(
    ('report', 'figures'),
    [
        (_report(), 2),
        (_report(_LOG), 3),
        (_report(noise_multiplier=0.0), 0),
        (_report(**_SAMPLED), 2),
        (_report(accountant='pld', **_SAMPLED, group_size=2), 2),
        (_report().with_tradeoff(), 3),
    ],
)
def test_the_page_has_the_text_and_the_figures_and_loads_nothing(report, figures):
    page = privacy_page.render(report)
    assert page.count('<figure>') == page.count('</svg>') == figures
    assert page.startswith('<!DOCTYPE html>') and page.endswith('</html>\n')
    words = re.sub(r'\s+', ' ', re.sub(r'<[^>]*>', '', page))
    for sentence in report.to_dict()['not_covered']:
        text = sentence.replace('`', '')  # Names in backticks are <code> elements on the page.
        assert text.replace("'", '&#x27;') in words or text in words
    assert not re.search(r'\b(src|href)="(?!#)', page)
    assert '@import' not in page and 'url(http' not in page and '<script' not in page


@pytest.mark.parametrize('measured', ['accuracy', 'loss', None])
def test_the_course_of_a_run_is_drawn_and_what_the_guarantee_does_not_cover_is_named(measured):
    rows = [{'round': t, 'epsilon': t / 8} for t in (1, 2, 3)]
    rows += [{'round': 4, measured: 0.25}] if measured else []
    page = privacy_page.render(_report(_LOG), rows=rows, references={'unigram_accuracy': 0.125})
    assert 'round: 3\nepsilon so far: 0.375' in page
    assert (f'round: 4\n{measured}: 0.25' in page) == bool(measured)
    assert ('without noise: the guarantee does not cover it' in page) == bool(measured)
    assert ('most frequent word: 0.125' in page) == (measured == 'accuracy')


def test_the_first_screen_comes_first_and_the_glossary_last():
    page = privacy_page.render(_report(_LOG, about=accounting.About(task='a_task')))
    titles = re.findall('<h[12]>([^<]*)', page)
    assert titles[0].startswith('&epsilon; = ') and 'a_task' in page.partition('<h1>')[0]
    first = ['Who took part', 'What was checked', 'Not covered', 'Mechanism, noise and clip norm']
    assert titles[1:5] == first and titles[-1] == 'Glossary'


_NONE = 'none: there is no guarantee'


@pytest.mark.parametrize(
    'values, shown',
    [
        # Guarantees are rounded up as in the report.
        (
            {'rho': 0.028011, 'accuracy': 0.028011, 'rounds': 7},
            ['rho       0.02802', 'accuracy  0.02801', 'rounds    7'],
        ),
        (
            {'mu_claimed': 1.23411, 'epsilon_of_mu_lower': 1.23459, 'rhodium': 1.23411},
            [
                'mu_claimed           1.235',
                'epsilon_of_mu_lower  1.234',
                'rhodium              1.234',
            ],
        ),
        ({'rho': '-', 'b': '0.1'}, ['rho  -', 'b    0.1']),
        ({'delta': 1 / 3e6}, ['delta  3.33334e-07']),
        ({'sensitivity': 3.13011}, ['sensitivity  3.131']),
        ({'epsilon': None}, [f'epsilon  {_NONE}']),
        ({'epsilon': math.inf}, [f'epsilon  {_NONE}']),
        ({'rho': None, 'epsilon': None}, [f'rho      {_NONE}', f'epsilon  {_NONE}']),
        (
            {'rho': None, 'epsilon': 2.0},
            ['rho      none: the guarantee is known as epsilon only', 'epsilon  2'],
        ),
    ],
)
def test_a_table_of_values(values, shown):
    assert plain_text.table(values).splitlines() == shown


def test_columns_say_in_words_what_is_no_number():
    shown = plain_text.columns([{'a': None, 'b': math.inf, 'epsilon, all': 1.00001}])
    assert shown.split() == ['a', 'b', 'epsilon,', 'all', 'none', 'infinite', '1.001']
