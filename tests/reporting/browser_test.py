"""The report in a real browser: it prints on three pages, and fits a narrow screen.

Needs Chromium, which Debian has as a package. With `DPFL_SCREENSHOTS=FOLDER` it leaves pictures
there: the first screen at 1280 and 400 pixels, and the printed pages.
"""

import html
import os
import pathlib
import re

import numpy as np
import pytest

from dpfl import ParticipationLog, accounting
from dpfl.accounting.measured import sums
from dpfl.accounting.measured.measured import Measured, Scores
from dpfl.reporting import privacy_page
from tests import browser
from tests.accounting import plans

_MOST_PAGES = 3
# The widths in which a screen is looked at; a window of the browser has at least 500.
_WIDTHS = (1280, 400)
_FRAME = """<body style="margin: 0"><iframe id="page" srcdoc="{page}"
style="width: {width}px; height: 850px; border: 0" onload="document.title =
document.getElementById('page').contentDocument.documentElement.scrollWidth"></iframe></body>"""


def _measured(plan: accounting.PrivacyPlan) -> Measured:
    took_part = np.arange(200) % 2 == 0
    cosines = np.random.default_rng(0).standard_normal((2, 200)) / 100
    pattern = np.zeros((1, 6), bool)
    pattern[0, [0, 3]] = True
    tests = sums.SumTests(6, (500, 500), 'done', dict.fromkeys(sums.CLIP_FAULTS, 1.0), ())
    scores = Scores(took_part, np.full(200, 2), *cosines, 10**4, pattern=pattern, sums=tests)
    return Measured.of(scores, plan, 1e-6, 'pld')


def _report(plan: accounting.PrivacyPlan, cohorts=None, **values) -> accounting.PrivacyReport:
    log = None if cohorts is None else ParticipationLog(cohorts)
    about = accounting.About('2026-11-23', '0.1.0', 'user_text', 'small', 1_234_567)
    return plans.report(plan, log=log, about=about, with_tradeoff=True, **values)


_KEPT = [[0, 1], [2, 3], [4, 5], [0, 6], [1, 2], [3, 4]]
_REPORTS = {
    'audited': _report(plans.plan(), _KEPT, accountant='pld', measured=_measured(plans.plan())),
    'broken': _report(plans.plan(), [[0], [0], [0], [0]]),
    'simulation': _report(plans.plan(), _KEPT, noise_is_seeded=True),
    'planned': _report(plans.plan()),
    'sampled': _report(plans.sampled('poisson'), accountant='rdp'),
    'silent': _report(plans.plan(noise_multiplier=0.0), _KEPT),
}
_ROWS = [
    {'round': t, 'accuracy': 0.3 * (1 - 0.5**t), 'loss': 4.5 - 0.3 * t, 'epsilon': t**0.5}
    for t in range(1, 7)
]
_REFERENCES = {'unigram_accuracy': 0.116, 'bigram_accuracy': 0.337}


@pytest.mark.exhaustive
@pytest.mark.skipif(browser.BROWSER is None, reason='there is no chromium')
@pytest.mark.parametrize('name', _REPORTS)
def test_a_report_prints_on_three_pages_and_fits_a_narrow_screen(name, tmp_path):
    text = privacy_page.render(_REPORTS[name], rows=_ROWS, references=_REFERENCES)
    kept = pathlib.Path(os.environ.get('DPFL_SCREENSHOTS', tmp_path))
    page, printed = tmp_path / 'page.html', kept / f'{name}.pdf'
    page.write_text(text)
    browser.browse('--no-pdf-header-footer', f'--print-to-pdf={printed}', page=page)
    assert len(re.findall(rb'/Type\s*/Page\b', printed.read_bytes())) <= _MOST_PAGES
    for width in _WIDTHS:
        page.write_text(_FRAME.format(page=html.escape(text), width=width))
        dumped = browser.browse('--window-size=1280,850', '--dump-dom', page=page)
        assert int(re.findall('<title>(.*)</title>', dumped)[0]) <= width
        picture = kept / f'{name}_{width}.png'
        browser.browse(f'--window-size={max(500, width)},850', f'--screenshot={picture}', page=page)
        assert picture.stat().st_size
