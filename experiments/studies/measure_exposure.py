r"""Measures how far models have memorised secrets that were planted in the text of clients.

Example:
  python -m experiments.studies.plant_secrets --flagfile=configs/synthetic_text.blt.flags \
      --output_dir=runs/secrets --secrets=20 --secret_copies=1,16
  python -m experiments.studies.measure_exposure --run_dirs=runs/secrets

A secret is a sentence with random words; its exposure is log2 of the number of candidates, less
log2 of its rank among them under the model ([Carlini19]). It is 0 if all other candidates are more
probable, and 1.44 bits on average if the model is independent of the secret. The table also has the
p-value of that hypothesis, and the largest mean exposure that the guarantee of the run allows. Runs
that differ in their seeds only are pooled. --plot draws the exposures of several runs by their
guarantees.

The random words are n tokens drawn uniformly from an alphabet of K tokens after a known prefix, so
there are K^n candidates. Candidates that score as much as the secret count as better, so no
exposure is overstated. If the model is independent of the secret, P(exposure >= x) <= 2^-x. If the
secret is the data of one client of a run with the guarantee (epsilon, delta), P(exposure >= x) is
at most e^epsilon 2^-x + delta, since the run without that client is independent of the secret.
"""

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import flags
from matplotlib.figure import Figure
from scipy import stats

from dpfl import _json
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.errors import NOT_SHOWN, ArgumentError
from dpfl.reporting import charts, plain_text
from experiments.studies.shared import finished_run, planting, ranking
from experiments.studies.shared.finished_run import FinishedRun

