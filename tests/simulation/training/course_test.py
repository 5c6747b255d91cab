"""Runs that stop early, and runs that begin with the model of another one."""

import dataclasses
import math
import shutil

import numpy as np
import pytest

from dpfl import Participation, accounting, mechanisms
from dpfl.accounting.records import archive, journal
from dpfl.errors import ArgumentError
from dpfl.simulation import run_directory
from dpfl.simulation.training import fork, train
from dpfl.simulation.training.plan import build_plan, within_epsilon
from tests.accounting import archives
from tests.simulation.training import small_config

pytestmark = pytest.mark.usefixtures('undrawn')

_FORK = {'noise_multiplier': 4.0, 'clip_norm': 0.1, 'noise_seed': 6, 'rounds': 4}


def _plan(mechanism):
    return accounting.PrivacyPlan(
        mechanism=mechanism,
        participation=Participation(12, 2),
        clip_norm=1.0,
        noise_multiplier=2.9,
        clients_per_round=4,
    )


def test_a_run_has_as_many_rounds_as_epsilon_allows():
    plan = _plan(mechanisms.Blt(12, [0.9], [0.2]))
    epsilons = [
        plan.with_participation(plan.participation.within(t)).epsilon(1e-5, 'rdp')
        for t in range(1, 13)
    ]
    told: list[str] = []
    for target in np.linspace(epsilons[0], epsilons[-1] * 0.999, 7):
        found = within_epsilon(plan, float(target), 1e-5, 'rdp', told.append)
        rounds = sum(epsilon <= target for epsilon in epsilons)
        assert found.participation.rounds == rounds < 12
        assert found.epsilon(1e-5, 'rdp') <= target < epsilons[rounds]
    assert 'of 12 rounds, with epsilon' in told[0]
    assert within_epsilon(plan, epsilons[-1], 1e-5, 'rdp', told.append) == plan
    least = accounting.round_up(epsilons[0], 6)  # Rounded to nearest it was refused again.
    assert float(least) > epsilons[0] > float(f'{epsilons[0]:.6g}')
    with pytest.raises(ArgumentError, match=f'stop_at_epsilon=0.1: must be at least {least}, '):
        within_epsilon(plan, 0.1, 1e-5, 'rdp', told.append)
    assert within_epsilon(plan, float(least), 1e-5, 'rdp', told.append).participation.rounds == 1
    silent = dataclasses.replace(plan, noise_multiplier=0.0)
    with pytest.raises(ArgumentError, match='stop_at_epsilon=0.1: needs noise'):
        within_epsilon(silent, 0.1, 1e-5, 'rdp', told.append)
    full = _plan(mechanisms.FullHonakerTree(12))
    with pytest.raises(ArgumentError, match='cannot stop early'):
        within_epsilon(full, 0.1, 1e-5, 'rdp', told.append)


@pytest.fixture(scope='module', name='stopped')
def _stopped(tmp_path_factory):
    """A run of 3 of 12 rounds."""
    path = tmp_path_factory.mktemp('stopped') / 'run'
    long = small_config.BLT.with_values({'rounds': 12, 'min_separation': 2})
    short = long.with_values({'rounds': 3})
    plan = build_plan(short.privacy, short.sampling, population=None, dimension=None)
    config = long.with_values({'stop_at_epsilon': plan.epsilon(1e-3) * 1.0001})
    return path, config, train(config, path / 'run', progress=False)


@pytest.mark.standard
@pytest.mark.tff
def test_the_guarantee_is_that_of_the_rounds_that_are_run(stopped):
    path, config, result = stopped
    assert result.metrics['round'].tolist() == [1, 2, 3]
    assert result.report.guarantee.rounds == 3 and result.report.basis == 'plan'
    assert result.report.guarantee.epsilons[0] <= config.course.stop_at_epsilon
    assert run_directory.verify(path / 'run').differences == ()
    again = train(config, path / 'run', resume=True, progress=False)
    assert again.report == result.report
    less = config.with_values({'stop_at_epsilon': 0.99 * config.course.stop_at_epsilon})
    with pytest.raises(ArgumentError, match='stop_at_epsilon=.*: allows 2 rounds, and must allow'):
        train(less, path / 'run', resume=True, progress=False)


