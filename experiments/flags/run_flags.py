"""Flags that change no bit of a run: its directory, an earlier run there, where it is executed.

No TensorFlow.
"""

import json
import pathlib
import sys
from collections.abc import Sequence

from absl import flags

from dpfl import accounting, errors
from dpfl.accounting.records import archive
from dpfl.runtime.workers import addresses, tokens
from dpfl.simulation import checkpoint, ledger
from dpfl.tasks import federated_task
from experiments.command import command_line
from experiments.flags import schema_flags

OUTPUT_DIR = flags.DEFINE_string('output_dir', None, 'Directory of the run.')
OVERWRITE = flags.DEFINE_bool('overwrite', False, 'Replace an earlier run in that directory.')
RESUME = flags.DEFINE_bool(
    'resume',
    False,
    'Continue the run in that directory, with the flags that it had, to the result that it would '
    'have had; begin one if there is none.',
)
CHECKPOINT_EVERY = flags.DEFINE_integer(
    'checkpoint_every', 10, 'Rounds between two checkpoints.', lower_bound=1
)
KEEP_CHECKPOINTS = flags.DEFINE_integer(
    'keep_checkpoints', 3, 'How many of the last checkpoints are kept.', lower_bound=1
)
_WORKERS = flags.DEFINE_list(
    'workers',
    [],
    'Where shards are trained, as host:port,...: workers of scripts/start_worker.sh. They get the '
    'model and client data, encrypted if there is a --worker_token_file; the noise stays here. By '
    'default all is done here.',
)
_WORKER_TOKEN_FILE = flags.DEFINE_list(
    'worker_token_file',
    [],
    'Token files of the workers, copies of those of their --token_file: one for all of --workers, '
    'or one each, comma-separated in their order. Run and worker prove to each other that they '
    'have it.',
)
PROFILE = flags.DEFINE_bool(
    'profile', False, 'Also say where the time of a round goes, at the end and in profile.json.'
)
_DATA = 'data.json'
_CONFIDENTIAL = (
    "These are exact counts of the clients' data, which no guarantee covers: they are not for "
    'sharing. The digests have a key, which is in checkpoints/.'
)


def output_dir() -> pathlib.Path:
    """The directory of --output_dir.

    Raises:
      UsageError: if the flags of the directory do not go together, or its name does not fit into a
        line of flags.txt.
    """
    if RESUME.value and OVERWRITE.value:
        raise command_line.UsageError('--resume: goes without --overwrite')
    name = schema_flags.required('output_dir')
    if not name.isprintable() or name != name.strip():
        raise command_line.UsageError(
            f'--output_dir={name!a}: must have printable characters only, and no space at its ends'
        )
    return pathlib.Path(name)


def workers() -> tuple[addresses.Address, ...]:
    """The addresses of --workers, with their tokens.

    Raises:
      UsageError: if one of them is none, or if a token cannot be read.
    """
    with command_line.refusing_bad_values(
        token_file='worker_token_file', tokens='worker_token_file'
    ):
        found = [tokens.read(path) for path in _WORKER_TOKEN_FILE.value]
        return addresses.parse(_WORKERS.value, found if _WORKERS.value else ())


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
      LedgerError: if the ledger is damaged, or that of an older version.
    """
    if not RESUME.value:
        return None
    # Refused before anything else, and in one line, if an older version began the run.
    ledger.read(output_dir() / archive.LEDGER)
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


def require_start(directory, start: checkpoint.Checkpoint | None) -> None:
    """Checks that a run that begins leaves no earlier one: its flags and data would be replaced.

    Args:
      directory: `outputs.RunDirectory`, in use, so that no other run comes between.
      start: what the run continues from.

    Raises:
      RunError: if there are rounds, and nothing to continue from; or another run has begun since
        `start` was read.
    """
    if start is not None:
        return
    path = directory.path / 'ledger.jsonl'
    if checkpoint.exist(directory.path / 'checkpoints'):
        raise errors.RunError(f'{directory.path}: another run has begun there meanwhile')
    if path.exists() and path.stat().st_size:
        raise errors.RunError(f'{path}: has rounds, and there is no checkpoint to continue from')


def record_data(directory, task: federated_task.FederatedTask, is_new: bool) -> None:
    """Writes what the data of a run are to its `data.json`, if there is anything to say.

    Args:
      directory: `outputs.RunDirectory` of the run.
      task: of the run.
      is_new: whether the run begins; one that goes on has to have the same data.

    Raises:
      UsageError: if a run that goes on has other data.
      StorageError: if a file cannot be read or written.
    """
    if not task.description:
        return
    from dpfl.simulation import data_digest  # TensorFlow.

    key = directory.data_key(is_new)
    digests = {
        name: data_digest.of_file(key, name, digest) for name, digest in task.fingerprints.items()
    }
    values = {'confidential': _CONFIDENTIAL, **task.description, 'keyed_digests': digests}
    text = json.dumps(values, indent=2) + '\n'
    path = directory.path / _DATA
    if is_new:
        directory.write_text(_DATA, text)
    elif path.exists() and path.read_text() != text:
        raise command_line.UsageError(
            f'--data_path: must have the data with which the run began, and the vocabulary; {path} '
            'says what they were'
        )


def flags_text() -> str:
    """The flags as a file for --flagfile, but for those that say what becomes of an earlier run."""
    lines = command_line.flags_text().splitlines(keepends=True)
    once = [f'{flags.FLAGS[name].serialize()}\n' for name in ('resume', 'overwrite')]
    return ''.join(line for line in lines if line not in once)
