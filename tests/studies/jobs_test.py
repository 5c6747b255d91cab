"""What the commands of a study are, and when one counts as done."""

import json

import pytest

from dpfl import errors
from dpfl.studies import definition, jobs
from tests.studies import small_study


def _study(**fields):
    return small_study.study(
        flags={'rounds': '4', 'clip_norm': '1'},
        lines={'no noise': {'clip_norm': None}, 'tree': {'strategy': '{prepared}/s_{seed}.npz'}},
        **fields,
    )


def test_all_points_of_a_seed_come_before_the_next_seed(tmp_path):
    made = jobs.runs(_study(), tmp_path, [1, 2], {})
    assert list(made) == [('no noise', 1), ('tree', 1), ('no noise', 2), ('tree', 2)]
    assert made['no noise', 2].name == 'runs/no_noise/seed_2'
    assert made['no noise', 2].folder == tmp_path / 'runs' / 'no_noise' / 'seed_2'


def test_points_of_a_seed_share_all_seeds_and_differ_in_their_flags(tmp_path):
    made = jobs.runs(_study(), tmp_path, [7], {})
    one, other = made['no noise', 7].flags, made['tree', 7].flags
    assert one['seed'] == one['noise_seed'] == other['seed'] == other['noise_seed'] == '7'
    assert 'clip_norm' not in one and other['clip_norm'] == '1'
    assert other['strategy'] == f'{tmp_path}/prepared/s_7.npz'
    assert '--resume=true' in made['tree', 7].arguments


def test_overrides_win_over_points_and_reach_preparations_that_share_them(tmp_path):
    preparation = definition.Preparation(
        'p_{seed}',
        'pretrain',
        {'seed': '{seed}', 'output': '{prepared}/p_{seed}'},
        shared=('rounds', 'model'),
    )
    study = _study(preparations=(preparation,))
    overrides = {'rounds': '9', 'clip_norm': '3'}
    made = jobs.runs(study, tmp_path, [1], overrides)
    assert 'clip_norm' not in made['no noise', 1].flags  # Taken away by that line.
    assert made['tree', 1].flags['clip_norm'] == '3' and made['tree', 1].rounds == 9
    prepared = jobs.preparations(study, tmp_path, [1, 2], overrides)
    assert [job.name for job in prepared] == ['prepared/p_1', 'prepared/p_2']
    assert prepared[1].flags == {
        'rounds': '9',
        'seed': '2',
        'output': f'{tmp_path}/prepared/p_2',
        'format': 'json',
    }
    assert prepared[1].rounds == 0
    # One that is the same for all seeds is made once.
    same = _study(preparations=(definition.Preparation('p', 'optimize_strategy', {}),))
    assert len(jobs.preparations(same, tmp_path, [1, 2, 3], {})) == 1


def test_a_job_is_done_when_it_is_recorded_and_only_with_its_flags(tmp_path):
    job = jobs.runs(_study(), tmp_path, [1], {})['tree', 1]
    assert job.result() is None and job.rounds_begun() == 0
    job.output.parent.mkdir()
    job.output.write_text(json.dumps({'accuracy': 0.5}))
    assert job.result() is None
    assert job.finish() == {'accuracy': 0.5} == job.result()
    other = jobs.runs(_study(), tmp_path, [1], {'rounds': '5'})['tree', 1]
    with pytest.raises(errors.RunError, match='--rounds=4, --rounds=5'):
        other.result()


def test_rounds_begun_are_those_of_the_ledger(tmp_path):
    job = jobs.runs(_study(), tmp_path, [1], {})['tree', 1]
    job.folder.mkdir(parents=True)
    (job.folder / 'ledger.jsonl').write_text('{"event": "built"}\n' + 2 * '{"event": "began"}\n')
    assert job.rounds_begun() == 2
