"""A public copy of a run has what the guarantee covers, and nothing else."""

import csv
import dataclasses
import functools
import io
import json
import pathlib
import random
import re
import shutil
import zipfile

import pytest

from dpfl import ParticipationLog
from dpfl.accounting.records import archive
from dpfl.simulation import program, public_copy, run_directory
from dpfl.tasks import config as tasks
from tests import forked_binaries
from tests.accounting import archives
from tests.repository import threat_model
from tests.simulation import toy_experiment

_run = functools.partial(forked_binaries.run, 'export_run')
# This number of clients is no coordinate in the outline of a letter in a figure.
_CLIENTS, _PLANTED = 7393, 'planted_folder_of_someone'
_EXPORTED = {
    'SHA256SUMS',
    'metrics.csv',
    'model.npz',
    'plan.json',
    'privacy_report.html',
    'privacy_report.json',
    'privacy_report.md',
    'strategy.npz',
    'saved_model/assets.extra/model.json',
    'saved_model/fingerprint.pb',
    'saved_model/saved_model.pb',
    'saved_model/variables/variables.data-00000-of-00001',
    'saved_model/variables/variables.index',
}

_PRIVATE = ('participation.npz', 'cohorts.bin', 'ledger.jsonl', 'data.json')


def _names(path):
    return {each.relative_to(path).as_posix() for each in path.rglob('*') if not each.is_dir()}


def _columns(path):
    return {*(path / 'metrics.csv').read_text().splitlines()[0].split(',')}


def test_the_copy_of_a_small_run_has_these_files_and_no_others(tmp_path):
    run = tmp_path / 'run'
    experiment = toy_experiment.in_numpy(train_metrics_released=True)
    program.run_training(experiment, run_directory.RunDirectory(run))
    (run / 'plots' / 'private').mkdir()
    (run / 'plots' / 'private' / 'generated_1.png').touch()
    (run / archive.SUMS).write_text(archive.digests(run))
    assert {'plots/training.png', archive.LOG, archive.LEDGER} <= {*archive.listed(run)}
    assert {'seconds', 'train_loss', 'loss'} < _columns(run)
    copy = tmp_path / 'copy'
    public_copy.write(run, copy, archive.read_plan(run))
    assert _names(copy) == {name for name in _EXPORTED if not name.startswith('saved_model/')}
    assert _columns(copy) == {'round', 'epsilon'}
    assert 'on held-out clients' not in (copy / run_directory.HTML_REPORT).read_text()


def _refused(run, message, report=None):
    report = report or archive.Records.read(run).report()
    assert message in public_copy.obstacle(run, report)


_OF_CLIENTS = 'has a vocabulary that was counted on the clients'
_USER_TEXT = {'task': 'user_text', 'data_path': 'x', 'population': None}


@pytest.mark.parametrize(
    ('changes', 'log', 'message'),
    [
        ({'noise_multiplier': 0.0}, archives.LOG, 'adds no noise: there is no guarantee'),
        ({'noise_seed': 1}, archives.LOG, 'is a simulation: its noise or cohorts'),
        ({}, ParticipationLog([[0]] * 6), 'its guarantee rests on the participation log'),
        (_USER_TEXT | {'vocabulary': 'data'}, archives.LOG, _OF_CLIENTS),
        (_USER_TEXT | {'vocabulary_text': './x'}, archives.LOG, _OF_CLIENTS),
    ],
)
def test_what_must_not_be_copied_is_refused(tmp_path, changes, log, message):
    config = archives.CONFIG.with_values(changes)
    _refused(archives.write_run(tmp_path / 'run', config, log=log), message)


