"""`report_privacy` about files: reports that it writes, compares and signs, and runs."""

import dataclasses
import json
import os
import shutil
import webbrowser

import pytest

from dpfl import ParticipationLog, _storage, accounting, errors, mechanisms
from dpfl.accounting import running
from dpfl.accounting.records import archive, cohorts, signatures
from dpfl.cli.command import command_line
from dpfl.cli.results import report_files, verified_run
from dpfl.mechanisms import rounding
from dpfl.simulation import run_directory
from tests import forked_binaries, keys, runs
from tests.accounting import archives, plans

_PLAN = ('--mechanism=gaussian', '--rounds=9', '--delta=1e-6', '--accountant=analytic_gaussian')


def _run(*flags):
    return forked_binaries.run('report_privacy', *flags)


def _refused(capsys, *arguments, **keywords):
    """What a verification in this process says that fails."""
    with pytest.raises((SystemExit, errors.DataError)) as end:
        verified_run.verified(*arguments, **keywords)
    assert end.type is errors.DataError or end.value.code == 1
    return f'{capsys.readouterr().err}error: {end.value}'


def _written(path, *flags):
    done = _run(*_PLAN, '--format=json', f'--output={path}', *flags)
    assert (done.returncode, done.stdout) == (0, ''), done.stderr
    return path


@pytest.fixture(scope='module', name='files')
def _files(tmp_path_factory):
    """Two reports of plans, a run, a key in two halves, and a file that is neither."""
    folder = tmp_path_factory.mktemp('reports')
    names = ('less.json', 'more.json', 'run', 'key.pem', 'public.pem', 'damaged')
    files = {name.partition('.')[0]: folder / name for name in names}
    for name, noise in (('less', 15.0), ('more', 30.0)):
        plan = plans.independent(9, noise_multiplier=noise)
        files[name].write_text(plans.report(plan, accountant='analytic_gaussian').to_json())
    archives.write_run(files['run'])
    keys.write(files['key'], files['public'])
    files['damaged'].write_bytes(os.urandom(60))
    return files


@pytest.fixture(name='run')
def _a_run(files, tmp_path):
    return shutil.copytree(files['run'], tmp_path / 'run')


def test_a_written_report_is_the_printed_one(tmp_path):
    for form in ('text', 'html'):
        flags = (*_PLAN, '--noise_multiplier=3', f'--format={form}')
        path = tmp_path / form
        assert _run(*flags, f'--output={path}').stdout == ''
        assert path.read_text() == _run(*flags).stdout
    done = _run(*_PLAN, '--noise_multiplier=3', f'--output={tmp_path}/absent/report')
    assert done.returncode == 2 and done.stderr.count('\n') == 1


def test_two_reports_are_compared(files):
    names = [files['less'], files['more']]
    spelled = [f'--compare={names[0]},{names[1]}'], ['--compare', *names]
    values, same = (forked_binaries.printed('report_privacy', *flags) for flags in spelled)
    assert values == same and values['reports'] == list(map(str, names))
    assert values['more_private'] == 'second'
    assert values['parameters'] == {'noise_multiplier': {'first': 15.0, 'second': 30.0}}
    page = _run('--format=text', *spelled[0]).stdout
    assert 'The second is more private' in page and f'First, {names[0]}: ' in page
    # A run is compared by its directory.
    values = forked_binaries.printed('report_privacy', '--compare', files['run'], names[0])
    assert values['parameters']['mechanism']['first'] == 'blt'


def test_what_the_comparison_leaves_out_is_said(files, tmp_path):
    less = '--noise_multiplier=15'
    joint = _written(tmp_path / 'joint.json', less, f'--compose_with={files["more"]}')
    chosen = _written(tmp_path / 'chosen.json', less, '--selected_from=geometric:3')
    values = forked_binaries.printed('report_privacy', '--compare', joint, chosen)
    assert values['more_private'] == 'not_comparable'
    assert 'best of a random number of such runs' in values['statements']['second']
    assert any('first also states a joint guarantee' in note for note in values['notes'])


