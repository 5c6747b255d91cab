"""Cells in files, what they show on the page, and fits of power: known curves are recovered."""

import json

import numpy as np
import pytest
from scipy import special

from dpfl import errors
from experiments.studies.shared import detection, power
from experiments.studies.shared.detection import Cell
from experiments.studies.shared.power import Trials

pytestmark = pytest.mark.standard


def _cell(epsilon, seed, fault, share, verdict, named=()):
    return Cell('epsilon', epsilon, seed, fault, share, verdict, named, (), {'length': 1.5})


def _cells():
    """Joined words are found from 10 % on with epsilon 8, and never with epsilon 1."""
    found = []
    for epsilon in (1.0, 8.0):
        for seed in range(6):
            verdict = {0: 'suspected', 1: 'not seen'}.get(seed, 'cannot tell')
            found.append(_cell(epsilon, seed, None, 0.0, verdict))
            for share in (0.01, 0.1, 1.0):
                is_found = epsilon == 8 and share >= 0.1
                named = ('joined_words',) if is_found else ()
                verdict = 'found' if is_found else 'not seen'
                found.append(_cell(epsilon, seed, 'joined_words', share, verdict, named))
    return found


def test_made_up_cells_have_the_share_between_them(tmp_path):
    weak, strong = detection.measure(_cells(), 0.8)
    assert (weak.level, strong.level) == (1, 8)
    assert [each.found for each in strong.trials] == [0, 0, 6, 6]
    assert [each.count for each in strong.noticed] == [6] * 4
    assert strong.noticed[0].found == 1 and weak.noticed[0].found == 1
    assert 0.01 < strong.fit.share < 0.1
    assert weak.fit.share is None and weak.smallest.startswith('above 100 % (')
    rows = detection.rows([weak, strong], 'epsilon')
    assert rows[1]['false alarms'] == '0 of 6 (0 to 46 %)'
    assert rows[1]['any alarm on clean data'].startswith('1 of 6')
    values, _ = detection.report(tmp_path, _cells(), 0.8)
    assert json.loads((tmp_path / 'power.json').read_text()) == json.loads(json.dumps(values))
    assert len(values['cells']) == 48 and values['results'][1]['trials'][2]['named'] == 6
    text = (tmp_path / 'power.html').read_text()
    assert text.count('<svg') == 1 and 'joined words' in text and strong.smallest in text
    assert (tmp_path / 'power_joined_words.png').read_bytes().startswith(b'\x89PNG')


def test_cells_are_kept_and_other_settings_are_refused(tmp_path):
    faults = ((None, 0.0), ('truncated', 0.1))

    def cells(begin, rounds=3, faults=faults):
        settings = {'rounds': rounds}
        return detection.cells(tmp_path, settings, [1, 2], 'epsilon', [8.0], faults, begin)

    def begin(seed, level):
        return lambda cell: _cell(level, seed, cell.fault, cell.share, 'found', ('truncated',))

    made = cells(begin)
    assert [(cell.seed, cell.fault) for cell in made] == [
        (seed, fault) for seed in (1, 2) for fault, _ in faults
    ]
    assert cells(None) == made  # No cell begins again.
    with pytest.raises(errors.ArgumentError, match='rounds=4: must be 3, as for the cells in'):
        cells(begin, rounds=4)
    with pytest.raises(errors.ArgumentError, match='inject=: must name at least one fault'):
        cells(begin, faults=faults[:1])
    (tmp_path / 'cells' / f'{made[3].name}.json').write_text('{"level": 1}')
    with pytest.raises(errors.StorageError, match='is damaged'):
        cells(begin)


def test_no_interval_goes_beyond_all_data():
    cells = [
        _cell(8.0, seed, fault, share, verdict, named)
        for seed in range(3)
        for fault, share, verdict, named in (
            (None, 0.0, 'not seen', ()),
            ('truncated', 0.3, 'suspected', ()),
            ('truncated', 1.0, 'found', ('truncated',)),
        )
    ]
    (found,) = detection.measure(cells, 0.8)
    assert found.fit.high > 1
    assert found.interval == '33 % to 100 %'


_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


def _trials(rng, at, slope, false_alarms, count):
    """Trials of a curve with power 0.8 (without false alarms) at the share `at`."""
    rises = special.expit(np.log(4) + slope * np.log(np.array(_SHARES) / at))
    rates = false_alarms + (1 - false_alarms) * rises
    found = rng.binomial(count, rates)
    clean = Trials(0.0, int(rng.binomial(count, false_alarms)), count)
    pairs = zip(_SHARES, found.tolist(), strict=True)
    return [clean, *(Trials(share, each, count) for share, each in pairs)]


def test_a_known_curve_is_recovered_from_many_trials():
    found = power.fit(_trials(np.random.default_rng(1), 0.08, 3.0, 0.1, 20_000))
    assert found.share == pytest.approx(0.08, rel=0.05)
    assert found.slope == pytest.approx(3, rel=0.1)
    assert found.false_alarms == pytest.approx(0.1, rel=0.15)
    assert found.low <= 0.08 * 1.05 and found.high >= 0.08 * 0.95
    # Power at that share: 0.8 of what is not a false alarm.
    expected = found.false_alarms + (1 - found.false_alarms) * 0.8
    assert found.curve(np.array([found.reference]))[0] == pytest.approx(expected)
    curve = found.curve(np.array(_SHARES))
    assert (np.diff(curve) > 0).all()


def test_intervals_cover_the_true_share():
    """95 % intervals of 60 fits with 8 trials each; below 50 with probability < 1e-3 if exact."""
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(60):
        found = power.fit(_trials(rng, 0.07, 2.5, 0.02, 8))
        covered += (found.low or 0) <= 0.07 <= (found.high or 1)
    assert covered >= 50


def test_a_step_lies_between_the_shares_that_tell():
    def fit(count):
        found = {0.0: 0, 0.01: 0, 0.1: count, 1.0: count}
        return power.fit([Trials(share, each, count) for share, each in found.items()])

    many, few = fit(10), fit(2)
    assert 0.01 < many.share < 0.1 and many.false_alarms == 0
    assert 0.01 < many.low < many.share < many.high < 0.2
    assert few.low < many.low and few.high > many.high


def test_what_is_never_or_always_found_has_no_share():
    def fit(clean, found, count):
        return power.fit([Trials(0.0, clean, count), *(Trials(s, found, count) for s in _SHARES)])

    never, always, alarms = fit(0, 0, 5), fit(0, 5, 5), fit(12, 12, 20)
    assert never.share is None and never.high is None and never.low > 0.2
    assert always.share is None and always.low is None and always.high < 0.05
    # Alarms at every share, also without the fault, are false alarms and not power.
    assert alarms.share is None and alarms.false_alarms == pytest.approx(0.6, abs=0.05)
