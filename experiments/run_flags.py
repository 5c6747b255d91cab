"""Flags of a run's directory: where it is, what becomes of an earlier run there. No TensorFlow."""

import pathlib
import sys
from collections.abc import Sequence

from absl import flags

from dpfl import accounting
from dpfl.simulation import checkpoint
from experiments import command_line, schema_flags

OUTPUT_DIR = flags.DEFINE_string('output_dir', None, 'Directory of the run.')
OVERWRITE = flags.DEFINE_bool('overwrite', False, 'Replace an earlier run in that directory.')
RESUME = flags.DEFINE_bool(
    'resume', False,
    'Continue the run in that directory, with the flags that it had, to the result that it would '
    'have had; begin one if there is none.',
)
CHECKPOINT_EVERY = flags.DEFINE_integer(
    'checkpoint_every', 10, 'Rounds between two checkpoints.', lower_bound=1
)
KEEP_CHECKPOINTS = flags.DEFINE_integer(
    'keep_checkpoints', 3, 'How many of the last checkpoints are kept.', lower_bound=1
)


def output_dir() -> pathlib.Path:
    """The directory of --output_dir.

    Raises:
      UsageError: if the flags of the directory do not go together.
    """
    if RESUME.value and OVERWRITE.value:
        raise command_line.UsageError('--resume: goes without --overwrite')
    return pathlib.Path(schema_flags.required('output_dir'))


def configuration(free: Sequence[str] = ()) -> dict:
    """The flags that a run cannot change when it is resumed, with their values.

    Those are all flags of the binary, but for the ones of this file: they change no bit of what the
    run trains, records or reports.

    Args:
      free: names of other flags of the binary that do not.
    """
    here = flags.FLAGS.get_flags_for_module(sys.modules[__name__])
    free = {*free, *(flag.name for flag in here)}
    own = flags.FLAGS.get_key_flags_for_module(sys.argv[0])
    return {flag.name: flag.value for flag in own if flag.name not in free}


def start(flag_values: dict, plan: accounting.PrivacyPlan) -> checkpoint.Checkpoint | None:
    """The checkpoint that a run continues from; None for a new run.

    Says on standard error which newer checkpoints cannot be used, and why, and where it goes on.

    Args:
      flag_values: what `configuration` gave.
      plan: of the run.

    Raises:
      UsageError: if a flag has changed, or the plan (a file of --strategy).
      CheckpointError: if there are checkpoints, and none can be used.
    """
    if not RESUME.value:
        return None
    refused = []
    folder = output_dir() / 'checkpoints'
    try:
        found = checkpoint.latest(folder, refused.append)
    finally:
        for reason in refused:
            print(f'refused: {reason}', file=sys.stderr)
    if found is not None:
        with command_line.refusing_bad_values():
            found.require_run(flag_values, plan)
        if refused:
            print(f'{folder}: going back to that of round {found.rounds}', file=sys.stderr)
    return found


def flags_text() -> str:
    """The flags as a file for --flagfile, but for those that say what becomes of an earlier run."""
    lines = command_line.flags_text().splitlines(keepends=True)
    once = [f'{flags.FLAGS[name].serialize()}\n' for name in ('resume', 'overwrite')]
    return ''.join(line for line in lines if line not in once)