def test_a_report_that_promises_more_is_not_compared(files, tmp_path):
    values = json.loads(files['less'].read_text())
    values['plan_guarantee']['epsilons'] = [0.01]
    path = tmp_path / 'forged.json'
    path.write_text(json.dumps(values))
    done = _run('--compare', files['more'], path)
    assert done.returncode == 2 and 'must be at least' in done.stderr


def test_a_report_is_signed_and_verified(files, tmp_path):
    path = _written(tmp_path / 'r.json', '--noise_multiplier=4', f'--sign={files["key"]}')
    flags = (f'--verify={path}', f'--public_key={files["public"]}')
    values = forked_binaries.printed('report_privacy', *flags)
    assert values['is_valid'] and values['report'] == str(path)
    assert values['statement'] == json.loads(path.read_text())['statement']
    text = _run(*flags).stdout
    assert 'the signature is valid' in text and values['public_key_sha256'] in text
    assert f'Computed again from its plan: {values["statement"]}' in text
    path.write_text(path.read_text().replace('"epsilon": ', '"epsilon":  '))
    done = _run(*flags)
    assert (done.returncode, done.stdout, done.stderr.count('\n')) == (1, '', 1)
    assert done.stderr.startswith(f'error: {path}: its signature is not valid with this key')


@pytest.mark.parametrize(
    'changes, status, said',
    [
        ({'statement': '(0.01, 0.001)-DP.'}, 1, 'does not follow from its plan: statement is'),
        ({'epsilon': 0.01}, 1, 'does not follow from its plan: epsilon is 0.01, computed'),
        ({'later': 1}, 1, 'does not follow from its plan: later is 1'),
        ({'text_version': 1, 'statement': '(0.01, 0.001)-DP.'}, 0, 'an older version of dpfl'),
        ({'epsilon': 99.0}, 0, 'promises less: epsilon is 99.0, computed'),
        ({'composition': {'statement': 'With others.'}}, 0, 'Not computed again: the joint'),
        ({'selection': {}}, 1, 'is not a privacy report'),
    ],
)
def test_a_signed_report_is_computed_again(files, tmp_path, changes, status, said):
    """Whoever signed may have signed anything: what is printed follows from the plan."""
    path, written = tmp_path / 'r.json', json.loads(files['less'].read_text())
    content = json.dumps(written | changes).encode()
    path.write_bytes(content)
    signed = signatures.private_key('sign', files['key']).sign(content)
    signatures.path_of(path).write_bytes(signed)
    done = _run(f'--verify={path}', f'--public_key={files["public"]}')
    assert done.returncode == status and said in done.stdout + done.stderr
    assert 'Traceback' not in done.stderr and '0.001' not in done.stdout
    assert status or written['statement'] in done.stdout


def test_the_report_of_a_run_is_signed_as_it_was_verified(run, files):
    before = (run / archive.REPORT).read_bytes()
    done = _run(f'--run_dir={run}', f'--sign={files["key"]}', '--format=json')
    assert done.returncode == 0 and json.loads(done.stdout) == json.loads(before)
    assert 'note: not judged: checkpoints/, privacy_report.json.sig, lines of' in done.stderr
    assert (run / archive.REPORT).read_bytes() == before
    verify = (str(run), str(files['public']))
    assert report_files.verified(*verify)[0]['is_valid']
    # The bytes that were compared are signed, whatever is in the file when the verdict is printed.
    sign = report_files.sign_with(str(files['key']))

    def edited(path, content):
        path.write_text('{"epsilon": 0.01}')
        with pytest.raises(errors.StorageError), _storage.locked(run):
            pass
        sign(path, content)

    verified_run.verified(str(run), sign=edited)
    with pytest.raises(errors.DataError, match='its signature is not valid'):
        report_files.verified(*verify)
    (run / archive.REPORT).write_bytes(before)
    assert report_files.verified(*verify)[0]['is_valid']


