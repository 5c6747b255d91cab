"""What the binaries print about a run that was trained."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from dpfl.simulation.training import TrainResult
from experiments.command import command_line


def print_result(result: TrainResult, form: str, **more: Any) -> None:
    """Prints the last metrics and the guarantee of a run, as 'text' or 'json'."""
    report = result.report
    summary = {
        'output_dir': str(result.directory),
        'rounds': report.guarantee.rounds,
        **result.last,
        **result.reference_accuracies,
        **({} if result.noise_storage is None else {'noise_place': result.noise_storage}),
        'rho': report.guarantee.rho,
        'epsilon': report.guarantee.epsilons[0],
        'delta': report.deltas[0],
        **more,
    }
    print(json.dumps(summary) if form == 'json' else command_line.table(summary))


def print_candidates(candidates: Sequence[Any]) -> None:
    """Prints which mechanisms `mechanism='auto'` compared, on standard error."""
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