@pytest.mark.standard
@pytest.mark.tff
def test_an_accuracy_stops_a_run_and_leaves_its_guarantee(tmp_path, caplog):
    config = small_config.BLT.with_values({'rounds': 12, 'stop_at_accuracy': 1e-6, 'eval_every': 1})
    result = train(config, tmp_path / 'run', progress=False)
    done = len(result.metrics['round'])
    assert done < 12 and result.last['accuracy'] >= 1e-6
    assert (result.metrics['accuracy'][:-1] < 1e-6).all()
    # The rule reads data, so the rounds that it saves save no privacy.
    assert result.report.guarantee.rounds == 12
    assert result.report.observed.rounds == result.summary()['rounds'] == done
    assert 'This rule reads the data of the held-out clients' in result.report.history[0]
    assert any('reads held-out data without noise' in text for text in caplog.messages)
    assert run_directory.verify(tmp_path / 'run').differences == ()
    again = train(config, tmp_path / 'run', resume=True, progress=False)
    assert again.report == result.report and again.last == result.last


@pytest.mark.standard
@pytest.mark.tff
@pytest.mark.parametrize('kind, model', [('fork_from', 'run'), ('warm_start', 'run/saved_model')])
def test_a_run_that_begins_with_the_model_of_another_counts_it(stopped, tmp_path, kind, model):
    path, _, origin = stopped
    config = small_config.BLT.with_values({**_FORK, kind: str(path / model)})
    result = train(config, tmp_path / 'run', progress=False)
    began = archive.read_journal(tmp_path / 'run').of_kind(journal.Began)[0]
    assert began.model == journal.digest(origin.weights)
    plan = result.report.plan
    assert plan.earlier == (origin.report.plan,)
    (earlier,) = result.report.earlier_noise_key_digests
    assert earlier.startswith(f'{origin.report.noise_key_digest}:')
    own = dataclasses.replace(plan, earlier=())
    assert result.report.guarantee.mu == pytest.approx(math.hypot(own.mu, origin.report.plan.mu))
    assert plan.clip_norm == 0.1 and plan.noise_multiplier == 4.0
    assert 'together with the 1 earlier run(s)' in result.report.to_dict()['statement']
    assert result.metrics['epsilon'][0] > origin.report.guarantee.epsilons[0]
    assert run_directory.verify(tmp_path / 'run').differences == ()
    if kind == 'fork_from':
        assert 'begins with the model of an earlier run (3 rounds' in result.report.history[0]
        # The other directory may be gone: what was taken over is in the fork's own.
        moved = shutil.move(path / 'run', path / 'elsewhere')
        again = train(config, tmp_path / 'run', resume=True, progress=False)
        assert again.report == result.report
        shutil.move(moved, path / 'run')


@pytest.mark.parametrize('sampling', ['none', 'poisson'])
def test_a_fork_of_a_sampled_run_needs_another_seed_of_cohorts(sampling):
    fields = {} if sampling == 'none' else dict(sampling=accounting.Poisson(population=10))
    schema = dict(mechanism=mechanisms.Identity(6), participation=Participation(6))
    record = archives.make_record(**schema, **fields)
    config = small_config.BLT.with_values({'seed': 3, 'noise_seed': None})

    def require(seed, **data):
        built = journal.Built(record={}, configuration={'seed': seed}, data=data)
        state = journal.State(built=built)
        fork._require_other_seeds(config, state, fork._of_record(record, state, None))

    require(4)
    if sampling == 'none':
        require(3)
    # The run before the earlier one counts, too, whatever cohorts that one drew.
    for seed, data in ((3, {}), (4, {'earlier_seeds': [3]}))[sampling == 'none' :]:
        with pytest.raises(ArgumentError, match='seed=3: must not be that of an earlier run'):
            require(seed, **data)


