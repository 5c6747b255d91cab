# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Auditing a run
#
# A guarantee is computed from a plan. Whether the program kept the plan is another question: noise of half the size, an
# update that was not clipped, noise that was used twice would leave the report as it is. An audit asks the run itself:
# it adds clients whose updates are known, canaries, and looks whether their traces in the models are as faint as the
# guarantee promises.
#
# ## The aggregator alone
#
# The quickest audit leaves out model and data. It runs the aggregator of a plan on 4,096 coordinates. Each coordinate
# is a trial of its own, with a canary or without, and an attacker tells them apart as well as possible.

# %%
import dataclasses

import matplotlib.pyplot as plt
import numpy as np

from dpfl import Participation, accounting, mechanisms
from dpfl.auditing import aggregator_audit
from dpfl.auditing.config import AggregatorAuditConfig

participation = Participation(rounds=16, min_separation=8)
plan = accounting.PrivacyPlan(
    mechanism=mechanisms.optimize_blt(participation, num_buffers=2),
    participation=participation,
    clip_norm=1.0,
    noise_multiplier=2.0,
    clients_per_round=5000,
)
audit = aggregator_audit.audit(plan, AggregatorAuditConfig(trials=4096), delta=1e-6)
print(f'claimed:  mu {plan.mu:.3f}, epsilon {audit.epsilon_claimed:.2f}')
print(f'measured: mu is at least {audit.mu_lower:.3f}, with 95 % confidence')

# %% [markdown]
# mu is the distance between the releases with and without a client, in standard deviations of the noise. The attacker
# finds most of what the plan allows, and no more. `audit.power` says which faults would have put the bound above the
# claim, and how likely: half of the noise, none, noise on the first tensor only, no clipping.
#
# ## A whole run
#
# With `audit=True`, a training run takes canaries along: random directions, as long as the clip norm. Half of them take
# part, the others are there for comparison. The guarantee of the real clients does not change. (With 10 clients in a
# round this is not a useful model. Small cohorts make the audit sharp: real updates hide a canary as well as noise does,
# and no guarantee counts on them.)

# %%
from dpfl.accounting.measured.measured import Measured, Scores  # noqa: E402
from dpfl.simulation.training import (  # noqa: E402
    EvaluationConfig,
    OptimizationConfig,
    PrivacyConfig,
    SamplingConfig,
    TaskConfig,
    TextConfig,
    TrainConfig,
    train,
)
from dpfl.simulation.training.config import AuditConfig  # noqa: E402

config = TrainConfig(
    task=TaskConfig(model='micro', text=TextConfig(vocabulary_size=96, sentence_length=10)),
    privacy=PrivacyConfig(
        mechanism=plan.mechanism, noise_multiplier=2.0, delta=1e-6, clip_norm=0.2
    ),
    sampling=SamplingConfig(rounds=16, population=160, clients_per_round=10, min_separation=8),
    optimization=OptimizationConfig(client_batch_size=16, client_max_batches=1),
    evaluation=EvaluationConfig(eval_every=16),
    audit=AuditConfig(audit=True, audit_canaries=1000),
)
result = train(config, 'tutorial/audited', overwrite=True)

# %% [markdown]
# The score of a canary is how far it sticks out of what was released, in standard deviations. Without the canary it is
# normal with mean 0 and deviation 1. With it, the mean is at most mu.


# %%
def scores_of(folder):
    """The scores of the canaries that took part, and of the others."""
    scores = Scores.load(f'{folder}/audit.npz')
    values = scores.releases * np.sqrt(scores.dimension)
    return values[scores.took_part], values[~scores.took_part]


def show(panel, folder, claimed, title):
    there, not_there = scores_of(folder)
    bins = np.linspace(-4, 8, 49)
    panel.hist(not_there, bins, alpha=0.6, label='held out')
    panel.hist(there, bins, alpha=0.6, label='took part')
    panel.axvline(claimed, color='C3', ls='--', label='claimed mu')
    panel.set(title=title, xlabel='score of a canary', ylabel='canaries')


def verdict(measured):
    found = measured.releases
    print(f'claimed:   epsilon {measured.epsilon_claimed:.2f}, mu {measured.mu_claimed:.2f}')
    print(
        f'estimated: epsilon {found.epsilon:.2f} '
        f'({found.epsilon_low:.2f} to {found.epsilon_high:.2f}), mu at least {found.mu_lower:.2f}'
    )
    exceeds = found.mu_lower > measured.mu_claimed
    print('the run breaks its promise' if exceeds else 'nothing speaks against the promise')


verdict(result.report.measured)

# %% [markdown]
# ## The same run with a fault
#
# Somebody mixed up two conventions, and the noise has half of the scale that the report claims. Nothing else in such a
# run looks wrong. Here the fault is made by hand: a run with half of the noise is held against the promise of the first
# one.

# %%
faulty = train(
    dataclasses.replace(config, privacy=dataclasses.replace(config.privacy, noise_multiplier=1.0)),
    'tutorial/faulty',
    overwrite=True,
)
promise = result.report.plan
caught = Measured.of(Scores.load('tutorial/faulty/audit.npz'), promise, 1e-6, 'pld')
verdict(caught)

# %% caption="Scores of 1,000 canaries in a correct run and in one with half of the noise"
figure, panels = plt.subplots(1, 2, figsize=(9.5, 3.4), layout='constrained', sharey=True)
show(panels[0], 'tutorial/audited', promise.mu, 'as planned')
show(panels[1], 'tutorial/faulty', promise.mu, 'half of the noise')
panels[0].legend()
plt.show()

# %% [markdown]
# On the left, the canaries that took part lie where the plan puts them. On the right they stick out twice as far, and
# the lower bound, which is wrong in one of twenty correct runs at most, is above the claim.
#
# An audit can show that a promise was broken. It cannot prove that it was kept: that is what the accounting is for.
#
# [How audits work](../reference/audits.md) has attackers, intervals, planted faults, and what the figures assume.
