"""Membership inference: by brute force, at known curves, and of trained runs."""

import dataclasses
import json
import math

import numpy as np
import pytest
from scipy import stats

from dpfl.errors import ArgumentError
from dpfl.tasks.text.models import saved_models
from experiments.studies.shared import scores as scores_lib
from tests.studies import scripts_of_studies
from tests.tasks.text.models import reference

pytestmark = pytest.mark.standard

_STUDY = scripts_of_studies.load('attack_membership')


def _brute_auc(members, others):
    pairs = [(m > o) + (m == o) / 2 for m in members for o in others]
    return sum(pairs) / len(pairs)


def test_auc_is_the_share_of_ordered_pairs_and_its_p_value_is_exact():
    rng = np.random.default_rng(0)
    members, others = rng.normal(1, 1, 7), rng.normal(0, 1, 5)
    for pair in ((members, others), (members.round(), others.round())):
        assert scores_lib.evaluate(*pair).auc == pytest.approx(_brute_auc(*pair))
    # The largest AUC is that of one of all 20 memberships.
    best = scores_lib.evaluate(np.array([2.5, 0.9, 4.0]), np.array([0.3, -1.0, 0.7]))
    assert best.auc == 1
    assert best.p_value == pytest.approx(1 / 20)


def test_rates_have_exact_intervals():
    rate = scores_lib.Rate.of(3, 20, 0.9)
    assert rate.value == 0.15
    # By definition: 5 % of the binomial distributions at the ends are as extreme.
    assert stats.binom.sf(2, 20, rate.lower) == pytest.approx(0.05)
    assert stats.binom.cdf(3, 20, rate.upper) == pytest.approx(0.05)


@pytest.mark.parametrize('rate', [0.0, 0.001, 0.1, 0.25, 0.5, 1.0])
def test_thresholds_keep_the_false_positive_rate_and_are_the_least_that_do(rate):
    for others in (np.arange(20.0), np.repeat([1.0, 2.0, 5.0, 5.5], 5)):
        least = scores_lib.threshold(others, rate)
        assert np.mean(others >= least) <= rate
        smaller = others[others < least]
        if smaller.size:
            assert np.mean(others >= smaller.max()) > rate


def test_the_best_threshold_has_the_largest_advantage():
    rng = np.random.default_rng(1)
    members, others = rng.normal(1, 1, 40), rng.normal(0, 1, 30)

    def advantage(least):
        return np.mean(members >= least) - np.mean(others >= least)

    found = scores_lib.best_threshold(members, others)
    assert advantage(found) == max(advantage(each) for each in [*members, *others])


