"""Files that somebody else made: one line or a right result, and no believing what a file says."""

import contextlib
import hashlib
import io
import json
import math
import os
import pathlib
import signal
import sqlite3
import struct
import subprocess
import sys
import zipfile

import h5py
import numpy as np
import pyarrow
import pytest

from benchmarks.attacks.hostile import (
    campaign,
    commands,
    privacy_checks,
    privacy_targets,
    run_targets,
)
from dpfl import (
    Participation,
    ParticipationLog,
    _files,
    _json,
    _npz,
    _validate,
    accounting,
    errors,
    mechanisms,
)
from dpfl.accounting.records import archive, ledger_lines, verification
from dpfl.accounting.report import PrivacyReport
from dpfl.errors import DataError
from dpfl.simulation import checkpoint, ledger, population_run
from dpfl.simulation.training import run_model
from dpfl.tasks.images import emnist_files
from dpfl.tasks.text import parquet_records, record_index, stackoverflow, vocabulary
from experiments.command import command_line
from experiments.studies import definition
from tests import paths


@contextlib.contextmanager
def _seconds(number):
    """Context that fails after so many seconds: where old code would wait for ever."""

    def alarm(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, alarm)
    signal.alarm(number)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _refused(call, kind=ValueError):
    """The one line with which a call is refused."""
    with _seconds(10), pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert message and message.isprintable(), message
    return message


_PRIVACY = [
    *privacy_targets.TARGETS,
    run_targets.Checkpoint,
    run_targets.Ledger,
    run_targets.Study,
    run_targets.Vocabulary,
]


@pytest.mark.parametrize('kind', _PRIVACY, ids=lambda kind: kind.name)
def test_mutated_files_are_one_line_or_a_right_result(kind, tmp_path):
    outcomes = campaign.run(kind(tmp_path / 'files'), seed=15, cases=range(200))
    assert not outcomes.findings
    assert outcomes.counts['taken'] + outcomes.counts['refused'] == 200
    # What is wrong with a run directory is in what `verify` returns.
    assert outcomes.counts['refused'] > 10 or kind is privacy_targets.RunDirectory
    assert outcomes.counts['taken'] > 2


def test_the_campaign_finds_what_is_wrong(tmp_path):
    class Credulous(privacy_targets.Strategy):
        def check(self, value):
            rounds = value.rounds
            if rounds <= 7:
                privacy_checks.require_sensitivity(value, rounds, 1, rounds, 0.5)

    class Noisy(run_targets.Vocabulary):
        def read(self, path):
            raise KeyError('two\nlines')

    class Verbose(run_targets.Vocabulary):
        def read(self, path):
            raise ValueError('two\nlines')

    for kind, found in (
        (Credulous, 'wrong result'),
        (Noisy, 'KeyError'),
        (Verbose, 'not in one printable line'),
    ):
        outcomes = campaign.run(kind(tmp_path / kind.__name__), seed=0, cases=range(60))
        assert any(found in what for what in outcomes.findings), outcomes


def test_no_fifo_and_no_device_is_waited_for(tmp_path):
    fifo, zero = tmp_path / 'fifo', tmp_path / 'zero'
    os.mkfifo(fifo)
    zero.symlink_to('/dev/zero')
    for path in (fifo, zero):
        for call in (mechanisms.load, ParticipationLog.load, vocabulary.load, _npz.load):
            _refused(lambda call=call, path=path: call(path))
        for call in (checkpoint.Checkpoint.read, lambda path: ledger.Ledger(path, 'a' * 64)):
            _refused(lambda call=call, path=path: call(path), errors.RunError)
        with pytest.raises(OSError), _seconds(10):
            record_index.sha256(path)
        with pytest.raises(OSError), _seconds(10):
            parquet_records.to_json_lines(path, 'client', 'text')
        _refused(lambda path=path: emnist_files.open_files(path), DataError)
        _refused(lambda path=path: stackoverflow.open_clients(path, 0.5))
        with pytest.raises(OSError), _seconds(10):
            _files.read_bytes(path)
    study = tmp_path / 'study.json'
    study.write_text(json.dumps({'base': 'zero'}))
    assert 'Not a regular file' in _refused(lambda: definition.load(str(study)))


