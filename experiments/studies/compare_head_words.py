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

import collections
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import flags

from dpfl import _validate
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.reporting import plain_text
from dpfl.simulation.training import EvaluationConfig, TaskConfig, execution
from dpfl.tasks import config as tasks
from dpfl.tasks.config import ImageFaultConfig
from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS, PAD_ID

if TYPE_CHECKING:
    from tensorflow_federated.learning.models import FunctionalModel, ModelWeights

HEADS = (10, 50, 100)  # Sizes of the sets of most frequent words.
TOP = 10  # Predicted words per position.

_TASK = SettingsFlags(
    TaskConfig,
    choices={'task': tasks.TEXT_TASKS, 'model': tasks.WORD_MODELS},
    skip=(
        'warm_start',
        'client_min_tokens',
        *ImageFaultConfig().flat(),
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
        task = _TASK.read().open(seed, execution.teller(True)).load()
    # --task allows tasks of words only.
    assert task.language_model is not None and task.language_model[1] is not None
    words = tuple(task.language_model[1])
    heads = [head for head in HEADS if head < len(words)]
    if not heads:
        raise command_line.UsageError(f'--vocabulary_size: must be > {min(HEADS)}, is {len(words)}')
    rows = _rows(task, {path: _load(path, words) for path in paths}, words, heads)
    text = '\n\n'.join(_table(i, head, rows) for i, head in enumerate(heads))
    output_flags.show(_FORMAT, {'heads': heads, 'top': TOP, 'models': rows}, text)


def _rows(task, models, words: tuple[str, ...], heads: list[int]) -> list[dict]:
    """Accuracy and histograms of every model on the held-out clients of the task."""
    import tensorflow_federated as tff

    from dpfl import learning
    from dpfl.tasks.text.models import saved_models as models_lib

    dataset = task.heldout(_EVALUATION.read().eval_clients, _BATCH_SIZE)
    batches = list(dataset)
    if not batches:
        raise command_line.UsageError('--eval_clients: no held-out client has any text')
    ranks = ranked(batches, len(words))

    @functools.cache
    def functions(name: str):
        """Evaluation and histograms for the models of an architecture, traced once for all."""
        num_tokens = len(words) + NUM_SPECIAL_TOKENS
        sequence_length = task.model.input_spec['x'].shape[1]
        model = models_lib.build(name, num_tokens, sequence_length, seed=0)
        return (
            learning.build_evaluation(model, dataset),
            build_histograms(model, ranks, heads=heads),
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


def ranked(batches: Iterable[collections.OrderedDict], num_words: int) -> np.ndarray:
    """Ranks the words of the vocabulary by frequency.

    Args:
      batches: OrderedDict(x, y) of token ids; the targets y are counted.
      num_words: number of words, without the special tokens.

    Returns:
      Rank of each word, int32 [num_words], 0 for the most frequent one. Ties keep the order of the
      vocabulary.
    """
    counts = np.zeros(num_words, np.int64)
    for batch in batches:
        words = np.ravel(batch['y']) - NUM_SPECIAL_TOKENS
        counts += np.bincount(words[words >= 0], minlength=num_words)
    ranks = np.empty(num_words, np.int32)
    ranks[np.argsort(-counts, kind='stable')] = np.arange(num_words)
    return ranks


def build_histograms(
    model: 'FunctionalModel',
    ranks: np.ndarray,
    *,
    heads: Sequence[int] = HEADS,
    top: int = TOP,
) -> Callable[['ModelWeights', Iterable[collections.OrderedDict]], np.ndarray]:
    """Builds the histograms of how many predicted words are among the most frequent ones.

    Only words are ranked, since a keyboard cannot offer a special token. Positions without a target
    are left out.

    Args:
      model: a model with logits [B, L, V].
      ranks: rank of each word by frequency, [V - NUM_SPECIAL_TOKENS], from `ranked`.
      heads: sizes of the sets of most frequent words; one histogram for each.
      top: number of words that the model predicts at a position, the most probable ones.

    Returns:
      A function (model weights, batches OrderedDict(x, y) of integers [B, L]) -> int64
      [len(heads), top + 1]. Entry (i, k) is the number of positions where k of the `top` predicted
      words are among the heads[i] most frequent ones. All rows have the same sum.

    Raises:
      ValueError: if `top` or one of `heads` is not an integer in [1, number of words].
    """
    _validate.integer('top', top, minimum=1, maximum=len(ranks))
    for head in heads:
        _validate.integer('heads', head, minimum=1, maximum=len(ranks))

    import tensorflow as tf

    @tf.function
    def ranks_of_predictions(weights: Any, batch: Any) -> Any:
        logits = model.predict_on_batch(weights, batch['x'], training=False)
        present = tf.not_equal(batch['y'], PAD_ID)
        words = tf.boolean_mask(logits[..., NUM_SPECIAL_TOKENS:], present)
        return tf.gather(tf.constant(ranks), tf.math.top_k(words, top, sorted=False).indices)

    def histograms(
        weights: 'ModelWeights', batches: Iterable[collections.OrderedDict]
    ) -> np.ndarray:
        tensors = tf.nest.map_structure(
            tf.convert_to_tensor, (tuple(weights.trainable), tuple(weights.non_trainable))
        )
        result = np.zeros((len(heads), top + 1), np.int64)
        for batch in batches:
            predicted = ranks_of_predictions(tensors, batch).numpy()
            for row, head in zip(result, heads, strict=True):
                row += np.bincount((predicted < head).sum(axis=1), minlength=top + 1)
        return result

    return histograms


if __name__ == '__main__':
    command_line.run(main)
