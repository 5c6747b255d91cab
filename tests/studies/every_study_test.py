"""Every study from its command line: tiny sizes, its values as JSON, its files, and a bad value.

Each row of the table runs one script of `experiments/studies`; `run_study` has a test of its own.
"""

import json
import shlex

import numpy as np
import pytest
from pyarrow import parquet

from dpfl import _setting_texts, mechanisms
from dpfl.cli import catalogue
from dpfl.simulation.training import TrainConfig
from dpfl.simulation.training.plan import build_plan
from experiments.studies.shared import amplification, finished_run, labels
from tests import forked_binaries, text_files
from tests.studies import attacked_runs, scripts_of_studies
from tests.tasks.text import repositories

_GAN = (
    '--model=tiny --rounds=1 --population=20 --clients_per_round=2 --client_max_batches=1 '
    '--client_batch_size=4 --eval_clients=1 --sampling=without_replacement --delta=1e-3 '
    '--noise_multiplier=0.5 --noise_seed=1'
)
_DETECTION_TEXT = (
    '--flagfile=experiments/studies/detection_power_text.flags --vocabulary_size=96 --rounds=2 '
    '--min_separation=2 --population=40 --clients_per_round=4 --eval_clients=2 --samples=200 '
    '--inject=joined_words --epsilons=8 --accountant=analytic_gaussian --seeds=1 --inject_share=1 '
    '--output_dir={out}'
)
_DETECTION_IMAGES = (
    '--flagfile=experiments/studies/detection_power_images.flags --model=tiny --rounds=2 '
    '--population=6 --clients_per_round=2 --primary_model=tiny --primary_clients=3 '
    '--primary_steps=2 --samples=40 --eval_clients=1 --seeds=1 --inject_shares=1 '
    '--output_dir={out}'
)
_LABELS = (
    '--run_dir={gan} --output_dir={out} --images=12 --steps=2 --model=tiny --public_clients=2 '
    '--eval_clients=3'
)
_SAMPLING = '--rounds=4 --population=60 --clients_per_round=6 --delta=1e-5 --output={out}/d.npz'


# Checks of the values that a study prints as JSON, given its folder of output.


def _attacked(values, out):
    assert (values['members'], values['others'], values['members_are']) == (16, 40, 'took part')
    loss = values['attacks']['loss']
    assert [test['target_fpr'] for test in loss['tests']] == [0.001, 0.01, 0.1]
    assert not any(test['exceeds'] for test in (*loss['tests'], loss['best']))


def _exposed(values, out):
    study = scripts_of_studies.load('measure_exposure')
    kinds = study.measure(attacked_runs.private())
    assert values['runs'] == [study.to_dict(attacked_runs.private(), kinds)]
    ordered = sorted(kinds, key=lambda kind: (kind.copies, kind.holders))
    assert [row['mean_exposure'] for row in values['rows']] == [kind.mean for kind in ordered]
    lines = (out / 'exposure.csv').read_text().splitlines()
    assert len(lines) == 1 + len(kinds) and 'p_value' in lines[0]


def _planted(values, out):
    assert values['rounds'] == 2
    run = finished_run.open_run(str(out))
    assert run.data['planted'] == {'secrets': 2, 'clients': 2, 'sentences': 2, 'population': 8}
    assert (run.config.task.task, run.task.model, run.planted.secrets) == ('custom', 'micro', 2)


def _heads(values, out):
    # 40 words: the 50 and 100 most frequent words say nothing.
    assert values['heads'] == [10] and values['top'] == 10
    first, second = values['models']
    assert second == first | {'model': second['model']} and 0 <= first['accuracy'] < 1
    assert np.array(first['counts']).shape == (1, 11)


def _words(values, out):
    exact, noisy, less_noisy = values['rows']
    assert [row['epsilon'] for row in values['rows']] == [0.0, 2.0, 60.0]
    assert exact['words'] == 31 and exact['recall_20'] == 1.0
    assert noisy['recall_5'] < less_noisy['recall_5']


def _dataset(values, out):
    rows = parquet.read_table(out / 'out.parquet').num_rows
    assert values['clients'] == values['history']['authors'] == 5
    assert values['kept']['sentences'] == rows > 0 and values['history']['commits'] == 20


