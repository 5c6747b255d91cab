# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Private next-word prediction in ten minutes
#
# A keyboard learns which word comes next from what people type. Their text stays on their phones; what leaves a phone
# is an update of the model, and the server adds noise to the sum of a hundred updates. At the end, the models of all
# rounds together say almost nothing about any single person, and a report states how much "almost" is.
#
# This page trains such a model on synthetic text, with 3,000 clients, in some seconds per run.
#
# ## The run is a value
#
# A run is described by settings. Those that are not given have defaults.

# %%
import dataclasses
import textwrap

import matplotlib.pyplot as plt
import numpy as np

from dpfl.simulation.training import (
    EvaluationConfig,
    GenerateConfig,
    OptimizationConfig,
    PrivacyConfig,
    SamplingConfig,
    TaskConfig,
    TextConfig,
    TrainConfig,
    generate,
    train,
)

config = TrainConfig(
    task=TaskConfig(model='micro', text=TextConfig(vocabulary_size=96, sentence_length=10)),
    privacy=PrivacyConfig(mechanism='blt', target_epsilon=1.0, delta=1e-6, clip_norm=0.2),
    sampling=SamplingConfig(
        rounds=30, population=3000, clients_per_round=100, min_separation=30, max_participations=1
    ),
    optimization=OptimizationConfig(
        client_batch_size=16,
        client_max_batches=2,
        client_learning_rate=2.0,
        server_learning_rate=3.0,
        server_momentum=0.8,
    ),
    evaluation=EvaluationConfig(eval_every=2),
)

# %% [markdown]
# - **task**: a recurrent network with 2,600 parameters that predicts the next of 96 words;
# - **privacy**: noise of the mechanism BLT, as little as epsilon 1 at delta 1e-6 allows. No update is longer than 0.2;
# - **sampling**: 30 rounds of 100 clients, each client in one round only;
# - **optimization**: a client takes two steps of gradient descent, the server uses momentum;
# - **evaluation**: accuracy on held-out clients after every other round.
#
# `dry_run(config)` says what this costs in noise, memory and epsilon, before anything is trained.

# %% [markdown]
# ## Train
#
# The directory `tutorial/private` will hold everything that the run leaves: metrics, model, ledger, report. With
# `overwrite` this page can be run again.

# %%
private = train(config, 'tutorial/private', overwrite=True)
print({name: round(private.last[name], 3) for name in ('loss', 'accuracy', 'epsilon')})

# %% [markdown]
# How much does the noise cost? The same run without it:

# %%
without = train(
    dataclasses.replace(config, privacy=PrivacyConfig(mechanism='none', clip_norm=0.2)),
    'tutorial/without_noise',
    overwrite=True,
)

# %% caption="Accuracy on held-out clients, and epsilon so far"
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), layout='constrained')
runs = {'without noise': without, 'private': private}
for (name, result), colour in zip(runs.items(), ('0.5', 'C0'), strict=True):
    measured = ~np.isnan(result.metrics['accuracy'])
    left.plot(
        result.metrics['round'][measured],
        result.metrics['accuracy'][measured],
        '.-',
        color=colour,
        label=name,
    )
for name, accuracy in private.reference_accuracies.items():
    left.axhline(accuracy, color='0.7', lw=0.8, ls='--')
    left.text(0.3, accuracy + 0.005, name.replace('_', ' '), fontsize=8, color='0.4')
left.set(xlabel='round', ylabel='accuracy', ylim=0, xlim=(0, 30))
left.legend(loc='lower right')
right.plot(private.metrics['round'], private.metrics['epsilon'], color='C0')
right.set(xlabel='round', ylabel='epsilon at delta 1e-6', ylim=0)
plt.show()

# %% [markdown]
# The dashed lines are the best accuracies of any model that knows no word, or one word, before the next one, and of any
# model at all. Epsilon is that of all rounds so far. A client takes part once, but with BLT noise its update still counts
# in later releases, so epsilon grows a little after its round; in return the models have less noise.
#
# ## What it writes
#
# Sentences drawn from the model, word by word, with the noise that it has learned in:

# %%
for text in generate(GenerateConfig(count=6, length=10), 'tutorial/private'):
    print(text.text)

# %% [markdown]
# The words are synthetic. In a run on real text, such sentences show what the clients write without showing what
# anybody wrote: [Debugging text](../debug_text.md).
#
# ## The report
#
# `tutorial/private/privacy_report.html` begins with the guarantee, what it means for one client and what it does not
# cover. The copy of `dpfl export_run --public` is the one to hand on: it has neither accuracies nor counts of clients.

# %%
page = private.report.render()
for line in page.partition('## Not covered')[0].splitlines():
    print(textwrap.fill(line, 100, subsequent_indent='  '))
print('...')
for line in page.partition('## Not covered\n\n')[2].splitlines()[:4]:
    print(textwrap.fill(line, 100, subsequent_indent='  '))

# %% [markdown]
# ## From here
#
# - Your own text: set `TaskConfig(name='user_text', ...)`, or see [Your own data](../own_data.md).
# - Your own model: [Your aggregator in tff.learning](tff_learning.md), [Your own data](../own_data.md).
# - Why BLT: [BLT against tree](blt_and_tree.md).
# - The same run from a shell: `./scripts/quickstart.sh`.
