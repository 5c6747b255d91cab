"""A study from its file to its page, and again; every preset makes experiments."""

import functools
import json
import subprocess
import sys

import numpy as np
import pytest

from dpfl import Participation, accounting, mechanisms
from experiments.studies import definition
from tests import binaries

_STUDY = {
    'title': 'A small study',
    'about': 'It compares.',
    'mirrors': 'document 002, table 3',
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


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['--study=none', '--output_dir=x'], '--study=none: must be a JSON file or one of'),
        (['--output_dir=x'], '--study: must be given'),
        (['--study=clip'], '--output_dir: must be given'),
        (['--study=clip', '--output_dir={}', '--seeds=1,b'], '--seeds=1,b: must be'),
        (['--study=clip', '--output_dir={}', '--seeds=1,1'], '--seeds=1,1: must be different'),
        (['--study=clip', '--output_dir={}', '--override=rounds'], '--override=rounds: must be'),
        (['--study=clip', '--output_dir={}', '--override=seed=1'], '--override=seed=1: must be'),
    ],
)
def test_bad_flags_are_refused_in_one_line(tmp_path, arguments, message):
    done = _run(*(each.format(tmp_path) for each in arguments))
    assert done.returncode == 2 and done.stdout == ''
    assert done.stderr.startswith(f'error: {message}') and done.stderr.count('\n') == 1


# In a process of its own: other tests import binaries whose flags have the same names.
_PRESETS = """
import json, pathlib, sys
from absl import flags
from absl.testing import flagsaver
from dpfl import Participation, mechanisms
from experiments import train
from experiments.studies import definition, jobs

class Caught(BaseException):
    pass

def caught(*arguments):
    found.append(arguments)
    raise Caught

def main_of(arguments):
    # Defaults first: the values of a point are not for the next.
    with flagsaver.flagsaver():
        flags.FLAGS.unparse_flags()
        flags.FLAGS(['train', *arguments])
        try:
            train._main()
        except Caught:
            pass

directory, seen = pathlib.Path(sys.argv[1]), {}
(directory / 'prepared').mkdir()
begin = train._train
for name in definition.names():
    study = definition.load(name)
    rounds = int(study.flags['rounds'])
    mechanisms.save(mechanisms.Blt(rounds, [0.9], [0.1]), directory / 'prepared' / 'blt.npz')
    banded = mechanisms.optimize_banded(Participation(rounds, 2), 2, loss='rms')
    mechanisms.save(banded, directory / 'prepared' / 'banded.npz')
    made = list(jobs.runs(study, directory / name, study.seeds[:1], {}).values())
    given = [
        [each.replace(str(directory / name / 'prepared'), str(directory / 'prepared'))
         for each in job.arguments] for job in made
    ]
    found, train._train = [], caught
    for arguments in given:
        main_of(arguments)
    plans = [
        {'rounds': plan.participation.rounds, 'noise_multiplier': plan.noise_multiplier,
         'clip_schedule': plan.clip_schedule} for plan, *_ in found
    ]
    from dpfl.simulation import program

    found, train._train, program.run_training = [], begin, caught
    main_of(given[0])
    ((experiment, run, _),) = found
    seen[name] = {
        'plans': plans, 'experiment': type(experiment).__name__,
        'is_its_folder': run.path == made[0].folder,
    }
print(json.dumps(seen))
"""


@pytest.fixture(scope='module', name='presets')
def _presets(tmp_path_factory):
    command = [sys.executable, '-c', _PRESETS, str(tmp_path_factory.mktemp('presets'))]
    done = subprocess.run(command, cwd=binaries.ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.tff
@pytest.mark.parametrize('name', definition.names())
def test_a_preset_makes_plans_and_an_experiment(name, presets):
    study = definition.load(name)
    assert len(presets[name]['plans']) == len(study.points)
    for point, plan in zip(study.points, presets[name]['plans'], strict=True):
        assert plan['rounds'] == int(point.flags['rounds'])
        assert bool(plan['noise_multiplier']) == (point.flags['mechanism'] != 'none')
    assert presets[name]['experiment'] == 'Experiment' and presets[name]['is_its_folder']


@pytest.mark.tff
def test_clip_norms_of_later_rounds_reach_the_plan(presets):
    schedules = [plan['clip_schedule'] for plan in presets['exchange']['plans']]
    assert schedules == [[], [], [], [[24, 0.1]], [[24, 0.05]]]


@pytest.mark.parametrize('value', ['2', 'a:1', '2:0', '0:0.1'])
def test_a_clip_schedule_that_is_none_is_refused(tmp_path, value):
    done = binaries.run(
        'train',
        '--mechanism=gaussian',
        '--rounds=4',
        '--noise_multiplier=1',
        f'--output_dir={tmp_path}',
        f'--clip_schedule={value}',
        timeout=100,
    )
    assert done.returncode == 2 and done.stderr.count('\n') == 1
    assert 'clip_schedule' in done.stderr
