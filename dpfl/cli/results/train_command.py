"""Commands that train: their settings, the run, what they print, and those that run a plan."""

import contextlib
import dataclasses
import json
import pathlib
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from absl import flags

from dpfl import _json, _setting_texts, accounting, errors, mechanisms
from dpfl.accounting.records import archive
from dpfl.cli.command import command_line, flagfiles, program
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.output_flags import RunDirectoryConfig
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.mechanisms import registry
from dpfl.participation import Participation
from dpfl.planning import feasibility
from dpfl.reporting import plain_text
from dpfl.runtime import signals
from dpfl.simulation import checkpoint, public_copy, run_directory
from dpfl.simulation.training import TrainResult, dry_run, recorded_settings, train
from dpfl.simulation.training.mechanism import MechanismConfig
from dpfl.simulation.training.privacy_config import PrivacyConfig

# Flags on the treatment of an earlier run, or in place of a run; flags.txt leaves them out.
_FLAGS_OF_ONE_CALL = ('resume', 'overwrite', 'dry_run')
STRATEGY = 'planned.npz'
# The loss that `mechanisms.choose` minimises.
_LOSS = 'max'
# Settings that `of_plan` states itself: the rest of a configuration goes on as it is.
_STATED = (
    *MechanismConfig().flat(),
    'noise_multiplier',
    'target_epsilon',
    'delta',
    'accountant',
    'adjacency',
)


def main(
    name: str,
    settings: SettingsFlags,
    directory: SettingsFlags,
    shown: SettingsFlags,
    form: SettingsFlags,
) -> None:
    """Checks the flags of a command, trains, and prints the result; or only what the run would be.

    Args:
      name: of the command.
      settings: flags of the configuration of the run.
      directory, shown, form: flags of a `RunDirectoryConfig`, `DryRunConfig` and `FormatConfig`.
    """
    program.require('tensorflow_federated')
    where = directory.read()
    if where.resume and where.output_dir and not where.overwrite:
        _take_recorded(settings.names, where.output_dir)
    config = settings.read()
    if shown.read().dry_run:
        for treatment in ('resume', 'overwrite'):
            if getattr(where, treatment):
                raise command_line.UsageError(f'--{treatment}: cannot be combined with --dry_run')
        with command_line.refusing_bad_values():
            cost = dry_run(config).to_dict()
        text = plain_text.table(cost | {'advice': ' '.join(cost['advice'])})
        output_flags.show(form, cost, text)
        return
    watched = program.command('report', f'--run_dir={where.output_dir}')
    with (
        command_line.refusing_bad_values(directory='output_dir'),
        saying_what_is_saved(where, name),
    ):
        result = train(
            config,
            output_flags.directory(where),
            resume=where.resume,
            overwrite=where.overwrite,
            files={archive.FLAGS: _flags_text()},
            notice=f'the report so far, while it trains: {watched}',
        )
    print_result(result, form.read().format)


def _take_recorded(names: Collection[str], directory: str) -> None:
    """Gives flags that are not on the command line the values with which a run began.

    So `--resume` needs the directory alone, and whatever is to change.

    Raises:
      UsageError: If the journal of the run cannot be read, or if there is no run and no flag that
        says what to train.
    """
    with command_line.naming('output_dir', directory):
        journal = archive.read_journal(directory)
        texts = {} if journal is None else recorded_settings.texts_of(journal.state)
        if journal is None and not any(flags.FLAGS[name].present for name in names):
            raise ValueError('has no run that --resume could continue')
    given = {name: flags.FLAGS[name].value for name in names if flags.FLAGS[name].present}
    recorded = {'mechanism': str(flags.FLAGS['mechanism'].default), **texts}
    replaced, _ = flagfiles.replaced(recorded, {name: str(value) for name, value in given.items()})
    for name, text in texts.items():
        plain = name.removeprefix('no') if name not in flags.FLAGS else name
        if plain in names and plain not in (*given, *replaced):
            if flags.FLAGS[plain].boolean and not text:
                text = 'true' if plain == name else 'false'
            with command_line.naming('output_dir', directory):
                flags.FLAGS[plain].parse(text)


def _flags_text() -> str:
    """The flags as a file for --flagfile, without those about an earlier run."""
    lines = [
        flag.serialize()
        for flag in flags.FLAGS.get_key_flags_for_module(sys.argv[0])
        if flag.value is not None and flag.name not in _FLAGS_OF_ONE_CALL
    ]
    return ''.join(f'{line}\n' for line in sorted(lines) if line)


@contextlib.contextmanager
def saying_what_is_saved(config: RunDirectoryConfig, name: str) -> Iterator[None]:
    """Context in which a signal ends the run with a line on saved rounds and how to continue.

    With `overwrite` these are the rounds of the new run only.

    Args:
      config: of the run.
      name: of the command that trains it.
    """
    earlier = _keys(pathlib.Path(config.output_dir or '')) if config.overwrite else None
    try:
        yield
    except (KeyboardInterrupt, signals.Terminated) as error:
        path = pathlib.Path(config.output_dir or '')
        try:
            saved = checkpoint.latest(path / archive.CHECKPOINTS, lambda reason: None)
        except errors.RunError:
            saved = None
        if saved is None or (config.overwrite and _keys(path) == earlier):
            raise
        rounds = 'round is' if saved.rounds == 1 else 'rounds are'
        command = program.command(name, f'--output_dir={path}', '--resume')
        what = f'{saved.rounds} {rounds} saved in {path}; this continues: {command}'
        if isinstance(error, signals.Terminated):
            raise signals.Terminated(error.number, what) from None
        raise KeyboardInterrupt(what) from None


