"""A study from its file to its page, and again; its jobs; every preset makes experiments."""

import functools
import json
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest

from dpfl import Participation, accounting, errors, mechanisms
from dpfl.simulation.training.plan import build_plan
from experiments.studies.shared import grid
from tests import binaries, mechanism_cases
from tests.studies import scripts_of_studies, small_study

pytestmark = pytest.mark.standard

run_study = scripts_of_studies.load('run_study')

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
_run = functools.partial(binaries.run, 'studies.run_study', '--jobs=1', timeout=300)


def _small(**fields):
    return small_study.study(
        flags={'rounds': '4', 'clip_norm': '1'},
        lines={'no noise': {'clip_norm': None}, 'tree': {'strategy': '{prepared}/s_{seed}.npz'}},
        **fields,
    )


def test_points_of_a_seed_share_all_seeds_and_come_before_the_next_seed(tmp_path):
    made = run_study.runs(_small(), tmp_path, [1, 7])
    assert list(made) == [('no noise', 1), ('tree', 1), ('no noise', 7), ('tree', 7)]
    assert made['no noise', 7].folder == tmp_path / 'runs' / 'no_noise' / 'seed_7'
    one, other = made['no noise', 7].flags, made['tree', 7].flags
    assert one['seed'] == one['noise_seed'] == other['seed'] == other['noise_seed'] == '7'
    assert 'clip_norm' not in one and other['clip_norm'] == '1'
    assert other['strategy'] == f'{tmp_path}/prepared/s_7.npz'


def test_preparations_share_flags_of_the_study_and_are_made_for_each_seed(tmp_path):
    preparation = grid.Preparation(
        'p_{seed}',
        'pretrain',
        {'seed': '{seed}', 'output': '{prepared}/p_{seed}'},
        shared=('rounds', 'model'),
    )
    study = _small(preparations=(preparation,))
    prepared = run_study.preparations(study, tmp_path, [1, 2])
    assert [job.name for job in prepared] == ['prepared/p_1', 'prepared/p_2']
    assert prepared[1].flags == {'rounds': '4', 'seed': '2', 'output': f'{tmp_path}/prepared/p_2'}
    # One that is the same for all seeds is made once.
    same = _small(preparations=(grid.Preparation('p', 'optimize_strategy', {}),))
    assert len(run_study.preparations(same, tmp_path, [1, 2, 3])) == 1


def test_a_job_is_done_when_it_is_recorded_and_only_with_its_flags(tmp_path):
    output = tmp_path / 'prepared/b.npz'

    def job(name='b', **flags):
        values = {'mechanism': 'banded', 'rounds': '4', 'output': str(output), **flags}
        return run_study.Job(f'prepared/{name}', 'optimize_strategy', values, tmp_path)

    (tmp_path / 'jobs').mkdir()
    assert not job(min_separation='2').is_done()
    job(min_separation='2').run()
    assert job(min_separation='2').is_done() and mechanisms.load(output).rounds == 4
    with pytest.raises(errors.RunError, match='--min_separation=2, --min_separation=3'):
        job(min_separation='3').is_done()
    with pytest.raises(errors.RunError, match='optimize_strategy ended with status 2'):
        job('c', bands='0').run()


# Jobs run in processes of their own; a failure is named, and none outlives the study.


def _number(value):
    print('noise', value, os.getpid(), file=sys.stderr)


def _fail():
    raise errors.ArgumentError('clip_norm', 0, 'must be > 0')


def _crash():
    os.kill(os.getpid(), signal.SIGKILL)


def _wait(path):
    path.write_text(str(os.getpid()))
    time.sleep(60)


def test_jobs_run_in_other_processes_with_a_log_each(tmp_path):
    calls = {f'runs/{i}': functools.partial(_number, i) for i in range(4)}
    run_study.in_processes(calls, 2, tmp_path)
    logs = [(tmp_path / f'runs__{i}.log').read_text().split() for i in range(4)]
    assert [log[:2] for log in logs] == [['noise', str(i)] for i in range(4)]
    processes = {process for *_, process in logs}
    assert len(processes) <= 2 and str(os.getpid()) not in processes


