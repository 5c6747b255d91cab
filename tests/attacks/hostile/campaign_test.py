"""Randomly mutated files and flags are refused in one line, or give a right result."""

import json
import pathlib
import resource
import sys

import pytest

from tests import forked_binaries
from tests.attacks.hostile import campaign, refusals, targets


@pytest.mark.parametrize('cases', [40, pytest.param(400, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize('make', targets.FAST, ids=lambda make: make.__name__)
def test_mutated_files_are_one_line_or_a_right_result(make, cases, tmp_path):
    outcomes = campaign.run(make(), tmp_path, cases)
    assert outcomes.keys() <= {'taken', 'refused'}
    # What is wrong with a run directory is in what `verify` returns.
    assert outcomes['refused'] > cases // 20 or make is targets.run_directory
    assert outcomes['taken'] >= cases // 100


_ALONE = ('texts', 'stackoverflow', 'images', 'saved_model', 'model_weights')
_COMMANDS = ('plan_privacy', 'optimize_strategy', 'compare_mechanisms', 'simulate_population')


@pytest.mark.parametrize(
    'name, cases',
    [
        pytest.param('report_privacy', 60, marks=pytest.mark.standard),
        *(pytest.param(name, 100, marks=pytest.mark.exhaustive) for name in _ALONE + _COMMANDS),
    ],
)
def test_a_process_that_reads_mutated_files_or_flags_does_not_end(name, cases, tmp_path):
    done = forked_binaries.run_module(__name__, name, cases, tmp_path)
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout.splitlines()[-1])
    assert outcomes.keys() == {'taken', 'refused'}


@pytest.mark.parametrize(
    'error, said',
    [
        (campaign.WrongResultError('epsilon'), 'wrong result: epsilon'),
        (ValueError('two\nlines'), 'not in one printable line'),
        (KeyError('two\nlines'), 'KeyError at '),
        (refusals.TooSlowError(), 'more than 20 seconds'),
    ],
)
def test_the_campaign_tells_what_is_wrong(error, said, tmp_path):
    def read(folder):
        raise error

    (outcome,) = campaign.run(campaign.Target([{'a': b'a'}], read), tmp_path, 1)
    assert outcome.startswith(said) and outcome.endswith('(case 0)')


def _run_alone(name: str, cases: int, folder: pathlib.Path) -> None:
    from tests.attacks.hostile import commands, data_targets

    makes = {make.__name__: make for make in (*data_targets.TARGETS, targets.texts)}
    target = makes[name]() if name in makes else commands.Commands(name)
    with open('/proc/self/statm') as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (6 << 30), resource.RLIM_INFINITY))
    print(json.dumps(campaign.run(target, folder, cases)), flush=True)


if __name__ == '__main__':
    _run_alone(sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3]))
