"""The study of audits, tiny."""

import pytest

from benchmarks import audits
from dpfl import Participation, accounting, mechanisms


@pytest.mark.standard
def test_a_row_has_what_was_found():
    done = []
    row, exceeded = audits.measured(audits.CASES['gaussian'](), 2, 256, lambda: done.append(1))
    exact, times, reachable, bound, normal, _ = row.split(' | ')
    assert (exact, times, exceeded, len(done)) == ('yes', '0 of 2', 0, 2)
    assert float(reachable) == pytest.approx(1.0)
    assert 0.2 < float(bound) < float(normal) < 1


_SHAPES = ([20, 30], [50], [7, 8])


def _plan(**values):
    defaults = dict(
        mechanism=mechanisms.BandedInverse.square_root(8, 4),
        participation=Participation(8, 4),
        clip_norm=0.5,
        noise_multiplier=3.0,
        clients_per_round=4,
    )
    return accounting.PrivacyPlan(**{**defaults, **values})


def _restarted(**values):
    mechanism = mechanisms.Restarted(mechanisms.BinaryTree(8), (4,), 8)
    return _plan(mechanism=mechanism, **values)


_PLANS = {
    'banded_inverse': _plan(),
    'blt': _plan(mechanism=mechanisms.Blt(8, (0.9, 0.5), (0.1, 0.2))),
    'full_honaker_tree': _plan(mechanism=mechanisms.FullHonakerTree(8)),
    'clip schedule': _restarted(clip_schedule=((4, 0.125),)),
    'adaptive clip': _restarted(adaptive_clip=accounting.AdaptiveClip(count_stddev=2.0)),
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