def test_a_failure_is_named_with_its_reason(tmp_path):
    with pytest.raises(errors.RunError, match=r'^b: clip_norm=0: must be > 0 \(see .*b.log\)'):
        run_study.in_processes({'b': _fail}, 2, tmp_path)
    with pytest.raises(errors.RunError, match='a process ended before its job did'):
        run_study.in_processes({'b': _crash}, 2, tmp_path)


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_what_ends_the_study_ends_its_jobs(tmp_path, number):
    paths, interrupted = [tmp_path / name for name in ('a', 'b')], []

    def interrupt():
        while not all(path.exists() and path.read_text() for path in paths):
            time.sleep(0.02)
        interrupted.append(time.monotonic())
        os.kill(os.getpid(), number)

    threading.Thread(target=interrupt).start()
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        calls = {path.name: functools.partial(_wait, path) for path in paths}
        run_study.in_processes(calls, 2, tmp_path / 'logs')
    assert time.monotonic() - interrupted[0] < 20
    for path in paths:
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.read_text()), 0)


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
    assert '<svg' in page and 'A small study' in page and 'src=' not in page

    changed = (run / 'model.npz').stat().st_mtime_ns
    again = _run(f'--study={path}', f'--output_dir={output}', '--format=json')
    assert json.loads(again.stdout) == found
    assert (run / 'model.npz').stat().st_mtime_ns == changed

    path.write_text(json.dumps({**_STUDY, 'flags': {**_STUDY['flags'], 'clip_norm': '0.5'}}))
    other = _run(f'--study={path}', f'--output_dir={output}')
    assert other.returncode == 1
    assert other.stderr.count('\n') <= 2 and '--clip_norm=0.5' in other.stderr


# Mechanisms that are made at once, for those that a preparation optimises.
_STAND_INS = dict.fromkeys(('scaled_blt', 'block_blt'), 'column_scaled')


@pytest.fixture(scope='module', name='configs')
def _configs(tmp_path_factory):
    """The configurations of the runs of every preset, of one seed, point by point."""
    folder = tmp_path_factory.mktemp('presets')
    found = {}
    for name in grid.names():
        study = grid.load(name)
        rounds, prepared = int(study.flags['rounds']), folder / name / 'prepared'
        prepared.mkdir(parents=True)
        for job in run_study.preparations(study, folder / name, study.seeds[:1]):
            if job.binary == 'optimize_strategy':
                kind = job.flags['mechanism']
                stand_in = mechanism_cases.FACTORIES[_STAND_INS.get(kind, kind)](rounds)
                mechanisms.save(stand_in, job.flags['output'])
        made = run_study.runs(study, folder / name, study.seeds[:1])
        found[name] = [run_study.settings(job.flags)[0] for job in made.values()]
    return found


def _plan(config):
    return build_plan(
        config.privacy,
        config.sampling,
        population=lambda: config.sampling.population or 10_000,
        dimension=lambda: 1_000,
    )


@pytest.mark.parametrize('name', grid.names())
def test_a_preset_makes_plans(name, configs):
    study = grid.load(name)
    assert len(configs[name]) == len(study.points)
    for point, config in zip(study.points, configs[name], strict=True):
        plan = _plan(config)
        assert plan.participation.rounds == int(point.flags['rounds'])
        assert bool(plan.noise_multiplier) == (point.flags['mechanism'] != 'none')


def test_clips_of_presets_reach_the_plan(configs):
    schedules = [_plan(config).clip_schedule for config in configs['exchange']]
    assert schedules == [(), (), (), ((24, 0.1),), ((24, 0.05),)]
    # The figure without clipping has neither clipping nor noise.
    for config in configs['cohort_unclipped']:
        plan, how = _plan(config), config.optimization
        assert plan.clip_norm == 1000 and not plan.noise_multiplier
        assert plan.estimator == accounting.Estimator('clipped', 1.0)
        assert (how.server_learning_rate, how.server_momentum) == (1, 0)
