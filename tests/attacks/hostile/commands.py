"""Command lines of the binaries that need no TensorFlow, with mutated flags and flagfiles.

The binaries run in this process, one binary per process, since their flags share names.
"""

import contextlib
import importlib
import io
import json
import os
import pathlib
import sys

from absl import flags
from absl.testing import flagsaver

from tests.attacks.hostile import mutations
from tests.attacks.hostile.campaign import Target, require
from tests.attacks.hostile.targets import strategy

_PLAN = '--noise_multiplier=5 --delta=1e-6 --accountant=rdp --format=json '
# Of each binary: flags of a command line that works in a moment, and others, not all of which go
# together with them.
COMMANDS = {
    'report_privacy': (
        _PLAN + '--mechanism=blt --blt_decay=0.9,0.5 --blt_scale=0.1,0.2 --rounds=20',
        '--min_separation=3 --max_participations=4 --clip_norm=1 --clients_per_round=10 '
        '--adjacency=zero_out --restart_first=5 --restart_every=5 --sampling=none '
        '--population=100 --run_dir=/nowhere --compose_with=/nowhere --strategy={strategy} '
        '--tree_released=nodes',
    ),
    'plan_privacy': (
        _PLAN + '--mechanism=tree --rounds=20 --population=1000 --clients_per_round=10',
        '--min_separation=3 --max_participations=4 --timer_hours=24 --round_minutes=3 '
        '--availability=0.5 --target_rho=1 --target_epsilon=5 --sweep_population=100,1000 '
        '--sweep_rounds=10,20 --clip_norm=1 --simulated_noise_multiplier=1 '
        '--simulated_clients_per_round=5 --max_clients_per_round=100',
    ),
    'optimize_strategy': (
        '--mechanism=banded_toeplitz --rounds=12 --min_separation=3 --bands=2 --output=out.npz '
        '--format=json',
        '--max_participations=2 --buffers=1 --loss=rms --momentum=0.5',
    ),
    'compare_mechanisms': (
        '--mechanisms=tree,gaussian,blt_b100 --rounds=12 --min_separation=3 --format=json',
        '--max_participations=2 --vary=rounds --values=4,12 --loss=rms --relative_to=tree '
        '--noise_multiplier=3 --delta=1e-6 --mechanisms={strategy}',
    ),
    'simulate_population': (
        '--population=200 --clients_per_round=5 --rounds=4 --timer_hours=24 --format=json',
        '--noise_multiplier=3 --mechanism=tree --vary=clients_per_round --values=5,10 --seed=1 '
        '--output=log.npz --mechanism={strategy}',
    ),
}
_VALUES = (
    *'nan inf -inf -1 0 1 2 3 1e999 1e-999 1e-300 1e300 0.5 -0.0 0.9999999999999999'.split(),
    *'4194305 2147483648 0x10 1_000 1,2,3 , ,, 1,nan true None [] .. ~ ٣ \u202e \x1b[2J'.split(),
    *'tree blt banded gaussian auto none poisson blt:2 best_blt:0 banded:999999999999'.split(),
    *'/dev/zero /dev/urandom . file fifo loop /nowhere/at/all'.split(),
    *('', '\n', 'a\nb', ' 5 ', '1,' * 3000, 'x' * 5000, '9' * 5000, '1' + '0' * 400),
)


class _RefusedError(Exception):
    """The command line was refused, in one line."""


class Commands(Target):
    """One binary. It must end with status 0, 1 or 2, and print at most one line of error.

    Attributes:
      given: the flags of the next call of `read`.
      module: of the binary.
    """

    given: list[str]

    def __init__(self, binary: str):
        super().__init__(strategy().examples, self._run, (_RefusedError,))
        from dpfl.cli.command import command_line

        self._binary, self._call = binary, command_line.run
        self.module = importlib.import_module(f'experiments.{binary}')
        sys.argv[0] = str(pathlib.Path(self.module.__file__))
        with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
            flags.FLAGS([sys.argv[0]])
        self._saved = flagsaver.save_flag_values(flags.FLAGS)

    def write(self, rng, folder):
        """Writes the files that flags may name, and draws flags."""
        super().write(rng, folder)
        (folder / 'file').write_text('--rounds=3\n')
        os.mkfifo(folder / 'fifo')
        (folder / 'loop').symlink_to('loop')
        needed, others = (line.split() for line in COMMANDS[self._binary])
        given = [each for each in needed if rng.random() < 0.99]
        given += [each for each in others if rng.random() < 0.05]
        for _ in range(int(rng.choice((1, 1, 1, 2)))):
            place = int(rng.integers(len(given)))
            name, _, old = given[place].partition('=')
            value = _another(rng, old) if rng.integers(2) else _VALUES[rng.integers(len(_VALUES))]
            given[place : place + int(rng.integers(8) > 0)] = [f'{name}={value}']
        if rng.integers(6) == 0:
            text = '\n'.join(given).encode('utf-8', 'surrogateescape')
            text += (b'', b'\n--flagfile=flags', b'\n--flagfile=/dev/zero')[rng.integers(3)]
            text = mutations.of_bytes(rng, text) if rng.integers(2) else text
            (folder / 'flags').write_bytes(text)
            given = ['--flagfile=flags']
        # A FIFO as output makes any program wait for a reader.
        given = [each for each in given if each != '--output=fifo']
        self.given = [each.replace('{strategy}', 'strategy.npz') for each in given]

    def _run(self, folder):
        flagsaver.restore_flag_values(self._saved, flags.FLAGS)
        # The flags now share the saved values, and would change them.
        self._saved = flagsaver.save_flag_values(flags.FLAGS)
        status, before, directory = None, sys.argv, os.getcwd()
        sys.argv = [before[0], *self.given]
        os.chdir(folder)  # A mutated --output is a file there.
        try:
            # Files instead of `StringIO`, because binaries need their descriptors.
            with (
                open('printed', 'w', errors='backslashreplace') as out,
                open('said', 'w', errors='backslashreplace') as err,
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
            ):
                try:
                    self._call(self.module.main)
                except SystemExit as end:
                    status = end.code or 0
        finally:
            sys.argv = before
            os.chdir(directory)
        printed, said = ((folder / name).read_text() for name in ('printed', 'said'))
        errors = [line for line in said.replace('\r', '\n').splitlines() if 'error' in line.lower()]
        if status == 2:
            last = said.strip().splitlines()[-1:]
            require(last == errors and last[0].startswith('error: '), f'status 2: {last, errors}')
            require(last[0].isprintable(), f'status 2: {last}')
            raise _RefusedError(last[0])
        require(status in (0, 1), f'status {status}: {errors[:1]}')
        if status == 0 and flags.FLAGS['format'].value == 'json':
            json.loads(printed)


def _another(rng, old: str) -> str:
    """A value of the same kind: numbers in place of numbers, lists for lists."""
    parts = []
    for part in old.split(','):
        try:
            number = int(part) if part.isdecimal() else float(part)
        except ValueError:
            parts.append(part)
        else:
            # Larger values are allowed, but rightly take minutes.
            other = mutations.near(rng, number)
            parts.append(str(10 * number if 10 * abs(number) < other < 10**9 else other))
    return ','.join(parts * int(rng.choice((1, 1, 1, 2))))