_RUNS = flags.DEFINE_list(
    'run_dirs', None, 'Directories of finished runs with secrets, comma-separated.'
)
_PLOT = SettingsFlags(output_flags.PlotConfig)
_DATA = SettingsFlags(output_flags.DataConfig)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags, measures the runs, prints the table, and draws the figure."""
    plot, data = _PLOT.read().plot, _DATA.read().data
    if not _RUNS.value:
        raise command_line.UsageError('--run_dirs: must be given')
    command_line.check_writable(None, plot, data)
    with command_line.refusing_bad_values(run_dir=_RUNS.name):
        opened = [finished_run.open_run(directory) for directory in _RUNS.value]
        measured = [measure(run) for run in opened]
        table = rows(list(zip(opened, measured, strict=True)))
        output_flags.write_rows(data, table)
    if plot is not None:
        draw(table).savefig(plot, dpi=90)
    runs = [to_dict(*each) for each in zip(opened, measured, strict=True)]
    values = {'rows': table, 'runs': runs}
    output_flags.show(_FORMAT, values, plain_text.columns(table), allow_nan=False)


@dataclasses.dataclass(frozen=True)
class Kind:
    """The exposures of secrets of a run with equal numbers of copies and holders.

    Attributes:
      copies: number of copies that each holder has of a secret.
      holders: clients that hold a secret.
      candidates: number of candidates of each secret.
      took_part: secrets of which at least one holder took part in the run.
      participations: mean number of participations of the holders of a secret, added up.
      exposures: of each secret, in bits.
      p_value: of the hypothesis that the model is independent of the secrets.
      ceiling: the largest mean exposure that the guarantee allows (`ceiling`); None if
        the plan has no guarantee for groups of that size.
    """

    copies: int
    holders: int
    candidates: int
    took_part: int
    participations: float
    exposures: tuple[float, ...]
    p_value: float
    ceiling: float | None

    @property
    def most_bits(self) -> float:
        """The largest exposure that there can be."""
        return math.log2(self.candidates)

    @property
    def mean(self) -> float:
        """Mean exposure in bits; 1 / ln 2 = 1.44 on average by chance, or less."""
        return math.fsum(self.exposures) / len(self.exposures)


def to_dict(run: FinishedRun, kinds: Sequence[Kind]) -> dict[str, Any]:
    """The exposures of a run as JSON values; an infinite epsilon is None."""
    return {
        'run_dir': str(run.directory),
        'epsilon': _json.finite(run.epsilon),
        'delta': run.delta,
        'candidates': kinds[0].candidates,
        'kinds': [
            {
                **dataclasses.asdict(kind),
                'exposures': list(kind.exposures),
                'secrets': len(kind.exposures),
                'most_bits': kind.most_bits,
                'mean_exposure': kind.mean,
                'median_exposure': float(np.median(kind.exposures)),
                'largest_exposure': max(kind.exposures),
            }
            for kind in kinds
        ],
    }


def measure(run: FinishedRun) -> tuple[Kind, ...]:
    """The exposures of the secrets of a run (settings `secrets`, `secret_copies` and so on).

    Raises:
      ArgumentError: if the run has no secrets.
      StorageError: if a file cannot be read.
    """
    planted = run.planted
    counts = run.data.get(planting.DESCRIPTION)
    if not planted.secrets or counts is None:
        raise ArgumentError('run_dir', run.directory, 'must be a run with secrets')
    if not run.vocabulary:
        raise ArgumentError('run_dir', NOT_SHOWN, 'must have a model of words')
    population = int(counts['population'])
    secrets = planting.draw(planted, run.config.seed, len(run.vocabulary), population)
    exposures = ranking.exposures(run.model, secrets)
    candidates = planted.secret_choices**planted.secret_words
    kinds = []
    for i, (copies, holders) in enumerate(planted.kinds):
        part = slice(i * planted.secrets, (i + 1) * planted.secrets)
        clients = np.array([secret.holders for secret in secrets[part]], np.int64)
        taken = run.participations(clients.reshape(planted.secrets, holders)).sum(axis=1)
        # Of a secret that nobody holds a model knows nothing.
        epsilon = run.epsilon_of_group(holders) if holders else 0.0
        delta = run.delta if holders else 0.0
        kinds.append(
            Kind(
                copies,
                holders,
                candidates,
                int(np.count_nonzero(taken)),
                float(taken.mean()),
                tuple(exposures[part]),
                chance(exposures[part]),
                None if epsilon is None else ceiling(epsilon, delta, candidates),
            )
        )
    return tuple(kinds)


def rows(measured: Sequence[tuple[FinishedRun, Sequence[Kind]]]) -> list[dict[str, Any]]:
    """A row for each configuration and kind of secret; runs that differ in their seeds are pooled.

    Rows go from the smallest epsilon to none; an infinite epsilon is None.

    Raises:
      ArgumentError: if two runs have the same configuration and seed, hence the same secrets; it
        names `run_dir`.
    """
    pooled: dict[str, dict[int, tuple[FinishedRun, Sequence[Kind]]]] = {}
    for run, kinds in measured:
        seed = run.settings['seed']
        fixed = {**run.settings, 'seed': 0, 'noise_seed': None}
        seeds = pooled.setdefault(json.dumps(fixed, sort_keys=True), {})
        if seed in seeds:
            other = seeds[seed][0].directory
            raise ArgumentError('run_dir', run.directory, f'has the secrets of {other}')
        seeds[seed] = run, kinds
    groups = [list(seeds.values()) for seeds in pooled.values()]
    groups.sort(key=lambda group: (group[0][0].epsilon, group[0][0].report.plan.clip_norm))
    return [
        _row(number, [run for run, _ in group], same)
        for number, group in enumerate(groups)
        for same in zip(*(kinds for _, kinds in group), strict=True)
    ]


def _row(number: int, runs: Sequence[FinishedRun], kinds: Sequence[Kind]) -> dict[str, Any]:
    """A row for one kind of secrets of runs of one configuration."""
    exposures = [value for kind in kinds for value in kind.exposures]
    ceilings = [kind.ceiling for kind in kinds if kind.ceiling is not None]
    epsilon = max(run.epsilon for run in runs)
    return {
        'configuration': number,
        'epsilon': _json.finite(epsilon),
        'delta': runs[0].delta,
        'clip_norm': runs[0].report.plan.clip_norm,
        'accuracy': math.fsum(run.metrics.get('accuracy', math.nan) for run in runs) / len(runs),
        'holders': kinds[0].holders,
        'copies': kinds[0].copies,
        'runs': len(runs),
        'secrets': len(exposures),
        'took_part': sum(kind.took_part for kind in kinds),
        'bits': kinds[0].most_bits,
        'mean_exposure': math.fsum(exposures) / len(exposures),
        'largest_exposure': max(exposures),
        'p_value': chance(exposures),
        'ceiling': max(ceilings) if len(ceilings) == len(kinds) else None,
    }


def draw(table: Sequence[dict[str, Any]]) -> Figure:
    """Mean exposure by guarantee, a line for each kind of secret; `table` is that of `rows`."""
    places = {row['configuration']: _guarantee(row) for row in table}
    kinds = list(dict.fromkeys((row['holders'], row['copies']) for row in table))
    lines = []
    for i, (holders, copies) in enumerate(kinds):
        chosen = [row for row in table if (row['holders'], row['copies']) == (holders, copies)]
        who = f'{holders} holder{"s" * (holders > 1)}' if holders else 'not planted'
        x = [row['configuration'] for row in chosen]
        y = [row['mean_exposure'] for row in chosen]
        lines.append(charts.Line(f'{who}, {copies} copies', x, y, i))
    bounded = [row for row in table if row['holders'] == 1 and row['ceiling'] is not None]
    if bounded:
        ceilings = {row['configuration']: row['ceiling'] for row in bounded}
        name = 'most that the guarantee allows'
        lines.append(charts.Line(name, list(ceilings), list(ceilings.values()), 4, 2))
    lines.append(charts.Line('by chance', list(places), [1 / math.log(2)] * len(places), 7, 1))
    panel = charts.Panel('Exposure', 'guarantee', 'mean exposure in bits', lines, x_ticks=places)
    return charts.draw([panel], 1)


def _guarantee(row: dict[str, Any]) -> str:
    noise = 'no noise' if row['epsilon'] is None else f'epsilon {row["epsilon"]:g}'
    return f'{noise}\nclip {row["clip_norm"]:g}'


def chance(exposures: Sequence[float]) -> float:
    """P-value of the hypothesis that the model is independent of secrets, against their sum.

    The sum of independent exposures, each with P(exposure >= x) <= 2^-x, is at most that of as many
    exponential variables of mean 1 / ln 2, which has a gamma distribution: Fisher's method. It is
    an upper bound because of the finite number of candidates and of equal scores.

    Raises:
      ArgumentError: if there are none.
    """
    if not len(exposures):
        raise ArgumentError('exposures', NOT_SHOWN, 'must be at least one')
    return float(stats.gamma.sf(math.log(2) * math.fsum(exposures), len(exposures)))


def ceiling(epsilon: float, delta: float, candidates: int) -> float:
    """The largest mean exposure that a guarantee allows for a secret of one client, in bits.

    It is the integral over x from 0 to log2 of the number of candidates of the bound on
    P(exposure >= x), min(1, e^epsilon 2^-x + delta). With epsilon 0 it is at most 1 / ln 2, the
    mean by chance.

    Args:
      epsilon, delta: guarantee against adding or removing one client; infinity for none.
      candidates: number of candidates.
    """
    most = math.log2(candidates)
    if math.isinf(epsilon) or delta >= 1:
        return most
    # Up to here the bound is 1.
    certain = epsilon / math.log(2) - math.log2(1 - delta)
    if certain >= most:
        return most
    below = math.exp(epsilon) * (2.0**-certain - 2.0**-most) / math.log(2)
    return certain + below + delta * (most - certain)


if __name__ == '__main__':
    command_line.run(main)
