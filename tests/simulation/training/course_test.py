"""Runs that stop early, and runs that begin with the model of another one."""

import dataclasses
import math
import shutil

import pytest

from dpfl import Participation, accounting, mechanisms
from dpfl.accounting.records import archive, journal
from dpfl.errors import ArgumentError
from dpfl.simulation import run_directory
from dpfl.simulation.training import train, warm_start
from tests import text_files
from tests.accounting import archives
from tests.simulation.training import small_config
from tests.sizes import trains

pytestmark = pytest.mark.usefixtures('undrawn')

_WARM = {'noise_multiplier': 4.0, 'clip_norm': 0.1, 'noise_seed': 6, 'rounds': 4}


@pytest.fixture(scope='module', name='earlier')
def _earlier(tmp_path_factory):
    """A run of 3 rounds."""
    path = tmp_path_factory.mktemp('earlier') / 'run'
    config = small_config.BLT.with_values({'rounds': 3, 'min_separation': 2})
    return path, train(config, path)


@trains
def test_an_accuracy_stops_a_run_and_leaves_its_guarantee(tmp_path, caplog):
    config = small_config.BLT.with_values({'rounds': 12, 'stop_at_accuracy': 1e-6, 'eval_every': 1})
    result = train(config, tmp_path / 'run')
    done = len(result.metrics['round'])
    assert done < 12 and result.last['accuracy'] >= 1e-6
    assert (result.metrics['accuracy'][:-1] < 1e-6).all()
    # The rule reads data, so the rounds that it saves save no privacy.
    assert result.report.guarantee.rounds == 12
    assert result.report.observed.rounds == result.summary()['rounds'] == done
    assert 'This rule reads the data of the held-out clients' in result.report.history[0]
    assert any('reads held-out data without noise' in text for text in caplog.messages)
    assert run_directory.verify(tmp_path / 'run').differences == ()
    again = train(config, tmp_path / 'run', resume=True)
    assert again.report == result.report and again.last == result.last


@trains
def test_a_run_that_begins_with_the_model_of_another_counts_it(earlier, tmp_path):
    path, origin = earlier
    config = small_config.BLT.with_values({**_WARM, 'warm_start': str(path / 'saved_model')})
    result = train(config, tmp_path / 'run')
    began = archive.read_journal(tmp_path / 'run').of_kind(journal.Began)[0]
    assert began.model == journal.digest(origin.weights)
    plan = result.report.plan
    assert plan.earlier == (origin.report.plan,)
    (key,) = result.report.earlier_noise_key_digests
    assert key.startswith(f'{origin.report.noise_key_digest}:')
    own = dataclasses.replace(plan, earlier=())
    assert result.report.guarantee.mu == pytest.approx(math.hypot(own.mu, origin.report.plan.mu))
    assert plan.clip_norm == 0.1 and plan.noise_multiplier == 4.0
    assert 'together with the 1 earlier run(s)' in result.report.to_dict()['statement']
    assert result.metrics['epsilon'][0] > origin.report.guarantee.epsilons[0]
    assert run_directory.verify(tmp_path / 'run').differences == ()
    assert 'begins with the model of an earlier run (3 rounds' in result.report.history[0]


@pytest.mark.parametrize('sampling', ['none', 'poisson'])
def test_a_fork_of_a_sampled_run_needs_another_seed_of_cohorts(sampling):
    fields = {} if sampling == 'none' else dict(sampling=accounting.Poisson(population=10))
    schema = dict(mechanism=mechanisms.Identity(6), participation=Participation(6))
    record = archives.make_record(**schema, **fields)
    config = small_config.BLT.with_values({'seed': 3, 'noise_seed': None})

    def require(seed, **data):
        built = journal.Built(record={}, configuration={'seed': seed}, data=data)
        state = journal.State(built=built)
        warm_start._require_other_seeds(config, state, warm_start._of_record(record, state, None))

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
    assert warm_start._run_of_model(str(link)) == source
    (folder / record).touch()
    assert warm_start._run_of_model(str(link)) == folder.resolve()


@trains
def test_a_seed_does_not_come_back_after_several_runs(tmp_path):
    text_files.write_clients(tmp_path / 'a.jsonl', 20, sentences=3)
    text_files.write_words(tmp_path / 'words.txt')
    config = small_config.GAUSSIAN.with_values(
        {
            'task': 'user_text',
            'data_path': str(tmp_path / 'a.jsonl'),
            'vocabulary_file': str(tmp_path / 'words.txt'),
            'vocabulary_size': None,
            'sampling': 'poisson',
            'min_separation': 1,
            'rounds': 1,
            'seed': 3,
            'chosen_without_noise': ('clip_norm',),
        }
    )
    train(config, tmp_path / 'first')
    second = {'warm_start': str(tmp_path / 'first'), 'seed': 4, 'noise_seed': 6, 'rounds': 2}
    for resume in (False, True):
        train(config.with_values(second), tmp_path / 'second', resume=resume)
    longer = config.with_values({**second, 'rounds': 3})
    limits = train(longer, tmp_path / 'second', resume=True).report.also_not_covered
    assert len(set(limits)) == len(limits)
    assert run_directory.verify(tmp_path / 'second').differences == ()
    again = config.with_values({'warm_start': str(tmp_path / 'second'), 'noise_seed': 7})
    for seed in (3, 4):
        with pytest.raises(ArgumentError, match='must not be that of an earlier run: the cohorts'):
            train(again.with_values({'seed': seed}), tmp_path / 'third')
    with pytest.raises(ArgumentError, match='noise_key_digest'):
        same_noise = again.with_values({'seed': 5, 'noise_seed': config.noise_seed})
        train(same_noise, tmp_path / 'third')


@trains
def test_another_warm_start_must_be_declared_public(earlier, tmp_path):
    run = earlier[0]
    model = shutil.copytree(run / 'saved_model', tmp_path / 'model')
    values = {**_WARM, 'rounds': 1, 'min_separation': 1, 'warm_start': str(model)}
    config = small_config.BLT.with_values(values)
    with pytest.raises(ArgumentError, match='warm_start=.*: is not the model of a run.*is_public'):
        train(config, tmp_path / 'run')
    public = config.with_values({'warm_start_is_public': True})
    of_run = {'warm_start': str(run)}
    assert warm_start.taken_over(config.with_values(of_run), None).plans
    assert warm_start.taken_over(public.with_values(of_run), None) == warm_start.Origin()
    report = train(public, tmp_path / 'run').report
    values = report.to_dict()
    assert 'provided that the model that training began with is public' in values['statement']
    assert any('it is taken to be public' in each for each in values['not_covered'])
    assert not report.plan.earlier
    assert accounting.PrivacyReport.from_json(report.to_json()) == report
    assert run_directory.verify(tmp_path / 'run').differences == ()
    # The declaration is part of the run.
    with pytest.raises(ArgumentError, match='warm_start'):
        train(config, tmp_path / 'run', resume=True)


@trains
def test_beginnings_that_are_refused(earlier, tmp_path):
    for changes, message in (
        ({'noise_seed': 5}, 'noise_seed=5: must not be that of the earlier run'),
        ({'adjacency': 'replace_one'}, 'adjacency=replace_one: must be zero_out'),
        ({'model': 'tiny'}, 'warm_start'),
        ({'warm_start': 'absent'}, 'warm_start=absent: is not the model'),
    ):
        values = {**_WARM, 'warm_start': str(earlier[0]), **changes}
        with pytest.raises(ArgumentError, match=message):
            train(small_config.BLT.with_values(values), tmp_path / 'fork')
