"""The texts that binaries print about a run they trained."""

import json
import textwrap
from typing import Any

from dpfl.cli.command import command_line, program
from dpfl.cli.results import public_copy
from dpfl.planning import feasibility
from dpfl.reporting import plain_text
from dpfl.simulation import run_directory
from dpfl.simulation.training import Cost, TrainResult


def print_result(result: TrainResult, form: str, **more: Any) -> None:
    """Prints the end of a run: five lines as 'text', all its last values as 'json'."""
    if form == 'json':
        print(json.dumps({**result.summary(), **more}))
        return
    report = result.report.to_dict()
    has_learnt, learnt = _learnt(result)
    print(
        learnt,
        f'Guarantee: {report["statement"]}',
        f'Page: {result.directory / run_directory.HTML_REPORT}',
        f'Verify: {program.command("report", f"--run_dir={result.directory}")}',
        f'Next: {_next(result, has_learnt)}',
        sep='\n',
    )


def _learnt(result: TrainResult) -> tuple[bool, str]:
    """Whether the model has learnt, as far as is known, and a sentence about it."""
    last, known = result.last, result.reference_accuracies
    if 'accuracy' not in last:
        loss = f': loss {last["loss"]:.4g} on held-out clients' if 'loss' in last else ''
        return True, f'Trained {result.report.guarantee.rounds} rounds{loss}.'
    accuracy = last['accuracy']
    least = known.get('unigram_accuracy', known.get('uniform_accuracy', 0.0))
    compared = [
        f'{predictor} {known[name]:.3g}'
        for name, predictor in (
            ('uniform_accuracy', 'guessing'),
            ('unigram_accuracy', 'always the most frequent word'),
            ('bigram_accuracy', 'the most frequent word after the last one'),
        )
        if name in known
    ]
    has_learnt = accuracy > least
    verdict = f'{"Learned" if has_learnt else "Not learned"}: accuracy {accuracy:.3g}'
    if compared:
        verdict += f' on held-out clients; {", ".join(compared)}'
    return has_learnt, f'{verdict}.'


def _next(result: TrainResult, has_learnt: bool) -> str:
    """The next step after the run, or why it failed and advice."""
    path, plan, about = result.directory, result.report.plan, result.report.about
    if not has_learnt:
        delta, size = result.report.deltas[0], None if about is None else about.parameters
        estimate = feasibility.estimate(plan, size, delta, result.report.accountant)
        if estimate.feasible != 'yes':
            return ' '.join(estimate.advice)
        return (
            'the noise is small enough to learn: change server_learning_rate (try a third, and '
            'three times), clip_norm, client_learning_rate or rounds.'
        )
    if not plan.noise_multiplier:
        return f'the same flags with noise; {program.shown("plan_privacy")} says how much.'
    try:
        public_copy.check(path, result.report, public_heldout=False, simulation=False)
    except command_line.UsageError as error:
        return f'read the page; there can be no public copy of the run ({error}).'
    copy = f'{path}_public'
    arguments = ('--public', f'--run_dir={path}', f'--output_dir={copy}')
    return f'a copy to publish: {program.command("export_run", *arguments)}'


def print_cost(cost: Cost, form: str) -> None:
    """Prints the estimated cost of a run, as 'text' or 'json'."""
    values = cost.to_dict()
    if form == 'json':
        print(json.dumps(values))
        return
    values['not_measured'] = '; '.join(cost.not_measured) or 'nothing else'
    explanation = values.pop('how')
    print(plain_text.table(values), textwrap.fill(explanation, 100), sep='\n')
