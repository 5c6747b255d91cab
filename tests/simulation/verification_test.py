"""Finished runs that somebody changed: byte by byte, and by recomputing everything that fits."""

import dataclasses
import fnmatch
import hashlib
import json
import os
import re
import shutil

import numpy as np
import pytest

from dpfl import ParticipationLog, _npz, _setting_texts, accounting, errors, mechanisms
from dpfl.accounting import running
from dpfl.accounting.measured.measured import AUDIT
from dpfl.accounting.records import archive, cohorts, comparison, journal
from dpfl.accounting.reports import inputs
from dpfl.reporting import privacy_page
from dpfl.simulation import run_directory
from tests import paths
from tests.accounting import archives

_FULL = archives.CONFIG.with_values(
    {
        'release_train_metrics': True,
        'chosen_without_noise': ('clip_norm',),
        'stop_at_accuracy': 0.9,
    }
)


# The other tests draw none.
_figures = privacy_page._figures


@pytest.fixture(scope='module', name='finished')
def _finished(undrawn, tmp_path_factory):
    del undrawn
    run = archives.write_run(tmp_path_factory.mktemp('finished') / 'run', _FULL)
    assert run_directory.verify(run).is_verified
    return run


@pytest.fixture(name='run')
def _run(finished, tmp_path):
    """A copy under another name, which is the same run."""
    return shutil.copytree(finished, tmp_path / 'copy')


def _noticed(run) -> list[str]:
    try:
        found = run_directory.verify(run)
    except errors.ArgumentError as error:
        return [str(error)]
    return [*found.differences]


def _with_new_digests(run) -> list[str]:
    (run / archive.SUMS).write_text(archive.digests(run))
    return _noticed(run)


def _unnoticed_bytes(run, number, seed=0) -> list[str]:
    """Files of which a changed byte, or their removal, goes unnoticed; `number` bytes are tried."""
    rng, unnoticed = np.random.default_rng(seed), []
    for path in sorted(path for path in run.rglob('*') if path.is_file()):
        content = path.read_bytes()
        for place in rng.integers(len(content), size=number):
            changed = bytearray(content)
            changed[place] ^= int(rng.integers(1, 256))
            path.write_bytes(changed)
            unnoticed += [] if _noticed(run) else [path.relative_to(run).as_posix()]
        path.unlink()
        unnoticed += [] if _noticed(run) else [path.relative_to(run).as_posix()]
        path.write_bytes(content)
    return sorted(set(unnoticed))


@pytest.mark.parametrize(
    'number',
    [pytest.param(2, marks=pytest.mark.standard), pytest.param(200, marks=pytest.mark.exhaustive)],
)
def test_changed_bytes_of_each_file_are_found_or_the_file_is_on_the_list(run, number):
    assert _noticed(run) == []
    (run / archive.SIGNATURE).write_bytes(bytes(64))
    assert _unnoticed_bytes(run, number) == ['checkpoints/keys', archive.SIGNATURE]
    said = run_directory.not_judged(archive.listed(run))
    assert said == (
        'not judged: checkpoints/, privacy_report.json.sig, lines of ledger.jsonl outside of its '
        'chain; by digest alone: nothing'
    )


def _forged_words(run):
    path = run / archive.REPORT
    values = json.loads(path.read_text())
    values |= {'text_version': 1, 'statement': 'The run satisfies (0.01, 0.001)-DP.'}
    values |= {'not_covered': [], 'assumptions': [], 'membership': {'advantage': 0.0}}
    values['tradeoff'] = []
    path.write_text(json.dumps(values))


def _forged_plan(**changes):
    def forge(run):
        archives.write_run(run, _FULL, dataclasses.replace(archives.record_of(_FULL), **changes))

    return forge


def _with_events(change):
    """Another journal, with a chain of its own and all tables and pages made anew."""

    def forge(run):
        events = map(change, archive.read_journal(run).events)
        (run / archive.LEDGER).write_bytes(archives.encoded(filter(None, events)))
        archives.with_everything_computed_anew(run, make_pages=run_directory.pages_of)

    return forge


