"""The page that explains the choice of a mechanism."""

import pytest

from dpfl import Participation, mechanisms
from dpfl.reporting import choice_page

_SCHEMA = Participation(60, 20, 3)


@pytest.fixture(scope='module', name='candidates')
def _candidates():
    return mechanisms.choose(_SCHEMA, dimension=1_000_000, memory_limit=0.02)[1]


def test_the_page_has_every_candidate_with_its_figures_and_its_verdict(candidates):
    page = choice_page.render(candidates, _SCHEMA)
    assert f'Taken: <strong>{candidates[0].name}</strong>' in page
    assert 'at most 3 times, at least 20 rounds apart' in page
    for candidate in candidates:
        assert f'<td>{candidate.name}</td>' in page and candidate.verdict in page
        if candidate.loss is not None:
            assert f'<td>{candidate.loss:.4g}</td><td>{candidate.above_bound:.1%}</td>' in page
    assert any(candidate.loss is None for candidate in candidates)  # BandMF does not fit.
    assert '<script' not in page and 'http://www.w3.org' in page


def test_the_figure_has_the_losses_and_the_bound(candidates):
    (axes,) = choice_page.draw(candidates).axes
    made = [candidate for candidate in candidates if candidate.loss is not None]
    values = [float(line.get_xdata()[0]) for line in axes.get_lines()]
    for candidate in made:
        assert candidate.loss in values and candidate.loss_if_closer in values
    bound = made[0].loss / (1 + made[0].above_bound)
    assert values[-1] == pytest.approx(bound) and bound < min(values[:-1])
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert [label.split('\n')[0] for label in labels] == [candidate.name for candidate in made]
