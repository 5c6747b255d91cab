import dataclasses
import json
import os
import pathlib
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
from tests import forked_binaries, json_schema, keys
from tests.accounting import archives

_PLAN = ('--mechanism=gaussian', '--rounds=9', '--delta=1e-6', '--accountant=analytic_gaussian')


def _run(*flags):
    return forked_binaries.run('report_privacy', *flags)


def _refused(capsys, *arguments, **keywords):
    """The last line on standard error of a verification in this process that fails."""
    with pytest.raises(SystemExit) as end:
        verified_run.verified(*arguments, **keywords)
    assert end.value.code == 1
    return capsys.readouterr().err.splitlines()[-1]


def _written(path, *flags):
    done = _run(*_PLAN, '--format=json', f'--output={path}', *flags)
    assert (done.returncode, done.stdout) == (0, ''), done.stderr
    json_schema.require_report(json.loads(path.read_text()))
    return path


@pytest.fixture(scope='module', name='files')
def _files(tmp_path_factory):
    """Two reports of plans, a run, a key in two halves, and files that are neither."""
    folder = tmp_path_factory.mktemp('reports')
    files = {'less': folder / 'less.json', 'more': folder / 'more.json'}
    _written(files['less'], '--noise_multiplier=15')
    _written(files['more'], '--noise_multiplier=30')
    files['run'] = archives.write_run(folder / 'run')
    files['key'], files['public'] = folder / 'key.pem', folder / 'public.pem'
    keys.write(files['key'], files['public'])
    files['damaged'] = folder / 'damaged.json'
    files['damaged'].write_bytes(os.urandom(60))
    return files


def test_a_written_report_is_the_printed_one(files, tmp_path):
    for form in ('text', 'html'):
        flags = (*_PLAN, '--noise_multiplier=3', f'--format={form}')
        path = tmp_path / form
        assert _run(*flags, f'--output={path}').stdout == ''
        assert path.read_text() == _run(*flags).stdout
    done = _run(*_PLAN, '--noise_multiplier=3', f'--output={tmp_path}/absent/report')
    assert done.returncode == 1 and done.stderr.count('\n') == 1


@pytest.mark.parametrize('form', ['--compare={less},{more}', '--compare {less} {more}'])
def test_two_reports_are_compared(files, form):
    flags = form.format(**files).split()
    values = forked_binaries.printed('report_privacy', *flags)
    assert values['reports'] == [str(files['less']), str(files['more'])]
    assert values['more_private'] == 'second'
    assert values['mu'] == {'first': pytest.approx(0.2), 'second': pytest.approx(0.1)}
    page = _run('--format=text', *flags).stdout
    assert 'The second is more private' in page and f'First: {files["less"]}' in page


def test_a_run_is_compared_by_its_directory(files):
    values = forked_binaries.printed('report_privacy', '--compare', files['run'], files['less'])
    assert values['parameters']['mechanism']['first'] == 'blt'
    assert [row['delta'] for row in values['epsilon']] == [1e-6]


def test_what_the_comparison_leaves_out_is_said(files, tmp_path):
    flags = ('--noise_multiplier=15', f'--compose_with={files["more"]}')
    joint = _written(tmp_path / 'joint.json', *flags)
    chosen = _written(
        tmp_path / 'chosen.json', '--noise_multiplier=15', '--selected_from=geometric:3'
    )
    done = _run('--compare', joint, chosen, '--format=json', f'--output={tmp_path}/compared.json')
    assert done.stdout == ''
    values = json.loads((tmp_path / 'compared.json').read_text())
    assert values['more_private'] == 'first'
    assert values['selection'] == {
        'first': None,
        'second': 'geometric distribution with mean 3',
    }
    assert any('first also states a joint guarantee' in note for note in values['notes'])


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
    assert (done.returncode, done.stdout) == (1, '')
    assert done.stderr.startswith(f'error: {path}: its signature is not valid with this key')
    assert done.stderr.count('\n') == 1


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


def test_the_report_of_a_run_is_signed_as_it_was_verified(tmp_path, files):
    run = shutil.copytree(files['run'], tmp_path / 'run')
    before = (run / archive.REPORT).read_bytes()
    done = _run(f'--run_dir={run}', f'--sign={files["key"]}', '--format=json')
    assert done.returncode == 0 and json.loads(done.stdout) == json.loads(before)
    assert 'note: not judged: checkpoints/, privacy_report.json.sig, lines of' in done.stderr
    assert (run / archive.REPORT).read_bytes() == before
    verify = (str(run), str(files['public']), 'json')
    assert json.loads(report_files.verified(*verify))['is_valid']
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
    assert json.loads(report_files.verified(*verify))['is_valid']


@pytest.mark.parametrize('forged', [True, False])
def test_what_is_not_verified_is_not_signed(files, tmp_path, capsys, forged):
    run = shutil.copytree(files['run'], tmp_path / 'run')
    sign = report_files.sign_with(str(files['key']))
    name = archive.PAGE if forged else 'notes.txt'
    text = (files['run'] / archive.PAGE).read_text()
    epsilon = accounting.round_up(json.loads((run / archive.REPORT).read_text())['epsilon'])
    (run / name).write_text(text.replace(epsilon, '0.01'))
    (run / archive.SUMS).write_text(archive.digests(run))
    if forged:
        assert 'privacy_report.md: says' in _refused(capsys, str(run), sign=sign)
        with pytest.raises(errors.DataError, match='privacy_report.json.sig: no signature'):
            report_files.verified(str(run), str(files['public']), 'text')
    else:
        verified_run.verified(str(run), sign=sign)
        assert 'by digest alone: notes.txt' in capsys.readouterr().err
    assert (run / archive.SIGNATURE).exists() is not forged


