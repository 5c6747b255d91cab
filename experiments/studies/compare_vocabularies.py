r"""Compares words that are found privately with words that are counted without noise.

Examples:
  python -m experiments.studies.compare_vocabularies --data_path=texts.parquet
  python -m experiments.studies.compare_vocabularies --task=synthetic_text --plot=zipf.png

For every epsilon the table has the number of words that `train --vocabulary=private` finds, the
share of the most frequent words among them, and the share of all words of the clients that they
cover. With --task=synthetic_text the clients write words with Zipf's law.

NOT private: the shares are exact.
"""

import collections
import json
import sys
from collections.abc import Iterable, Mapping, Sequence

from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.reporting import plain_text
from dpfl.reporting.charts import Line, Panel, draw
from dpfl.tasks.config import DATA_VOCABULARY, TextConfig, TextTaskConfig
from dpfl.tasks.text import real_task
from dpfl.tasks.text.private_words import WordCounts
from experiments.studies.data import word_recall

_READING = ('client_column', 'text_column', 'strict', 'author_max_words')
_TASK = SettingsFlags(
    TextTaskConfig,
    defaults={'task': 'user_text', 'vocabulary': DATA_VOCABULARY},
    skip=tuple(name for name in TextConfig().flat() if name not in (*_READING, 'vocabulary')),
)
_RECALL = SettingsFlags(word_recall.RecallConfig)
_SEED = SettingsFlags(output_flags.SeedConfig)
_FORMAT = SettingsFlags(output_flags.FormatConfig)
_PLOT = SettingsFlags(output_flags.PlotConfig)


def main() -> None:
    """Checks the flags, finds words, and prints the table."""
    task, config, seed = _TASK.read(), _RECALL.read(), _SEED.read().seed
    with command_line.refusing_bad_values():
        counts = WordCounts.of(_clients(task, config, seed), seed)
        rows = word_recall.measure(counts, config, seed)
    plot = _PLOT.read().plot
    if plot is not None:
        draw(_panels(rows, config.heads), 2).savefig(plot, dpi=100)
    if _FORMAT.read().format == 'json':
        print(json.dumps({'rows': rows, 'not_covered': word_recall.NOT_PRIVATE}))
        return
    shown = [{**row, 'epsilon': row['epsilon'] or 'without noise'} for row in rows]
    print(plain_text.columns(shown), word_recall.NOT_PRIVATE, sep='\n\n')


def _clients(
    task: TextTaskConfig, config: word_recall.RecallConfig, seed: int
) -> Iterable[Mapping[str, int]]:
    """How often each client uses each of its words."""
    if task.task == 'synthetic_text':
        return word_recall.zipf_clients(config.zipf_clients, seed)
    data = real_task.load(
        task.task, task.data, task.text, lambda text: print(text, file=sys.stderr)
    )
    training = data.task.training
    return (
        collections.Counter(word for sentence in training.sentences(client) for word in sentence)
        for client in range(training.count)
    )


def _panels(rows: Sequence[Mapping[str, float]], heads: Sequence[int]) -> list[Panel]:
    exact, noised = rows[0], rows[1:]
    epsilons = [row['epsilon'] for row in noised]
    recall = [
        Line(f'{head:,} words', epsilons, [row[f'recall_{head}'] for row in noised], i)
        for i, head in enumerate(heads)
    ]
    coverage = [
        Line(f'{head:,} words', epsilons, [row[f'coverage_{head}'] for row in noised], i)
        for i, head in enumerate(heads)
    ]
    coverage += [
        Line(f'{head:,}, without noise', epsilons, [exact[f'coverage_{head}']] * len(noised), i, 2)
        for i, head in enumerate(heads)
    ]
    titles = ('Most frequent words that are found', 'Words of the clients that are covered')
    return [
        Panel(
            title,
            x_label='epsilon of finding words',
            y_label='share',
            lines=lines,
            x_log=True,
            y_range=(0.0, 1.02),
        )
        for title, lines in zip(titles, (recall, coverage), strict=True)
    ]


if __name__ == '__main__':
    command_line.run(main)
