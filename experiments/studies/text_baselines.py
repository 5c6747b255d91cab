r"""Measures predictors that only count words: what a model of the same clients has to beat.

Example:
  python -m experiments.studies.text_baselines --data_path=texts.jsonl \
      --vocabulary_text=public.txt \
      --vocabulary_size=2000

Accuracy, with and without unknown words, of a unigram, a bigram and a smoothed trigram predictor,
and the trigram model's loss, all as dpfl train measures them on the same held-out clients.
NOT private: by default the words of the training clients are counted without noise.
"""

import json
import sys

from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.reporting import plain_text
from dpfl.tasks.config import TextTaskConfig
from dpfl.tasks.text import ngrams, real_task
from experiments.studies.data import yardstick

_TASK = SettingsFlags(
    TextTaskConfig,
    defaults={'task': 'user_text'},
    choices={'task': ('user_text', 'stackoverflow')},
    skip=('language_size',),
)
_YARDSTICK = SettingsFlags(yardstick.YardstickConfig)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags, counts, and prints the measures."""
    task, config = _TASK.read(), _YARDSTICK.read()
    with command_line.refusing_bad_values():
        data = real_task.load(
            task.task, task.data, task.text, lambda text: print(text, file=sys.stderr)
        )
        found = yardstick.measure(data, config)
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
        for name in ngrams.NAMES
    ]
    print(plain_text.table(found), plain_text.columns(rows), not_covered, sep='\n\n')


if __name__ == '__main__':
    command_line.run(main)
