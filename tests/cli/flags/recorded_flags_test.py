"""The flags of a run against its plan."""

import dataclasses
import json
import os

import pytest

from dpfl import Participation, accounting, mechanisms
from dpfl.cli.flags import recorded_flags
from dpfl.simulation.training import PrivacyConfig, SamplingConfig, TrainConfig, noise_matching

_FLAGS = """\
--adjacency=zero_out
--clients_per_round=5
--clip_norm=0.5
--clip_schedule=
--delta=1e-06
--estimator=fixed
--cohort_weight=4.0
--example_cap=1600
--mechanism=tree
--min_separation=3
--noadaptive_clip
--noise_multiplier=2.0
--nosecagg
--rounds=12
--sampling=min_separation
--vocabulary_size=96
"""


def _report(noise_is_seeded=False, delta=1e-6, **changes):
    plan = accounting.PrivacyPlan(
        **{
            **dict(
                mechanism=mechanisms.BinaryTree(12),
                participation=Participation(12, 3),
                clip_norm=0.5,
                noise_multiplier=2.0,
                clients_per_round=5,
                estimator=accounting.Estimator('fixed', 4.0, 1600.0),
            ),
            **changes,
        }
    )
    return accounting.PrivacyReport.from_plan(
        plan, [delta], None, plan.accountants[0], noise_is_seeded
    )


def _differences(tmp_path, report, flags=_FLAGS):
    (tmp_path / 'flags.txt').write_text(flags)
    return recorded_flags.differences(tmp_path, report)


def test_a_plan_made_from_the_flags_agrees_with_them(tmp_path):
    assert recorded_flags.differences(tmp_path, _report(noise_is_seeded=True)) == []  # No file.
    assert _differences(tmp_path, _report()) == []
    restarted = mechanisms.Restarted.every(mechanisms.BinaryTree(12), 3, 4)
    assert _differences(tmp_path, _report(mechanism=restarted)) == []


def test_an_optimised_mechanism_has_the_kind_of_its_entry(tmp_path):
    scaled = mechanisms.ColumnScaled(mechanisms.Blt(12, [0.5], [0.3]), [1.0, 0.9], 12, 6)
    flags = _FLAGS.replace('--mechanism=tree', '--mechanism=scaled_blt')
    assert _differences(tmp_path, _report(mechanism=scaled), flags) == []
    flags = _FLAGS.replace('--mechanism=tree', '--mechanism=blt')
    assert len(_differences(tmp_path, _report(mechanism=scaled), flags)) == 1


@pytest.mark.parametrize(
    'report, flag',
    [
        (_report(noise_multiplier=20.0), '--noise_multiplier=2.0'),
        (_report(clip_norm=0.05), '--clip_norm=0.5'),
        (_report(clients_per_round=6), '--clients_per_round=5'),
        (_report(participation=Participation(12, 4)), '--min_separation=3'),
        (_report(mechanism=mechanisms.Identity(12)), '--mechanism=tree'),
        (_report(delta=1e-3), '--delta=1e-06'),
        (_report(adjacency='replace_one'), '--adjacency=zero_out'),
        (_report(estimator=accounting.Estimator('clipped', 4.0, 1600.0)), '--estimator=fixed'),
        (_report(estimator=accounting.Estimator('fixed', 5.0, 1600.0)), '--cohort_weight=4.0'),
        (_report(estimator=accounting.Estimator('fixed', 4.0)), '--example_cap=1600'),
        (
            _report(
                adaptive_clip=accounting.AdaptiveClip(0.5, count_stddev=2.0),
                mechanism=mechanisms.Identity(12),
            ),
            '--adaptive_clip=false',
        ),
        (
            _report(
                mechanism=mechanisms.Identity(12),
                participation=Participation(12),
                sampling='poisson',
                population=100,
            ),
            '--sampling=min_separation',
        ),
    ],
)
def test_each_value_that_the_flags_give_is_compared(tmp_path, report, flag):
    found = _differences(tmp_path, report)
    assert any(each.startswith('plan.json: has ') for each in found)
    assert any(flag in each for each in found)


_SAMPLED = dict(mechanism=mechanisms.Identity(12), participation=Participation(12))
_CYCLIC = dict(
    mechanism=mechanisms.BandedToeplitz(12, [1.0, 0.5]),
    participation=Participation(12, 4),
    sampling='cyclic_poisson',
    population=100,
    groups=4,
)
_OF_CYCLIC = '--mechanism=fichtenberger_toeplitz --sampling=cyclic_poisson'