def _design(values, out):
    made = amplification.Search(rounds=4, population=60, clients_per_round=6, delta=1e-5).designs(
        'epsilon', 2.0
    )
    assert [row['design'] for row in values['designs']] == ['best', 'independent', 'separated']
    for row in values['designs']:
        design = getattr(made, row['design'])
        for name in ('bands', 'groups', 'probability', 'epsilon', 'error'):
            assert row[name] == pytest.approx(getattr(design, name), rel=1e-9)
    assert values['chosen'] == min(values['designs'], key=lambda row: row['error'])['design']
    saved = mechanisms.load(out / 'd.npz').strategy_matrix()
    np.testing.assert_allclose(saved, made.best.plan.mechanism.strategy_matrix(), rtol=1e-9)
    # The command of a run has the guarantee of the design.
    texts = dict(
        word.removeprefix('--').split('=', 1)
        for word in shlex.split(values['command'])[2:]
        if not word.startswith('--output_dir')
    )
    config = _setting_texts.with_texts(TrainConfig(), texts)
    plan = build_plan(
        config.privacy, config.sampling, population=lambda: 60, dimension=lambda: 1000
    )
    design = getattr(made, values['chosen'])
    assert plan.sampling == design.plan.sampling
    epsilon = plan.epsilon(1e-5, config.privacy.accountant_of(plan))
    assert epsilon == pytest.approx(design.epsilon, rel=1e-9)


def _detected(values, out):
    fault = values['cells'][1]['fault']
    cells = [(cell['fault'], cell['share']) for cell in values['cells']]
    assert cells == [(None, 0), (fault, 1)] and values['results'][0]['fault'] == fault
    assert (out / f'power_{fault}.png').is_file()


def _labelled(values, out):
    assert (values['images'], values['labelled']) == (12, 12)
    learned, few, both, public = values['models']
    assert (learned['images'], few['images'], both['images']) == (12, 12, 24) < (public['images'],)
    kept = labels.read_labels(out / labels.LABELS, 12)
    assert 0 <= kept.min() and kept.max() < 62


# By name: script, flags, check of its values, files in its folder, and an argument that is refused
# with the begin of the message.
_STUDIES = {
    'attack': (
        'attack_membership',
        '--run_dir={private} --others=40',
        _attacked,
        (),
        ('--run_dir={out}', '--run_dir={out}: must be the directory of a finished run'),
    ),
    'exposure': (
        'measure_exposure',
        '--run_dirs={private} --plot={out}/exposure.png --data={out}/exposure.csv',
        _exposed,
        ('exposure.png',),
        ('--run_dirs={out}', '--run_dirs={out}: must be the directory of a finished run'),
    ),
    'secrets': (
        'plant_secrets',
        '--flagfile=synthetic_text.blt --vocabulary_size=40 --model=micro --rounds=2 '
        '--population=8 --clients_per_round=2 --min_separation=2 --max_participations=1 '
        '--mechanism=none --eval_clients=2 --secrets=2 --secret_choices=4 --resume '
        '--output_dir={out}',
        _planted,
        ('model.npz', 'saved_model/saved_model.pb'),
        ('--sentence_length=4', '--sentence_length=4: must be >= 5, for a secret'),
    ),
    'heads': (
        'compare_head_words',
        '--models={private},{private}/saved_model --vocabulary_size=40 --sentence_length=6 '
        '--seed=5 --eval_clients=10',
        _heads,
        (),
        ('--vocabulary_size=8', '--vocabulary_size=8: must be'),
    ),
    'vocabularies': (
        'compare_vocabularies',
        '--data_path={data} --heads=5,20 --repeats=1 --epsilons=2,60 --plot={out}/plot.png',
        _words,
        ('plot.png',),
        ('--repeats=0', '--repeats=0: must be'),
    ),
    'dataset': (
        'make_dataset',
        '--data_path={repository} --output={out}/out.parquet',
        _dataset,
        ('out.parquet',),
        ('--text_column=body', '--text_column=body: needs --from=jsonl'),
    ),
    'sampling': (
        'optimize_sampling',
        f'{_SAMPLING} --target_epsilon=2',
        _design,
        (),
        ('--target_error=1', '--target_error=1.0: cannot be combined with target_epsilon'),
    ),
    'power of text': (
        'detection_power',
        _DETECTION_TEXT,
        _detected,
        ('power.html', 'power.json', 'configuration.json'),
        ('--client_learning_rate=1', '--client_learning_rate=1.0: must be 2.0, as for the cells'),
    ),
    'power of images': (
        'detection_power_images',
        _DETECTION_IMAGES,
        _detected,
        ('power.html', 'power.json'),
        ('--samples=41', '--samples=41: must be 40, as for the cells'),
    ),
    'labels': (
        'label_images',
        f'{_LABELS} --rater=tiny --rater_confidence=0',
        _labelled,
        ('label.html', 'images.npz', 'labelled.json'),
        ('--rater_confidence=1', '--rater_confidence=1.0: leaves 0 images'),
    ),
}
_LONG = ('sampling', 'power of text', 'power of images', 'labels')