def test_what_was_made_elsewhere_or_is_a_copy_is_not_copied(tmp_path):
    own_loop = archives.write(tmp_path / 'own_loop')
    _refused(own_loop, 'must have settings in its journal, which say what the model was made')
    _refused(own_loop, 'is a copy already', archive.read_plan(own_loop).report(None))
    # The journal says that the words of a run are those of its clients.
    run = archives.write_run(tmp_path / 'run', archives.CONFIG.with_values(_USER_TEXT))
    words = {'vocabulary': {'words': 9, 'from': 'vocabulary_from_private_data'}}
    planned, built, *others = archive.read_journal(run).events
    events = [planned, dataclasses.replace(built, data=words), *others]
    (run / archive.LEDGER).write_bytes(archives.encoded(events))
    _refused(run, _OF_CLIENTS)
    # A run that begins with the model of such a run has its words, whatever file they came from.
    forked = archives.write_run(tmp_path / 'forked')
    report = archive.Records.read(forked).report()
    limits = (*report.also_not_covered, tasks.COUNTED_WORDS)
    _refused(forked, _OF_CLIENTS, dataclasses.replace(report, also_not_covered=limits))


def test_a_run_that_goes_on_is_not_copied(tmp_path):
    def interrupt(client):
        raise KeyboardInterrupt

    directory = run_directory.RunDirectory(tmp_path)
    experiment = toy_experiment.in_numpy()
    with directory.in_use():
        directory.begin({'course': {}}, {})
        with pytest.raises(KeyboardInterrupt):
            program.run_training(dataclasses.replace(experiment, client_data=interrupt), directory)
    report = archive.read_plan(tmp_path).report(ParticipationLog([[0, 1, 2]]))
    _refused(tmp_path, 'must be finished, with all planned rounds', report)


@pytest.mark.standard
def test_the_folder_of_a_copy_is_empty(tmp_path):
    run = archives.write_run(tmp_path / 'run')
    flags = ['--public', f'--run_dir={run}', f'--output_dir={tmp_path}/copy']
    _run(*flags, check=True)
    assert _run(*flags).stderr.startswith(
        f'error: --output_dir={tmp_path}/copy: must not exist, or be empty'
    )


@pytest.mark.standard
def test_a_changed_run_is_not_copied(tmp_path):
    run, copy = archives.write_run(tmp_path / 'run'), tmp_path / 'copy'
    (run / 'saved_model').mkdir()
    (run / 'saved_model' / 'added').write_text('words')
    flags = ('--public', f'--run_dir={run}', f'--output_dir={copy}')
    done = _run(*flags)
    assert done.returncode == 1
    assert done.stderr == (
        f'error: {run}: saved_model/added: was added, SHA256SUMS does not list it\n'
        f'error: {run}: saved_model/added: is there, and ledger.jsonl does not have its digest\n'
    )
    # Nor if it is listed.
    (run / archive.SUMS).write_text(archive.digests(run))
    assert _run(*flags).returncode == 1 and not copy.exists()


@pytest.mark.standard
def test_a_copy_is_verified_for_what_it_is(tmp_path):
    run, copy = archives.write_run(tmp_path / 'run'), tmp_path / 'copy'
    public_copy.write(run, copy, archive.read_plan(run))
    verify = functools.partial(forked_binaries.run, 'report_privacy', f'--run_dir={copy}')
    assert 'this is an export, without the journal of its run' in verify(check=True).stderr
    (copy / archive.MODEL).write_bytes(b'other')
    done = verify()
    assert done.returncode == 1 and 'model.npz: its SHA-256 is not' in done.stderr
    # A run does not pass for an export by leaving something out.
    shutil.copy(run / archive.MODEL, copy)
    plan = json.loads((copy / archive.PLAN).read_text())
    del plan['exported']
    (copy / archive.PLAN).write_text(json.dumps(plan))
    done = verify()
    assert done.returncode == 2 and 'must hold a finished run' in done.stderr


@pytest.mark.standard
def test_the_working_directory_takes_a_copy(tmp_path, monkeypatch):
    run, copy = tmp_path / 'run', tmp_path / 'copy'
    archives.write_run(run)
    copy.mkdir()
    monkeypatch.chdir(copy)
    record = archive.read_plan(run)
    names = public_copy.write(run, pathlib.Path('.'), record)
    assert sorted(names) == sorted([archive.SUMS, *archive.listed(copy)])


