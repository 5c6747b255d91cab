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

import numpy as np
from absl import flags
from absl.testing import flagsaver

from tests.attacks.hostile import archives, mutations
from tests.attacks.hostile.target import Target, require

# Of each binary: flags of a command line that works in a moment, and others, not all of which go
# together with them.
COMMANDS = {
    'report_privacy': (
        [
            '--mechanism=blt',
            '--blt_decay=0.9,0.5',
            '--blt_scale=0.1,0.2',
            '--rounds=20',
            '--noise_multiplier=5',
            '--delta=1e-6',
            '--accountant=rdp',
            '--format=json',
        ],
        [
            '--min_separation=3',
            '--max_participations=4',
            '--clip_norm=1',
            '--clients_per_round=10',
            '--adjacency=zero_out',
            '--restart_first=5',
            '--restart_every=5',
            '--sampling=none',
            '--population=100',
            '--run_dir=/nowhere',
            '--compose_with=/nowhere',
            '--strategy=blt_b100',
            '--tree_released=nodes',
        ],
    ),
    'plan_privacy': (
        [
            '--mechanism=tree',
            '--rounds=20',
            '--population=1000',
            '--clients_per_round=10',
            '--noise_multiplier=5',
            '--delta=1e-6',
            '--accountant=rdp',
            '--format=json',
        ],
        [
            '--min_separation=3',
            '--max_participations=4',
            '--timer_hours=24',
            '--round_minutes=3',
            '--availability=0.5',
            '--target_rho=1',
            '--target_epsilon=5',
            '--sweep_population=100,1000',
            '--sweep_rounds=10,20',
            '--clip_norm=1',
            '--simulated_noise_multiplier=1',
            '--simulated_clients_per_round=5',
            '--max_clients_per_round=100',
        ],
    ),
    'optimize_strategy': (
        [
            '--mechanism=banded_toeplitz',
            '--rounds=12',
            '--min_separation=3',
            '--bands=2',
            '--output={folder}/out.npz',
            '--format=json',
        ],
        [
            '--max_participations=2',
            '--buffers=1',
            '--loss=rms',
            '--momentum=0.5',
        ],
    ),
    'compare_mechanisms': (
        [
            '--mechanisms=tree,gaussian,blt_b100',
            '--rounds=12',
            '--min_separation=3',
            '--format=json',
        ],
        [
            '--max_participations=2',
            '--vary=rounds',
            '--values=4,12',
            '--loss=rms',
            '--relative_to=tree',
            '--noise_multiplier=3',
            '--delta=1e-6',
        ],
    ),
    'simulate_population': (
        [
            '--population=200',
            '--clients_per_round=5',
            '--rounds=4',
            '--timer_hours=24',
            '--format=json',
        ],
        [
            '--noise_multiplier=3',
            '--mechanism=tree',
            '--vary=clients_per_round',
            '--values=5,10',
            '--seed=1',
            '--output={folder}/log.npz',
        ],
    ),
}
_VALUES = (
    '',
    'nan',
    'NaN',
    'inf',
    '-inf',
    '-1',
    '0',
    '1',
    '2',
    '3',
    '1e999',
    '1e-999',
    '1e-300',
    '1e300',
    '1' + '0' * 18,
    '1' + '0' * 40,
    '1' + '0' * 400,
    '9' * 5000,
    '4194305',
    '2147483648',
    '0.5',
    '-0.0',
    '1,2,3',
    ',',
    ',,',
    '1,nan',
    '1,' * 3000,
    'x' * 5000,
    '\n',
    'a\nb',
    '\u202e',
    '\x1b[2J',
    'tree',
    'blt',
    'banded',
    'gaussian',
    'auto',
    'none',
    'poisson',
    '/dev/zero',
    '/dev/urandom',
    '{folder}',
    '{folder}/file',
    '{folder}/fifo',
    '{folder}/loop',
    '/nowhere/at/all',
    '..',
    '~',
    'true',
    'None',
    '[]',
    '0x10',
    '1_000',
    ' 5 ',
    '٣',
    'blt:2',
    'best_blt:0',
    'banded:999999999999',
    'blt:99999',
    '1.0000000000000002',
    '0.9999999999999999',
)


class _RefusedError(Exception):
    """The command line was refused, in one line."""