def test_a_text_of_gigabytes_is_not_read(tmp_path):
    path = tmp_path / 'sparse'
    with open(path, 'wb') as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match='too large'):
        _files.read_bytes(path)
    _refused(lambda: checkpoint.Checkpoint.read(path), errors.RunError)


# JSON.


@pytest.mark.parametrize(
    'text, message',
    [
        ('NaN', 'has NaN'),
        ('[-Infinity]', 'has -Infinity'),
        ('{"a": 1, "a": 2}', "has the key 'a' twice"),
        ('1' + '0' * 400, 'integer of 401 digits'),
        ('[' * 500 + ']' * 500, 'nested more than 64 deep'),
        ('[' * 9000 + ']' * 9000, 'nested more than 64 deep'),
        ('"\\ud800"', 'surrogates'),
        ('{"a": ' * 70 + '1' + '}' * 70, 'nested more than 64 deep'),
        ('', 'Expecting value'),
    ],
)
def test_what_is_no_json_or_breaks_later_is_refused(text, message):
    assert message in _refused(lambda: _json.loads(text))


def test_json_is_read_as_python_reads_it():
    values = {'a': [1, -2.5, 'é\n', None, True, {'b': []}], 'c': 10**39}
    assert _json.loads(json.dumps(values)) == values
    assert _json.loads(json.dumps(values).encode()) == values
    assert math.isnan(_json.loads('[NaN]', allow_nan=True)[0])
    assert _json.loads('"\\ud83d\\ude00"') == '😀'


# Arrays.


def _archive(path, members, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, 'w', method) as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return path


def _header(text: str, data=b'') -> bytes:
    encoded = text.encode() + b'\n'
    return b'\x93NUMPY\1\0' + struct.pack('<H', len(encoded)) + encoded + data


def _described(shape: str, dtype: str = '<f8') -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    return _header(text, b'\0' * 64)


@pytest.mark.parametrize(
    'data, message',
    [
        (_described('(1000000000000,)'), 'not all there'),
        (_described('(4294967296, 4294967296)'), 'not all there'),
        (_described('(2,)'), 'longer than its header says'),
        (_described('(2,)', '|O'), 'not one of plain numbers'),
        (_described('(2,)', '<V0'), 'not one of plain numbers'),
        (_described('(' * 300 + ')' * 300), 'not one of plain numbers'),
        (_described('(-1,)'), 'not one of plain numbers'),
        (_header("{'descr': '<f8'"), 'not one of plain numbers'),
        (b'\x93NUMPY\3\0', 'no header'),
        (b'\x93NUMPY\2\0\xff\xff\xff\xff', 'too long'),
        (b'no array', 'no header'),
    ],
)
def test_an_array_is_read_only_if_its_bytes_are_there(data, message, tmp_path):
    path = _archive(tmp_path / 'a.npz', [('a.npy', data)])
    assert message in _refused(lambda: _npz.load(path))


def test_texts_that_are_no_characters_are_refused(tmp_path):
    data = _header("{'descr': '<U1', 'fortran_order': False, 'shape': (), }", b'\xff' * 4)
    assert 'no character' in _refused(
        lambda: _npz.load(_archive(tmp_path / 'a.npz', [('a.npy', data)]))
    )


def test_a_bomb_is_not_unpacked(tmp_path):
    size = 1 << 26
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({size},), }}"
    data = _header(header) + bytes(size)
    path = _archive(tmp_path / 'a.npz', [('a.npy', data)], zipfile.ZIP_DEFLATED)
    del data
    assert path.stat().st_size < 1 << 20
    assert 'unpacks to more than' in _refused(lambda: _npz.load(path, beside=1 << 24))
    assert 'unpacks to more than' in _refused(lambda: mechanisms.load(path))