def _with_smaller_epsilon(event):
    if not isinstance(event, journal.Released):
        return event
    return dataclasses.replace(event, metrics={**event.metrics, 'epsilon': 0.01})


def _with_results(results):
    return _with_events(
        lambda each: (
            dataclasses.replace(each, results=results) if isinstance(each, journal.Ended) else each
        )
    )


def _replaced(name, old, new):
    def replace(run):
        path = run / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return replace


def _with_another_model(run):
    data = _npz.to_bytes({'0': np.zeros(2, np.float32)})
    (run / archive.MODEL).write_bytes(data)
    _with_results({archive.MODEL: hashlib.sha256(data).hexdigest()})(run)


def _written(name, text='epsilon is 0.01'):
    def write(run):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text(text)

    return write


def _too_large(name):
    return lambda run: os.truncate(run / name, (1 << 28) + 1)


def _with_a_key(name):
    """A key is not taken for one that a report has, whatever its value says."""

    def add(run):
        values = json.loads((run / name).read_text())
        values['epsilon is 0.01'] = comparison.NOT_A_KEY
        (run / name).write_text(json.dumps(values))

    return add


def _with_a_note(**values):
    """Outside of the chain, so that journal and an earlier report have the same head."""

    def add(run):
        with open(run / archive.LEDGER, 'ab') as file:
            file.write(journal.note(values))

    return add


def _stopped_with(name):
    """A run that was stopped, and has a result that is not its own."""

    def forge(run):
        (run / archive.MODEL).unlink()
        _with_events(lambda event: None if isinstance(event, journal.Ended) else event)(run)
        _written(name)(run)

    return forge


def _without_last_line(run):
    path = run / archive.METRICS
    path.write_text(''.join(path.read_text().splitlines(keepends=True)[:-1]))


def _page(name):
    """A page with a hundredth of the epsilon."""

    def forge(run):
        report = archives.record_of(_FULL).report(archives.LOG)
        epsilon = accounting.round_up(report.guarantee.epsilons[0])
        _replaced(name, epsilon, f'{float(epsilon) / 100:.4g}')(run)

    return forge


@pytest.mark.parametrize(
    'forge, said',
    [
        (_forged_words, 'privacy_report.json: has the words of text version 1'),
        (_forged_plan(train_metrics_released=False), 'metrics.csv: has train_loss'),
        (_forged_plan(also_not_covered=()), 'plan.json: does not say: The choice of clip_norm'),
        (_page(archive.PAGE), 'privacy_report.md: says'),
        (_page(run_directory.HTML_REPORT), 'privacy_report.html: says'),
        (lambda run: (run / archive.CONFIG).unlink(), 'config.json: is missing'),
        (_written(archive.CONFIG, '{'), 'config.json: not a JSON document'),
        (_written(archive.FLAGS, '{'), 'flags.txt: '),
        (_replaced(archive.METRICS, '\n3,', '\n4,'), 'metrics.csv: says'),
        (
            _replaced(archive.REPORT, '"journal_head": "', '"journal_head": "0'),
            'privacy_report.json: ',
        ),
        (_without_last_line, 'metrics.csv: ends with other'),
        (_replaced(archive.METRICS, '6,', '6,0.'), 'metrics.csv: says'),
        (_written(archive.MODEL), 'model.npz: its SHA-256 is not'),
        (_written(archive.LOG, ''), 'participation.npz: is not the one of'),
        (_written(run_directory.GAN_REPORT), 'gan_report.md: is there, and does not follow'),
        (_written(archive.TEST), 'test_metrics.json: is there, and does not follow'),
        (_written(AUDIT), 'audit.npz: is there, and ledger.jsonl does not have its digest'),
        (_forged_plan(noise_key_digest='0' * 64), 'ledger.jsonl: its plan has another noise_key'),
        (
            _forged_plan(extensions=(inputs.Extension(2, 4, 6),)),
            'ledger.jsonl: its plan has other extensions than its events',
        ),
        (_with_events(_with_smaller_epsilon), 'metrics.csv: epsilon after round'),
        (_with_results({}), 'model.npz: is there, and ledger.js'),
        (_with_a_key(archive.REPORT), 'privacy_report.json: epsilon is 0.01 is "not a key"'),
        (_with_a_key(archive.PLAN), 'plan.json: epsilon is 0.01 is "not a key"'),
        (_with_a_note(stack='NumPy 2. Epsilon is 0.01', first=3), 'ledger.jsonl: has a note'),
        (_with_a_note(stack='NumPy 2.1', first=7), 'ledger.jsonl: has a note'),
        *((_with_a_note(ray_losses=value), 'ray_losses=') for value in ('x', -1, None, [1])),
        (_stopped_with('saved_model/model'), 'saved_model/model: is there, and ledger.jsonl does'),
        (_stopped_with(archive.MODEL), 'model.npz: is there, and ledger.jsonl does not say'),
        (_too_large(archive.METRICS), 'metrics.csv: cannot be read (File too large)'),
        (_too_large(archive.LOG), 'participation.npz: is not the one of'),
        (_too_large(archive.REPORT), 'privacy_report.json: cannot be read'),
        (_with_another_model, 'model.npz: is not the model after the last round of ledger.jsonl'),
    ],
)
def test_a_forged_run_is_found_though_all_digests_fit(run, forge, said):
    forge(run)
    found = _with_new_digests(run)
    assert any(each.startswith(said) for each in found), found
    assert all('\n' not in each for each in found)


