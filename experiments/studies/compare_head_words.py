r"""Checks whether trained models predict frequent words too often ([McMahan18], table 3).

Example:
  python -m experiments.studies.compare_head_words --models=runs/none,runs/blt,runs/tree \
      --vocabulary_size=996 --sentence_length=16

At every position of held-out text, the ten words that a model finds most probable are compared with
the 10, 50 and 100 most frequent words of that text. The table shows at which share of the positions
0, 1, ... 10 of the ten words are among the frequent ones. Noise could push a model from rare words,
whose embeddings get few updates, to frequent ones. [McMahan18] finds that the accuracy of a model
matters for this, not the noise itself.

Give the task flags that the runs had. No guarantee covers held-out text, so use the table for
simulations and public text only.
"""

import functools
import json

from absl import flags

from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.reporting import plain_text
from dpfl.simulation.training import EvaluationConfig, TaskConfig, execution
from dpfl.tasks import config as tasks
from dpfl.tasks import source
from dpfl.tasks.config import ImageFaultConfig, PlantingConfig

_TASK = SettingsFlags(
    TaskConfig,
    choices={'task': tasks.TEXT_TASKS, 'model': tasks.WORD_MODELS},
    skip=(
        'warm_start',
        'client_min_tokens',
        'client_min_sentences',
        *ImageFaultConfig().flat(),
        *PlantingConfig().flat(),
    ),
)
_MODELS = flags.DEFINE_list(
    'models', None, 'SavedModels, or directories of runs that contain one, comma-separated.'
)
_EVALUATION = SettingsFlags(
    EvaluationConfig,
    only=('eval_clients',),
    help={'eval_clients': 'Number of held-out clients whose text is used.'},
)
_SEED = SettingsFlags(
    output_flags.SeedConfig, help={'seed': 'Seed of the runs, for synthetic text.'}
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)
_BATCH_SIZE = 256


def main() -> None:
    """Checks the flags and prints the table."""
    paths = _MODELS.value
    if not paths:
        raise command_line.UsageError('--models: must be given')
    seed = _SEED.read().seed
    with command_line.refusing_bad_values():
        opened = source.open_task(_TASK.read(), seed, execution.teller(True))
        language = opened.language_model()
    assert language is not None  # --task allows tasks of words only.
    words = tuple(language[1])
    from experiments.studies.data import head_words

    heads = [head for head in head_words.HEADS if head < len(words)]
    if not heads:
        raise command_line.UsageError(
            f'--vocabulary_size: must be > {min(head_words.HEADS)}, is {len(words)}'
        )
    with command_line.refusing_bad_values():
        task = opened.load()
    rows = _rows(task, {path: _load(path, words) for path in paths}, words, heads)
    if _FORMAT.read().format == 'json':
        print(json.dumps({'heads': heads, 'top': head_words.TOP, 'models': rows}))
    else:
        print('\n\n'.join(_table(i, head, rows) for i, head in enumerate(heads)))


def _rows(task, models, words: tuple[str, ...], heads: list[int]) -> list[dict]:
    """Accuracy and histograms of every model on the held-out clients of the task."""
    import tensorflow_federated as tff

    from dpfl import learning
    from dpfl.tasks.text import tokenization
    from dpfl.tasks.text.models import saved_models as models_lib
    from experiments.studies.data import head_words

    dataset = task.heldout(_EVALUATION.read().eval_clients, _BATCH_SIZE)
    batches = list(dataset)
    if not batches:
        raise command_line.UsageError('--eval_clients: no held-out client has any text')
    ranks = head_words.ranked(batches, len(words))

    @functools.cache
    def functions(name: str):
        """Evaluation and histograms for the models of an architecture, traced once for all."""
        num_tokens = len(words) + tokenization.NUM_SPECIAL_TOKENS
        sequence_length = task.model.input_spec['x'].shape[1]
        model = models_lib.build(name, num_tokens, sequence_length, seed=0)
        return (
            learning.build_evaluation(model, dataset),
            head_words.build_histograms(model, ranks, heads=heads),
        )

    rows = []
    for path, model in models.items():
        evaluate, count = functions(model.name)
        weights = tff.learning.models.ModelWeights(model.weights, ())
        accuracy, counts = evaluate(weights)['accuracy'], count(weights, batches)
        rows.append({'model': path, 'accuracy': accuracy, 'counts': counts.tolist()})
    return rows


def _load(path: str, words: tuple[str, ...]):
    """A trained model; it must have this vocabulary."""
    from dpfl.tasks.text.models import saved_models

    with command_line.refusing_bad_values(path=_MODELS.name):
        model = saved_models.load(path)
    if model.vocabulary != words:
        raise command_line.UsageError(
            f'--{_MODELS.name}={path}: has another vocabulary than the task'
        )
    return model


def _table(i: int, head: int, rows: list[dict]) -> str:
    """The histograms for one number of frequent words, in percent."""
    cells = []
    for row in rows:
        counts = row['counts'][i]
        shares = {str(k): f'{100 * count / sum(counts):.1f}' for k, count in enumerate(counts)}
        cells.append({'model': row['model'], 'accuracy': row['accuracy'], **shares})
    return (
        f'Positions in %, by how many of the {len(rows[0]["counts"][i]) - 1} most probable words '
        f'are among the {head} most frequent:\n{plain_text.columns(cells)}'
    )


if __name__ == '__main__':
    command_line.run(main)
