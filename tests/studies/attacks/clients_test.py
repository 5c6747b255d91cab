import dataclasses
import json

import numpy as np
import pytest
from scipy import special, stats

from dpfl.errors import ArgumentError
from dpfl.tasks.text.models import saved_models
from experiments.studies.attacks import client_losses, clients, membership
from experiments.studies.attacks.membership_config import MembershipConfig

pytestmark = [pytest.mark.tff, pytest.mark.standard]


def test_a_model_that_remembers_its_clients_tells_them_from_others(overfit):
    found = clients.attack(overfit, MembershipConfig(others=100))
    assert (found.members, found.others, found.members_are) == (8, 100, 'took part')
    outcome = found.outcomes['loss']
    assert outcome.auc > 0.95
    assert outcome.p_value < 1e-4
    assert not any(test.exceeds for test in outcome.tests)  # Nothing was promised.
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_private_model_stays_below_its_curve(private):
    found = clients.attack(private, MembershipConfig(others=200))
    assert found.members == 16
    outcome = found.outcomes['loss']
    for test in outcome.tests:
        upper = test.false_positives.upper
        # Independent noise and one participation: the curve of Gaussian DP with mu = 1 / 3.
        assert test.allowed == pytest.approx(stats.norm.cdf(stats.norm.ppf(upper) + 1 / 3))
        assert not test.exceeds


def test_losses_are_means_over_the_tokens_of_each_client(overfit):
    model = saved_models.load(overfit.directory)
    task, population = clients._task(overfit)
    assert population == 8
    rows = client_losses.of_training(task, range(8))
    found = client_losses.mean_losses(model, rows)
    for client in (0, 5):
        total, count = 0.0, 0
        for batch in task.client_batches(client, 4, 1, None):
            logits = model.architecture.logits(model.weights, batch['x']).numpy().astype(float)
            logs = special.log_softmax(logits, axis=2)
            for row, column in np.argwhere(batch['y'] != 0):
                total -= logs[row, column, batch['y'][row, column]]
                count += 1
        assert rows.tokens[client] == count
        assert found[client] == pytest.approx(total / count, rel=1e-5)


def test_clients_without_text_are_left_out():
    rows = client_losses.ClientRows(
        np.ones((3, 2), np.int32), np.array([[5, 0], [0, 0], [7, 8]]), np.array([0, 1, 3]), 5
    )
    kept = rows.with_text()
    assert rows.tokens.tolist() == [1, 0, 0, 2, 0]
    assert (kept.count, kept.owners.tolist(), kept.tokens.tolist()) == (2, [0, 1], [1, 2])


def test_a_reference_model_takes_the_difficulty_of_a_text_away(overfit):
    config = MembershipConfig(others=50, reference_model=str(overfit.directory))
    found = clients.attack(overfit, config)
    # Compared with itself, a model reveals nothing; but members are not alike others under it.
    assert found.outcomes['reference_model'].auc == 0.5
    assert found.alike['reference_model'] < 1e-4


def test_members_are_compared_with_reference_runs_that_they_did_not_train(overfit, private):
    # Clients 0 to 7 of 16 trained the reference run, so 8 to 15 are left.
    config = MembershipConfig(others=50, reference_runs=(str(overfit.directory),))
    found = clients.attack(private, config).outcomes['reference_runs']
    task, _ = clients._task(private)
    pair = [saved_models.load(run.directory) for run in (overfit, private)]
    inside, outside = (
        client_losses.of_training(task, range(8, 16)),
        client_losses.of_heldout(task, 50),
    )
    scores = [
        np.subtract(*(client_losses.mean_losses(model, rows) for model in pair))
        for rows in (inside, outside)
    ]
    assert found.auc == pytest.approx(membership.auc(*scores))


def test_runs_of_which_everybody_was_a_part_are_no_references(overfit, private):
    config = MembershipConfig(others=50, reference_runs=(str(private.directory),))
    with pytest.raises(ArgumentError) as refused:
        clients.attack(overfit, config)
    assert refused.value.name == 'members'


def test_reference_runs_on_other_data_are_refused(overfit, private):
    config = MembershipConfig(others=50, reference_runs=(str(private.directory),))
    other = dataclasses.replace(overfit, config=overfit.config.with_values({'seed': 6}))
    with pytest.raises(ArgumentError) as refused:
        clients.attack(other, config)
    assert refused.value.name == 'reference_runs'
