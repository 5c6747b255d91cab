"""What an audit measured: its file, its section in the report, and the verification of both."""

import dataclasses
import json
import re

import numpy as np
import pytest

from dpfl import Participation, accounting
from dpfl.accounting.measured import estimate, sums
from dpfl.accounting.measured.measured import Measured, Scores, mu_of, read
from tests import json_values
from tests.accounting import plans

_ROUNDS = 6


def _plan(noise_multiplier=2.0):
    return plans.plan(noise_multiplier=noise_multiplier, participation=Participation(6, 3, 2))


def _pattern(*rows):
    pattern = np.zeros((len(rows), _ROUNDS), bool)
    for row, rounds in zip(pattern, rows, strict=True):
        row[list(rounds)] = True
    return pattern


def _sums(*failures, coordinates=500):
    """Tests of the sums of a run, of which some failed."""
    power = dict.fromkeys(sums.CLIP_FAULTS, 1.0)
    return sums.SumTests(_ROUNDS, (coordinates, coordinates), 'done', power, failures)


def _scores(mean=0.5, pattern=None, count=200, tests=None):
    random = np.random.default_rng(0)
    took_part = np.arange(count) % 2 == 0
    noise = random.standard_normal((2, count))
    cosines = (noise + mean * took_part) / 100
    rounds = np.full(count, 2)
    pattern = _pattern((0, 3)) if pattern is None else pattern
    tests = tests or _sums()
    return Scores(took_part, rounds, *cosines, dimension=10**4, pattern=pattern, sums=tests)


def _measured(plan=None, **values):
    return Measured.of(_scores(**values), plan or _plan(), 1e-6, 'pld')


def test_the_file_holds_the_scores(tmp_path):
    scores = _scores(tests=_sums(sums.Failure('repetition', (1, 2), 30.0)))
    (tmp_path / 'audit.npz').write_bytes(scores.to_bytes())
    loaded = Scores.load(tmp_path / 'audit.npz')
    for field in dataclasses.fields(Scores):
        assert np.array_equal(getattr(loaded, field.name), getattr(scores, field.name))
    assert read(tmp_path, _plan(), 1e-6, 'pld') == Measured.of(scores, _plan(), 1e-6, 'pld')
    assert read(tmp_path / 'other', _plan(), 1e-6, 'pld') is None


@pytest.mark.parametrize(
    'change',
    [
        {'took_part': np.zeros(200)},
        {'releases': np.zeros(199)},
        {'dimension': np.array(0.5)},
        {'pattern': np.zeros((1, 5), bool)},
        {'final_model': np.full(200, 7.0)},
        {'took_part': np.ones(200, bool)},
        {'sums': np.frombuffer(b'{}', np.uint8)},
        {'sums': np.frombuffer(b'[' * 100_000, np.uint8)},
        {'sums': np.zeros(3)},
        {
            'sums': np.frombuffer(
                json.dumps({**_sums().to_dict(), 'rounds': _ROUNDS + 1}).encode(), np.uint8
            )
        },
    ],
)
def test_other_files_are_refused_by_name(tmp_path, change):
    path = tmp_path / 'audit.npz'
    scores = _scores()
    path.write_bytes(scores.to_bytes())
    with np.load(path) as arrays:
        changed = {**arrays, **change}
    np.savez(path, **changed)
    with pytest.raises(ValueError, match='audit.npz: not the audit of'):
        read(tmp_path, _plan(), 1e-6, 'pld')


def test_mu_of_a_pattern_is_that_of_its_columns():
    plan = _plan()
    strategy = plan.mechanism.strategy_matrix()
    expected = np.linalg.norm(strategy[:, 0] + strategy[:, 3]) / 2
    assert mu_of(plan, _pattern((0, 3))) == pytest.approx(expected, rel=1e-12)
    # This is the worst pattern; the others have less.
    assert mu_of(plan, _pattern((0, 3))) == pytest.approx(plan.mu, rel=1e-6)
    assert mu_of(plan, _pattern((2, 5))) < plan.mu


def test_a_claim_that_is_refuted_is_named():
    found = _measured(_plan(noise_multiplier=20.0), mean=2.0)
    assert found.exceeds_claim
    assert 'lower bound is above the claim' in _page(found)