@pytest.mark.parametrize('method', [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_are_refused(method, tmp_path):
    data = io.BytesIO()
    np.save(data, np.ones(3))
    path = _archive(tmp_path / 'a.npz', [('a.npy', data.getvalue())], method)
    assert 'compressed in another way' in _refused(lambda: _npz.load(path))


@pytest.mark.filterwarnings('ignore:Duplicate name')
def test_two_arrays_of_one_name_are_refused(tmp_path):
    data = io.BytesIO()
    np.save(data, np.ones(3))
    members = [('a.npy', data.getvalue())] * 2
    assert 'two arrays' in _refused(lambda: _npz.load(_archive(tmp_path / 'a.npz', members)))


def test_pickles_are_never_loaded(tmp_path):
    class Evil:
        def __reduce__(self):
            return (pathlib.Path(tmp_path / 'executed').touch, ())

    np.savez(tmp_path / 'a.npz', a=np.array([Evil()], dtype=object))
    (tmp_path / 'model.npz').write_bytes((tmp_path / 'a.npz').read_bytes())
    _refused(lambda: _npz.load(tmp_path / 'a.npz'))
    _refused(lambda: run_model.weights(tmp_path), errors.StorageError)
    assert not (tmp_path / 'executed').exists()


# Arguments.


def test_values_that_cannot_be_shown_are_one_line():
    for value in (10**5000, 'a\nb', '\x1b[2J', '\ud800', 'x' * 10_000, [[0] * 999] * 99):
        for call in (
            lambda v=value: _validate.integer('a', v, minimum=0, maximum=1),
            lambda v=value: _validate.choice('a', v, ('b',)),
            lambda v=value: _validate.number('a', v, maximum=-1),
        ):
            assert len(_refused(call)) < 2500


def test_only_numbers_are_numbers():
    for value in (['1', '2'], [True], [1j], [10**400], [[1], [2, 3]], 'abc', None, [None]):
        _refused(lambda value=value: _validate.vector('a', value))
    assert _validate.vector('a', [1, 2.5]).tolist() == [1.0, 2.5]
    _refused(lambda: _validate.number('a', 10**400))


def test_mechanisms_of_any_values_are_refused_in_one_line():
    deep: dict = {'mechanism': 'tree', 'rounds': 3}
    for _ in range(500):
        deep = {'mechanism': 'restarted', 'base': deep, 'starts': [], 'rounds': 3}
    for values in (
        [],
        None,
        'tree',
        {'mechanism': ['tree']},
        {'mechanism': {}},
        deep,
        {'mechanism': 'tree', 'a\nb': 1},
        {'mechanism': 'tree', 'rounds': 10**12},
        {'mechanism': 'full_honaker_tree', 'rounds': 3, 'completed': 'no'},
        {'mechanism': 'banded', 'diagonals': [['1']]},
        {'mechanism': 'banded', 'diagonals': [[1e155]]},
        {'mechanism': 'blt', 'rounds': 6, 'decay': [0.9], 'scale': [4e159]},
        {'mechanism': 'banded_toeplitz', 'rounds': 6, 'coefficients': [1e200]},
        {'mechanism': 'restarted', 'base': 3, 'starts': [], 'rounds': 3},
        {
            'mechanism': 'restarted',
            'base': {'mechanism': 'tree', 'rounds': 3},
            'starts': [float('inf')],
            'rounds': 3,
        },
        {'mechanism': 'blt', 'rounds': 3, 'decay': [0.5] * 2000, 'scale': [0.1] * 2000},
    ):
        _refused(lambda values=values: mechanisms.from_dict(values))


@pytest.mark.parametrize(
    'names',
    [
        ['base', 'base/rounds'],
        ['base/rounds', 'base'],
        ['base/' * 500 + 'rounds'],
    ],
)
def test_parameters_that_hide_each_other_are_refused(names, tmp_path):
    arrays = {'schema_version': np.array(1), 'mechanism': np.array('restarted')}
    arrays |= {name: np.array(3) for name in names}
    data = {}
    for name, array in arrays.items():
        file = io.BytesIO()
        np.save(file, array)
        data[name] = file.getvalue()
    path = _archive(tmp_path / 'a.npz', [(f'{name}.npy', each) for name, each in data.items()])
    _refused(lambda: mechanisms.load(path))


def test_offsets_whose_differences_overflow_are_refused(tmp_path):
    path = tmp_path / 'log.npz'
    offsets = np.array([0, 2**63 - 1, -(2**63), -1, 3])
    np.savez(path, clients=np.array([1, 2, 3]), offsets=offsets)
    assert 'offsets decrease' in _refused(lambda: ParticipationLog.load(path))


# Reports.


def _report(mechanism=None, log=None, noise=3.0) -> dict:
    plan = accounting.PrivacyPlan(
        mechanism=mechanism or mechanisms.BinaryTree(6),
        participation=Participation(6, 2, 3),
        clip_norm=1.0,
        noise_multiplier=noise,
        clients_per_round=3,
    )
    return json.loads(PrivacyReport.from_plan(plan, [1e-6], log, 'analytic_gaussian').to_json())


@pytest.mark.parametrize(
    'part',
    [
        ('plan_guarantee',),
        ('observed', 'guarantee'),
        ('observed', 'patterns'),
    ],
)
@pytest.mark.parametrize('name', ['epsilons', 'mu', 'rho', 'sensitivity'])
def test_a_report_promises_no_more_than_its_plan_gives(part, name):
    values = _report(log=ParticipationLog([[0, 1], [2, 3], [0, 1]] * 2))
    PrivacyReport.from_json(json.dumps(values))
    inner = values
    for key in part:
        inner = inner[key]
    inner[name] = [inner[name][0] / 2] if name == 'epsilons' else inner[name] / 2
    if part[-1] == 'patterns' and name == 'sensitivity':
        return  # Only the log can tell: the numbers that follow from it are those compared.
    message = _refused(lambda: PrivacyReport.from_json(json.dumps(values)))
    assert f'{".".join(part)}.{name}' in message and 'must be at least' in message


def test_a_report_whose_limits_break_the_plan_says_so():
    values = _report(log=ParticipationLog([[0, 1]] * 6))
    assert PrivacyReport.from_json(json.dumps(values)).basis == 'log'
    values['observed']['violations'] = []
    assert 'must say how' in _refused(lambda: PrivacyReport.from_json(json.dumps(values)))


@pytest.mark.parametrize(
    'name, value',
    [
        ('deltas', []),
        ('deltas', ['1e-6']),
        ('deltas', [2.0]),
        ('noise_is_seeded', 'false'),
        ('noise_is_seeded', 0),
        ('also_not_covered', 'text'),
        ('accountant', ['pld']),
        ('plan_guarantee', {}),
        ('observed', []),
        ('plan', [1]),
        ('mechanism_parameters', 5),
    ],
)
def test_a_report_of_other_types_is_refused(name, value):
    values = _report()
    values[name] = value
    assert 'not a privacy report' in _refused(lambda: PrivacyReport.from_json(json.dumps(values)))


@pytest.mark.parametrize('accountants', [['magic'], ['best'], ['rdp', 'rdp'], 'rdp', [3], ['a\nb']])
def test_a_report_names_accountants_that_there_are(accountants):
    values = _report()
    values['plan_guarantee']['accountants'] = accountants
    message = _refused(lambda: PrivacyReport.from_json(json.dumps(values)))
    assert 'plan_guarantee.accountants' in message


def test_a_report_of_a_strategy_that_is_not_monotone_can_be_written():
    assert _report(mechanisms.BandedToeplitz(6, [1.0, -0.5, 0.7]))['sensitivity'] > 0


def test_numbers_too_large_or_too_small_to_compute_with_are_printed():
    assert accounting.round_up(5e-324) == '1e-300'
    assert PrivacyReport.from_json(json.dumps(_report(noise=1e160))).render()
    plan = accounting.PrivacyPlan(
        mechanism=mechanisms.Identity(3),
        participation=Participation(3),
        clip_norm=1.0,
        noise_multiplier=1e-160,
        clients_per_round=1,
    )
    assert plan.rho == math.inf


# Runs.


def _checkpoint(change, arrays=None) -> bytes:
    whole = checkpoint.Checkpoint(
        rounds=1,
        configuration={},
        plan_digest='a',
        ledger='b',
        rows=[{'loss': 1.0}],
        cohorts=[np.array([2, 1])],
        state=[np.zeros(2), b'key'],
    )
    file = io.BytesIO()
    whole.write(file)
    first, header, rest = file.getvalue()[:-32].split(b'\n', 2)
    values = json.loads(header)
    values.update(change)
    data = b'\n'.join([first, json.dumps(values).encode(), rest if arrays is None else arrays])
    return data + hashlib.sha256(data).digest()


@pytest.mark.parametrize(
    'change',
    [
        {'rounds': -1},
        {'rounds': 'one'},
        {'rounds': 2},
        {'leaves': 10**9},
        {'leaves': -1},
        {'leaves': 1},
        {'bytes': [7]},
        {'bytes': [-1]},
        {'rows': {}},
        {'rows': [{'a': 'b'}]},
        {'rows': [{}, {}]},
        {'configuration': 3},
        {'plan_digest': None},
        {'ledger': []},
    ],
)
def test_a_checkpoint_of_other_values_is_refused_behind_its_digest(change, tmp_path):
    path = tmp_path / '00000001.checkpoint'
    path.write_bytes(_checkpoint({}))
    assert checkpoint.Checkpoint.read(path).rounds == 1
    path.write_bytes(_checkpoint(change))
    _refused(lambda: checkpoint.Checkpoint.read(path), checkpoint.CheckpointError)


@pytest.mark.parametrize(
    'arrays',
    [
        b'',
        _described('(1000000000000,)'),
        _header('(' * 5000),
        _header("{'descr': '\\d"),
    ],
)
def test_a_checkpoint_of_other_arrays_is_refused_behind_its_digest(arrays, tmp_path):
    path = tmp_path / '00000001.checkpoint'
    path.write_bytes(_checkpoint({}, arrays))
    _refused(lambda: checkpoint.Checkpoint.read(path), checkpoint.CheckpointError)


@pytest.mark.parametrize('value', ['5', 'null', '[' * 900 + ']' * 900, '{}', '1e5'])
def test_a_ledger_of_other_values_is_refused_behind_its_chain(value, tmp_path):
    path = tmp_path / 'ledger.jsonl'
    first, before = ledger_lines.first_line('a' * 64)
    text = f'{{"round": 0, "cohort": {value}, "model": "a", "noise": "b", "data": "c"}}'
    chain = hashlib.sha256((before + text).encode()).hexdigest()
    path.write_bytes(first + f'{text[:-1]}, "chain": "{chain}"}}\n'.encode())
    message = _refused(lambda: ledger.Ledger(path, 'a' * 64), ledger.LedgerError)
    assert 'line 2 is damaged' in message


def test_a_ledger_of_a_strange_format_is_one_line(tmp_path):
    path = tmp_path / 'ledger.jsonl'
    text = '{"format": "\\u001b[2J\\n", "plan": "a"}'
    start = hashlib.sha256(b'dpfl ledger').hexdigest()
    chain = hashlib.sha256((start + text).encode()).hexdigest()
    path.write_text(f'{text[:-1]}, "chain": "{chain}"}}\n')
    message = _refused(lambda: ledger.Ledger(path, 'a'), ledger.LedgerError)
    assert 'has format \\x1b[2J, this version' in message


def test_a_run_that_was_not_spoilt_is_verified(tmp_path):
    target = privacy_targets.RunDirectory(tmp_path / 'files')
    for number, run in enumerate(target._runs):
        case = tmp_path / f'{number}'
        case.mkdir()
        for name, data in run.items():
            (case / name).write_bytes(data)
        (case / archive.SUMS).write_text(archive.digests(case))
        assert verification.verify(case).differences == ()


def test_names_in_a_list_of_digests_are_shown_in_one_line(tmp_path):
    target = privacy_targets.RunDirectory(tmp_path / 'files')
    for name, data in target._runs[0].items():
        (tmp_path / name).write_bytes(data)
    sums = archive.digests(tmp_path) + f'{"0" * 64}  a\x1b[2J\x85b\n'
    (tmp_path / archive.SUMS).write_text(sums)
    differences = verification.verify(tmp_path).differences
    assert differences and all(line.isprintable() for line in differences)


# Data.


def test_a_parquet_file_that_kills_its_reader_is_one_line(tmp_path, monkeypatch):
    from pyarrow import parquet

    path = tmp_path / 'a.parquet'
    parquet.write_table(pyarrow.table({'client': ['a'] * 9, 'text': ['b'] * 9}), path)
    reader = 'import os, signal; os.kill(os.getpid(), signal.SIGSEGV)'
    monkeypatch.setattr(parquet_records, '_READER', reader)
    message = _refused(lambda: parquet_records.to_json_lines(path, 'client', 'text'))
    assert message == 'data_path: is not a complete Parquet file (the reader ended with signal 11)'


def test_columns_of_any_type_of_a_parquet_file_are_malformed_records(tmp_path):
    from pyarrow import parquet

    path = tmp_path / 'a.parquet'
    times = pyarrow.array([2**62] * 2).cast(pyarrow.timestamp('s'))
    parquet.write_table(pyarrow.table({'client': times, 'text': ['a', 'b']}), path)
    lines = parquet_records.to_json_lines(path, 'client', 'text').read().splitlines()
    assert [json.loads(line) for line in lines] == [
        {'client': [], 'text': 'a'},
        {'client': [], 'text': 'b'},
    ]


def _hdf5(path, change):
    with h5py.File(path, 'w') as file:
        group = file.create_group('examples/f0')
        change(group)
    return path


def _huge(group):
    group.create_dataset('pixels', (10**9, 28, 28), 'f4', chunks=(1, 28, 28))
    group['label'] = np.zeros(1, np.int32)


def _linked(group):
    group['pixels'] = h5py.ExternalLink('/dev/zero', '/pixels')
    group['label'] = np.zeros(1, np.int32)


def _wrapped(group):
    group['pixels'] = np.zeros((1, 28, 28), np.float32)
    group['label'] = np.array([2**32 + 5])  # As int32 it would be 5.


def _texts(group):
    group['pixels'] = np.zeros((1, 28, 28), np.float32)
    group['label'] = np.array([b'a'])


def _empty(group):
    group['pixels'] = h5py.Empty('f4')
    group['label'] = np.zeros(1, np.int32)


@pytest.mark.parametrize('change', [_huge, _linked, _wrapped, _texts, _empty])
def test_hdf5_that_claims_or_links_is_refused(change, tmp_path):
    found = emnist_files.open_files(_hdf5(tmp_path / 'fed_emnist_train.h5', change))
    _refused(lambda: found.read('train', 'f0'), DataError)


_ENDLESS = (
    'CREATE VIEW {} AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) '
    "SELECT n AS client_id, 'train' AS split_name, 1 AS num_examples, x'00' AS "
    'serialized_example_proto FROM r'
)


def test_views_of_an_sqlite_file_are_not_queried(tmp_path):
    path = tmp_path / 'a.sqlite'
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for table in ('client_metadata', 'examples'):
            connection.execute(_ENDLESS.format(table))
        connection.commit()
    assert 'not an ordinary table' in _refused(lambda: stackoverflow.open_clients(path, 0.5))
    assert 'not an ordinary table' in _refused(lambda: emnist_files.open_files(path), DataError)


def test_an_index_of_other_types_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path / 'cache'))
    target = run_targets.RecordIndex(tmp_path / 'files')
    outcomes = campaign.run(target, seed=0, cases=range(240))
    assert not outcomes.findings and outcomes.counts['taken'] == 240


