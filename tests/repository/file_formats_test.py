"""Any values of any shape: what is saved is read back equal, anything else is a ValueError."""

import dataclasses
import io
import json

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dpfl import Participation, ParticipationLog, _npz, accounting, mechanisms
from dpfl.accounting.records import archive, cohorts, journal
from dpfl.accounting.reports.report import PrivacyReport
from dpfl.simulation import checkpoint
from tests import mechanism_cases
from tests.accounting import archives

_FAST = settings(
    max_examples=15,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
_COEFFICIENTS = st.lists(st.floats(-2, 2, width=32), max_size=5)
_ROUNDS = st.integers(1, 12)


# A member of each kind, and some with random numbers.
_MECHANISMS = st.one_of(
    st.sampled_from([make(9) for make in mechanism_cases.FACTORIES.values()]),
    st.builds(lambda n, more: mechanisms.BandedToeplitz(n, [1.0, *more]), _ROUNDS, _COEFFICIENTS),
    st.builds(
        lambda n, pairs: mechanisms.Blt(n, *map(list, zip(*pairs, strict=True))),
        _ROUNDS,
        st.lists(st.tuples(st.floats(0, 1), st.floats(-1, 1)), min_size=1, max_size=4),
    ),
)
_COHORTS = st.lists(st.lists(st.integers(0, 2**62) | st.integers(0, 9), max_size=6), max_size=8)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
_ARRAYS = st.dictionaries(
    st.text('abcdef_/', min_size=1, max_size=8).filter(lambda name: not name.startswith('/')),
    arrays.arrays(
        st.sampled_from(['<f8', '<f4', '<i8', '<i4', '>f8', '|u1', '|b1', '<U3']),
        arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ),
    max_size=4,
)


def _file(write) -> io.BytesIO:
    file = io.BytesIO()
    write(file)
    return file


def _value_or_value_error(call, *arguments):
    try:
        return call(*arguments)
    except ValueError as error:
        assert len(str(error).splitlines()) == 1
        return None


# Round trips.


@_FAST
@given(_ARRAYS, st.booleans())
def test_arrays_are_read_back(tmp_path_factory, values, fortran):
    path = tmp_path_factory.getbasetemp() / 'arrays.npz'
    if fortran:
        values = {name: np.asfortranarray(array) for name, array in values.items()}
    np.savez_compressed(path, **{f'_{name}': array for name, array in values.items()})
    found = _npz.load(path)
    assert found.keys() == {f'_{name}' for name in values}
    for name, array in values.items():
        assert found[f'_{name}'].dtype == array.dtype
        np.testing.assert_array_equal(found[f'_{name}'], array)


@_FAST
@given(_MECHANISMS, st.integers(1, 4), st.floats(0.5, 50), _COHORTS)
def test_plans_and_reports_are_read_back(tmp_path_factory, mechanism, separation, noise, of_rounds):
    folder = tmp_path_factory.getbasetemp()
    plan = accounting.PrivacyPlan(
        mechanism=mechanism,
        participation=Participation(mechanism.rounds, separation),
        clip_norm=1.5,
        noise_multiplier=noise,
        clients_per_round=3,
    )
    record = archive.PlanRecord(plan, (1e-6, 1e-9), 'analytic_gaussian', False)
    (folder / archive.PLAN).write_text(record.to_json())
    mechanisms.save(mechanism, folder / archive.STRATEGY)
    assert archive.read_plan(folder) == record
    log = ParticipationLog(of_rounds[: mechanism.rounds])
    if log.rounds < mechanism.rounds and mechanism.name == 'full_honaker_tree':
        log = None
    report = record.report(log)
    assert PrivacyReport.from_json(report.to_json()) == report


@_FAST
@given(_ARRAYS, st.integers(0, 9), st.binary(max_size=9))
def test_a_checkpoint_is_read_back(tmp_path_factory, state, rounds, key):
    path = tmp_path_factory.getbasetemp() / '00000001.checkpoint'
    leaves = [*state.values(), key]
    whole = checkpoint.Checkpoint(rounds=rounds, head='a', state=leaves)
    path.write_bytes(_file(whole.write).getvalue())
    found = checkpoint.Checkpoint.read(path)
    assert (found.rounds, found.head) == (rounds, checkpoint.read_head(path)) == (rounds, 'a')
    assert found.state[-1] == key
    for saved, read in zip(leaves[:-1], found.state[:-1], strict=True):
        assert saved.dtype == read.dtype
        np.testing.assert_array_equal(saved, read)


@_FAST
@given(st.dictionaries(st.text(max_size=5), _JSON, max_size=3), _COHORTS)
def test_journals_and_cohorts_are_read_back(settings_of_run, of_rounds):
    planned = dataclasses.replace(archives.PLANNED, settings=settings_of_run)
    data = archives.encoded([planned, archives.built(settings_of_run)])
    found = journal.parse(data)
    assert archives.encoded(found.events) == data and found.complete == len(data)
    data = b''.join(cohorts.record(t, cohort) for t, cohort in enumerate(of_rounds))
    read, complete = cohorts.read(io.BytesIO(data))
    assert [each.tolist() for each in read] == of_rounds and complete == len(data)


# Anything.


@_FAST
@given(_JSON)
def test_any_json_value_is_a_mechanism_or_a_value_error(value):
    for values in (
        value,
        {'mechanism': value},
        {'mechanism': 'blt', 'rounds': value},
        {'mechanism': 'blt', 'rounds': 3, 'decay': value, 'scale': [0.1]},
        {'mechanism': 'banded', 'diagonals': value},
        {'mechanism': 'restarted', 'base': value, 'starts': value, 'rounds': 3},
        {'mechanism': 'tree', 'rounds': 3, 'released': value},
    ):
        _value_or_value_error(mechanisms.from_dict, values)


@_FAST
@given(_JSON, st.data())
def test_any_json_value_in_a_report_is_a_report_or_a_value_error(value, data):
    values = json.loads(_REPORT)
    name = data.draw(st.sampled_from(sorted(values)))
    values[name] = value
    _value_or_value_error(PrivacyReport.from_json, json.dumps(values))
    _value_or_value_error(PrivacyReport.from_json, json.dumps(value))


@_FAST
@given(_ARRAYS)
def test_any_arrays_are_a_strategy_or_a_log_or_a_value_error(tmp_path_factory, values):
    path = tmp_path_factory.getbasetemp() / 'any.npz'
    for more in (
        {},
        {'schema_version': np.array(1), 'mechanism': np.array('blt')},
        {'clients': np.zeros(0, np.int64)},
    ):
        with open(path, 'wb') as file:
            np.savez(
                file, **({name: array for name, array in values.items() if name != 'file'} | more)
            )
        _value_or_value_error(mechanisms.load, path)
        _value_or_value_error(ParticipationLog.load, path)


_REPORT = PrivacyReport.from_plan(
    accounting.PrivacyPlan(
        mechanism=mechanisms.BinaryTree(6),
        participation=Participation(6, 2),
        clip_norm=1.0,
        noise_multiplier=3.0,
        clients_per_round=3,
    ),
    [1e-6],
    ParticipationLog([[0, 1], [2, 3], [0, 1]]),
    'analytic_gaussian',
).to_json()
