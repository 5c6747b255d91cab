"""The search for accountants and sensitivities below the truth: it runs, and would find them."""

import math
import sys

import dp_accounting
import pytest
from scipy import stats

from dpfl import mechanisms
from dpfl.accounting import events, gaussian
from tests.attacks import accountants, sampled_truth


@pytest.mark.exhaustive
def test_a_small_search_finds_nothing(monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['accountants', '--cases=2'])
    accountants.main()
    assert capsys.readouterr().out.splitlines()[-1] == 'nothing found in 6 cases'


@pytest.mark.exhaustive
@pytest.mark.parametrize('part, module', [('gaussian', gaussian), ('sampled', events)])
def test_an_accountant_that_understates_is_found(part, module, monkeypatch, capsys):
    honest = module.bound

    def understating(*arguments):
        bound = honest(*arguments)
        return bound._replace(epsilon=bound.epsilon * 0.5)

    monkeypatch.setattr(module, 'bound', understating)
    monkeypatch.setattr(sys, 'argv', ['accountants', f'--only={part}', '--cases=4'])
    with pytest.raises(SystemExit) as ended:
        accountants.main()
    assert ended.value.code == 1
    assert 'FOUND' in capsys.readouterr().out


def test_a_sensitivity_below_the_truth_by_one_digit_is_found(monkeypatch, capsys):
    def understating(self, participation):
        squared = float(
            accountants.exact_squared_sensitivity(self.released_matrix(), participation)
        )
        return mechanisms.Sensitivity(math.nextafter(squared, 0), True)

    monkeypatch.setattr(mechanisms.Mechanism, 'sensitivity_bound', understating)
    monkeypatch.setattr(sys, 'argv', ['accountants', '--only=strategies', '--cases=20'])
    with pytest.raises(SystemExit):
        accountants.main()
    assert 'is below' in capsys.readouterr().out


@pytest.mark.standard
def test_the_composition_of_dp_accounting_is_found_below_the_truth_at_tiny_deltas():
    # Its privacy loss distribution gives 3.0387 at 1e-14 for these samples.
    least = sampled_truth.least_log_delta(1e-3, 0.8, 1000, 3.0387, math.log(1e-14))
    assert least > math.log(1e-14) + 0.3
    epsilon = events.epsilon_of_event(_poisson(1e-3, 0.8, 1000), 1e-14, 'pld')
    assert epsilon > 3.0387 + 0.05


def _poisson(q, noise_multiplier, rounds):
    release = dp_accounting.GaussianDpEvent(noise_multiplier)
    return dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(q, release), rounds
    )


@pytest.mark.parametrize(
    'noise_multiplier, rounds, epsilon',
    [
        (1.0, 1, 2.0),
        (5.0, 20, 3.0),
        (10.0, 100, 8.0),
    ],
)
def test_deltas_from_below_are_close_to_the_curve_where_all_are_sampled(
    noise_multiplier, rounds, epsilon
):
    mu = math.sqrt(rounds) / noise_multiplier
    tails = stats.norm.sf([epsilon / mu - mu / 2, epsilon / mu + mu / 2])
    exact = math.log(tails[0] - math.exp(epsilon) * tails[1])
    least = sampled_truth.least_log_delta(1 - 1e-12, noise_multiplier, rounds, epsilon, exact)
    assert exact - 0.05 < least <= exact + 1e-6