@pytest.mark.parametrize(
    'changes, flags, differences',
    [
        (dict(_SAMPLED, clip_schedule=((3, 0.2),)), '--clip_schedule=3:0.2', 0),
        (dict(_SAMPLED, clip_schedule=((3, 0.1),)), '--clip_schedule=3:0.2', 1),
        (dict(_SAMPLED, sampling='poisson', population=100), '--sampling=poisson', 0),
        (
            dict(_SAMPLED, sampling='poisson', population=100),
            '--sampling=poisson --population=99',
            1,
        ),
        (_CYCLIC, f'{_OF_CYCLIC} --groups=4 --min_separation=4', 0),
        (_CYCLIC, f'{_OF_CYCLIC} --groups=4', 0),
        (_CYCLIC, f'{_OF_CYCLIC} --min_separation=4', 0),
        (_CYCLIC, f'{_OF_CYCLIC} --groups=5', 1),
        (_CYCLIC, f'{_OF_CYCLIC} --groups=4 --min_separation=2', 1),
    ],
)
def test_schedules_populations_and_groups_are_compared(tmp_path, changes, flags, differences):
    values = dict(line.removeprefix('--').split('=') for line in _FLAGS.split() if '=' in line)
    values |= {'mechanism': 'gaussian', 'min_separation': '1'}
    values |= dict(flag.removeprefix('--').split('=') for flag in flags.split())
    given = ''.join(f'--{name}={value}\n' for name, value in values.items())
    assert len(_differences(tmp_path, _report(**changes), given)) == differences


def test_seeds_are_compared_both_ways(tmp_path):
    assert 'says that noise is seeded' in _differences(tmp_path, _report(True))[0]
    found = _differences(tmp_path, _report(), _FLAGS + '--noise_seed=1\n')
    assert found == ['plan.json: says that noise is not seeded, flags.txt has a --noise_seed']
    assert _differences(tmp_path, _report(True), _FLAGS + '--noise_seed=1\n') == []


def test_values_that_were_found_on_the_data_are_in_the_report(tmp_path):
    flags = f'{_FLAGS}--chosen_without_noise=clip_norm,delta\n'
    [difference] = _differences(tmp_path, _report(), flags)
    assert difference.startswith('plan.json: does not say what flags.txt does: The choice of clip')
    config = TrainConfig(chosen_without_noise=('clip_norm', 'delta'))
    report = dataclasses.replace(_report(), also_not_covered=config.not_covered)
    assert _differences(tmp_path, report, flags) == []


def test_the_epsilon_that_was_asked_for_is_that_of_the_plan(tmp_path):
    flags = _FLAGS.replace('--noise_multiplier=2.0', '--target_epsilon=3')
    plan = accounting.PrivacyPlan.calibrated(
        epsilon=3.0,
        delta=1e-6,
        accountant='pld',
        mechanism=mechanisms.BinaryTree(12),
        participation=Participation(12, 3),
        clip_norm=0.5,
        clients_per_round=5,
        estimator=accounting.Estimator('fixed', 4.0, 1600.0),
    )
    report = accounting.PrivacyReport.from_plan(plan, [1e-6])
    assert _differences(tmp_path, report, flags) == []
    more = dataclasses.replace(plan, noise_multiplier=2 * plan.noise_multiplier)
    found = _differences(tmp_path, accounting.PrivacyReport.from_plan(more, [1e-6]), flags)
    assert len(found) == 1 and '--target_epsilon=3' in found[0]


@pytest.mark.parametrize('reference', ['honaker_tree', 'blt:2'])
def test_the_match_that_was_asked_for_is_that_of_the_plan(tmp_path, reference):
    text = f'rmse:{reference},7@10'
    flags = _FLAGS.replace('--noise_multiplier=2.0', f'--match={text}\n--match_momentum=0.5')
    silent = dataclasses.replace(_report().plan, noise_multiplier=0.0)
    plan = noise_matching.parse(text).resolve(silent, 0.5)

    def found(plan, flags=flags):
        return _differences(tmp_path, accounting.PrivacyReport.from_plan(plan, [1e-6]), flags)

    assert found(plan) == []
    less = dataclasses.replace(plan, noise_multiplier=0.9 * plan.noise_multiplier)
    (difference,) = found(less)
    assert f'plan.json: has noise_multiplier={less.noise_multiplier}' in difference
    assert f'--match={text}' in difference
    for other in (
        'rmse:honaker_tree,8@10',
        f'rmse:{reference},7@9',
        f'prefix_noise:{reference},7@10',
    ):
        assert len(found(plan, flags.replace(text, other))) == 1
    assert len(found(plan, flags.replace('momentum=0.5', 'momentum=0.6'))) == 1
    unmatched = dataclasses.replace(plan, noise_match=None)
    assert f'--match={text}' in found(unmatched)[-1]
    if reference == 'honaker_tree':  # Noise and record changed together.
        match = dataclasses.replace(plan.noise_match, value=0.9 * plan.noise_match.value)
        assert len(found(dataclasses.replace(less, noise_match=match))) == 1


