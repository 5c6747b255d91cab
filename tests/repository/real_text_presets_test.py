"""Presets for real text: their flags make a run, and their BLT is the best one for their schema."""

import pytest

from dpfl import Participation, mechanisms
from dpfl._setting_texts import with_texts
from dpfl.inspection.text.config import StudyConfig
from dpfl.simulation.training import TrainConfig
from dpfl.studies import definition
from tests import paths

_PRESETS = [
    path
    for task in ('commit_messages', 'git_log', 'user_text')
    for path in sorted((paths.ROOT / 'configs').glob(f'{task}.*.flags'))
]
# The only loss above that of the optimum is that of rounding and of the optimiser's tolerance.
_TOLERANCE = 1e-4


def _flags(path):
    return definition.read_flagfile(path)


@pytest.mark.parametrize('path', _PRESETS, ids=lambda path: path.stem)
def test_the_flags_are_those_of_a_run(path):
    flags = _flags(path)
    of_study = {name: text for name, text in flags.items() if name in StudyConfig().flat()}
    if path.stem.endswith('.debug'):
        assert len(with_texts(StudyConfig(), of_study).cases) > 1
        flags = {name: text for name, text in flags.items() if name not in of_study}
    config = with_texts(TrainConfig(), flags)
    assert config.task.task == _flags(path)['task']


@pytest.mark.parametrize(
    'path', [path for path in _PRESETS if 'blt_decay' in _flags(path)], ids=lambda path: path.stem
)
def test_the_blt_of_a_preset_is_the_best_for_its_schema(path):
    flags = _flags(path)
    schema = Participation(
        rounds=int(flags['rounds']),
        min_separation=int(flags['min_separation']),
        max_participations=int(flags['max_participations']),
    )
    numbers = [
        [float(each) for each in flags[name].split(',')] for name in ('blt_decay', 'blt_scale')
    ]
    ours = mechanisms.Blt(schema.rounds, *numbers).max_loss(schema)
    best = mechanisms.optimize_blt(schema, num_buffers=len(numbers[0]), loss='max')
    assert ours <= best.max_loss(schema) * (1 + _TOLERANCE)
