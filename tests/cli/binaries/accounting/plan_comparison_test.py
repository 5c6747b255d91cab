"""The planning binary: several mechanisms in one plan, and noise that matches another mechanism."""

import functools
import json

import pytest

from dpfl import Participation, accounting, mechanisms, strategies
from dpfl.simulation.training.plan import build_plan
from dpfl.simulation.training.privacy_config import PrivacyConfig
from dpfl.simulation.training.sampling_config import SamplingConfig
from tests import forked_binaries

_run = functools.partial(forked_binaries.run, 'plan_privacy')
_ES_ES = ['--population=4210000', '--rounds=1900']
_PRODUCTION = 'honaker_tree=7,{blt}=7.379'

_PRODUCTION = 'honaker_tree=7,{blt}=7.379'


def _plan(*flags):
    done = _run(*flags, '--format=json')
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize('separation', [100, 400, 1000])
def test_production_mechanisms_over_rounds_as_in_document_002(tmp_path, separation):
    # Figure 9: BLT has the smaller rho in every round, with fixed separation.
    data, plot = tmp_path / 'rounds.json', tmp_path / 'rounds.png'
    blt = f'blt_b{separation}'
    done = _run(
        f'--population={6500 * separation}',
        '--clients_per_round=6500',
        '--rounds=3000',
        f'--mechanisms={_PRODUCTION.format(blt=blt)}',
        '--sweep_rounds=1000,2000,3000',
        f'--data={data}',
        f'--plot={plot}',
    )
    assert done.returncode == 0, done.stderr
    rows = {(row['mechanism'], row['rounds']): row for row in json.loads(data.read_text())}
    assert len(rows) == 6 and plot.stat().st_size > 5000
    for rounds in (1000, 2000, 3000):
        tree, other = rows['honaker_tree', rounds], rows[blt, rounds]
        assert other['rho'] < tree['rho'] and other['max_participations'] == -(
            -rounds // separation
        )
        direct = accounting.PrivacyPlan(
            mechanism=strategies.load(blt).with_rounds(rounds),
            participation=Participation(rounds, separation),
            clip_norm=1.0,
            noise_multiplier=7.379,
            clients_per_round=6500,
        )
        assert other['rho'] == direct.rho
        assert other['prefix_noise'] == 7.379 * direct.mechanism.max_error() / 6500


def test_larger_report_goals_as_in_document_002():
    # Figure 8b: noise that grows with the report goal gives a smaller rho, although the separation
    # that 10M clients allow becomes smaller; that of BLT is below that of the tree.
    flags = [
        '--population=10000000',
        '--rounds=2000',
        '--mechanisms=honaker_tree=7,blt_b400=7.379',
        '--simulated_clients_per_round=6500',
    ]
    swept = _plan(*flags, '--clients_per_round=6500', '--sweep_clients_per_round=3250,6500,13000')
    rho = {(row['mechanism'], row['clients_per_round']): row['rho'] for row in swept['plans']}
    noise = {row['clients_per_round']: row['noise_multiplier'] for row in swept['plans'][::2]}
    assert noise == {3250: 3.5, 6500: 7.0, 13000: 14.0}
    for cohort in (3250, 6500, 13000):
        assert rho['blt_b400', cohort] < rho['honaker_tree', cohort]
    assert rho['blt_b400', 13000] < rho['blt_b400', 6500] < rho['blt_b400', 3250]
    assert 'from 7 with 6500 clients, from 7.379 with 6500 clients' in ' '.join(
        swept['assumptions']
    )


def test_more_rounds_within_the_separation_cost_nothing_as_in_document_002():
    # Figure 8b: BandMF, whose columns have norm 1, while a client takes part in one round only.
    result = _plan(
        '--population=2000',
        '--clients_per_round=10',
        '--rounds=210',
        '--mechanisms=banded:20@210/200=2',
        '--sweep_rounds=50,100,200,210',
    )
    rho = [row['rho'] for row in result['plans']]
    assert rho[0] == pytest.approx(1 / 8, rel=1e-9)
    assert rho[1] == pytest.approx(rho[0], rel=1e-9) and rho[2] == pytest.approx(rho[0], rel=1e-9)
    assert rho[3] == pytest.approx(2 * rho[0], rel=1e-9)


def test_a_mechanism_made_for_fewer_rounds_has_no_plan_for_more():
    result = _plan(
        '--population=200',
        '--clients_per_round=10',
        '--rounds=60',
        '--mechanisms=banded:10@40/20=2,blt:2@40/20=2,best_banded:10=2',
        '--sweep_rounds=20,40,60',
    )
    rounds = {}
    for row in result['plans']:
        rounds.setdefault(row['mechanism'], []).append(row['rounds'])
    assert rounds == {
        'banded:10@40/20': [20, 40],
        'blt:2@40/20': [20, 40, 60],
        'best_banded:10': [20, 40, 60],
    }