def _keys(path: pathlib.Path) -> str | None:
    """Digest of the keys of the run in a directory, which no other run has."""
    try:
        journal = archive.read_journal(path)
    except (ValueError, errors.RunError):
        return None
    return None if journal is None or journal.state.planned is None else journal.state.planned.keys


def print_result(result: TrainResult, form: str) -> None:
    """Prints the end of a run: five lines as 'text', all its last values as 'json'."""
    if form == 'json':
        values = {name: _json.finite(value) for name, value in result.summary().items()}
        print(json.dumps(values))
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
    compared = [
        f'{predictor} {known[name]:.3g}'
        for name, predictor in (
            ('uniform_accuracy', 'guessing'),
            ('unigram_accuracy', 'always the most frequent word'),
            ('bigram_accuracy', 'the most frequent word after the last one'),
            ('cannot_tell_apart', 'images that nobody can tell from real ones'),
        )
        if name in known
    ]
    comparison = f'; {", ".join(compared)}' if compared else ''
    least = known.get('unigram_accuracy', known.get('uniform_accuracy'))
    if 'accuracy' not in last or least is None:  # That of a GAN is no measure of learning.
        measured = [f'{name} {last[name]:.4g}' for name in ('loss', 'accuracy') if name in last]
        values = f': {", ".join(measured)} on held-out clients{comparison}' if measured else ''
        return True, f'Trained {result.report.guarantee.rounds} rounds{values}.'
    has_learnt = last['accuracy'] > least
    verdict = f'{"Learned" if has_learnt else "Not learned"}: accuracy {last["accuracy"]:.3g}'
    return has_learnt, f'{verdict} on held-out clients{comparison}.'


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
    if reason := public_copy.obstacle(path, result.report):
        why = f'--run_dir={path}: {reason}'
        return f'read the page; there can be no public copy of the run ({why}).'
    copy = f'{path}_public'
    arguments = ('--public', f'--run_dir={path}', f'--output_dir={copy}')
    return f'a copy to publish: {program.command("export_run", *arguments)}'


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How `train` gets the mechanism of a plan.

    Attributes:
      settings: settings of `MechanismConfig`, by name.
      optimize: flags of `optimize_strategy`, which writes the strategy first; empty if `train`
        needs no file.
    """

    settings: Mapping[str, Any]
    optimize: tuple[str, ...] = ()

    @classmethod
    def of_config(cls, config: MechanismConfig) -> 'Recipe':
        """The recipe for a mechanism that a configuration gives by its name and parameters."""
        names, changed = MechanismConfig().flat(), config.changed()
        settings = {name: changed[name] for name in names if name in changed}
        return cls({'mechanism': config.mechanism, **settings})

    @classmethod
    def of_candidate(cls, candidate: mechanisms.Candidate, schema: Participation) -> 'Recipe':
        """The recipe for a mechanism that `mechanisms.choose` has optimised.

        `train` optimises a mechanism that is given by its name with default size and loss. Any
        other one has to be optimised before.

        Args:
          candidate: the chosen mechanism.
          schema: the schema that it was optimised for.
        """
        optimizer = registry.ENTRIES[candidate.kind].optimizer
        is_default = optimizer is not None and (
            candidate.size == optimizer.default_size(schema) and optimizer.losses[0] == _LOSS
        )
        if optimizer is None:
            return cls({'mechanism': candidate.kind})
        if is_default:  # A preset may have a strategy for the same mechanism.
            return cls({'mechanism': candidate.kind, 'strategy': ''})
        values = {
            'mechanism': candidate.kind,
            'rounds': schema.rounds,
            'min_separation': schema.min_separation,
            'max_participations': schema.count,
            optimizer.size: candidate.size,
            'loss': _LOSS,
            'output': STRATEGY,
        }
        optimize = tuple(_setting_texts.flags(values))
        return cls({'mechanism': candidate.kind, 'strategy': STRATEGY}, optimize)


def of_plan(
    plan: accounting.PrivacyPlan,
    recipe: Recipe,
    *,
    population: int,
    delta: float,
    accountant: str,
    target_epsilon: float | None = None,
    others: Mapping[str, Any] | None = None,
) -> list[str]:
    """The flags of `train` for a run with a plan, without task, model and learning rates.

    Every flag that the guarantee depends on is there, since a preset may have other values.

    Args:
      plan: the plan.
      recipe: how `train` gets its mechanism.
      population: number of clients.
      delta, accountant: how the epsilon of the plan was computed.
      target_epsilon: epsilon that the noise of the plan was calibrated for; None if its noise was
        found in another way.
      others: further settings of `TrainConfig`, by name.
    """
    noise = plan.noise_multiplier if target_epsilon is None else None
    return _setting_texts.flags(
        {
            **(others or {}),
            **recipe.settings,
            'sampling': 'min_separation' if plan.sampling is None else plan.sampling.name,
            **({} if plan.sampling is None else plan.sampling.to_dict()),
            'min_separation': plan.participation.min_separation,
            'max_participations': plan.participation.count,
            'population': population,
            'clients_per_round': plan.clients_per_round,
            'rounds': plan.participation.rounds,
            'noise_multiplier': noise,
            'target_epsilon': target_epsilon,
            'delta': delta,
            'accountant': accountant,
            'adjacency': plan.adjacency,
        }
    )


def others_of(privacy: PrivacyConfig) -> dict[str, Any]:
    """The settings besides those of `of_plan` that are not the defaults of `train`, by name."""
    others = {name: value for name, value in privacy.changed().items() if name not in _STATED}
    if not privacy.secagg:  # Without rounding, the dimension is that of the model.
        others.pop('model_dimension', None)
    return others