@pytest.mark.parametrize('record', [archive.PLAN, archive.LEDGER])
@pytest.mark.parametrize(
    'model, run',
    [('.', '.'), ('saved_model', '.'), ('export', None), ('saved_model/saved_model', None)],
)
def test_the_run_of_a_model_is_the_folder_itself_or_that_of_its_saved_model(
    tmp_path, model, run, record
):
    folder, link = tmp_path / model, tmp_path / 'link'
    folder.mkdir(parents=True, exist_ok=True)
    link.symlink_to(folder)
    (tmp_path / record).touch()
    source = None if run is None else (tmp_path / run).resolve()
    assert fork._run_of_model(str(link)) == source
    (folder / record).touch()
    assert fork._run_of_model(str(link)) == folder.resolve()


@pytest.mark.standard
@pytest.mark.tff
def test_a_seed_does_not_come_back_after_several_forks(tmp_path):
    config = small_config.GAUSSIAN.with_values(
        {
            'sampling': 'poisson',
            'min_separation': 1,
            'rounds': 1,
            'seed': 3,
            'chosen_without_noise': ('clip_norm',),
        }
    )
    train(config, tmp_path / 'first', progress=False)
    second = {'fork_from': str(tmp_path / 'first'), 'seed': 4, 'noise_seed': 6, 'rounds': 2}
    for resume in (False, True):
        train(config.with_values(second), tmp_path / 'second', resume=resume, progress=False)
    longer = config.with_values({**second, 'rounds': 3})
    limits = train(longer, tmp_path / 'second', resume=True, progress=False).report.also_not_covered
    assert len(set(limits)) == len(limits)
    assert run_directory.verify(tmp_path / 'second').differences == ()
    again = config.with_values({'fork_from': str(tmp_path / 'second'), 'noise_seed': 7})
    for seed in (3, 4):
        with pytest.raises(ArgumentError, match='must not be that of an earlier run: the cohorts'):
            train(again.with_values({'seed': seed}), tmp_path / 'third', progress=False)
    with pytest.raises(ArgumentError, match='noise_key_digest'):
        same_noise = again.with_values({'seed': 5, 'noise_seed': config.noise_seed})
        train(same_noise, tmp_path / 'third', progress=False)


@pytest.mark.standard
@pytest.mark.tff
def test_another_warm_start_must_be_declared_public(stopped, tmp_path):
    run = stopped[0] / 'run'
    model = shutil.copytree(run / 'saved_model', tmp_path / 'model')
    values = {**_FORK, 'rounds': 1, 'min_separation': 1, 'warm_start': str(model)}
    config = small_config.BLT.with_values(values)
    with pytest.raises(ArgumentError, match='warm_start=.*: is not the model of a run.*is_public'):
        train(config, tmp_path / 'run', progress=False)
    public = config.with_values({'warm_start_is_public': True})
    of_run = {'warm_start': str(run)}
    assert fork.taken_over(config.with_values(of_run), None).plans
    assert fork.taken_over(public.with_values(of_run), None) == fork.Origin()
    report = train(public, tmp_path / 'run', progress=False).report
    values = report.to_dict()
    assert 'provided that the model that training began with is public' in values['statement']
    assert any('it is taken to be public' in each for each in values['not_covered'])
    assert not report.plan.earlier
    assert accounting.PrivacyReport.from_json(report.to_json()) == report
    assert run_directory.verify(tmp_path / 'run').differences == ()
    # The declaration is part of the run.
    with pytest.raises(ArgumentError, match='warm_start'):
        train(config, tmp_path / 'run', resume=True, progress=False)


@pytest.mark.standard
@pytest.mark.tff
@pytest.mark.parametrize('kind', ['fork_from', 'warm_start'])
def test_beginnings_that_are_refused(stopped, tmp_path, kind):
    for changes, message in (
        ({'noise_seed': 5}, 'noise_seed=5: must not be that of the earlier run'),
        ({'adjacency': 'replace_one'}, 'adjacency=replace_one: must be zero_out'),
        ({'model': 'tiny'}, 'same model|warm_start'),
        ({kind: 'absent'}, f'{kind}=absent: (must be the dir|is not the model)'),
    ):
        values = {**_FORK, kind: str(stopped[0] / 'run'), **changes}
        with pytest.raises(ArgumentError, match=message):
            train(small_config.BLT.with_values(values), tmp_path / 'fork', progress=False)