@pytest.fixture(scope='module', name='run')
def _a_run(tmp_path_factory):
    """A run on texts of clients whose number is nowhere else."""
    path = tmp_path_factory.mktemp('data') / _PLANTED
    path.mkdir()
    rng = random.Random(0)
    words = [f'word{i}' for i in range(20)]
    (path / 'words').write_text('\n'.join(words))
    with open(path / 'texts.jsonl', 'w') as file:
        for i in range(_CLIENTS + 1):
            text = ' '.join(rng.choices(words, k=4))
            file.write(json.dumps({'client': f'client {i}', 'text': text}) + '\n')
    flags = (
        f'--task=user_text --data_path={path}/texts.jsonl --vocabulary_file={path}/words '
        '--model=micro --sentence_length=5 --mechanism=tree --noise_multiplier=2 --delta=1e-6 '
        '--rounds=3 --clients_per_round=7 --min_separation=3 --eval_every=3 --eval_clients=2 '
        '--client_max_batches=1 --heldout_fraction=0.0001 --release_train_metrics '
        f'--output_dir={path}/run'
    )
    forked_binaries.run('train', *flags.split(), check=True)
    return path / 'run'


@pytest.fixture(scope='module', name='exported')
def _exported(run, tmp_path_factory):
    path = tmp_path_factory.mktemp('public') / 'copy'
    flags = ('--public', f'--run_dir={run}', f'--output_dir={path}')
    return path, forked_binaries.printed('export_run', *flags)


def _bytes(path: pathlib.Path) -> dict[str, bytes]:
    """Contents of the files, those in archives unpacked."""
    found = {}
    for name in _names(path):
        found[name] = (path / name).read_bytes()
        if zipfile.is_zipfile(path / name):
            with zipfile.ZipFile(path / name) as file:
                found |= {f'{name}/{each}': file.read(each) for each in file.namelist()}
    return found


@pytest.mark.exhaustive
@pytest.mark.tff
def test_no_count_no_path_and_no_time_of_the_run_is_in_the_copy(run, exported):
    log = ParticipationLog.load(run / archive.LOG)
    report = json.loads((run / archive.REPORT).read_text())
    seconds = [
        row['seconds'] for row in csv.DictReader(io.StringIO((run / 'metrics.csv').read_text()))
    ]
    data = json.loads((run / 'data.json').read_text())
    ledger = [json.loads(line) for line in (run / archive.LEDGER).read_text().splitlines()]
    secrets = [
        str(_CLIENTS),
        _PLANTED,
        str(run.parent),
        *seconds,
        *data['keyed_digests'].values(),
        *(line['chain'] for line in ledger if 'chain' in line),
        *(line['data'] for line in ledger if line.get('event') == 'began'),
        *(
            line.split('  ')[0]
            for line in (run / archive.SUMS).read_text().splitlines()
            if line.endswith(_PRIVATE)
        ),
    ]
    assert data['clients']['training'] == _CLIENTS and log.rounds == 3
    assert report['observed']['clients'] == 21  # 7 clients in each round: told by the run's report.
    # A number counts where it stands alone: coordinates in a figure have many digits.
    found = {
        secret: re.compile(rf'(?<![\w.]){re.escape(secret)}(?!\w)'.encode()) for secret in secrets
    }
    for name, content in _bytes(exported[0]).items():
        for secret, pattern in found.items():
            assert not pattern.search(content), (name, secret)
    # What is searched for is there to be found in the run.
    whole = b'\n'.join(_bytes(run).values())
    assert all(pattern.search(whole) for pattern in found.values())


@pytest.mark.exhaustive
@pytest.mark.tff
def test_the_threat_model_names_every_file_of_a_run(run):
    assert threat_model.shared_by_mistake(run) == []
    readers = threat_model.readers(run)
    # What is for everyone is copied, and nothing else is; a report is made anew.
    for_everyone = {name for name, reader in readers.items() if reader == 'everyone'}
    assert for_everyone == {name for name in _EXPORTED if not name.startswith('privacy_report')} - {
        archive.SUMS,
        'metrics.csv',
    }
    assert {'data.json', 'checkpoints/keys', 'cohorts.bin'} <= set(readers)
