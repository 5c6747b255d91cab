"""Flags about the directory of a run, for binaries that train. No TensorFlow."""

import contextlib
import pathlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from absl import flags

from dpfl import errors
from dpfl.accounting.records import archive
from dpfl.cli.command import command_line, program
from dpfl.cli.flags.output_flags import RunDirectoryConfig
from dpfl.runtime import signals
from dpfl.simulation import checkpoint
from dpfl.simulation.training import recorded_settings
from dpfl.simulation.training.mechanism import AUTO
from dpfl.simulation.training.privacy_config import AMOUNTS

# Flags on the treatment of an earlier run, or in place of a run; flags.txt leaves them out.
_FLAGS_OF_ONE_CALL = ('resume', 'overwrite', 'dry_run')


def directory(config: RunDirectoryConfig) -> pathlib.Path:
    """The directory of --output_dir.

    Raises:
      UsageError: If it is not given, if the flags contradict each other, or if its name cannot be
        written as a line of flags.txt.
    """
    if config.resume and config.overwrite:
        raise command_line.UsageError('--resume: cannot be combined with --overwrite')
    name = config.output_dir
    if not name:
        raise command_line.UsageError('--output_dir: must be given')
    if not name.isprintable() or name != name.strip():
        raise command_line.UsageError(
            f'--output_dir={name!a}: must have printable characters only, and no space at either '
            'end'
        )
    return pathlib.Path(name)


def take_recorded(config: RunDirectoryConfig, names: Collection[str]) -> None:
    """Gives flags that are not on the command line the values with which a run began.

    So `--resume` needs the directory alone, and whatever is to change.

    Args:
      config: of the run; nothing is done without `resume`.
      names: of the flags that may take a value.

    Raises:
      UsageError: If the journal of the run cannot be read, or if there is no run and no flag that
        says what to train.
    """
    if not (config.resume and config.output_dir) or config.overwrite:
        return
    try:
        journal = archive.read_journal(config.output_dir)
        texts = None if journal is None else recorded_settings.flags_of(journal.state)
    except ValueError as error:
        raise command_line.UsageError(f'--output_dir={config.output_dir}: {error}') from None
    if journal is None and not any(flags.FLAGS[name].present for name in names):
        raise command_line.UsageError(
            f'--output_dir={config.output_dir}: has no run that --resume could continue'
        )
    given = {name: flags.FLAGS[name].value for name in names if flags.FLAGS[name].present}
    replaced = _replaced(given)
    for name, text in (texts or {}).items():
        plain = name.removeprefix('no') if name not in flags.FLAGS else name
        if plain in names and plain not in (*given, *replaced):
            if flags.FLAGS[plain].boolean and not text:
                text = 'true' if plain == name else 'false'
            try:
                flags.FLAGS[plain].parse(text)
            except flags.Error as error:
                raise command_line.UsageError(
                    f'--output_dir={config.output_dir}: {error}'
                ) from None


def _replaced(given: Mapping[str, Any]) -> list[str]:
    """Flags of a run that contradict given ones, and so are not taken from the run."""
    names: list[str] = []
    if any(name in given for name in AMOUNTS):
        names += AMOUNTS
    if given.get('mechanism', AUTO) != AUTO:
        names.append('workload')
    return names


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


def how_to_watch(config: RunDirectoryConfig) -> str:
    """A line that names the command which shows a run while it trains."""
    command = program.command('report', f'--run_dir={config.output_dir}')
    return f'the report so far, while it trains: {command}'


def refuse_earlier_run(config: RunDirectoryConfig) -> None:
    """Raises UsageError if a dry run has a flag on the treatment of an earlier run."""
    for name in ('resume', 'overwrite'):
        if getattr(config, name):
            raise command_line.UsageError(f'--{name}: cannot be combined with --dry_run')


def flags_text() -> str:
    """The flags as a file for --flagfile, without those about an earlier run."""
    lines = command_line.flags_text().splitlines(keepends=True)
    once = [
        f'{flags.FLAGS[name].serialize()}\n' for name in _FLAGS_OF_ONE_CALL if name in flags.FLAGS
    ]
    return ''.join(line for line in lines if line not in once)