def _with_clients_that_nobody_knows(run):
    """A run whose log breaks its plan, as if nobody knew who took part."""
    archives.write_run(run, _FULL, log=ParticipationLog([[0, 1]] * 6))
    assert archive.Records.read(run).report().basis == 'log'
    events = [
        dataclasses.replace(each, shows_clients=False) if isinstance(each, journal.Built) else each
        for each in archive.read_journal(run).events
    ]
    (run / archive.LEDGER).write_bytes(archives.encoded(events))
    (run / archive.LOG).unlink()
    _write_everything(run)


def _write_everything(run):
    """All tables and pages, as they follow from the records."""
    records = archive.Records.read(run)
    for name, data in archive.tables(records).items():
        (run / name).write_bytes(data)
    for name, text in run_directory.pages_of(run, records.report()).items():
        (run / name).write_text(text)


def _with_more_rounds_than_planned(run, **changes):
    """In a loop of one's own, of which nobody knows who took part."""
    shutil.rmtree(run)
    record = dataclasses.replace(
        archives.make_record(), also_not_covered=(archive.OWN_LOOP,), **changes
    )
    events = [archives.PLANNED, archives.built(record.to_dict(), shows_clients=False)]
    events += archives.rounds(ParticipationLog([[t % 7] for t in range(9)]))
    run.mkdir()
    mechanisms.save(record.plan.mechanism, run / archive.STRATEGY)
    over = [archives.ended()] if changes else []
    (run / archive.LEDGER).write_bytes(archives.encoded([*events, *over]))
    _write_everything(run)


def _with_one_noise(event):
    is_later = isinstance(event, journal.Began) and event.round in (2, 4)
    return dataclasses.replace(event, noise=f'{0:064x}') if is_later else event


def _without_an_audit(run):
    archives.write_run(run, archives.CONFIG.with_values({'audit': True}))


@pytest.mark.parametrize(
    'forge, said',
    [
        (
            _with_clients_that_nobody_knows,
            'ledger.jsonl: has settings, and says that its clients are',
        ),
        (
            _with_clients_that_nobody_knows,
            'cohorts.bin: is there, and ledger.jsonl says that its clie',
        ),
        (_with_more_rounds_than_planned, 'ledger.jsonl: has 9 rounds, and its plan 6'),
        (
            lambda run: _with_more_rounds_than_planned(run, stop_at_accuracy=0.5),
            'ledger.jsonl: has 9 rounds, and its plan 6',
        ),
        (_with_events(_with_one_noise), 'ledger.jsonl: has two rounds with the same noise'),
        (_without_an_audit, 'ledger.jsonl: says that the run ended, and lacks the audit of its'),
    ],
)
def test_a_journal_that_leaves_something_out_is_found(run, forge, said):
    forge(run)
    found = _with_new_digests(run)
    assert any(each.startswith(said) for each in found), found