@pytest.mark.parametrize('forged', [True, False])
def test_what_is_not_verified_is_not_signed(files, run, capsys, forged):
    sign = report_files.sign_with(str(files['key']))
    text = (run / archive.PAGE).read_text()
    epsilon = accounting.round_up(json.loads((run / archive.REPORT).read_text())['epsilon'])
    name = archive.PAGE if forged else 'notes.txt'
    (run / name).write_text(text.replace(epsilon, '0.01'))
    (run / archive.SUMS).write_text(archive.digests(run))
    if forged:
        assert 'privacy_report.md: says' in _refused(capsys, str(run), sign=sign)
    else:
        verified_run.verified(str(run), sign=sign)
        assert 'by digest alone: notes.txt' in capsys.readouterr().err
    assert (run / archive.SIGNATURE).exists() is not forged


@pytest.mark.standard
def test_an_export_is_not_signed(files, run):
    """Its plan is compared with nothing."""
    for name in (archive.LOG, archive.LEDGER, cohorts.NAME, archive.CONFIG, archive.FLAGS):
        (run / name).unlink()
    record = dataclasses.replace(archives.record_of(), exported=True)
    (run / archive.PLAN).write_text(record.to_json())
    for name, text in run_directory.pages_of(run, record.report(None)).items():
        (run / name).write_text(text)
    (run / archive.SUMS).write_text(archive.digests(run))
    with pytest.raises(command_line.UsageError, match='is an export'):
        verified_run.verified(str(run), sign=report_files.sign_with(str(files['key'])))
    assert not (run / archive.SIGNATURE).exists()


@pytest.mark.parametrize('there_is_a_browser', [True, False])
def test_the_page_is_shown_or_named(files, monkeypatch, capsys, there_is_a_browser):
    shown = []
    monkeypatch.setattr(webbrowser, 'open', lambda url: shown.append(url) or there_is_a_browser)
    verified_run.show_page(str(files['run']))
    page = files['run'].resolve() / run_directory.HTML_REPORT
    assert shown == [page.as_uri()]
    said = '' if there_is_a_browser else f'{page}: there is no browser to open it\n'
    assert capsys.readouterr().err == said


@pytest.mark.standard
def test_a_run_that_forgot_its_keys_stays_verified(run, capsys):
    verified_run.verified(str(run), forget_keys=True)
    assert 'keys and checkpoints are deleted' in capsys.readouterr().err
    assert not (run / archive.CHECKPOINTS).exists()
    (run / archive.CHECKPOINTS).mkdir()
    verified_run.verified(str(run))
    (run / archive.PAGE).write_text('changed')
    _refused(capsys, str(run), forget_keys=True)
    assert (run / archive.CHECKPOINTS).exists()


@pytest.mark.standard
def test_an_earlier_report_tells_whether_a_run_went_another_way(files, tmp_path, capsys):
    rounds = [archives.LOG.cohort(t) for t in range(archives.LOG.rounds)]
    record = dataclasses.replace(archives.make_record(), also_not_covered=(archive.OWN_LOOP,))
    first = archives.write(tmp_path / 'first', record, ParticipationLog(rounds[:4]))
    whole = archives.write(tmp_path / 'whole', record)
    other = archives.write(tmp_path / 'other', record, metrics={3: {'loss': 2.5}})
    for run in (first, whole, other):
        shutil.rmtree(run / 'saved_model')
        assert not archives.with_new_digests(run)
    kept, foreign = tmp_path / 'kept.json', tmp_path / 'foreign.json'
    shutil.copy(first / archive.REPORT, kept)
    foreign.write_text(kept.read_text().replace(archives.NOISE_KEY, 'f' * 64))
    for run, after in ((first, kept), (whole, kept), (whole, first)):
        verified_run.verified(str(run), after=str(after))
        assert f'{run}: its journal continues that of {after}' in capsys.readouterr().err
    for run, after, message in (
        (other, kept, 'ledger.jsonl does not continue that of --after'),
        (first, whole, 'ledger.jsonl does not continue that of --after'),
        (whole, foreign, 'is another run than that of --after'),
    ):
        assert f'error: {run}: {message}' in _refused(capsys, str(run), after=str(after))
    for after, message in (
        (files['less'], f'--after={files["less"]}: must have journal_head'),
        (files['damaged'], f'--after={files["damaged"]}: not a privacy report'),
        (tmp_path / 'nowhere', '--after='),
    ):
        with pytest.raises(command_line.UsageError, match=message):
            verified_run.verified(str(whole), after=str(after))


