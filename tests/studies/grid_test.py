"""Studies are read from files, and wrong ones refused in one line."""

import json

import pytest

from experiments.studies.shared import grid

pytestmark = pytest.mark.standard

_STUDY = {
    'title': 'T',
    'about': 'A',
    'mirrors': 'McMahan et al. 2018, figure 2',
    'base': 'base.flags',
    'flags': {'rounds': '3'},
    'lines': {'a': {}, 'b': {'mechanism': 'tree', 'clip_norm': None}},
}
_AXIS = {'label': 'x', 'values': {'1': {'clip_norm': '1'}, '2': {'clip_norm': '2'}}}


def _load(tmp_path, **changed):
    (tmp_path / 'base.flags').write_text('# Comment.\n\n--rounds=2\n--clip_norm=0.5\n--secagg\n')
    path = tmp_path / 'mine.json'
    path.write_text(json.dumps({**_STUDY, **changed}))
    return grid.load(str(path))


def test_flags_of_a_point_are_those_of_base_study_line_and_value(tmp_path):
    study = _load(tmp_path)
    assert study.name == 'mine'
    assert [point.name for point in study.points] == ['a', 'b']
    assert study.points[0].flags == {'rounds': '3', 'clip_norm': '0.5', 'secagg': 'true'}
    assert study.points[1].flags['clip_norm'] is None
    study = _load(tmp_path, axis=_AXIS)
    assert [point.name for point in study.points] == ['a/1', 'a/2', 'b/1', 'b/2']
    assert study.points[1].flags['clip_norm'] == '2'
    assert study.points[3].flags['clip_norm'] is None  # Line b takes it away.


@pytest.mark.parametrize(
    ('changed', 'reason'),
    [
        ({'lines': {}}, 'lines, measures'),
        ({'seeds': [1, 1]}, 'seeds=1,1'),
        ({'seeds': [-1]}, 'seeds=-1'),
        ({'seeds': [1, 2], 'tuned_on': [2]}, 'tuned_on=2'),
        ({'measures': ['rounds_to_threshold']}, 'threshold'),
        ({'threshold': 1.5}, 'threshold=1.5'),
        ({'curves': 'time'}, 'curves=time'),
        ({'smooth': 0}, 'smooth=0'),
        ({'axis': {'label': 'x', 'values': {'much': {}}}}, 'values=much'),
        ({'axis': {'label': 'x', 'values': {'1': {}}, 'scale': 'cubic'}}, 'scale=cubic'),
        ({'axis': {'label': 'x', 'values': {}}}, 'values'),
        ({'claims': [{'text': '', 'measure': 'loss', 'higher': 'a', 'lower': 'c'}]}, 'claims=c'),
        ({'base': 'missing.flags'}, 'missing.flags'),
        ({'colour': 'red'}, 'colour'),
    ],
)
def test_a_wrong_study_is_refused_in_one_line(tmp_path, changed, reason):
    with pytest.raises(ValueError, match='^study=.*mine.json: cannot be used') as error:
        _load(tmp_path, **changed)
    assert reason in str(error.value) and '\n' not in str(error.value)


def test_an_unknown_study_names_those_there_are():
    with pytest.raises(ValueError, match='study=nothing: must be .*mechanisms'):
        grid.load('nothing')


def test_a_flagfile_with_something_else_is_refused(tmp_path):
    path = tmp_path / 'x.flags'
    path.write_text('rounds=2\n')
    with pytest.raises(ValueError, match='rounds=2 is not a flag'):
        grid.read_flagfile(path)