def test_sums_that_are_refuted_are_named_as_loudly():
    failed = sums.Failure('variance', (), 0.25)
    found = _measured(tests=_sums(failed))
    assert (found.verdict, found.exceeds_claim) == ('refuted', False)
    assert found.refutations == ('the noise has 0.25 times the planned variance',)
    page = _page(found)
    assert 'the noise has 0.25 times the planned variance. Do not rely on the guarantee' in page
    assert '| half the noise | 100 % | see above |' in page


def _page(found):
    return plans.report(_plan(), measured=found).render()


def test_not_seen_without_power_is_cannot_tell():
    few = _measured(tests=_sums(coordinates=1))
    assert few.verdict == few.canary_verdict == 'cannot tell' and few.canary_power == {}
    assert '| half the noise | 0 % | cannot tell |' in _page(few)
    found = _measured(tests=_sums())
    assert found.verdict == 'not refuted'
    assert 'Verdict: **not refuted**' in _page(found)


def test_canaries_say_how_likely_they_are_to_see_less_noise():
    mu = _plan().mu
    # With scores at mu, noise is all that hides a canary.
    sharp = _measured(mean=mu, count=4000, tests=_sums())
    assert sharp.canary_power['half the noise'] > 0.99
    assert sharp.canary_verdict == 'not refuted'
    # At an eighth of mu, sums of real updates hide it nearly as well without the noise.
    dull = _measured(mean=mu / 8, count=4000, tests=_sums())
    assert max(dull.canary_power.values()) < 0.01
    assert dull.canary_verdict == 'cannot tell'
    assert 'Probability that it would be above the claim: half the noise 0 %' in _page(dull)
    assert _measured(mean=-0.5, tests=_sums()).canary_power['no noise'] == 0.0


def test_the_power_of_canaries_is_the_share_of_bounds_above_the_claim():
    count, mu, hidden = 60, 0.7, 0.9
    found = dataclasses.replace(_measured().releases, observed=count, mean=1 / np.hypot(1, hidden))
    power = estimate.power(found, 10**8, 1.0, mu, 0.5)
    assert 0.4 < power < 0.8
    random = np.random.default_rng(0)
    scores = random.standard_normal((300, count)) + 1 / np.hypot(0.5, hidden)
    bounds = [
        estimate.lower_bounds(each / 1e4, 10**8, 1e-6, is_gaussian=True)[0] for each in scores
    ]
    # Shares of 200 and of 300 differ by more with probability below 1e-5.
    assert np.mean(np.array(bounds) > mu) == pytest.approx(power, abs=0.2)


def test_sampled_plans_have_no_mu():
    plan = plans.independent(_ROUNDS, sampling='poisson', population=40)
    scores = dataclasses.replace(_scores(), pattern=None)
    found = Measured.of(scores, plan, 1e-6, 'pld')
    assert (found.mu_claimed, found.mu_of_canaries, found.releases.mu_lower) == (None,) * 3
    assert found.releases.epsilon_lower >= 0


def test_the_report_has_a_section_that_its_json_keeps():
    measured = _measured(tests=_sums(sums.Failure('variance', (), 0.25)))
    report = plans.report(_plan(), accountant='pld', measured=measured)
    values = json.loads(report.to_json())
    assert values['measured'] == json.loads(json.dumps(measured.to_dict()))
    assert (measured.mu_claimed, measured.epsilon_claimed) == (_plan().mu, _plan().epsilon(1e-6))
    # A claim that does not follow is refused, and so is a section of another form.
    for name, value in (
        ('epsilon_claimed', 0.01),
        ('releases', 3),
        ('trials', 0),
        ('mu_of_canaries', -1),
        ('delta', 2),
    ):
        changed = json.dumps(json_values.changed(values, f'measured.{name}', value))
        with pytest.raises(ValueError, match='not a privacy report'):
            accounting.PrivacyReport.from_json(changed)
    page = report.render()
    for claimed, words in (
        (measured.epsilon_claimed, r'claim is \*\*'),
        (measured.mu_claimed, 'mu = '),
    ):
        assert claimed <= float(re.findall(words + r'([\d.]+\d)', page.partition('## Audit')[2])[0])
    assert '## Audit\n\nNone' not in page
    assert 'What an audit cannot show' in page
    assert 'those of the faults in the table, and say nothing about other faults' in page
    assert '- The noise of the counts of an adaptive clip norm is not tested.' in page
    assert 'would not notice correlations at other places' in page
    # A report without an audit says nothing.
    plain = plans.report(_plan())
    assert 'measured' not in plain.to_dict()
    assert '## Audit\n\nNone' in plain.render()
