"""What binaries print about a run they trained."""

import json
import math
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpfl.simulation.training import Cost, PretrainResult, TrainResult
from experiments.command import command_line


def summary(result: TrainResult) -> dict[str, Any]:
    """The last metrics of a run and its guarantee, by name."""
    report, measured = result.report, result.report.measured
    return {
        'output_dir': str(result.directory),
        'rounds': report.guarantee.rounds,
        **result.last,
        **result.reference_accuracies,
        **{
            f'test_{name}': value
            for name, value in result.test_metrics.items()
            if not math.isnan(value)
        },
        **({} if result.noise_storage is None else {'noise_place': result.noise_storage}),
        'rho': report.guarantee.rho,
        'epsilon': report.guarantee.epsilons[0],
        'delta': report.deltas[0],
        **(
            {} if measured is None else {'epsilon_estimate': measured.to_dict()['epsilon_estimate']}
        ),
    }


def print_result(result: TrainResult, form: str, **more: Any) -> None:
    """Prints the summary of a run, followed by other values, as 'text' or 'json'."""
    values = {**summary(result), **more}
    print(json.dumps(values) if form == 'json' else command_line.table(values))
    accuracy, least = result.last.get('accuracy'), values.get('unigram_accuracy')
    if accuracy is not None and least is not None and accuracy < least:
        print(
            f'accuracy {accuracy:.4g} is below {least:.4g}, that of always guessing the most '
            'frequent word: the model has learnt nothing yet. experiments.suggest proposes '
            'settings for a data set',
            file=sys.stderr,
        )


def print_cost(cost: Cost, form: str) -> None:
    """Prints what a run would cost, as 'text' or 'json'."""
    values = cost.to_dict()
    if form == 'json':
        print(json.dumps(values))
        return
    values['not_measured'] = '; '.join(cost.not_measured) or 'nothing else'
    how = values.pop('how')
    print(command_line.table(values), textwrap.fill(how, 100), sep='\n')


def of_pretraining(result: PretrainResult) -> dict[str, Any]:
    """Summary of a model that was trained on public text, by name."""
    tail = max(1, len(result.losses) // 10)
    return {
        'output': str(result.output),
        'vocabulary_file': str(result.vocabulary_file),
        'words': result.num_words,
        'sentences': result.num_sentences,
        'steps': len(result.losses),
        'loss': float(np.mean(result.losses[-tail:])),
        **(
            {f'heldout_{name}': result.curve[-1][name] for name in ('loss', 'accuracy')}
            if result.curve
            else {}
        ),
    }


def print_candidates(candidates: Sequence[Any]) -> None:
    """Prints the mechanisms that `mechanism='auto'` compared, on standard error."""
    rows = [
        {
            'mechanism': candidate.name,
            'copies of the model': candidate.buffers,
            'GB': candidate.gigabytes,
            'max loss': '' if candidate.loss is None else f'{candidate.loss:.4g}',
            'verdict': candidate.verdict,
        }
        for candidate in candidates
    ]
    print(command_line.columns(rows), file=sys.stderr)
