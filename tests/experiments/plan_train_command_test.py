"""`plan_privacy` ends with commands that run its plan, with the epsilon that it states."""

import json
import shlex

import pytest

from dpfl import _setting_texts
from dpfl.simulation.training import TrainConfig
from dpfl.simulation.training.plan import build_plan
from tests import forked_binaries

_SMALL = '--population=300 --clients_per_round=10 --rounds=30 --delta=1e-3'


def _printed(folder, *flags):
    """Words of the commands, with files in a folder; and the row of the plan."""
    found = forked_binaries.printed('plan_privacy', *flags)
    commands = []
    for line in found['commands']:
        words = shlex.split(line.replace('planned.npz', f'{folder}/planned.npz'))
        assert words[0].endswith('dpfl')
        commands.append((words[1], words[2:]))
    return commands, found['plans'][0]


def _prepared(commands):
    """The flags of `train`, after the commands before it have run."""
    *before, (name, words) = commands
    assert name == 'train'
    for each, given in before:
        forked_binaries.run(each, *given, check=True)
    return words


_CASES = [
    # The mechanism that is chosen: as train makes it, of another size, for another workload.
    (f'{_SMALL} --target_epsilon=4 --model_dimension=34646', 'free_banded'),
    (
        f'{_SMALL} --noise_multiplier=4 --model_dimension=34646 --memory_limit=0.0003',
        'block_blt',
    ),
    (
        f'{_SMALL} --noise_multiplier=4 --model_dimension=34646 --workload=server '
        '--server_momentum=0.5 --server_schedule=linear',
        'free_banded',
    ),
    (f'{_SMALL} --target_epsilon=4 --mechanism=tree --adjacency=replace_one', 'tree'),
    (
        '--population=4210000 --clients_per_round=6500 --rounds=1900 --timer_hours=24 '
        '--round_minutes=4.6 --mechanism=tree --noise_multiplier=7',
        'tree',
    ),
    (
        f'{_SMALL} --mechanism=blt --blt_decay=0.9,0.2 --blt_scale=0.2,0.1 --target_epsilon=3 '
        '--accountant=rdp',
        'blt',
    ),
    (f'{_SMALL} --mechanism=tree --target_rho=0.2', 'tree'),
    (
        '--population=4210 --rounds=30 --delta=1e-6 --mechanism=tree --target_epsilon=4 '
        '--simulated_noise_multiplier=0.54 --simulated_clients_per_round=5 '
        '--max_clients_per_round=200',
        'tree',
    ),
    (f'{_SMALL} --sampling=poisson --mechanism=gaussian --target_epsilon=3', 'gaussian'),
    (
        f'{_SMALL} --sampling=cyclic_poisson --groups=9 --mechanism=gaussian --noise_multiplier=2',
        'gaussian',
    ),
    (
        f'{_SMALL} --sampling=cyclic_poisson --mechanism=fichtenberger_toeplitz --bands=20 '
        '--target_epsilon=3',
        'fichtenberger_toeplitz',
    ),
]


@pytest.mark.standard
@pytest.mark.parametrize('flags, mechanism', _CASES)
def test_the_commands_have_the_plan(tmp_path, flags, mechanism):
    commands, row = _printed(tmp_path, *flags.split())
    words = _prepared(commands)
    assert f'--mechanism={mechanism}' in words
    is_searched = '--max_clients_per_round' in flags
    targets = [each for each in words if each.startswith('--target_epsilon=')]
    assert bool(targets) == ('--target_epsilon' in flags and not is_searched)
    texts = dict(word.removeprefix('--').split('=', 1) for word in words)
    del texts['output_dir']
    config = _setting_texts.with_texts(TrainConfig(), texts)
    sampling = config.sampling
    plan = build_plan(
        config.privacy, sampling, population=lambda: sampling.population, dimension=lambda: 1000
    )
    epsilon = plan.epsilon(config.privacy.delta, config.privacy.accountant_of(plan))
    assert epsilon == pytest.approx(row['epsilon'], rel=1e-6)
    assert plan.noise_multiplier == pytest.approx(row['noise_multiplier'], rel=1e-6)
    assert plan.participation.count == row['max_participations']


@pytest.mark.standard
def test_the_text_ends_with_the_commands():
    flags = f'{_SMALL} --noise_multiplier=4 --model_dimension=34646 --memory_limit=0.0003'.split()
    text, values = (
        forked_binaries.run('plan_privacy', *flags, f'--format={form}').stdout
        for form in ('text', 'json')
    )
    assert text.splitlines()[-2:] == json.loads(values)['commands']
