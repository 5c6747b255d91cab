"""A dry run says of a run what the run says of itself, and leaves nothing behind."""

import pytest

from dpfl.simulation.training import dry_run
from dpfl.tasks.text.models import saved_models
from tests import forked_binaries
from tests.simulation.training import small_config
from tests.sizes import trains

_CONFIG = small_config.BLT.with_values({'eval_every': 3})


@trains
def test_numbers_are_those_of_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = dry_run(_CONFIG)
    assert not list(tmp_path.iterdir())
    done = small_config.finished()
    guarantee, plan = done.report.guarantee, done.report.plan
    assert found.parameters == sum(weight.size for weight in done.weights)
    assert found.parameters == saved_models.ALL['micro'].num_parameters(44)
    assert (found.epsilon, found.rho) == (guarantee.epsilons[0], guarantee.rho)
    assert (found.rounds, found.clients_per_round, found.population) == (4, 4, 16)
    assert (found.mechanism, found.noise_place) == (plan.mechanism.name, 'state')
    assert (found.noise_multiplier, found.delta) == (3.0, 1e-3)


@trains
@pytest.mark.parametrize(
    'name, flags, mechanism',
    [
        ('train', small_config.flags(_CONFIG), 'blt'),
        (
            'train_gan',
            ('--rounds=4', '--population=20', '--clients_per_round=2', '--noise_multiplier=1'),
            'gaussian',
        ),
    ],
)
def test_the_binary_prints_and_writes_nothing(name, flags, mechanism, tmp_path):
    flags = ('--dry_run', f'--output_dir={tmp_path}/run', *flags)
    values = forked_binaries.printed(name, *flags)
    assert values['mechanism'] == mechanism and values['parameters'] > 0
    assert 'noise_gigabytes' in forked_binaries.run(name, *flags, check=True).stdout
    assert not list(tmp_path.iterdir())
