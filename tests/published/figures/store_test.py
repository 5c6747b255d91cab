import pytest

from dpfl.published.figures import checks
from dpfl.published.figures.drawn import Drawn, Recipe
from dpfl.reporting.charts import Line, Panel

_PANEL = Panel('a', 'x', 'y', [Line('one', [1, 2], [0.1, 1e-300], 3, None, 'l')], y_range=(0, 1))
_DRAWN = Drawn([_PANEL], 2, {'002/fig3/a': {'ratio': 1 / 3}})


@pytest.fixture(name='calls')
def _calls(tmp_path, monkeypatch):
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path))
    return []


def _recipe(calls, name='002/fig3', **kwargs):
    return Recipe(name, 'title', lambda: calls.append(name) or _DRAWN, **kwargs)


def _is_same(found):
    return found.to_dict() == Drawn.from_dict(_DRAWN.to_dict()).to_dict() and (
        found.panels[0].lines[0].y == [0.1, 1e-300]
    )


def test_a_second_call_computes_nothing(calls):
    assert _is_same(checks.drawn(_recipe(calls)))
    kept = checks.drawn(_recipe(calls))
    assert calls == ['002/fig3']
    assert kept.panels[0].lines == _DRAWN.panels[0].lines
    assert kept.measured == _DRAWN.measured and kept.columns == 2


def test_the_digest_is_of_code_and_data(tmp_path, monkeypatch):
    folder = tmp_path / 'code'
    folder.mkdir()
    monkeypatch.setattr(checks, '_SOURCES', folder)
    digests = set()
    for name, content in (('a.py', '1'), ('a.py', '2'), ('b.json', '2'), ('b.json', '3')):
        (folder / name).write_text(content)
        digests.add(checks._sources.__wrapped__())
    assert len(digests) == 4
    (folder / 'a.pyc').write_text('compiled')
    assert checks._sources.__wrapped__() in digests


@pytest.mark.parametrize('content', [b'', b'{}', b'\xff\xfe', b'digest\n{"panels": []}'])
def test_a_damaged_entry_is_replaced(calls, tmp_path, content):
    checks.drawn(_recipe(calls))
    (path,) = tmp_path.iterdir()
    path.write_bytes(content)
    assert _is_same(checks.drawn(_recipe(calls)))
    checks.drawn(_recipe(calls))
    assert len(calls) == 2


def test_a_directory_that_cannot_be_written_is_no_error(calls, tmp_path, monkeypatch):
    (tmp_path / 'file').write_text('')
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path / 'file' / 'cache'))
    assert _is_same(checks.drawn(_recipe(calls)))


def test_other_figures_times_and_other_code_compute_anew(calls, monkeypatch):
    checks.drawn(_recipe(calls))
    checks.drawn(_recipe(calls, '002/fig4'))
    for _ in range(2):
        checks.drawn(_recipe(calls, is_kept=False))
    monkeypatch.setattr(checks, '_sources', lambda: 'changed')
    checks.drawn(_recipe(calls))
    monkeypatch.setenv('DPFL_CACHE_DIR', '')
    checks.drawn(_recipe(calls))
    assert len(calls) == 6
