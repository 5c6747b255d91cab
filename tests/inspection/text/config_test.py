"""What is trained and compared follows from the settings; what makes no sense is refused."""

import pytest

from dpfl import errors
from dpfl.inspection.text.config import Case, StudyConfig


def test_names_of_cases():
    study = StudyConfig(inject=('truncated', 'encoding'), inject_share=(0.01, 1.0))
    assert [case.name for case in study.cases] == [
        'as it is',
        'truncated, 1%',
        'truncated, 100%',
        'encoding, 1%',
        'encoding, 100%',
    ]
    assert len({case.folder for case in study.cases}) == 5
    assert StudyConfig(inject=('encoding',)).cases == (Case(), Case('encoding', 0.1))
    assert StudyConfig().cases == (Case(),)


@pytest.mark.parametrize(
    'inspect, generators',
    [
        (('T1', 'T3'), ['word', 'char']),
        (('T3',), ['char']),
        (('T2',), ['wrong', 'right']),
        (('T4', 'T1'), ['word', 'poor', 'good']),
        (('T6', 'T5'), ['word']),
    ],
)
def test_generators_of_what_is_inspected(inspect, generators):
    needs = {'T2', 'T4', 'T5', 'T6'} & set(inspect)
    study = StudyConfig(inspect=inspect, primary_model='model' if needs else None)
    assert [generator.name for generator in study.generators] == generators


def test_parts_of_the_text_are_selected_by_the_model_and_cover_all():
    study = StudyConfig(inspect=('T2', 'T4'), primary_model='model', poor_accuracy=0.2)
    (wrong, right), (poor, good) = study.pairs
    assert wrong.selection.select_examples == ('accuracy<=0.1',)
    assert right.selection.select_examples == ('accuracy>0.1',)
    assert poor.selection.select_clients == ('accuracy<=0.2',)
    assert good.selection.select_clients == ('accuracy>0.2',)
    # A run goes on with the same selection only.
    assert study.made_from(poor, Case())['poor_accuracy'] == 0.2
    assert study.made_from(poor, Case()) != study.made_from(good, Case())


@pytest.mark.parametrize(
    'values, name',
    [
        (dict(inspect=()), 'inspect'),
        (dict(inspect=('T7',)), 'inspect'),
        (dict(inspect=('T1', 'T1')), 'inspect'),
        (dict(inspect=('T2',)), 'inspect'),
        (dict(primary_model='model'), 'primary_model'),
        (dict(inject=('joined',)), 'inject'),
        (dict(inject_share=(0.1,)), 'inject_share'),
        (dict(inject=('encoding',), inject_share=(0.0,)), 'inject_share'),
        (dict(inject=('encoding',), inject_share=(1.5,)), 'inject_share'),
        (dict(inject=('encoding',), inject_share=(0.1, 0.1)), 'inject_share'),
    ],
)
def test_what_makes_no_sense_is_refused(values, name):
    with pytest.raises(errors.ArgumentError) as refused:
        StudyConfig(**values)
    assert refused.value.name == name