_SHORT = archives.CONFIG.with_values({'rounds': 4, 'max_participations': 2})


def _gone_on(run, before, now):
    """A finished run of `before`, to whose journal more rounds of another configuration are added.

    No line is changed, so that the journal continues that of an earlier report.
    """
    log = ParticipationLog([[0, 1], [2, 3], [4, 5], [0, 1], [2, 3], [4, 5]])
    first = ParticipationLog([log.cohort(t) for t in range(4)])
    archives.write_run(run, before, log=first)
    assert _noticed(run) == []
    known = archive.read_journal(run)
    step = inputs.Extension(4, 4, 6)
    record = dataclasses.replace(archives.record_of(now), extensions=(step,))
    epsilon = running.RunningEpsilon(record.plan, record.deltas[0], record.accountant)
    more = archives.rounds(log, {t: {'epsilon': epsilon.after(t + 1)} for t in range(6)})
    extended = journal.Extended(
        **step.to_dict(),
        record=record.to_dict(),
        configuration={'seed': 0},
        settings=json.loads(json.dumps(now.to_dict())),
        files={archive.FLAGS: ''.join(f'{line}\n' for line in _setting_texts.flags(now.flat()))},
    )
    over = [each for each in known.events if isinstance(each, journal.Ended)]
    events = [*known.events, extended, *more[8:], *over]
    (run / archive.LEDGER).write_bytes(archives.encoded(events))
    assert known.released_head() in archive.read_journal(run).chain
    (run / cohorts.NAME).write_bytes(archives.make_cohorts(log))
    mechanisms.save(record.plan.mechanism, run / archive.STRATEGY)
    _write_everything(run)


_OTHER_NOISE = 'ledger.jsonl: noise_multiplier is 40.0 with 6 rounds, and was 1.0'


@pytest.mark.parametrize(
    'before, now, said',
    [
        ({}, {}, None),
        ({}, {'max_participations': 3, 'stop_at_accuracy': 0.9, 'checkpoint_every': 3}, None),
        ({'noise_multiplier': 1.0}, {'noise_multiplier': 40.0}, _OTHER_NOISE),
        ({'clip_norm': 50.0}, {}, 'ledger.jsonl: clip_norm is 0.5 with 6 rounds, and was 50.0'),
        ({'delta': 1e-9}, {}, 'ledger.jsonl: deltas[0] is 1e-06 with 6 rounds, and was 1e-09'),
        ({'noise_seed': 3}, {}, 'ledger.jsonl: noise_is_seeded is false with 6 rounds, and was'),
        ({'release_train_metrics': True}, {}, 'ledger.jsonl: train_metrics_released is false'),
        ({'min_separation': 1}, {}, 'ledger.jsonl: participation with 6 rounds does not continue'),
        ({}, {'max_participations': 1}, 'ledger.jsonl: participation with 6 rounds does not cont'),
        ({'chosen_without_noise': ('delta',)}, {}, 'config.json: chosen_without_noise=[]: must be'),
        ({'seed': 1}, {}, 'config.json: seed=0: must be 1, as when the run began'),
    ],
)
def test_a_run_goes_on_with_its_own_plan_only(tmp_path, before, now, said):
    _gone_on(
        tmp_path,
        _SHORT.with_values(before),
        _SHORT.with_values({'rounds': 6, **now}),
    )
    found = _with_new_digests(tmp_path)
    assert found == [] if said is None else any(each.startswith(said) for each in found), found


