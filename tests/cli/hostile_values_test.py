"""Numbers that promise nothing: one line of error, or a result without a false guarantee.

The command lines of a binary run in one process, which takes milliseconds for each.
"""

import json
import os
import pathlib
import sys
import warnings

import pytest

from tests import forked_binaries

_VALUES = ('1e308', '1e-308', '1e160', '1e-160', '-0.0', 'inf', 'nan', str(2**63), '')
_PLAN = ('--mechanism=tree', '--rounds=20', '--noise_multiplier=5', '--delta=1e-6')
_OF_12 = ('--rounds=12', '--min_separation=3')
# Of each binary: flags of a command line that works in a moment.
_COMMANDS = {
    'report_privacy': _PLAN,
    'plan_privacy': (*_PLAN, '--population=1000', '--clients_per_round=10'),
    'compare_mechanisms': ('--mechanisms=tree,gaussian', '--noise_multiplier=3', *_OF_12),
    'optimize_strategy': ('--mechanism=banded_toeplitz', '--bands=2', '--output=a.npz', *_OF_12),
}
_NO_GUARANTEE = ('Infinity', 'NaN', '(none,', '(inf,')


@pytest.mark.parametrize(
    'binary',
    [
        'report_privacy',
        pytest.param('compare_mechanisms', marks=pytest.mark.standard),
        pytest.param('optimize_strategy', marks=pytest.mark.standard),
        pytest.param('plan_privacy', marks=pytest.mark.exhaustive),
    ],
)
def test_no_number_gives_a_traceback_or_an_infinite_guarantee(binary, tmp_path):
    done = forked_binaries.run_module(__name__, binary, tmp_path)
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout.splitlines()[-1])
    assert [each for each in outcomes if each[-1]] == []
    assert len(outcomes) >= 5 * len(_VALUES)


@pytest.mark.standard
@pytest.mark.parametrize('binary', ['report_privacy', 'plan_privacy'])
def test_a_large_delta_is_warned_of_or_refused(binary):
    plan = '--mechanism=gaussian --rounds=9 --noise_multiplier=5 --accountant=rdp'
    plan += ' --sampling=poisson --population=9999 --clients_per_round=10'
    for flags, status, said in (
        ('--delta=1e-4', 0, ''),
        ('--delta=0.01', 0, 'delta=0.01 is above 1 / population (9999 clients): publishing the'),
        ('--delta=0.5', 2, '--delta=0.5: must be <= 0.01; allow_large_delta accepts more'),
        ('--delta=0.5 --allow_large_delta', 0, 'of 5e+03 clients on average would satisfy it.'),
    ):
        done = forked_binaries.run(binary, *plan.split(), *flags.split())
        assert done.returncode == status and said in done.stderr
        assert done.stderr.count('\n') == bool(said)


def _outcomes(binary: str, folder: pathlib.Path) -> list[list[str]]:
    """Flag, value and what is wrong, if anything, for each numeric flag and value."""
    from absl import flags

    from tests.attacks.hostile import commands, refusals

    command = commands.Command(binary)
    own = flags.FLAGS.get_key_flags_for_module(command.module.__name__)
    numeric = (flags.FloatParser, flags.IntegerParser)
    names = sorted(flag.name for flag in own if isinstance(flag.parser, numeric))
    outcomes = []
    for name in names:
        for value in _VALUES:
            others = [each for each in _COMMANDS[binary] if not each.startswith(f'--{name}=')]
            given = [*others, f'--{name}={value}', '--format=json']
            wrong = ''
            try:
                with refusals.within_seconds(60):
                    command.run(folder, given)
                printed = (folder / 'printed').read_text()
                wrong = ' '.join(text for text in _NO_GUARANTEE if text in printed)
            except commands.RefusedError as error:
                if not str(error).startswith('error: --'):
                    wrong = str(error)
            except Exception as error:
                wrong = f'{type(error).__name__}: {error}'
            outcomes.append([name, value, wrong])
    return outcomes


if __name__ == '__main__':
    warnings.simplefilter('ignore')
    print(json.dumps(_outcomes(sys.argv[1], pathlib.Path(sys.argv[2]))), flush=True)
    os._exit(0)