def _trains(folder, events, rest=b''):
    """Writes the records of a run, but its cohorts, after some events of its journal."""
    record = archives.record_of()
    made = [archives.PLANNED, archives.built(record.to_dict()), *archives.rounds(archives.LOG)]
    (folder / archive.LEDGER).write_bytes(archives.encoded(made[:events]) + rest)
    mechanisms.save(record.plan.mechanism, folder / archive.STRATEGY)
    return record


@pytest.mark.parametrize(
    ('events', 'cohorts_of', 'rest', 'rounds'),
    [
        (6, 3, b'', 2),  # Two rounds are released; the next cohort was written after the journal.
        (7, 3, b'', 3),  # The third round has begun, and may be released any moment.
        (7, 2, b'', 2),  # It has no cohort yet.
        (7, 2, b'part of a record', 2),
    ],
)
@pytest.mark.standard
def test_a_run_that_trains_shows_the_report_so_far(tmp_path, events, cohorts_of, rest, rounds):
    record = _trains(tmp_path, events, b'{"event": "rel')
    cut = ParticipationLog([archives.LOG.cohort(t) for t in range(cohorts_of)])
    (tmp_path / cohorts.NAME).write_bytes(archives.make_cohorts(cut) + rest)
    before = runs.contents(tmp_path)
    with _storage.locked(tmp_path):
        done = _run(f'--run_dir={tmp_path}', '--format=json')
        page = _run(f'--run_dir={tmp_path}', '--format=html').stdout
        refused = _run(f'--run_dir={tmp_path}', '--open')
    assert runs.contents(tmp_path) == before
    assert done.stderr == f'{tmp_path}: in progress, nothing was verified\n'
    values = json.loads(done.stdout)
    said = f'{rounds} of 6 planned rounds have begun, and epsilon is that of the rounds so far'
    assert said in values['in_progress'] and said in page
    of_rounds = running.RunningEpsilon(record.plan, 1e-6, record.accountant).after(rounds)
    assert f'({rounding.round_up(of_rounds)}, 1e-06)-DP for each client' in values['statement']
    with pytest.raises(ValueError, match='in_progress'):
        accounting.PrivacyReport.from_json(done.stdout)
    assert (refused.returncode, refused.stdout) == (1, '')
    assert refused.stderr == f'error: {tmp_path}: is in use by another run\n'


@pytest.mark.parametrize(
    ('events', 'said'),
    [
        (0, 'is in use by a run that has no round yet'),
        (2, 'is in use by a run that has no round yet'),
        (5, 'has 0 rounds, ledger.jsonl has 2'),
    ],
)
def test_a_run_that_trains_and_has_nothing_to_show_says_so(tmp_path, events, said):
    _trains(tmp_path, events)
    with _storage.locked(tmp_path):
        done = _run(f'--run_dir={tmp_path}')
    assert (done.returncode, done.stdout, done.stderr.count('\n')) == (2, '', 1)
    assert said in done.stderr


def test_a_run_that_has_ended_is_not_shown_while_its_pages_are_written(files):
    with _storage.locked(files['run']):
        done = _run(f'--run_dir={files["run"]}')
    assert (done.returncode, done.stdout) == (1, '')
    assert done.stderr == f'error: {files["run"]}: is in use by another run\n'
