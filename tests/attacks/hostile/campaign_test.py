"""Randomly mutated files are refused in one line, or give a right result."""

import json
import pathlib
import resource
import sys

import pytest

from tests import forked_binaries
from tests.attacks.hostile import campaign, refusals, targets
from tests.sizes import exhaustive


@pytest.mark.parametrize('cases', [40, exhaustive(400)])
@pytest.mark.parametrize('make', targets.FAST, ids=lambda make: make.__name__)
def test_mutated_files_are_one_line_or_a_right_result(make, cases, tmp_path):
    outcomes = campaign.run(make(), tmp_path, cases)
    assert outcomes.keys() <= {'taken', 'refused'}
    # What is wrong with a run directory is in what `verify` returns.
    assert outcomes['refused'] > cases // 20 or make is targets.run_directory
    assert outcomes['taken'] >= cases // 100


_ALONE = ('texts', 'stackoverflow', 'images', 'saved_model', 'model_weights')


@pytest.mark.exhaustive
@pytest.mark.parametrize('name', _ALONE)
def test_a_process_that_reads_mutated_files_does_not_end(name, tmp_path):
    done = forked_binaries.run_module(__name__, name, 100, tmp_path)
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
    from tests.attacks.hostile import data_targets

    makes = {make.__name__: make for make in (*data_targets.TARGETS, targets.texts)}
    with open('/proc/self/statm') as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (6 << 30), resource.RLIM_INFINITY))
    print(json.dumps(campaign.run(makes[name](), folder, cases)), flush=True)


if __name__ == '__main__':
    _run_alone(sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3]))
