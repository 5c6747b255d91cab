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
import dataclasses
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from dpfl import _random
from dpfl._settings import Settings, setting
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.reporting import plain_text
from dpfl.reporting.charts import Line, Panel, draw
from dpfl.tasks.before_training import WordCounts, WordRelease
from dpfl.tasks.config import DATA_VOCABULARY, TaskConfig, TextConfig, TextTaskConfig
from dpfl.tasks.text import text_task

NOT_PRIVATE = (
    'Not private: the words are compared with exact counts of the words of the training clients.'
)
_DEFAULTS = TextConfig()
# Words of a language with Zipf's law, and words that its clients write: median, and standard
# deviation of the logarithm.
_LANGUAGE, _MEDIAN, _SPREAD, _MOST = 200_000, 150.0, 1.2, 20_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecallConfig(Settings):
    """What is measured."""

    epsilons: tuple[float, ...] = setting(
        (0.5, 1.0, 2.0, 8.0), 'Epsilons of finding words.', above=0
    )
    delta: float = setting(1e-6, 'Delta of finding words.', above=0, below=1)
    heads: tuple[int, ...] = setting(
        (1000, 2000, 10_000),
        'Numbers of most frequent words of which the share that is found is measured.',
        minimum=1,
    )
    words_per_client: int = setting(
        _DEFAULTS.vocabulary_words_per_client, 'As --vocabulary_words_per_client of train.'
    )
    repeats: int = setting(3, 'Draws of the noise, over which the shares are averaged.', minimum=1)
    zipf_clients: int = setting(
        40_000,
        "Clients of --task=synthetic_text, whose words have Zipf's law: 200,000 words, the word of "
        'rank r with a probability in proportion to 1/r. A client writes 150 words in the median.',
        minimum=1,
    )


_READING = ('client_column', 'text_column')
_TASK = SettingsFlags(
    TextTaskConfig,
    defaults={'task': 'user_text', 'vocabulary': DATA_VOCABULARY},
    skip=tuple(name for name in TextConfig().flat() if name not in (*_READING, 'vocabulary')),
)
_RECALL = SettingsFlags(RecallConfig)
_SEED = SettingsFlags(output_flags.SeedConfig)
_FORMAT = SettingsFlags(output_flags.FormatConfig)
_PLOT = SettingsFlags(output_flags.PlotConfig)


def main() -> None:
    """Checks the flags, finds words, and prints the table."""
    task, config, seed = _TASK.read(), _RECALL.read(), _SEED.read().seed
    plot = _PLOT.read().plot
    command_line.check_writable(None, plot)
    with command_line.refusing_bad_values():
        counts = WordCounts.of(_clients(task, config, seed), seed)
        rows = measure(counts, config, seed)
    if plot is not None:
        draw(_panels(rows, config.heads), 2).savefig(plot, dpi=100)
    shown = [{**row, 'epsilon': row['epsilon'] or 'without noise'} for row in rows]
    text = f'{plain_text.columns(shown)}\n\n{NOT_PRIVATE}'
    output_flags.show(_FORMAT, {'rows': rows, 'not_covered': NOT_PRIVATE}, text)


def _clients(task: TextTaskConfig, config: RecallConfig, seed: int) -> Iterable[Mapping[str, int]]:
    """How often each client uses each of its words."""
    if task.task == 'synthetic_text':
        return zipf_clients(config.zipf_clients, seed)
    source = text_task.TextTask(
        TaskConfig(task=task.task, data=task.data, text=task.text),
        seed,
        lambda text: print(text, file=sys.stderr),
    )
    training = source.word_task.data.training
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


def zipf_clients(count: int, seed: int) -> Iterator[Mapping[str, int]]:
    """Clients whose words have Zipf's law: number of uses by word."""
    cumulated = np.cumsum(1 / np.arange(1, _LANGUAGE + 1))
    cumulated /= cumulated[-1]
    for client in range(count):
        random = _random.generator('zipf_clients', seed, client)
        size = min(max(int(random.lognormal(np.log(_MEDIAN), _SPREAD)), 1), _MOST)
        ranks = np.searchsorted(cumulated, random.random(size), side='right')
        yield collections.Counter(f'w{rank}' for rank in ranks.tolist())


def measure(counts: WordCounts, config: RecallConfig, seed: int) -> list[dict[str, float]]:
    """A row for each epsilon, and one without noise.

    A row has `epsilon` (0 without noise), `words`, the number of words that were found, `recall_n`
    for each n of the heads: the share of the n words that most clients use that is found, and
    `coverage_n`: the share of all words that clients write which is among the n first words found,
    a vocabulary of size n. Ties of the exact counts are in alphabetical order.
    """
    users = np.bincount(counts.ids, minlength=len(counts.words))
    uses = np.bincount(counts.ids, counts.counts, minlength=len(counts.words))
    names = np.array(counts.words)
    exact = [counts.words[i] for i in np.lexsort((names, -users))]
    places = {word: i for i, word in enumerate(counts.words)}
    shares = uses / uses.sum()
    rows = [{'epsilon': 0.0, **_row(exact, exact, shares, places, config.heads)}]
    for epsilon in config.epsilons:
        release = WordRelease.of_guarantee(
            epsilon,
            config.delta,
            words_per_client=config.words_per_client,
        )
        drawn = [
            _row(
                release.find(counts, _random.generator('word_recall', seed, each)),
                exact,
                shares,
                places,
                config.heads,
            )
            for each in range(config.repeats)
        ]
        means = {name: float(np.mean([row[name] for row in drawn])) for name in drawn[0]}
        rows.append({'epsilon': epsilon, **means})
    return rows


def _row(
    found: Sequence[str],
    exact: Sequence[str],
    shares: np.ndarray,
    places: Mapping[str, int],
    heads: Sequence[int],
) -> dict[str, float]:
    row: dict[str, float] = {'words': len(found)}
    all_found = set(found)
    for head in heads:
        wanted = exact[:head]
        row[f'recall_{head}'] = sum(word in all_found for word in wanted) / len(wanted)
        row[f'coverage_{head}'] = float(sum(shares[places[word]] for word in found[:head]))
    return row


if __name__ == '__main__':
    command_line.run(main)