def test_no_audit_is_forgotten_by_more_rounds(tmp_path):
    """Whatever it refuted would be."""
    _gone_on(tmp_path, _SHORT, _SHORT.with_values({'rounds': 6}))
    events = [*archive.read_journal(tmp_path).events]
    at = next(i for i, each in enumerate(events) if isinstance(each, journal.Ended))
    events.insert(at, journal.Audited(scores='0' * 64))
    (tmp_path / archive.LEDGER).write_bytes(archives.encoded(events))
    _write_everything(tmp_path)
    found = _with_new_digests(tmp_path)
    assert found == ['ledger.jsonl: goes on to 6 rounds after its audit']


@pytest.mark.standard
def test_a_figure_is_compared_too(tmp_path, monkeypatch):
    monkeypatch.setattr(privacy_page, '_figures', _figures)
    run = archives.write_run(tmp_path / 'run')
    path = run / run_directory.HTML_REPORT
    text = path.read_text()
    # Last digits of coordinates, and the names of their shapes, differ between machines.
    number = re.search(r'(?<=<path d="M \d{2}\.\d{5})\d', text) or re.search(r'\d\.\d{5}\d', text)
    place = number.end() - 1
    path.write_text(text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :])
    assert _with_new_digests(run) == []
    for old, new in (('<title>', '<title>0.01 '), ('stroke: #', 'stroke: red; stroke: #')):
        before, _, after = text.rpartition(old)
        path.write_text(before + new + after)
        found = _with_new_digests(run)
        assert len(found) == 1 and 'figure' in found[0]


_DRAWN = (
    '<svg width="9pt"><metadata><dc:title>Matplotlib v3.11.2, https</dc:title></metadata><g id="a">'
    '<path d="M 1 2" style="fill: #ff0000"/><use xlink:href="#a" x="1"/></g></svg>'
)


@pytest.mark.parametrize(
    'old, new, is_same_elsewhere',
    [
        ('#a"', '#b"', True),
        ('"a"', '"b"', True),
        ('M 1 2', 'M 1 3', True),  # Another version may draw it elsewhere.
        ('#ff0000', '#0000ff', True),
        ('<path', '<path d="M 4 4"/><path', True),
        ('9pt', '8pt', False),
        ('<path', '<text>0.01</text><path', False),
        ('<path', '<title>0.01</title><path', False),
        ('<path', '<script>0.01</script><path', False),
        ('<path', '<path onclick="run()"', False),
        ('</g>', '0.01</g>', False),
        ('xlink:href="#a"', 'xlink:href="https://a"', False),
    ],
)
def test_figures_of_another_version_have_nothing_but_lines_and_areas(old, new, is_same_elsewhere):
    """Else a page whose figure claims another version could say anything."""
    changed = _DRAWN.replace(old, new)
    assert comparison.page_difference(_DRAWN, _DRAWN) is None
    assert comparison.page_difference(changed, _DRAWN) is not None
    other = changed.replace('v3.11.2', 'v3.10.9')
    assert (comparison.page_difference(other, _DRAWN) is None) == is_same_elsewhere


def test_last_digits_of_another_stack_are_no_difference(run):
    """Also in words and in pages, but not in counts."""
    for name, old in ((archive.REPORT, r'"mu": (\d+\.\d+)'), (archive.METRICS, r'3,(\d+\.\d+)')):
        path = run / name
        text = path.read_bytes().decode()
        found = re.search(old, text)
        path.write_bytes(text.replace(found[1], repr(float(found[1]) * (1 + 1e-12))).encode())
    assert _with_new_digests(run) == []


def test_the_docs_have_the_table_of_files():
    page = (paths.ROOT / 'docs' / 'reference' / 'threat_model.md').read_text()
    rows = re.findall(r'^\| `([^`]+)` \| ([^|]+) \|.*\| ([^|]+) \|$', page, re.MULTILINE)
    for file in run_directory.FILES:
        found = [row for row in rows if fnmatch.fnmatchcase(row[0], file.pattern)]
        assert found, file.pattern
        for name, kind, reader in found:
            assert (kind, reader.startswith('owner')) == (file.kind, file.is_private), name
