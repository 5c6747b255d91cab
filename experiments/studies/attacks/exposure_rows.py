"""Exposures of several runs as rows and as a figure."""

import json
import math
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from dpfl.errors import ArgumentError
from experiments.studies.attacks import exposure
from experiments.studies.attacks.finished_run import FinishedRun
from experiments.studies.attacks.secrets import Exposures, Kind

_MARKERS = 'os^vD*xPX<'


def rows(found: Sequence[tuple[FinishedRun, Exposures]]) -> list[dict[str, Any]]:
    """A row for each configuration and kind of secret; runs that differ in their seeds are pooled.

    Args:
      found: runs and their exposures.

    Returns:
      Rows from the smallest epsilon to none; an infinite epsilon is None.

    Raises:
      ArgumentError: if two runs have the same configuration and seed, hence the same secrets; it
        names `run_dir`.
    """
    pooled: dict[str, dict[int, tuple[FinishedRun, Exposures]]] = {}
    for run, exposures in found:
        # What a run is resumed with, except for its seeds.
        fixed = run.config.with_values({'seed': 0, 'noise_seed': None}).fixed()
        seeds = pooled.setdefault(json.dumps(fixed, sort_keys=True), {})
        if run.config.seed in seeds:
            raise ArgumentError(
                'run_dir',
                run.directory,
                f'has the secrets of {seeds[run.config.seed][0].directory}',
            )
        seeds[run.config.seed] = run, exposures
    groups = [list(seeds.values()) for seeds in pooled.values()]
    groups.sort(key=lambda group: (group[0][0].epsilon, group[0][0].report.plan.clip_norm))
    return [
        _row(number, [run for run, _ in group], kinds)
        for number, group in enumerate(groups)
        for kinds in zip(*(exposures.kinds for _, exposures in group), strict=True)
    ]


def _row(number: int, runs: Sequence[FinishedRun], kinds: Sequence[Kind]) -> dict[str, Any]:
    """A row for one kind of secrets of runs of one configuration."""
    exposures = [value for kind in kinds for value in kind.exposures]
    ceilings = [kind.ceiling for kind in kinds if kind.ceiling is not None]
    is_bounded = all(kind.p_value is not None for kind in kinds)
    plan, epsilon = runs[0].report.plan, max(run.epsilon for run in runs)
    return {
        'configuration': number,
        'epsilon': None if math.isinf(epsilon) else epsilon,
        'delta': runs[0].delta,
        'clip_norm': plan.clip_norm,
        'accuracy': math.fsum(run.accuracy for run in runs) / len(runs),
        'holders': kinds[0].holders,
        'copies': kinds[0].copies,
        'runs': len(runs),
        'secrets': len(exposures),
        'took_part': sum(kind.took_part for kind in kinds),
        'bits': kinds[0].most_bits,
        'mean_exposure': math.fsum(exposures) / len(exposures),
        'largest_exposure': max(exposures),
        'p_value': exposure.chance(exposures) if is_bounded else None,
        'ceiling': max(ceilings) if len(ceilings) == len(kinds) else None,
    }


def draw(table: Sequence[dict[str, Any]]) -> Figure:
    """Mean exposure by guarantee, a line for each kind of secret; `table` is that of `rows`."""
    guarantees = {row['configuration']: (row['epsilon'], row['clip_norm']) for row in table}
    kinds = list(dict.fromkeys((row['holders'], row['copies']) for row in table))
    figure = Figure(figsize=(8.5, 4), layout='constrained')
    axes = figure.subplots()
    for i, (holders, copies) in enumerate(kinds):
        chosen = [row for row in table if (row['holders'], row['copies']) == (holders, copies)]
        x = [row['configuration'] for row in chosen]
        who = f'{holders} holder' + 's' * (holders > 1) if holders else 'not planted'
        name = f'{who}, {copies} copies'
        y = [row['mean_exposure'] for row in chosen]
        axes.plot(x, y, marker=_MARKERS[i % len(_MARKERS)], label=name)
    ones = [row for row in table if row['holders'] == 1 and row['ceiling'] is not None]
    ceilings = {row['configuration']: row['ceiling'] for row in ones}
    if ceilings:
        axes.plot(
            list(ceilings), list(ceilings.values()), 'k:', label='most that the guarantee allows'
        )
    axes.axhline(1 / math.log(2), color='grey', linestyle='--', label='by chance')
    axes.set_xticks(list(guarantees), [_name(*each) for each in guarantees.values()])
    axes.set_xlabel('guarantee')
    axes.set_ylabel('mean exposure in bits')
    figure.legend(fontsize=8, loc='outside right upper')
    return figure


def _name(epsilon: float | None, clip_norm: float) -> str:
    guarantee = 'no noise' if epsilon is None else f'epsilon {epsilon:g}'
    return f'{guarantee}\nclip {clip_norm:g}'
