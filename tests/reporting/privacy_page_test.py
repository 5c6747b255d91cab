import re

import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.reporting import privacy_page


def _report(log=None, accountant='rdp', **changes):
    fields = dict(
        mechanism=mechanisms.Blt(6, [0.9, 0.4], [0.2, 0.3]),
        participation=Participation(6, 2, 3),
        clip_norm=0.5,
        noise_multiplier=4.0,
        clients_per_round=2,
    )
    plan = accounting.PrivacyPlan(**{**fields, **changes})
    return accounting.PrivacyReport.from_plan(plan, [1e-6], log=log, accountant=accountant)


_LOG = ParticipationLog([[0, 1], [2, 3], [0, 4]])
_SAMPLED = dict(
    mechanism=mechanisms.Identity(6),
    participation=Participation(6),
    sampling='poisson',
    population=10,
)


@pytest.mark.parametrize(
    'report, figures',
    [
        (_report(), 2),
        (_report(_LOG), 3),
        (_report(noise_multiplier=0.0), 0),
        (_report(**_SAMPLED), 2),
        (_report(accountant='pld', **_SAMPLED, group_size=2), 2),
        (_report().with_tradeoff(), 3),
    ],
)
def test_the_page_has_the_text_and_the_figures(report, figures):
    page = privacy_page.render(report)
    assert page.count('<figure>') == page.count('</svg>') == figures
    assert page.startswith('<!DOCTYPE html>') and page.endswith('</html>\n')
    words = re.sub(r'\s+', ' ', re.sub(r'<[^>]*>', '', page))
    for sentence in report.to_dict()['not_covered']:
        text = sentence.replace('`', '')  # Names in backticks are <code> elements on the page.
        assert text.replace("'", '&#x27;') in words or text in words


def test_nothing_is_loaded_from_elsewhere():
    page = privacy_page.render(_report(_LOG))
    assert not re.search(r'\b(src|href)="(?!#)', page)
    assert '@import' not in page and 'url(http' not in page and '<script' not in page


def test_a_run_has_a_name_and_its_curves_stay_in_a_file_of_their_own():
    page = privacy_page.render(_report(_LOG), run='my <run>', curves='plots/training.png')
    assert '<title>Privacy report: my &lt;run&gt;</title>' in page
    assert '<h1>Privacy report: my &lt;run&gt;</h1>' in page
    # Held-out metrics are not covered by the guarantee: the page only refers to them.
    assert '<img src="plots/training.png"' in page and 'data:image' not in page
    assert 'plots/training.png' not in privacy_page.render(_report(_LOG))


def test_the_same_report_is_the_same_page():
    assert privacy_page.render(_report(_LOG)) == privacy_page.render(_report(_LOG))