def test_noise_that_matches_a_tree():
    # Section 5 of document 002: the same root mean square error as TreeAgg with 7.
    flags = ['--population=2600000', '--clients_per_round=6500', '--rounds=2000']
    flags += ['--mechanisms=honaker_tree,blt_b400,blt_b100']
    result = _plan(*flags, '--match=rmse:honaker_tree,7@1500', '--sweep_rounds=1000,2000')
    tree = mechanisms.HonakerTree(1500).rms_error()
    for row in result['plans']:
        expected = 7.0
        if row['mechanism'] != 'honaker_tree':
            own = strategies.load(row['mechanism']).with_rounds(1500)
            expected = 7 * tree / own.rms_error()
        assert row['noise_multiplier'] == pytest.approx(expected, rel=1e-12)
        assert row['matched_value'] == pytest.approx(7 * tree, rel=1e-12)
    assert 'over the first 1500 rounds' in ' '.join(result['assumptions'])
    result = _plan(*flags, '--match=rho:blt_b400,7.379', '--accountant=analytic_gaussian')
    assert {round(row['rho'] / result['plans'][1]['rho'], 9) for row in result['plans']} == {1.0}
    assert result['plans'][1]['noise_multiplier'] == pytest.approx(7.379, rel=1e-12)


def test_one_mechanism_with_matched_noise_is_that_of_a_run():
    [row] = _plan(
        *_ES_ES,
        '--clients_per_round=6500',
        '--min_separation=300',
        '--mechanism=full_honaker_tree',
        '--match=prefix_noise:honaker_tree,7@1000',
    )['plans']
    privacy = PrivacyConfig(mechanism='full_honaker_tree', match='prefix_noise:honaker_tree,7@1000')
    sampling = SamplingConfig(rounds=1900, min_separation=300, clients_per_round=6500)
    run = build_plan(privacy, sampling, population=lambda: 4210000, dimension=lambda: 1)
    # Equal but for rounding: the two processes use other numbers of threads.
    assert row['noise_multiplier'] == pytest.approx(run.noise_multiplier, rel=1e-13)
    assert row['rho'] == pytest.approx(run.rho, rel=1e-13)
    assert row['matched_value'] == pytest.approx(run.noise_match.value, rel=1e-13)


@pytest.mark.parametrize(
    'flags, message',
    [
        (['--mechanisms=tree'], '--mechanisms=tree: must have a noise multiplier, as in NAME=7'),
        (['--mechanisms=magic=7'], '--mechanisms=magic: must be one of gaussian'),
        (['--mechanisms=tree=x'], '--mechanisms=tree=x: must be NAME or NAME=NOISE_MULTIPLIER'),
        (['--mechanisms=tree=7,tree=7'], '--mechanisms=tree=7: must not be given twice'),
        (['--mechanisms=blt:4=7'], '--mechanisms=blt:4: must have the schema that it is made for'),
        (['--mechanisms=banded:9@20/9=7'], 'are all made for fewer rounds'),
        (
            ['--mechanisms=tree=7', '--noise_multiplier=7'],
            '--mechanisms=tree: cannot have a noise multiplier beside',
        ),
        (['--mechanisms=tree=7', '--mechanism=tree'], '--mechanism=tree: cannot be combined with'),
        (
            ['--mechanisms=tree=7', '--strategy=blt_b100'],
            '--strategy=blt_b100: mechanism=auto has no such parameter',
        ),
        (['--mechanisms=tree=7', '--bands=4'], '--bands=4: mechanism=auto has no such parameter'),
        (['--mechanism=tree', '--match=rmse:tree,7@1901'], 'must have a round from 1 to 1900'),
        (['--mechanism=tree', '--match=rmse'], '--match=rmse: must be QUANTITY:MECHANISM'),
        (['--mechanism=tree', '--match=rho:1', '--target_rho=1'], '--match: cannot be combined'),
        (['--mechanism=tree', '--noise_multiplier=7', '--data=a'], '--data=a: must end in .csv'),
        (
            ['--mechanism=tree', '--noise_multiplier=7', '--simulated_clients_per_round=9'],
            '--simulated_clients_per_round=9: needs simulated_noise_multiplier',
        ),
    ],
)
def test_bad_comparisons_are_one_line_and_status_2(flags, message):
    done = _run(*_ES_ES, '--clients_per_round=6500', *flags)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith('error: ') and done.stderr.count('\n') == 1
    assert message in done.stderr
