"""What binaries print about a run they trained."""

import json
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from dpfl.reporting import plain_text
from dpfl.simulation.training import Cost, TrainResult

# Names of metrics that say too little where they stand for a whole run.
_CLEARER = {'seconds': 'seconds_of_last_round'}


def print_result(result: TrainResult, form: str, **more: Any) -> None:
    """Prints the summary of a run, followed by other values, as 'text' or 'json'."""
    values = {**result.summary(), **more}
    shown = {_CLEARER.get(name, name): value for name, value in values.items()}
    print(json.dumps(values) if form == 'json' else plain_text.table(shown))
    accuracy, least = result.last.get('accuracy'), values.get('unigram_accuracy')
    if accuracy is not None and least is not None and accuracy < least:
        print(
            f'accuracy {accuracy:.4g} is below {least:.4g}, that of always guessing the most '
            'frequent word: the model has learnt nothing yet. For a text of your own, dpfl suggest '
            'proposes settings',
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
    print(plain_text.table(values), textwrap.fill(how, 100), sep='\n')


def print_candidates(candidates: Sequence[Any]) -> None:
    """Prints the mechanisms that `mechanism='auto'` compared, on standard error."""
    rows = [
        {
            'mechanism': candidate.name,
            'copies of the model': candidate.buffers,
            'GB': candidate.gigabytes,
            'draws': _shown(candidate.draws, 'd'),
            'max loss': _shown(candidate.loss, '.4g'),
            'above the bound': _shown(candidate.above_bound, '.1%'),
            'if clients come twice as often': _shown(candidate.loss_if_closer, '.4g'),
            'verdict': candidate.verdict,
        }
        for candidate in candidates
    ]
    print(plain_text.columns(rows), file=sys.stderr)


def _shown(value: float | None, form: str) -> str:
    return '' if value is None else format(value, form)