def test_a_client_without_a_name_is_a_client(tmp_path):
    path = tmp_path / 'a.sqlite'
    # A tf.train.Example whose feature `tokens` is the bytes 'a'.
    example = b'\n\x11\n\x0f\n\x06tokens\x12\x05\n\x03\n\x01a'
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute('CREATE TABLE client_metadata (client_id, split_name)')
        columns = 'client_id, split_name, serialized_example_proto'
        connection.execute(f'CREATE TABLE examples ({columns})')
        for client in (None, 'a', 'b'):
            connection.execute('INSERT INTO client_metadata VALUES (?, ?)', (client, 'train'))
            connection.execute('INSERT INTO examples VALUES (?, ?, ?)', (client, 'train', example))
        connection.commit()
    training, heldout, _ = stackoverflow.open_clients(path, 0.3)
    found = [list(part.sentences(i)) for part in (training, heldout) for i in range(part.count)]
    assert found == [[['a']]] * 3


# Command lines.


def test_no_number_of_rounds_runs_for_ever():
    for call in (mechanisms.Identity, Participation, lambda n: population_run.run(None, n)):
        assert '<= 4194304' in _refused(lambda call=call: call(2**31))


@pytest.mark.parametrize(
    'content',
    [
        b'--rounds=\xff',
        b'--' + b'x' * 5000,
        '--flagfile={}',
        b'--\n--flagfile=/dev/zero',
        'fifo',
        'directory',
        '/dev/zero',
    ],
)
def test_flagfiles_are_one_line(content, tmp_path, monkeypatch, capsys):
    path = tmp_path / 'a.flags'
    if content == 'fifo':
        os.mkfifo(path)
    elif content == 'directory':
        path.mkdir()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif content.startswith('/'):
        path.symlink_to(content)
    else:
        path.write_text(content.format(tmp_path / 'missing'))
    with _seconds(10), pytest.raises(SystemExit) as caught:
        command_line._parse(['program', f'--flagfile={path}'])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    start = 'error: --x' if content == b'--' + b'x' * 5000 else 'error: --flagfile='
    assert error.startswith(start) and error.count('\n') == 1


def test_a_message_with_control_characters_is_one_printable_line(capsys):
    with pytest.raises(SystemExit):
        command_line._fail('--a=\x1b[2J\n\ud800: must be b', 2)
    error = capsys.readouterr().err
    assert error == 'error: --a=\\x1b[2J \\ud800: must be b\n'


def test_mutated_command_lines_are_one_line(tmp_path):
    # A process of its own: binaries have flags of the same names.
    code = (
        'import pathlib\n'
        'from benchmarks.attacks.hostile import campaign, commands\n'
        f'target = commands.Commands(pathlib.Path({str(tmp_path / "files")!r}), "report_privacy")\n'
        'outcomes = campaign.run(target, 15, range(60))\n'
        'print(outcomes.findings, sum(outcomes.counts.values()), flush=True)\n'
        'import os\n'
        'os._exit(0)\n'
    )
    done = subprocess.run(
        [sys.executable, '-c', code],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, 'PYTHONPATH': str(paths.ROOT)},
    )
    assert done.stdout.splitlines()[-1] == '{} 60', done.stdout
    assert set(commands.COMMANDS) == {
        'report_privacy',
        'plan_privacy',
        'optimize_strategy',
        'compare_mechanisms',
        'simulate_population',
    }
