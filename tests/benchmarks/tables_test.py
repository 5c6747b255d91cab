"""The tables of benchmarks, tiny: mechanisms, one-shot estimates, audits, logs that are refuted."""

import json

import numpy as np
import pytest

from benchmarks import audits, log_evidence, mechanism_table, one_shot
from dpfl import Participation, accounting, mechanisms
from dpfl.accounting import gaussian
from tests import paths
from tests.accounting import plans
from tests.accounting.evidence import dishonest_logs

_FOLDER = paths.ROOT / 'benchmarks'
_ROWS = json.loads((_FOLDER / 'mechanism_table.json').read_text())['rows']


def test_the_page_is_made_of_the_data():
    assert (_FOLDER / 'mechanism_table.md').read_text() == mechanism_table.page(_ROWS)


def test_no_loss_is_below_the_bound():
    bounds = {
        (*row['schema'], row['loss']): row['value']
        for row in _ROWS
        if row['name'] == 'bound' and 'value' in row
    }
    compared = 0
    for row in _ROWS:
        for loss in ('max', 'rms'):
            bound = bounds.get((*row['schema'], loss))
            if bound and f'{loss}_loss' in row:
                compared += 1
                assert bound <= row[f'{loss}_loss']
    assert compared > 50


@pytest.mark.parametrize('name', ('bound', 'blt', 'free_banded', 'banded_inverse'))
def test_a_row_is_measured(name):
    row = {'schema': [24, 6, 4], 'package': 'dpfl', 'name': name, 'size': 4, 'loss': 'rms'}
    found = mechanism_table.measure(row)
    assert found['seconds'] > 0
    if name == 'bound':
        assert found['value'] == pytest.approx(3.9127, rel=1e-3)
        return
    assert found['max_loss'] > found['rms_loss'] > 3.91
    assert found['copies'] <= 4
    assert found['draws'] == (4 if name == 'banded_inverse' else 1)


@pytest.mark.parametrize('place', range(3))
@pytest.mark.standard
def test_estimates_are_about_the_published_ones(place):
    values = one_shot.published()
    row = values['rows'][place]
    exact = gaussian.exact_epsilon(1 / row['noise_multiplier'], values['delta'])
    assert exact == pytest.approx(row['epsilon'], rel=5e-3)
    found = one_shot.estimates(row['noise_multiplier'], 200, 10**5, values['delta'], 12)
    # A score has deviation 1, so the mean over 2400 of them has 0.02; epsilon grows about 5 times
    # as fast as mu here. Half of the runs may be off by more, none of their median.
    assert np.median([each.epsilon for each in found]) == pytest.approx(
        row['epsilon_estimate'], abs=0.5
    )


_CASE = dishonest_logs.CASES['without_replacement']


def _of_honest(rng):
    return _CASE.honest(int(rng.integers(1000)))


def test_rows_of_both_tables(capsys):
    case = dishonest_logs.Cases(
        _CASE.plan, _CASE.honest, {'in turn': _CASE.dishonest['in turn'], 'none': _of_honest}
    )
    assert log_evidence.dishonest_table({'fixed': case}, 2)
    assert not log_evidence.honest_table({'fixed': case}, 3)
    rows = capsys.readouterr().out.splitlines()
    tests = 'overlap at lag 1, overlaps with earlier cohorts'
    assert rows[2] == f'| fixed | in turn | 3.18 | 4.089 | 2 | {tests} |'
    assert rows[3].startswith('| fixed | none | 3.18 |') and rows[3].endswith('| 0 |  |')
    assert rows[-1] == '| fixed | 3 | 0 | 0 |'


def test_refuted_honest_logs_are_an_error():
    case = dishonest_logs.Cases(
        _CASE.plan,
        lambda seed: dishonest_logs.with_client_always(_CASE.honest(seed), [0], 2000),
        {},
    )
    assert log_evidence.honest_table({'fixed': case}, 1)


@pytest.mark.standard
def test_a_row_has_what_was_found():
    done = []
    row, exceeded = audits.measured(audits.CASES['gaussian'](), 2, 256, lambda: done.append(1))
    exact, times, reachable, bound, _ = row
    assert (exact, times, exceeded, len(done)) == ('yes', '0 of 2', 0, 2)
    assert float(reachable) == pytest.approx(1.0)
    assert 0.2 < float(bound) < 1


_SHAPES = ([20, 30], [50], [7, 8])


def _plan(**values):
    inverse = mechanisms.BandedInverse.square_root(8, 4)
    changes = dict(mechanism=inverse, participation=Participation(8, 4), clients_per_round=4)
    return plans.plan(**{**changes, 'noise_multiplier': 3.0, **values})


_RESTARTED = mechanisms.Restarted(mechanisms.BinaryTree(8), (4,), 8)
_PLANS = {
    'banded_inverse': _plan(),
    'blt': _plan(mechanism=mechanisms.Blt(8, (0.9, 0.5), (0.1, 0.2))),
    'full_honaker_tree': _plan(mechanism=mechanisms.FullHonakerTree(8)),
    'clip schedule': _plan(mechanism=_RESTARTED, clip_schedule=((4, 0.125),)),
    'adaptive clip': _plan(
        mechanism=_RESTARTED, adaptive_clip=accounting.AdaptiveClip(count_stddev=2.0)
    ),
    'secagg': _plan(discretization=mechanisms.Discretization(2.0**14, 1106, 0.5)),
}


@pytest.mark.standard
@pytest.mark.parametrize('name', _PLANS)
def test_the_sums_of_correct_runs_pass(name):
    shapes = ([20, 50], [50], [7, 8]) if name != 'secagg' else ([5, 10], [7, 8], [1000])
    for found in audits.tested_sums(_PLANS[name], shapes, range(2)):
        assert (found.verdict, found.failures) == ('not refuted', ())


# The kinds of tests of which one has to fail.
_SEEN_BY = {
    'noise on the first tensor only': 'variance of a tensor',
    'noise of another law: half of the coordinates': 'law',
    'the same noise in two rounds': 'repetition',
    'no clipping': 'clipping',
    'clip norm times 10': 'clipping',
    'each tensor clipped alone': 'clipping',
}


@pytest.mark.standard
@pytest.mark.parametrize('fault', audits.FAULTS)
def test_a_planted_fault_is_found_in_the_sums(fault):
    with audits.FAULTS[fault][0]():
        (found,) = audits.tested_sums(_plan(), _SHAPES, [0])
    assert found.verdict == 'refuted'
    assert _SEEN_BY.get(fault, 'variance') in [each.test for each in found.failures]