def test_tables_and_pages_are_written_again_to_the_same_bytes(files, tmp_path):
    run = shutil.copytree(files['run'], tmp_path / 'run')
    made = [each.pattern for each in run_directory.FILES if each.kind == run_directory.TABLE]
    before = {name: (run / name).read_bytes() for name in made if (run / name).exists()}
    assert len(before) >= 9
    for name in before:
        (run / name).unlink()
    verified_run.write_pages(str(run))
    assert {name: (run / name).read_bytes() for name in before} == before


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
def test_a_run_that_forgot_its_keys_stays_verified(files, tmp_path, capsys):
    run = shutil.copytree(files['run'], tmp_path / 'run')
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


def _contents(folder):
    return {path: path.read_bytes() for path in folder.rglob('*') if path.is_file()}


@pytest.mark.parametrize(
    ('events', 'cohort_records', 'rest', 'rounds'),
    [
        (6, 3, b'', 2),  # Two rounds are released; the next cohort was written after the journal.
        (7, 3, b'', 3),  # The third round has begun, and may be released any moment.
        (7, 2, b'', 2),  # It has no cohort yet.
        (7, 2, b'part of a record', 2),
    ],
)
@pytest.mark.standard
def test_a_run_that_trains_shows_the_report_so_far(tmp_path, events, cohort_records, rest, rounds):
    folder, log = tmp_path / 'run', archives.LOG
    folder.mkdir()
    record = archives.record_of()
    made = [archives.PLANNED, archives.built(record.to_dict()), *archives.rounds(log)]
    (folder / archive.LEDGER).write_bytes(archives.encoded(made[:events]) + b'{"event": "rel')
    cut = ParticipationLog([log.cohort(t) for t in range(cohort_records)])
    (folder / cohorts.NAME).write_bytes(archives.make_cohorts(cut) + rest)
    mechanisms.save(record.plan.mechanism, folder / archive.STRATEGY)
    before = _contents(folder)
    with _storage.locked(folder):
        done = _run(f'--run_dir={folder}', '--format=json')
        page = _run(f'--run_dir={folder}', '--format=html').stdout
        refused = _run(f'--run_dir={folder}', '--open')
    assert _contents(folder) == before
    assert done.stderr == f'{folder}: in progress, nothing was verified\n'
    values = json.loads(done.stdout)
    said = f'{rounds} of 6 planned rounds have begun, and epsilon is that of the rounds so far'
    assert said in values['in_progress'] and said in page
    of_rounds = running.RunningEpsilon(record.plan, 1e-6, record.accountant).after(rounds)
    assert f'({rounding.round_up(of_rounds)}, 1e-06)-DP for each client' in values['statement']
    with pytest.raises(ValueError, match='in_progress'):
        accounting.PrivacyReport.from_json(done.stdout)
    assert (refused.returncode, refused.stdout) == (1, '')
    assert refused.stderr == f'error: {folder}: is in use by another run\n'


@pytest.mark.parametrize(
    ('events', 'said'),
    [
        (0, 'is in use by a run that has no round yet'),
        (2, 'is in use by a run that has no round yet'),
        (5, 'has 0 rounds, ledger.jsonl has 2'),
    ],
)
def test_a_run_that_trains_and_has_nothing_to_show_says_so(tmp_path, events, said):
    record = archives.record_of()
    made = [archives.PLANNED, archives.built(record.to_dict()), *archives.rounds(archives.LOG)]
    (tmp_path / archive.LEDGER).write_bytes(archives.encoded(made[:events]))
    mechanisms.save(record.plan.mechanism, tmp_path / archive.STRATEGY)
    with _storage.locked(tmp_path):
        done = _run(f'--run_dir={tmp_path}')
    assert (done.returncode, done.stdout, done.stderr.count('\n')) == (2, '', 1)
    assert said in done.stderr


def test_a_run_that_has_ended_is_not_shown_while_its_pages_are_written(files):
    with _storage.locked(files['run']):
        done = _run(f'--run_dir={files["run"]}')
    assert (done.returncode, done.stdout) == (1, '')
    assert done.stderr == f'error: {files["run"]}: is in use by another run\n'


@pytest.mark.standard
def test_an_export_is_not_signed(files, tmp_path):
    """Its plan is compared with nothing."""
    run = shutil.copytree(files['run'], tmp_path / 'run')
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


def test_a_report_that_promises_more_is_not_compared(files, tmp_path):
    values = json.loads(pathlib.Path(files['less']).read_text())
    values['plan_guarantee']['epsilons'] = [0.01]
    path = tmp_path / 'forged.json'
    path.write_text(json.dumps(values))
    done = _run('--compare', files['more'], path)
    assert done.returncode == 2 and 'must be at least' in done.stderr
    with pytest.raises(ValueError):
        accounting.PrivacyReport.from_json(path.read_text())
