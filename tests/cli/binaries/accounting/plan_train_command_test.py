"""`plan_privacy` ends with the command of `train` that has the guarantee of its plan."""

import json
import shlex

import pytest

from dpfl import _setting_texts
from dpfl.simulation.training import TrainConfig
from dpfl.simulation.training.plan import accountant, build_plan
from tests import forked_binaries


@pytest.mark.parametrize(
    'flags',
    [
        '--population=4210000 --clients_per_round=6500 --rounds=1900 --timer_hours=24 '
        '--round_minutes=4.6 --mechanism=tree --noise_multiplier=7',
        '--population=1710 --clients_per_round=10 --rounds=52 --sampling=cyclic_poisson '
        '--mechanism=fichtenberger_toeplitz --bands=20 --target_epsilon=3 --delta=1e-6',
        '--population=4210 --clients_per_round=65 --rounds=190 --mechanism=blt '
        '--blt_decay=0.9,0.2 --blt_scale=0.2,0.1 --target_epsilon=3 --delta=1e-6 --accountant=rdp',
    ],
)
def test_the_command_has_the_guarantee_of_the_plan(flags):
    done = forked_binaries.run('plan_privacy', *flags.split())
    assert done.returncode == 0, done.stderr
    shown = done.stdout.splitlines()[-1]
    words = shlex.split(shown)
    assert words[:4] == ['python', '-m', 'experiments.train', '--output_dir=runs/planned']
    texts = dict(word.removeprefix('--').split('=', 1) for word in words[4:])
    config = _setting_texts.with_texts(TrainConfig(), texts)
    sampling = config.sampling
    plan = build_plan(
        config.privacy, sampling, population=lambda: sampling.population, dimension=lambda: 1000
    )
    planned = forked_binaries.run('plan_privacy', *flags.split(), '--format=json')
    row = json.loads(planned.stdout)['plans'][0]
    epsilon = plan.epsilon(config.privacy.delta, accountant(config.privacy, plan))
    assert epsilon == pytest.approx(row['epsilon'], rel=1e-6)
    assert plan.participation.count == row['max_participations']


def test_a_sweep_has_no_command():
    flags = '--population=4210 --clients_per_round=65 --rounds=190 --mechanism=tree'
    sweep = '--noise_multiplier=7 --sweep_population=4210,8420'
    done = forked_binaries.run('plan_privacy', *flags.split(), *sweep.split())
    assert done.returncode == 0 and 'experiments.train' not in done.stdout
