"""Kills training runs at random moments, resumes them, and compares the results bit for bit.

  python scripts/kill_test.py --runs=100

Each run draws words, trains a toy model, and is killed with SIGKILL at a random
moment. It may be resumed and killed once more, and is then resumed to its end. Draws, model,
participation log, ledger and report must equal those of an uninterrupted run, byte for byte; so
must the metrics, except `seconds`. No event that was in the ledger at a kill may be lost. Every
other run has no noise seed: it begins with the keys of the uninterrupted run and nothing else, and
must have the same chain. With --notff rounds take no time and there are no figures, so that most
kills meet a write. Exits with status 1 if a run differs.
"""

import collections
import pathlib
import shutil
import sys
import tempfile
import time

import numpy as np
from absl import flags

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from dpfl.cli.command import command_line  # noqa: E402
from scripts import fault_runs, system_calls  # noqa: E402

_RUNS = flags.DEFINE_integer('runs', 100, 'Number of runs that are killed.', lower_bound=1)
_ROUNDS = flags.DEFINE_integer('rounds', 40, 'Number of rounds of a run.', lower_bound=1)
_CHECKPOINT_EVERY = flags.DEFINE_integer(
    'checkpoint_every', 3, 'Rounds between two checkpoints.', lower_bound=1
)
_SEED = flags.DEFINE_integer(
    'seed', 0, 'Seed of the moments at which runs are killed.', lower_bound=0
)

_TFF = flags.DEFINE_bool('tff', True, 'Whether rounds are computed by TFF, or by a few lines.')


def main() -> None:
    random = np.random.default_rng(_SEED.value)
    counts = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        kinds = [_Kind('seeded', folder, 5), _Kind('unseeded', folder, None)]
        for run in range(_RUNS.value):
            kind = kinds[run % len(kinds)]
            path = folder / f'run{run}'
            kills = _interrupt(path, kind, random)
            counts['kills'] += len(kills)
            differing = kind.toy.differences(path)
            counts['different runs'] += bool(differing)
            print(
                f'run {run} ({kind.name}): killed {", ".join(kills)}: '
                f'{"differs in " + ", ".join(differing) if differing else "the same"}',
                flush=True,
            )
            shutil.rmtree(path)
    print(f'{_RUNS.value} runs, {counts["kills"]} kills, {counts["different runs"]} differ')
    if counts['different runs']:
        sys.exit(1)


class _Kind:
    """Runs that begin with the same noise key, among them an uninterrupted one."""

    def __init__(self, name: str, folder: pathlib.Path, noise_seed: int | None):
        self.name = name
        self.toy = fault_runs.Toy(
            folder / name,
            noise_seed,
            is_in_tff=_TFF.value,
            is_drawn=_TFF.value,
            rounds=_ROUNDS.value,
            checkpoint_every=_CHECKPOINT_EVERY.value,
        )
        with self.toy.child() as child:
            started = time.monotonic()
            _finish(child, self.toy.new(self.toy.reference))
            self.seconds = time.monotonic() - started


def _finish(child: system_calls.Child, path: pathlib.Path) -> None:
    if said := child.call(path):
        raise RuntimeError(said)


def _interrupt(path: pathlib.Path, kind: _Kind, random: np.random.Generator) -> list[str]:
    """Runs to the end with one or two kills.

    Returns:
      When each came, in words.

    Raises:
      RuntimeError: if an event is lost.
    """
    kills, chains = [], []
    while not kills:
        shutil.rmtree(path, ignore_errors=True)
        kind.toy.new(path)
        for _ in range(random.integers(1, 3)):
            with kind.toy.child() as child:
                child.begin(path)
                time.sleep(random.uniform(0, kind.seconds))
                if not child.kill():
                    break  # The run had ended by itself.
            found = fault_runs.events(path)
            chains.append(found.chain)
            drawn = sum(each.result is not None for each in found.state.drawn.values())
            kills.append(
                f'after {drawn} draws' * (drawn < 1) or f'after {found.state.begun} rounds'
            )
    with kind.toy.child() as child:
        _finish(child, path)
    after = fault_runs.events(path).chain
    if any(after[: len(chain)] != chain for chain in chains):
        raise RuntimeError(f'{path}: an event is lost')
    return kills


if __name__ == '__main__':
    command_line.run(main)