class Commands(Target):
    """One binary. It must end with status 0, 1 or 2, and print at most one line of error."""

    refusals = (_RefusedError,)
    seconds = 20.0  # Exact sensitivities of thousands of rounds take seconds to compute.

    def __init__(self, folder, binary: str):
        super().__init__(folder)
        self.name = binary
        self._module = importlib.import_module(f'experiments.{binary}')
        from dpfl.cli.command import command_line

        self._run, self._streams = command_line.run, {}
        sys.argv[0] = str(pathlib.Path(self._module.__file__))
        with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
            flags.FLAGS([sys.argv[0]])
        self._saved = flagsaver.save_flag_values(flags.FLAGS)
        (folder / 'file').write_text('--rounds=3\n')
        for name, make in (('fifo', os.mkfifo), ('loop', lambda p: p.symlink_to(p))):
            if not (folder / name).exists() and not (folder / name).is_symlink():
                make(folder / name)

    def mutate(self, rng):
        case = self.fresh()
        needed, others = COMMANDS[self.name]
        given = [each for each in needed if rng.random() < 0.99]
        given += [each for each in others if rng.random() < 0.05]
        for _ in range(int(rng.choice((1, 1, 1, 2)))):
            if not given:
                break
            place = int(rng.integers(len(given)))
            name, _, old = given[place].partition('=')
            kind = rng.integers(10)
            if kind < 5:
                given[place] = f'{name}={_another(rng, old)}'
            elif kind < 8:
                given[place] = f'{name}={_VALUES[rng.integers(len(_VALUES))]}'
            elif kind == 8:
                spoilt = mutations.of_bytes(rng, given[place].encode('utf-8', 'surrogateescape'))
                given[place] = spoilt.decode('utf-8', 'surrogateescape').replace('\0', '')
            else:
                given.insert(place, f'{name}={_VALUES[rng.integers(len(_VALUES))]}')
        if rng.integers(6) == 0:
            path = case / 'file.flags'
            if rng.random() < 0.3:
                mutations.special(rng, path)
            else:
                text = '\n'.join(given).encode('utf-8', 'surrogateescape')
                ends = (b'', b'\n--flagfile=file.flags', b'\n--flagfile=/dev/zero')
                text += ends[rng.integers(len(ends))]
                path.write_bytes(mutations.of_bytes(rng, text) if rng.integers(2) else text)
            given = [f'--flagfile={path}']
        elif rng.integers(8) == 0:
            path = case / 'strategy.npz'
            path.write_bytes(
                archives.of_arrays(
                    rng,
                    {
                        'schema_version': np.array(1),
                        'mechanism': np.array('banded_toeplitz'),
                        'rounds': np.array(20),
                        'coefficients': np.array([1.0, 0.5]),
                    },
                )
            )
            flag = {
                'report_privacy': '--mechanism=banded_toeplitz --strategy={}',
                'plan_privacy': '--mechanism=banded_toeplitz --strategy={}',
                'compare_mechanisms': '--mechanisms={}',
                'simulate_population': '--mechanism={}',
            }.get(self.name, '--rounds={}')
            given += flag.format(path).split()
        # A FIFO as output makes any program wait for a reader.
        given = [each for each in given if not each.startswith('--output={folder}/fifo')]
        self._given = [each.replace('{folder}', str(self.folder)) for each in given]
        return case

    def read(self, path):
        flagsaver.restore_flag_values(self._saved, flags.FLAGS)
        # The flags now share the saved values, and would change them.
        self._saved = flagsaver.save_flag_values(flags.FLAGS)
        # Files instead of `StringIO`, because binaries need their descriptors.
        out, err = (self._emptied(name) for name in ('printed', 'said'))
        status = None
        before, directory = sys.argv, os.getcwd()
        sys.argv = [before[0], *self._given]
        os.chdir(path)  # A mutated --output is a file there.
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    self._run(self._module.main)
                except SystemExit as end:
                    status = end.code or 0
            out.flush()
            err.flush()
        finally:
            sys.argv = before
            os.chdir(directory)
        printed, said = ((self.folder / name).read_text() for name in ('printed', 'said'))
        errors = [line for line in said.replace('\r', '\n').splitlines() if 'error' in line.lower()]
        if status == 2:
            lines = said.strip().splitlines()
            require(lines and lines[-1].startswith('error: '), f'status 2: {lines[-1:]}')
            require(len(errors) == 1 and errors[0].isprintable(), f'status 2: {errors[:3]}')
        else:
            require(status in (0, 1), f'status {status}: {errors[:1]}')
        if status == 0 and flags.FLAGS['format'].value == 'json':
            json.loads(printed)
        if status == 2:
            raise _RefusedError(errors[0])

    def _emptied(self, name: str):
        """A new text file, open for writing."""
        if name in self._streams:
            with contextlib.suppress(OSError, ValueError):
                self._streams.pop(name).close()
        return self._streams.setdefault(
            name, open(self.folder / name, 'w', encoding='utf-8', errors='backslashreplace')
        )


def _another(rng, old: str) -> str:
    """A value of the same kind: numbers in place of numbers, lists for lists."""
    parts = []
    for part in old.split(','):
        try:
            number = int(part) if part.isdecimal() else float(part)
        except ValueError:
            parts.append(part)
        else:
            other = mutations.near(rng, number)
            if isinstance(number, int) and 10 * number < other < 10**9:
                other = 10 * number  # Larger values are allowed, but rightly take minutes.
            parts.append(str(other))
    return ','.join(parts * int(rng.choice((1, 1, 1, 2))))
