r"""Measures predictors that only count words: what a model of the same clients has to beat.

Example:
  python -m experiments.studies.text_baselines --data_path=texts.jsonl \
      --vocabulary_text=public.txt \
      --vocabulary_size=2000

Accuracy, with and without unknown words, of a unigram, a bigram and a smoothed trigram predictor,
and the trigram model's loss, all as dpfl train measures them on the same held-out clients.
NOT private: by default the words of the training clients are counted without noise.
"""

import dataclasses
import itertools
import json
import math
import sys
from typing import Any

import numpy as np

from dpfl import _progress
from dpfl._settings import Settings, setting
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.errors import ArgumentError
from dpfl.reporting import plain_text
from dpfl.tasks.config import TextTaskConfig
from dpfl.tasks.text import baselines, real_task
from dpfl.tasks.text.baselines import Counts, Measures, Predictors, limited
from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS
from experiments.studies.shared.trigrams import BITS, MASK, KneserNey, of_pairs, trigrams

TRAINING, PUBLIC = 'training_clients', 'public_text'
NOT_PRIVATE = {
    TRAINING: 'Not private: the words of the training clients were counted without noise, and the '
    'measures are exact. No guarantee covers them.',
    PUBLIC: 'The counts are of public text; the measures on held-out clients are exact, and no '
    'guarantee covers them.',
}
# Clients or parts of public text that are measured at a time.
_AT_A_TIME = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class YardstickConfig(Settings):
    """What is counted, and on whom it is measured."""

    counted_on: str = setting(
        TRAINING,
        'Whose words are counted. training_clients: of all training clients, as far as a run would '
        'use their text; THIS IS NOT PRIVATE. public_text: of --vocabulary_text.',
        choices=(TRAINING, PUBLIC),
    )
    most_words: int | None = setting(
        None,
        'Words of the vocabulary that are counted at most, the first ones; by default all.',
        minimum=1,
    )
    eval_clients: int = setting(
        50,
        'Held-out clients to measure on, the first ones: those of an evaluation of '
        'dpfl train with the same value. If there are fewer, all.',
        minimum=1,
    )


_TASK = SettingsFlags(
    TextTaskConfig,
    defaults={'task': 'user_text'},
    choices={'task': ('user_text', 'stackoverflow')},
    skip=('language_size',),
)
_YARDSTICK = SettingsFlags(YardstickConfig)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags, counts, and prints the measures."""
    task, config = _TASK.read(), _YARDSTICK.read()
    with command_line.refusing_bad_values():
        data = real_task.load(task, lambda text: print(text, file=sys.stderr))
        found = measure(data, config)
    if _FORMAT.read().format == 'json':
        print(json.dumps(found))
        return
    not_covered = found.pop('not_covered')
    rows = [
        {
            'predictor': name,
            'accuracy': found.pop(f'{name}_accuracy'),
            'accuracy_with_oov': found.pop(f'{name}_accuracy_with_oov'),
            'loss': found.pop(f'{name}_loss', ''),
            'perplexity': found.pop(f'{name}_perplexity', ''),
        }
        for name in ('unigram', 'bigram', 'trigram')
    ]
    print(plain_text.table(found), plain_text.columns(rows), not_covered, sep='\n\n')


def measure(data: real_task.TextData, config: YardstickConfig) -> dict[str, Any]:
    """Counts and measures.

    Args:
      data: the text of clients.
      config: what is asked for.

    Returns:
      JSON values by name: `counted_on`, `counted_words` (of the vocabulary; as rows are packed),
      `words` (of the vocabulary, of the held-out clients), `oov_share` (of the held-out words),
      the measures of `baselines.Measures.to_dict`, loss and perplexity of the trigram model over
      all targets but padding, and `not_covered`, a sentence.

    Raises:
      ArgumentError: if there is nothing to count or to measure.
    """
    task = data.task
    if config.counted_on == PUBLIC and data.public_text is None:
        raise ArgumentError('counted_on', PUBLIC, 'needs vocabulary_text')
    own = map(task.training_tokens, range(task.training.count))
    texts = data.public_tokens() if config.counted_on == PUBLIC else own
    shown = _progress.bar(texts, 'counting', unit='text', delay=2, leave=False)
    kept = shown if config.most_words is None else limited(shown, config.most_words)
    counts = Counts.of(map(trigrams, kept))
    model = KneserNey.of(counts, task.vocabulary.num_tokens)
    pairs, occurrences, _ = of_pairs(counts)
    predictors = Predictors.of(Counts(pairs >> BITS << baselines.BITS | pairs & MASK, occurrences))
    if predictors is None:
        raise ArgumentError('counted_on', config.counted_on, 'has no words of the vocabulary')
    total, targets, loss = Measures(), 0, 0.0
    clients = task.heldout_tokens(0, config.eval_clients)
    while some := list(itertools.islice(clients, _AT_A_TIME)):
        rows = np.concatenate(some)
        keys = trigrams(rows)
        is_word = keys & MASK >= NUM_SPECIAL_TOKENS
        hits = int((model.predictions(keys[is_word]) == keys[is_word] & MASK).sum())
        measures = predictors.measure(rows)
        total += dataclasses.replace(measures, hits={**measures.hits, 'trigram': hits})
        targets += keys.size
        loss -= float(model.log_probabilities(keys).sum())
    if not total.words:
        raise ArgumentError(
            'eval_clients', config.eval_clients, 'their text has no words of the vocabulary'
        )
    return {
        'counted_on': config.counted_on,
        'counted_words': int(counts.counts[counts.keys & MASK >= NUM_SPECIAL_TOKENS].sum()),
        'words': total.words,
        'oov_share': total.unknown / (total.words + total.unknown),
        **total.to_dict(),
        'trigram_loss': loss / targets,
        'trigram_perplexity': math.exp(loss / targets),
        'not_covered': NOT_PRIVATE[config.counted_on],
    }


if __name__ == '__main__':
    command_line.run(main)