def _gaussian(mu, count, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(mu, 1, count), rng.normal(0, 1, count)


@pytest.mark.parametrize('mu, claimed', [(0.0, 0.0), (0.5, 0.5), (2.0, 2.0), (2.0, 1.0)])
def test_only_scores_beyond_the_allowed_curve_exceed_it(mu, claimed):
    outcome = scores_lib.evaluate(
        *_gaussian(mu, 4000, 0), allowed=lambda fpr: stats.norm.cdf(stats.norm.ppf(fpr) + claimed)
    )
    is_beyond = mu > claimed
    assert [test.exceeds for test in outcome.tests[1:]] == [is_beyond] * 3
    assert outcome.to_dict()['best']['exceeds'] == is_beyond
    assert is_beyond or not outcome.tests[0].exceeds
    for test in outcome.tests:
        expected = stats.norm.sf(test.threshold - mu)
        assert test.tpr.lower <= expected <= test.tpr.upper
        expected = stats.norm.sf(test.threshold)
        assert test.fpr.lower <= expected <= test.fpr.upper


def test_thresholds_do_not_see_the_clients_they_are_measured_on():
    # Scores of chance: were thresholds chosen on all clients, the best of them would have an
    # advantage above 0 in every one of these runs.
    advantages = [
        scores_lib.evaluate(*_gaussian(0, 30, seed), seed=seed).tests[-1].advantage.value
        for seed in range(40)
    ]
    assert min(advantages) < 0
    assert abs(np.mean(advantages)) < 0.15


def test_reference_models_find_the_client_whose_loss_is_small_for_it():
    # Client 2 has a small loss anyway; client 0 has one under the attacked model alone.
    reference = np.array([[3.0, 3.1, 1.0], [3.2, 2.9, 1.1], [0.1, 3.0, 0.9]])
    took_part = np.array([[False] * 3, [False] * 3, [True, False, False]])
    scores = scores_lib.against_references(np.array([1.0, 3.0, 1.0]), reference, took_part)
    centred = np.array([0.1, 0.1, 0.1, -0.1, 0.0, 0.0, 0.1, -0.1])
    deviation = math.sqrt((centred**2).sum() / 5)
    np.testing.assert_allclose(scores, [2.1 / deviation, 0, 0], atol=1e-12)


@pytest.mark.tff
def test_a_model_that_remembers_its_clients_tells_them_from_others(overfit):
    alone = _STUDY.attack(overfit, _STUDY.MembershipConfig(others=50))
    assert (alone.members, alone.others, alone.members_are) == (8, 50, 'took part')
    outcome = alone.outcomes['loss']
    assert outcome.auc > 0.95
    assert outcome.p_value < 1e-4
    assert not any(test.exceeds for test in outcome.tests)  # Nothing was promised.
    json.dumps(alone.to_dict(), allow_nan=False)
    # A reference model takes the difficulty of a text away. Compared with itself, a model reveals
    # nothing; but members are not alike others under it.
    config = _STUDY.MembershipConfig(others=50, reference_model=str(overfit.directory))
    found = _STUDY.attack(overfit, config)
    assert found.outcomes['reference_model'].auc == 0.5
    assert found.alike['reference_model'] < 1e-4
    # Both attacks share the error.
    for one, of_two in zip(outcome.tests, found.outcomes['loss'].tests, strict=True):
        assert one.fpr.upper < of_two.fpr.upper


@pytest.mark.tff
def test_a_private_model_stays_below_its_curve(private):
    found = _STUDY.attack(private, _STUDY.MembershipConfig(others=200))
    assert found.members == 16
    outcome = found.outcomes['loss']
    for test in outcome.tests:
        upper = test.fpr.upper
        # Independent noise and one participation: the curve of Gaussian DP with mu = 1 / 3.
        assert test.allowed_tpr == pytest.approx(stats.norm.cdf(stats.norm.ppf(upper) + 1 / 3))
        assert not test.exceeds


@pytest.mark.tff
def test_losses_are_means_over_the_tokens_of_each_client(overfit):
    model = saved_models.load(overfit.directory)
    task, population = _STUDY.open_task(overfit)
    assert population == 8
    rows = _STUDY.ClientRows.of_training(task, range(8))
    found = rows.mean_losses(model)
    for client in (0, 5):
        total, count = 0.0, 0
        for batch in task.client_batches(client, 4, 1, None):
            logits = model.architecture.logits(model.weights, batch['x'])
            total += reference.losses(logits, batch['y']).sum()
            count += np.count_nonzero(batch['y'])
        assert rows.tokens[client] == count
        assert found[client] == pytest.approx(total / count, rel=1e-5)


@pytest.mark.tff
def test_members_are_compared_with_reference_runs_that_they_did_not_train(overfit, private):
    # Clients 0 to 7 of 16 trained the reference run, so 8 to 15 are left.
    config = _STUDY.MembershipConfig(others=50, reference_runs=(str(overfit.directory),))
    found = _STUDY.attack(private, config).outcomes['reference_runs']
    task, _ = _STUDY.open_task(private)
    models = [saved_models.load(run.directory) for run in (overfit, private)]
    of = _STUDY.ClientRows
    rows = of.of_training(task, range(8, 16)), of.of_heldout(task, 50)
    scores = [np.subtract(*map(each.mean_losses, models)) for each in rows]
    assert found.auc == pytest.approx(_brute_auc(*scores))


@pytest.mark.tff
@pytest.mark.parametrize('changes, name', [({}, 'members'), ({'seed': 6}, 'reference_runs')])
def test_runs_that_everybody_trained_or_on_other_data_are_no_references(
    overfit, private, changes, name
):
    config = _STUDY.MembershipConfig(others=50, reference_runs=(str(private.directory),))
    run = dataclasses.replace(overfit, recorded=overfit.config.with_values(changes))
    with pytest.raises(ArgumentError) as refused:
        _STUDY.attack(run, config)
    assert refused.value.name == name
