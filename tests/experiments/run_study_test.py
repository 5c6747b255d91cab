"""A study from its file to its page, and again; every preset makes experiments."""

import functools
import json

import numpy as np
import pytest

from dpfl import Participation, accounting, mechanisms, presets
from dpfl.simulation.training.plan import build_plan
from dpfl.studies import definition, jobs, work
from tests import binaries

_STUDY = {
    'title': 'A small study',
    'about': 'It compares.',
    'mirrors': 'McMahan et al. 2024, table 3',
    'flags': {
        'task': 'synthetic_text',
        'vocabulary_size': '40',
        'sentence_length': '6',
        'model': 'micro',
        'rounds': '2',
        'population': '8',
        'clients_per_round': '4',
        'min_separation': '2',
        'client_max_batches': '1',
        'eval_clients': '4',
        'eval_every': '1',
        'shards': '1',
        'noise_multiplier': '3',
        'delta': '1e-3',
    },
    'preparations': {
        'blt': {
            'binary': 'optimize_strategy',
            'shared': ['rounds', 'min_separation'],
            'flags': {'mechanism': 'blt', 'buffers': '1', 'output': '{prepared}/blt.npz'},
        }
    },
    'lines': {
        'no noise': {'mechanism': 'none', 'noise_multiplier': None},
        'BLT': {'mechanism': 'blt', 'strategy': '{prepared}/blt.npz'},
    },
    'threshold': 0.01,
    'measures': ['accuracy', 'loss', 'max_loss', 'rounds_to_threshold', 'epsilon'],
    'orders': ['accuracy', 'loss'],
    'claims': [{'text': 'noise hurts', 'measure': 'loss', 'higher': 'BLT', 'lower': 'no noise'}],
    'seeds': [3],
}
_run = functools.partial(binaries.run, 'run_study', '--jobs=1', timeout=300)


@pytest.mark.exhaustive
@pytest.mark.tff
def test_a_study_leaves_results_figure_and_page_and_is_not_run_twice(tmp_path):
    path = tmp_path / 'mine.json'
    path.write_text(json.dumps(_STUDY))
    output = tmp_path / 'out'
    first = _run(f'--study={path}', f'--output_dir={output}', '--format=json')
    assert first.returncode == 0, first.stderr
    found = json.loads(first.stdout)
    assert found == json.loads((output / 'results.json').read_text())
    silent, noisy = found['points']
    assert [silent['point'], noisy['point']] == ['no noise', 'BLT']
    run = output / 'runs' / 'BLT' / 'seed_3'
    report = accounting.PrivacyReport.from_json((run / 'privacy_report.json').read_text())
    assert noisy['measures']['epsilon']['mean'] == report.guarantee.epsilons[0]
    schema = Participation(2, 2)
    strategy = mechanisms.load(output / 'prepared' / 'blt.npz')
    assert noisy['measures']['max_loss']['mean'] == strategy.max_loss(schema)
    assert silent['measures']['epsilon'] is None and silent['measures']['max_loss'] is None
    last = np.genfromtxt(run / 'metrics.csv', delimiter=',', names=True)[-1]
    assert noisy['runs'] == [
        {
            'seed': 3,
            'lower_bounds': noisy['runs'][0]['lower_bounds'],
            **{name: noisy['measures'][name]['mean'] for name in noisy['measures']},
        }
    ]
    assert noisy['measures']['loss']['mean'] == pytest.approx(last['loss'])
    assert found['claims'][0]['verdict'] == 'not settled'  # With a single seed.
    assert (output / 'study.png').read_bytes().startswith(b'\x89PNG')
    page = (output / 'study.html').read_text()
    assert 'data:image/png;base64,' in page and 'A small study' in page and 'http' not in page

    changed = (run / 'model.npz').stat().st_mtime_ns
    again = _run(f'--study={path}', f'--output_dir={output}', '--format=json')
    assert json.loads(again.stdout) == found
    assert (run / 'model.npz').stat().st_mtime_ns == changed

    other = _run(f'--study={path}', f'--output_dir={output}', '--override=clip_norm=0.5')
    assert other.returncode == 1
    assert other.stderr.count('\n') <= 2 and '--clip_norm=0.5' in other.stderr


@pytest.fixture(scope='module', name='configs')
def _configs(tmp_path_factory):
    """The configurations of the runs of every preset, of one seed, point by point."""
    folder = tmp_path_factory.mktemp('presets')
    found = {}
    for name in presets.studies():
        study = definition.load(name)
        rounds, prepared = int(study.flags['rounds']), folder / name / 'prepared'
        prepared.mkdir(parents=True)
        for job in jobs.preparations(study, folder / name, study.seeds[:1], {}):
            if job.binary == 'optimize_strategy':
                mechanisms.save(_stand_in(job.flags['mechanism'], rounds), job.flags['output'])
        made = jobs.runs(study, folder / name, study.seeds[:1], {})
        found[name] = [work.train_config(job.flags) for job in made.values()]
    return found


def _stand_in(kind, rounds):
    """A mechanism of the kind that a preparation optimises, made at once."""
    if kind == 'blt':
        return mechanisms.Blt(rounds, [0.9], [0.1])
    if kind == 'banded_toeplitz':
        return mechanisms.BandedToeplitz(rounds, [1.0, 0.5])
    if kind == 'banded_inverse':
        return mechanisms.BandedInverse(rounds, [1.0, -0.5])
    if kind in ('scaled_blt', 'block_blt'):
        return mechanisms.ColumnScaled(mechanisms.Blt(rounds, [0.9], [0.1]), [1.0, 1.1], rounds)
    return mechanisms.optimize_banded(Participation(rounds, 2), 2, loss='rms')


def _plan(config):
    return build_plan(
        config.privacy,
        config.sampling,
        population=lambda: config.sampling.population or 10_000,
        dimension=lambda: 1_000,
    )


@pytest.mark.standard
@pytest.mark.parametrize('name', presets.studies())
def test_a_preset_makes_plans(name, configs):
    study = definition.load(name)
    assert len(configs[name]) == len(study.points)
    for point, config in zip(study.points, configs[name], strict=True):
        plan = _plan(config)
        assert plan.participation.rounds == int(point.flags['rounds'])
        assert bool(plan.noise_multiplier) == (point.flags['mechanism'] != 'none')


@pytest.mark.standard
def test_clip_norms_of_later_rounds_reach_the_plan(configs):
    schedules = [_plan(config).clip_schedule for config in configs['exchange']]
    assert schedules == [(), (), (), ((24, 0.1),), ((24, 0.05),)]
