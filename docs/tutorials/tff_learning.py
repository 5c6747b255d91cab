# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Your aggregator in tff.learning
#
# You have a training process of `tff.learning` and want it to be private, and nothing else to change. An aggregator is
# all that is exchanged: `model_aggregator=build_aggregator(plan)`. The plan also computes the guarantee, so the noise
# and the number in the report cannot differ.
#
# ## A model and clients, as usual
#
# Clients hold points of two classes. Each client sees its own part of the plane.

# %%
import collections

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import Participation, ParticipationLog, accounting, aggregators, mechanisms
from dpfl.runtime import contexts

POPULATION, COHORT, ROUNDS = 300, 15, 20


def points(client, count=30):
    random = np.random.default_rng(client)
    centre = random.uniform(-1, 1, size=2)
    x = (centre + 0.5 * random.normal(size=(count, 2))).astype(np.float32)
    label = np.sin(3 * x[:, 0]) * 0.6 > x[:, 1]
    return x, label[:, None].astype(np.float32)


def client_data(client):
    x, y = points(client)
    return tf.data.Dataset.from_tensor_slices(collections.OrderedDict(x=x, y=y)).batch(10).repeat(3)


tf.keras.utils.set_random_seed(1)
network = tf.keras.Sequential(
    [
        tf.keras.layers.Dense(16, activation='tanh', input_shape=(2,)),
        tf.keras.layers.Dense(1, activation='sigmoid'),
    ]
)
model = tff.learning.models.functional_model_from_keras(
    network, tf.keras.losses.BinaryCrossentropy(), client_data(0).element_spec
)

# %% [markdown]
# ## A plan
#
# 300 clients, 15 in a round, 20 rounds: each client once. The noise is calibrated to epsilon 2.

# %%
participation = Participation(ROUNDS, min_separation=ROUNDS)
plan = accounting.PrivacyPlan.calibrated(
    epsilon=2.0,
    delta=1e-5,
    mechanism=mechanisms.optimize_blt(participation, num_buffers=2),
    participation=participation,
    clip_norm=0.5,
    clients_per_round=COHORT,
)
print(f'noise multiplier {plan.noise_multiplier:.3f}, epsilon {plan.epsilon(1e-5):.2f}')

# %% [markdown]
# ## Two processes
#
# With a plan the aggregator clips the updates, adds noise, and divides by the planned size of the cohort. Without one,
# `tff.learning` averages.


# %%
def build_process(aggregator=None):
    return tff.learning.algorithms.build_unweighted_fed_avg(
        model,
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
        server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0, momentum=0.9),
        model_aggregator=aggregator,
    )


processes = {
    'without noise': build_process(),
    'private': build_process(aggregators.build_aggregator(plan)),
}

# %% [markdown]
# ## The loop
#
# It is the usual one. What is new: the cohorts must keep the schema of the plan, and are logged. `local_runtime` runs
# TFF computations in threads of this process; any TFF context works, more slowly.

# %%
test = [np.concatenate(part) for part in zip(*map(points, range(10_000, 10_100)), strict=True)]


def predict(weights, x):
    """What the network computes, without TensorFlow: the probability of a class, [n, 1]."""
    first, first_bias, second, second_bias = weights.trainable
    return 1 / (1 + np.exp(-(np.tanh(x @ first + first_bias) @ second + second_bias)))


def accuracy(weights):
    return float(np.mean((predict(weights, test[0]) > 0.5) == (test[1] > 0.5)))


def run(process):
    order = np.random.default_rng(7).permutation(POPULATION).reshape(ROUNDS, COHORT)
    log, course = ParticipationLog(), []
    state = process.initialize()
    for cohort in order:
        state = process.next(state, [client_data(client) for client in cohort]).state
        log.append(cohort)
        course.append(accuracy(process.get_model_weights(state)))
    return state, course, log


courses, states = {}, {}
with contexts.local_runtime():
    for name, process in processes.items():
        states[name], courses[name], log = run(process)
        print(f'{name:14} accuracy {courses[name][-1]:.3f}')
    final = {name: processes[name].get_model_weights(state) for name, state in states.items()}

# %% caption="Accuracy on other clients"
figure, axes = plt.subplots(figsize=(6.5, 3.4), layout='constrained')
for (name, course), colour in zip(courses.items(), ('0.5', 'C0'), strict=True):
    axes.plot(range(1, ROUNDS + 1), course, color=colour, label=name)
axes.set(xlabel='round', ylabel='accuracy', xlim=(0, ROUNDS))
axes.legend()
plt.show()

# %% caption="What each model has learned; the line is the true border"
grid = np.stack(np.meshgrid(np.linspace(-2, 2, 120), np.linspace(-2, 2, 120)), -1)
figure, panels = plt.subplots(1, 2, figsize=(7, 3.4), layout='constrained', sharey=True)
for panel, (name, weights) in zip(panels, final.items(), strict=True):
    shown = predict(weights, grid.reshape(-1, 2)).reshape(120, 120)
    panel.imshow(shown, extent=(-2, 2, -2, 2), origin='lower', cmap='RdBu', vmin=0, vmax=1)
    panel.plot(grid[0, :, 0], 0.6 * np.sin(3 * grid[0, :, 0]), 'k', lw=1)
    panel.set(title=name, ylim=(-2, 2))
plt.show()

# %% [markdown]
# ## The report
#
# Plan and log together make the report. Its statement is about all models of the run.

# %%
report = accounting.PrivacyReport.from_plan(plan, deltas=[1e-5], log=log)
print(report.render().partition('## Not covered')[0])
print(report.basis, report.guarantee.epsilons)

# %% [markdown]
# ## Three things that would break the guarantee
#
# - **Other cohorts than planned.** A client that comes twice is in the log, and the report then has larger numbers.
# - **A state that is used twice.** After a crash, a loop that repeats a round with another cohort releases it twice,
#   and the plan counts it once. `GuardedProcess` refuses it: [TFF's training loop](../tff_loop.md#tffs-training-loop).
# - **Metrics of the training clients.** `process.next` returns them without noise. They are for nobody's eyes.
#
# [Aggregators](../reference/aggregators.md) lists what else a plan can do: adaptive clipping, weights, integers for
# secure aggregation, queries for loops without TFF.
