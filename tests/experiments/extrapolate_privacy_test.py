"""Published guarantees of large cohorts, from runs with small ones."""

import functools

import pytest

from dpfl import Participation, accounting, errors, mechanisms, planning
from dpfl.accounting.records import archive
from dpfl.cli.results import extrapolated_plans
from tests import forked_binaries

_run = functools.partial(forked_binaries.run, 'extrapolate_privacy')
_printed = functools.partial(forked_binaries.printed, 'extrapolate_privacy')


def _save(folder, plan, delta, accountant):
    record = archive.PlanRecord(plan, (delta,), accountant, True)
    (folder / archive.PLAN).write_text(record.to_json())
    mechanisms.save(plan.mechanism, folder / archive.STRATEGY)


def _sampled(sigma, clip_norm, **fields):
    """A run of [McMahan18]: 100 clients of 763,430, noise `sigma` on the mean."""
    values = dict(
        mechanism=mechanisms.Identity(5000),
        participation=Participation(5000),
        clip_norm=clip_norm,
        noise_multiplier=100 * sigma / clip_norm,
        clients_per_round=100,
        sampling=accounting.Poisson(population=763_430),
    )
    return accounting.PrivacyPlan(**{**values, **fields})


def test_document_001_table_2(tmp_path):
    # sigma = 0.003 and S = 15 with 100 clients; the table has 5000 of 763,430 and of 1e8.
    _save(tmp_path, _sampled(0.003, 15.0), 1e-9, 'moments')
    (tmp_path / 'metrics.csv').write_text('round,accuracy\n4998,\n4999,0.17\n5000,0.1749\n')
    flags = ('--populations=763430,100000000', '--cohorts=5000')
    found = _printed(f'--run_dir={tmp_path}', *flags)
    assert [row['noise_multiplier'] for row in found['rows']] == pytest.approx([1.0, 1.0])
    assert [round(row['epsilon'], 3) for row in found['rows']] == [4.634, 1.152]
    assert found['run']['accuracy of the run'] == 0.1749
    assert found['run']['stddev of the mean update'] == pytest.approx(0.003)


@pytest.mark.standard
def test_the_plot_has_a_line_for_each_population(tmp_path):
    _save(tmp_path, _sampled(0.006, 10.0), 1e-9, 'rdp')
    flags = ('--populations=1000000,20000', '--cohorts=2000,1000')
    rows = _printed(f'--run_dir={tmp_path}', *flags, f'--plot={tmp_path / "plot.png"}')['rows']
    assert (tmp_path / 'plot.png').read_bytes().startswith(b'\x89PNG')
    lines = extrapolated_plans.panel(rows).lines
    assert [line.label for line in lines] == ['1,000,000 clients', '20,000 clients']
    assert list(lines[0].x) == [1000, 2000]
    assert list(lines[0].y) == [rows[1]['epsilon'], rows[0]['epsilon']]


@pytest.mark.standard
def test_delta_follows_the_population(tmp_path):
    _save(tmp_path, _sampled(0.006, 10.0), 1e-9, 'rdp')
    flags = ('--populations=1000000', '--cohorts=1667', '--delta_power=1.1')
    (row,) = _printed(f'--run_dir={tmp_path}', *flags)['rows']
    assert row['delta'] == pytest.approx(1e6**-1.1)
    plan = planning.scaled(_sampled(0.006, 10.0), 1667, population=10**6)
    assert row['epsilon'] == plan.epsilon(1e6**-1.1, 'rdp')
    text = _run(f'--run_dir={tmp_path}', '--populations=1000000', '--cohorts=1000,1667')
    assert text.returncode == 0 and 'Assumptions:' in text.stdout


def _tree(**fields):
    values = dict(
        mechanism=mechanisms.BinaryTree(2000),
        participation=Participation(2000, 100, 20),
        clip_norm=0.3,
        noise_multiplier=7 * 500 / 6500,
        clients_per_round=500,
    )
    return accounting.PrivacyPlan(**{**values, **fields})


def test_a_run_without_noise_is_refused(tmp_path):
    _save(tmp_path, _sampled(0.0, 15.0), 1e-9, 'rdp')
    done = _run(f'--run_dir={tmp_path}', '--populations=1000', '--cohorts=10')
    assert done.returncode == 2 and 'has no noise' in done.stderr


def test_a_tree_with_the_production_cohort_has_the_published_rho():
    # [Xu23-accounting]: 6500 clients, min separation 314, noise multiplier 7; rho 0.8061 there is
    # for 6 participations, and a population that allows the separation allows 7.
    schema = extrapolated_plans.widest_schema(2000, 6500 * 314, 6500)
    plan = planning.scaled(_tree(), 6500, population=6500 * 314, participation=schema)
    assert plan.noise_multiplier == pytest.approx(7.0)
    assert plan.participation == Participation(2000, 314)
    limited = plan.with_participation(Participation(2000, 314, 6))
    assert limited.rho == pytest.approx(0.8061, abs=5e-5) and plan.rho > limited.rho


def test_a_separation_that_is_not_enforced_does_not_count():
    widest = functools.partial(extrapolated_plans.widest_schema, 2000)
    assert widest(6500 * 1000, 6500, 314) == Participation(2000, 314)
    assert widest(6500 * 50, 6500, 314) == Participation(2000, 50)
    assert widest(10**9, 6500) == Participation(2000, 2000)  # Once.


@pytest.mark.parametrize('kind', ['fixed', 'clipped'])
@pytest.mark.parametrize('weight', [None, 250.0])
def test_the_noise_on_the_mean_is_the_same_however_it_is_estimated(kind, weight):
    plan = _tree(estimator=accounting.Estimator(kind, weight, 1600.0))
    large = planning.scaled(plan, 5000, population=10**7)
    of_run = plan.stddev / plan.denominator
    assert large.stddev / large.denominator == pytest.approx(of_run)
    assert large.estimator.example_cap == 1600.0
    assert large.participation == plan.participation


def test_a_population_that_cannot_keep_the_separation_is_refused():
    assert planning.scaled(_tree(), 6500, population=650_000).sensitivity == _tree().sensitivity
    with pytest.raises(errors.ArgumentError, match='population=649999: must be an integer >= 6500'):
        planning.scaled(_tree(), 6500, population=649_999)


@pytest.mark.parametrize('count_stddev', [None, 25.0])
def test_the_share_of_the_noise_that_counts_have_stays(count_stddev):
    plan = _tree(
        mechanism=mechanisms.Restarted.every(mechanisms.BinaryTree(2000), 128, 1024),
        adaptive_clip=accounting.AdaptiveClip(0.5, count_stddev=count_stddev),
    )
    large = planning.scaled(plan, 5000, population=10**7)
    assert large.count_stddev == pytest.approx(10 * plan.count_stddev)
    assert large.update_noise_multiplier == pytest.approx(10 * plan.update_noise_multiplier)