@pytest.mark.parametrize(
    'text, named',
    [
        ('rounds=12\n', 'flags.txt: line'),
        ('--rounds=12\nword\n', 'flags.txt: line'),
        ('\x00\n', 'flags.txt: line'),
        ('--rounds=x\n', 'has --rounds=x'),
    ],
)
def test_what_is_no_file_of_flags_is_named(tmp_path, text, named):
    found = _differences(tmp_path, _report(), text)
    assert named in found[0] and found[0].count('\n') == 0


def _config(tmp_path, **changes):
    """config.json of a run with the plan of `_report`, with other values."""
    config = TrainConfig(
        privacy=PrivacyConfig(mechanism='tree', noise_multiplier=2.0, clip_norm=0.5, delta=1e-6),
        sampling=SamplingConfig(rounds=12, min_separation=3, clients_per_round=5),
    )
    values = config.with_values(changes).to_dict()
    (tmp_path / 'config.json').write_text(json.dumps(values))


def test_a_plan_made_from_the_configuration_agrees_with_it(tmp_path):
    _config(tmp_path)
    assert recorded_flags.differences(tmp_path, _report()) == []
    _config(tmp_path, mechanism=mechanisms.BinaryTree(12))
    assert recorded_flags.differences(tmp_path, _report()) == []


@pytest.mark.parametrize(
    'changes, name',
    [
        (dict(noise_multiplier=3.0), '--noise_multiplier=3.0'),
        (dict(mechanism='honaker_tree'), '--mechanism=honaker_tree'),
        (dict(clip_schedule=((3, 0.1),)), '--clip_schedule=3:0.1'),
        (dict(adaptive_clip=True), '--adaptive_clip=true'),
        (dict(noise='hardened'), '--noise=hardened'),
        (dict(noise_seed=1), 'config.json has a --noise_seed'),
    ],
)
def test_a_plan_that_is_not_that_of_the_configuration_is_named(tmp_path, changes, name):
    _config(tmp_path, **changes)
    (found,) = recorded_flags.differences(tmp_path, _report())
    assert name in found and 'config.json' in found


@pytest.mark.parametrize(
    'data',
    [b'', b'[]', b'{"a": 1, "a": 2}', b'[' * 5000, b'\xff', None],
)
def test_what_is_no_configuration_is_named_in_one_line(tmp_path, data):
    if data is None:
        os.mkfifo(tmp_path / 'config.json')
    else:
        (tmp_path / 'config.json').write_bytes(data)
    (found,) = recorded_flags.differences(tmp_path, _report())
    assert found.startswith('config.json: ') and '\n' not in found


def test_a_run_that_stops_at_an_epsilon_has_fewer_rounds_than_its_flags(tmp_path):
    report = _report(participation=Participation(7, 3))
    epsilon = report.guarantee.epsilons[0]
    assert any('--rounds=12' in line for line in _differences(tmp_path, report))
    assert _differences(tmp_path, report, f'{_FLAGS}--stop_at_epsilon={epsilon}\n') == []
    less = _differences(tmp_path, report, f'{_FLAGS}--stop_at_epsilon={epsilon * 0.9}\n')
    assert len(less) == 1 and '--stop_at_epsilon' in less[0]
    more = _report(participation=Participation(13, 3), mechanism=mechanisms.BinaryTree(13))
    found = _differences(tmp_path, more, f'{_FLAGS}--stop_at_epsilon=1e9\n')
    assert found == ['plan.json: has rounds=13, flags.txt has --rounds=12']


def test_a_fork_has_earlier_plans(tmp_path):
    earlier = (_report(noise_multiplier=5.0).plan,)
    forked, flags = _report(earlier=earlier), f'{_FLAGS}--fork_from=runs/a\n'
    assert _differences(tmp_path, forked, flags) == []
    assert _differences(tmp_path, _report(noise_is_seeded=True, earlier=earlier), flags) == []
    assert 'has earlier plans, flags.txt does not' in _differences(tmp_path, forked)[0]
    assert 'has no earlier plans' in _differences(tmp_path, _report(), flags)[0]
