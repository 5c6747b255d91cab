# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # BLT against tree: from theory to a plot
#
# A server that trains with differential privacy adds noise to the sum of a cohort's updates in every round. Every model
# is a sum of all updates so far, so what matters is the noise of the *prefix sums*, and that can be far less than the
# noise of the rounds if later rounds take some of it back. This page compares three ways to do so. Nothing here needs
# TensorFlow.
#
# ## A mechanism is a matrix
#
# Take lower-triangular matrices: `A`, of ones, makes prefix sums of the updates. Choose an invertible `C`, and release
# `x + C^-1 z` with independent noise `z`. The prefix sums then have the noise `B z` with `B = A C^-1`:
#
# - the **error** of round t is the standard deviation of row t of `B z`, the norm of that row;
# - the **sensitivity** is how far one client can move `C x`. It scales the noise.
#
# The product of the two is the **loss**: the noise of a prefix sum at a fixed guarantee. `C = I` is independent noise.

# %%
import matplotlib.pyplot as plt
import numpy as np

from dpfl import Participation, accounting, mechanisms

participation = Participation(rounds=512, min_separation=128)
print(participation.count, 'rounds per client at most')

# %% [markdown]
# A client takes part in every 128th round at most, so up to four times. Three mechanisms for this schema: independent
# noise, a binary tree with Honaker's estimator, and a BLT, whose three buffers are optimised for it.

# %%
candidates = {
    'independent': mechanisms.Identity(512),
    'tree (Honaker)': mechanisms.HonakerTree(512),
    'BLT, 3 buffers': mechanisms.optimize_blt(participation, num_buffers=3),
}
print(f'{"":16}{"sensitivity":>12}{"max error":>12}{"max loss":>12}{"buffers":>9}')
for name, mechanism in candidates.items():
    print(
        f'{name:16}{mechanism.sensitivity(participation):12.3f}{mechanism.max_error():12.3f}'
        f'{mechanism.max_loss(participation):12.3f}{mechanism.num_buffers():9d}'
    )

# %% [markdown]
# Independent noise has the smallest sensitivity and the largest error. The BLT pays some sensitivity for an error that
# hardly grows, and needs three copies of the model in memory. The tree needs nine, about one for each level.
#
# ## The strategy, seen from above
#
# Column t of `C` says how an update of round t enters the rounds after it. On the right, the first column of `C^-1`.

# %% caption="First columns of the strategy of a BLT and of its inverse"
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout='constrained')
blt = candidates['BLT, 3 buffers'].strategy_matrix()
left.semilogy(blt[:, 0], label='BLT')
left.semilogy(np.arange(1, 513) ** -0.5, ':', label='1 / sqrt(t)')
left.set(title='First column of C', xlabel='round', ylim=(1e-3, 2))
left.legend()
inverse = np.linalg.inv(blt[:64, :64])
right.stem(range(1, 40), inverse[1:40, 0], basefmt=' ')
right.axhline(0, color='0.7', lw=0.8)
right.set(title='BLT: what comes after z of round 0', xlabel='rounds later')
plt.show()

# %% [markdown]
# On the right: noise that was added in one round is taken back, bit by bit, in the rounds after it. This is what makes
# the prefix sums quiet. Any single round stays as noisy as before, so only the whole run has a guarantee.
#
# ## Theory against a simulation
#
# `mechanisms.stream` runs a mechanism round by round in NumPy, as a training run does in TensorFlow. 400 coordinates,
# all with noise for the same guarantee (mu = 1):

# %% caption="Noise of the prefix sums: theory and 400 simulated coordinates"
figure, axes = plt.subplots(figsize=(7.5, 3.8), layout='constrained')
random = np.random.default_rng(0)
for name, mechanism in candidates.items():
    sensitivity = mechanism.sensitivity(participation)
    z = sensitivity * random.normal(size=(512, 400))
    noise = np.array(list(mechanisms.stream(mechanism.kernel(), z)))
    measured = noise.cumsum(axis=0).std(axis=1)
    (line,) = axes.plot(sensitivity * np.sqrt(mechanism.squared_error()), label=name, lw=1)
    axes.plot(measured, '.', ms=2, color=line.get_color())
axes.set(xlabel='round', ylabel='standard deviation of a prefix sum', ylim=0)
axes.legend()
plt.show()

# %% [markdown]
# Lines are `sensitivity * sqrt(squared_error())`, dots are simulated. The tree is worst just before a power of two,
# when it has the most nodes to add up.
#
# ## What it is worth
#
# At equal noise in the models, a better mechanism gives a smaller epsilon. Fix the noise of the worst prefix sum and
# ask each mechanism for its guarantee:

# %%
target = 40.0  # Standard deviation of the worst prefix sum, in clip norms.
for name, mechanism in candidates.items():
    plan = accounting.PrivacyPlan(
        mechanism=mechanism,
        participation=participation,
        clip_norm=1.0,
        noise_multiplier=target / mechanism.max_error(),
        clients_per_round=1000,
    )
    print(f'{name:16} epsilon {plan.epsilon(delta=1e-8):6.2f} at delta 1e-8')

# %% [markdown]
# ## More rounds, other schemas
#
# How the loss grows with the number of rounds, if a client takes part once in a quarter of the run:

# %% caption="Loss of the mechanisms by the number of rounds"
lengths = [32, 64, 128, 256, 512, 1024]
losses: dict[str, list[float]] = {'independent': [], 'tree (Honaker)': [], 'BLT, 3 buffers': []}
for rounds in lengths:
    schema = Participation(rounds, min_separation=rounds // 4)
    losses['independent'].append(mechanisms.Identity(rounds).max_loss(schema))
    losses['tree (Honaker)'].append(mechanisms.HonakerTree(rounds).max_loss(schema))
    best = mechanisms.optimize_blt(schema, num_buffers=3)
    losses['BLT, 3 buffers'].append(best.max_loss(schema))
figure, axes = plt.subplots(figsize=(6, 3.4), layout='constrained')
for name, values in losses.items():
    axes.loglog(lengths, values, 'o-', label=name, base=2)
axes.set(xlabel='rounds', ylabel='max loss')
axes.legend()
plt.show()

# %% [markdown]
# The loss of independent noise grows with the square root of the rounds, that of the others with powers of the
# logarithm. [Choosing figures for a plan](production_run.md) goes on from here with a schema that a fleet of phones can
# keep.