@pytest.fixture(scope='module', name='inputs')
def _inputs(tmp_path_factory):
    """Paths of runs and texts by name; a GAN is trained when it is first needed."""
    root = tmp_path_factory.mktemp('inputs')
    text_files.write_clients(root / 'data.jsonl', clients=60, sentences=3)
    return {
        'data': root / 'data.jsonl',
        'repository': repositories.of_authors(root / 'repository', 5),
        'gan': root / 'gan',
        'cache': root / 'cache',
    }


def _gan(path):
    if not path.exists():
        forked_binaries.run('train_gan', *_GAN.split(), f'--output_dir={path}', check=True)


@pytest.mark.tff
@pytest.mark.parametrize(
    'name',
    [
        pytest.param(name, marks=pytest.mark.exhaustive if name in _LONG else pytest.mark.standard)
        for name in _STUDIES
    ],
)
def test_a_study_prints_its_values_and_writes_its_files(name, inputs, tmp_path):
    script, flags, check, files, (argument, message) = _STUDIES[name]
    known = {**inputs, 'out': tmp_path}
    if '{private}' in flags:
        known['private'] = attacked_runs.private().directory
    if '{gan}' in flags:
        _gan(inputs['gan'])

    def run(*more, check=True):
        given = [each.format(**known) for each in (*flags.split(), *more)]
        cache = str(inputs['cache'])
        return forked_binaries.run(f'studies.{script}', *given, check=check, DPFL_CACHE_DIR=cache)

    values = json.loads(run('--format=json').stdout)
    check(values, tmp_path)
    assert all((tmp_path / file).stat().st_size for file in files)
    # The same again; cells of a study of power are kept. Other formats show the same.
    again = run()
    assert again.stdout
    if name.startswith('power'):
        assert 'round' not in again.stderr
        assert json.loads((tmp_path / 'power.json').read_text()) == values
    refused = run(argument, check=False)
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].startswith(f'error: {message.format(**known)}')


def test_every_study_has_a_row():
    tested = {f'studies.{row[0]}' for row in _STUDIES.values()}
    # These have tests of their own, with runs that are made by hand.
    assert {*catalogue.studies()} - tested == {'studies.run_study', 'studies.compare_generators'}


@pytest.mark.exhaustive
@pytest.mark.tff
def test_people_label_between_two_calls(inputs, tmp_path):
    _gan(inputs['gan'])
    flags = _LABELS.format(gan=inputs['gan'], out=tmp_path / 'labels').split()
    done = forked_binaries.run('studies.label_images', *flags, check=True)
    text = (tmp_path / 'labels' / labels.SHEET).read_text()
    assert str(tmp_path / 'labels' / labels.SHEET) == done.stdout.strip()
    assert 'trained with epsilon' in text and 'it is a simulation' in text
    given = tmp_path / 'given.csv'
    given.write_text('image,label\n' + ''.join(f'{i},{i}\n' for i in range(10)))
    more = (f'--labels={given}', '--format=json')
    done = forked_binaries.run('studies.label_images', *flags, *more, check=True)
    values = json.loads(done.stdout)
    assert values == json.loads((tmp_path / 'labels' / 'labelled.json').read_text())
    assert values['labelled'] == 10
    kept = labels.read_labels(tmp_path / 'labels' / labels.LABELS, 12)
    assert kept.tolist() == [*range(10), -1, -1]
