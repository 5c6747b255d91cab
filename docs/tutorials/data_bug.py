# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Finding a data bug with a private GAN
#
# An app reads handwritten digits with a model that runs on the phone. After an update the accuracy falls on some
# phones, and nobody may look at their images. What can be looked at is what a private *generator* draws that was
# trained on them ([Augenstein20], section 6): its guarantee covers every image that it draws.
#
# This page is a small copy of that study. The phones, the digits and the bug are synthetic.
#
# ## The fleet
#
# 600 phones. The update has inverted the images on about a third of them. In this simulation we know; the app's
# developers do not.

# %%
import functools
import pathlib

import matplotlib.pyplot as plt
import numpy as np

from dpfl import Participation, accounting, mechanisms
from dpfl.simulation.training import (
    EvaluationConfig,
    GanConfig,
    GanOptimizationConfig,
    PrivacyConfig,
    SamplingConfig,
    train,
)
from dpfl.tasks import federated_task
from dpfl.tasks.images import image_clients, synthetic_glyphs

bug = image_clients.Faults(names=('inverted',), share=0.3, seed=5)
fleet = synthetic_glyphs.SyntheticGlyphs(seed=3, digit_share=1.0, median_examples=40, faults=bug)
PHONES = 600

# %% [markdown]
# ## What the app knows
#
# The app's model: for each digit the mean of 4,000 public images; an image is read as the digit with the nearest mean.
# Users correct wrong readings, so each phone knows its own accuracy. (A real study would see these values through a
# private estimate only; here they are drawn directly.)

# %%
writers = synthetic_glyphs.SyntheticGlyphs(seed=99, digit_share=1.0)
images, labels = (
    np.concatenate(part)
    for part in zip(*(writers.examples(writer, 20) for writer in range(200)), strict=True)
)
means = np.array([images[labels == digit].mean(axis=0) for digit in range(10)])


def accuracy(phone):
    pixels, truth = fleet.examples(phone, 40)
    distances = ((pixels[:, None] - means) ** 2).sum(axis=(2, 3))
    return np.mean(distances.argmin(axis=1) == truth)


accuracies = np.array([accuracy(phone) for phone in range(PHONES)])

# %% caption="Accuracy of the app's model on each phone"
figure, axes = plt.subplots(figsize=(6.5, 3), layout='constrained')
axes.hist(accuracies, bins=20, range=(0, 1))
axes.axvline(0.25, color='C3', ls='--')
axes.set(xlabel='accuracy on a phone', ylabel='phones')
plt.show()

# %% [markdown]
# Two groups. One works as before. What is wrong with the other one?
#
# ## Two generators
#
# One is trained on phones with an accuracy below 0.25, one on the others. Each phone decides by itself to which group it
# belongs. In a round, phones improve the *discriminator*, which tells real images from generated ones; the server adds
# noise to the sum of their updates, and trains the generator against it. No image leaves a phone.


# %%
def task_of(phones):
    def examples(client, most):
        return image_clients.named(*fleet.examples(int(phones[client]), most))

    # Only the figures of an evaluation see these: in this simulation, public images.
    shown = image_clients.named(images[:200], labels[:200])
    return federated_task.FederatedTask(
        model=None,  # A GAN has its own.
        population=len(phones),
        client_batches=functools.partial(federated_task.client_batches, examples),
        heldout=lambda clients, size: federated_task.dataset(shown, size),
    )


def generator_of(phones, name):
    config = GanConfig(
        optimization=GanOptimizationConfig(model='small', client_max_batches=2),
        privacy=PrivacyConfig(
            mechanism='gaussian', clip_norm=1.0, noise_multiplier=0.01, delta=1e-3
        ),
        sampling=SamplingConfig(rounds=26, clients_per_round=8, population=len(phones)),
        evaluation=EvaluationConfig(eval_every=26),
    )
    folder = pathlib.Path('tutorial', name)
    train(config, folder, task=task_of(phones), overwrite=True)
    return plt.imread(next(p for p in sorted((folder / 'plots').glob('generated*'))))


low, high = np.flatnonzero(accuracies < 0.25), np.flatnonzero(accuracies >= 0.25)
print(len(low), 'phones with low accuracy,', len(high), 'others')
sheets = {
    'trained where the app does badly': generator_of(low, 'low'),
    'trained where it does well': generator_of(high, 'high'),
}

# %% caption="Images that the two generators draw; none of them is anybody's"
figure, panels = plt.subplots(1, 2, figsize=(9.5, 3), layout='constrained')
for panel, (title, sheet) in zip(panels, sheets.items(), strict=True):
    panel.imshow(sheet[:240, :480], cmap='gray', vmin=0, vmax=1)
    panel.set(title=title)
    panel.axis('off')
plt.show()

# %% [markdown]
# The generators were trained for seconds, and no digit can be read. But the left sheet has white strokes on black, and
# the right one black strokes on white: on the phones with low accuracy, images are inverted. That is the bug.
#
# A number says the same: the mean intensity, which is 1 for white paper.

# %%
for title, sheet in sheets.items():
    shown = sheet if sheet.ndim == 2 else sheet[..., 0]
    print(f'{title:34} mean intensity {shown.mean():.2f}')

# %% [markdown]
# ## How private is that?
#
# This simulation is not private: with 8 phones in a round, noise that protects would hide everything. A real fleet has
# more phones. The noise of the mean update stays the same if there are 1,000 phones in a round and the noise of the sum
# is larger by the same factor. Each phone would take part once:

# %%
once = Participation(rounds=26, min_separation=26)
real = accounting.PrivacyPlan(
    mechanism=mechanisms.Identity(26),
    participation=once,
    clip_norm=1.0,
    noise_multiplier=0.01 * 1000 / 8,
    clients_per_round=1000,
)
print(f'{26 * 1000:,} phones, epsilon {real.epsilon(delta=1e-6):.2f} at delta 1e-6')

# %% [markdown]
# The whole study takes ten minutes: [Debugging images](../debug_images.md) trains generators until letters can be
# read, with several faults, verdicts with intervals, and a check that nothing is found where there is no bug.
