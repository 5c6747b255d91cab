"""Command lines that are refused: one line of error, which names the flag, its value and the bound.

Bounds of single values are those of the settings (`tests/simulation/training/config_test.py`); here
are flags that contradict each other, texts, files, and what must be given.
"""

import pytest

from dpfl import ParticipationLog
from dpfl.accounting.records import archive
from dpfl.cli import catalogue
from tests import forked_binaries, keys
from tests.accounting import archives
from tests.tasks.text import small_files

_SMALL_TEXT = (
    '--model=micro --mechanism=gaussian --noise_multiplier=1 --rounds=3 --clients_per_round=5 '
    '--min_separation=3 --delta=1e-6 --output_dir={out}'
)
_STACKOVERFLOW = f'{_SMALL_TEXT} --task=stackoverflow --vocabulary_file={{words}}'
_USER_TEXT = f'{_SMALL_TEXT} --task=user_text --data_path={{lines}} --vocabulary_file={{words}}'
_DEBUG_TEXT = (
    '--flagfile=debug_text --vocabulary_size=96 --rounds=2 --min_separation=2 --population=40 '
    '--clients_per_round=4 --output_dir={out}'
)
_CYCLIC = (
    '--sampling=cyclic_poisson --population=171000 --clients_per_round=100 --rounds=2052 '
    '--delta=1e-6'
)
_BAND = '--mechanism=fichtenberger_toeplitz --bands=342 --noise_multiplier=1'
_SMALL_POPULATION = '--population=3000 --clients_per_round=100 --rounds=90 --timer_hours=24'

# Binary and flags that all of its command lines have: the others, and what the line says. A message
# that begins with a colon says it of the last of these flags.
_REFUSED = {
    ('report_privacy', '--mechanism=tree --noise_multiplier=7 --delta=1e-10'): [
        ('', '--rounds: must be given'),
        ('--rounds=abc', ': must be an integer'),
    ],
    ('report_privacy', '--mechanism=tree --rounds=20 --noise_multiplier=7 --delta=1e-10'): [
        ('--min_separation=21', ': must be <= 20, the rounds'),
        ('--min_separation=3 --max_participations=8', '8: must be <= 7, what rounds'),
        ('--sampling=poisson', ': needs --population'),
        (
            '--mechanism=gaussian --population=9 --sampling=truncated_poisson',
            '--cohort_cap: must be given with sampling=truncated_poisson',
        ),
        ('--population=10', ': cannot be given without sampling'),
        ('--tradeoff=maybe', ': must be true or false'),
        ('--flagfile=', '--flagfile: must be a file, or the name of a preset'),
        (
            '--compose_with={less} --selected_from=poisson:10',
            '--selected_from: cannot be combined with compose_with',
        ),
        ('--compose_with={less} --group_size=2', '--compose_with={less}: '),
        (
            '--mechanism=full_honaker_tree --restart_first=2 --restart_every=9',
            '--mechanism=full_honaker_tree: must be a mechanism that can have fewer rounds',
        ),
        ('--secagg', ': needs model_dimension'),
        (
            '--secagg --secagg_scale=9 --secagg_bits=9 --model_dimension=9',
            '--secagg_bits=9: cannot be combined with secagg_scale',
        ),
        ('--compose_with=absent', ': No such file'),
        ('--compose_with={damaged}', 'not a privacy report'),
        ('--run_dir={run}', '--mechanism: cannot be combined with --run_dir'),
        ('--bogus=1', "Unknown command line flag 'bogus'"),
        ('word', ': is not a flag'),
        ('--strategy=blt_b400', '--strategy: mechanism=tree does not take this parameter'),
        ('--mechanism=BLT', 'unscaled_block_blt; the nearest is blt'),
        ('--mechanism=blt --strategy=absent', ': must be a file or one'),
        ('--mechanism=blt --strategy={damaged}', 'cannot be read as a mech'),
        ('--mechanism=blt --blt_decay=x --blt_scale=1', '--blt_decay=x: must be'),
    ],
    (
        'report_privacy',
        '--mechanism=gaussian --sampling=poisson --population=90 --rounds=20 --noise_multiplier=1',
    ): [
        ('--estimated_population=9', ': needs a plan without sampling'),
    ],
    ('report_privacy', ''): [
        ('--compare={less}', ': must be two reports'),
        ('--compare {less} {more} {less}', 'must be two reports'),
        ('--compare {less} {damaged}', 'damaged: not a privacy report'),
        ('--compare {less} /dev/zero', '--compare=/dev/zero: Not a regular file'),
        ('--compare {less} {more} --format=html', ': must be text or json'),
        ('--compare {less} {more} --rounds=3', '--rounds: cannot be combined with --compare'),
        ('--compare {less} {more} --run_dir={run}', '--run_dir: cannot be combined with'),
        ('--compare {less} {more} --sign={key}', '--sign: cannot be combined with --compare'),
        ('--verify={less}', ': needs public_key'),
        ('--public_key={public}', ': needs verify'),
        ('--verify={less} --public_key={public} --rounds=3', '--rounds: cannot be combined'),
        ('--verify={less} --public_key={public} --format=html', ': must be text'),
        ('--verify={less} --public_key=absent', ': must be readable'),
        ('--verify={less} --public_key={key}', 'key.pem: must hold a public key'),
        ('--run_dir=absent', ': must be a directory'),
        ('--run_dir={folder}', 'must hold a finished run (SHA256SUMS is missing)'),
        ('--run_dir={run} --output={run}/a', '{run}/a: must not be within the run {run}'),
        ('--compare {run} {less} --output={run}/a', '{run}/a: must not be within the run'),
        ('--sign={key} --rounds=3', '--sign: needs --run_dir or --output'),
        ('--sign={key} --output=x', '--format=text: must be json with --sign'),
        ('--run_dir={run} --sign={key} --group_size=2', '--group_size: needs --output with'),
        ('--run_dir={run} --sign={open}', 'open.pem: must be of this user, and closed to'),
        ('--run_dir={run} --sign=absent', ': must be readable'),
        ('--run_dir={run} --participation_log=a.npz', '--participation_log: cannot be combined'),
        ('--after=x', ': needs run_dir'),
        ('--open', '--open=True: needs run_dir'),
        ('{less} {more}', '{less}: is not a flag'),
    ],
    ('report_privacy', '--mechanism=tree --rounds=12 --min_separation=4 --noise_multiplier=2'): [
        ('--participation_log=absent.csv', ': cannot be read'),
        ('--participation_log=absent.npz', 'absent.npz: is not a participation log'),
        ('--participation_log={rows}', 'has no row of round 1001 (1 such rounds)'),
        ('--round_times={rows}', ': needs timer_hours'),
        ('--timer_hours=4', '--timer_hours=4.0: needs round_times'),
        ('--missing_rounds=empty', ': needs participation_log'),
        ('--missing_rounds=empty --participation_log=a.npz', 'empty: needs a log of rows'),
        ('--estimated_population=9', '--clients_per_round: must be given'),
        ('--estimated_population=9 --clients_per_round=10', ': must be an integer >= 1 and <= 9'),
    ],
    (
        'report_privacy',
        '--mechanism=tree --noise_multiplier=2 --round_times={times} --timer_hours=5',
    ): [
        ('--rounds=11', ': must be 12, the rounds of round_times'),
        ('--min_separation=2', ': cannot be combined with timer_hours'),
        ('--max_participations=5', ': must be <= 4, what timer_hours'),
        ('--sampling=poisson --population=9', '--round_times: cannot be combined with sampl'),
    ],
    ('plan_privacy', '--population=9 --clients_per_round=3'): [
        ('--run_dir={out}', '{out}/plan.json: not the plan'),
        ('--run_dir={run} --clients_per_round=30', ': must be <= 9'),
        ('--run_dir={run} --plot=/no/x.png', ': must be in a directory'),
        ('--run_dir={run} --rounds=9', '--rounds: cannot be combined with --run_dir'),
        ('--run_dir={run} --target_rho=1', '--target_rho: cannot be combined with --run_dir'),
        ('--run_dir={run} --min_separation=9', ': must be'),
    ],
    ('optimize_strategy', '--rounds=48 --output={out}'): [
        ('--mechanism=switched_blt', ': must be one of'),
        ('--mechanism=blt --output=', '--output: must be given'),
        ('--mechanism=blt --bands=3', ': mechanism=blt has buffers'),
        ('--mechanism=banded --buffers=3', ': mechanism=banded has bands'),
        ('--mechanism=blt --output=/nowhere/a.npz', 'must be in a directory'),
    ],
    ('compare_mechanisms', '--rounds=60 --min_separation=20 --max_participations=3'): [
        ('--mechanisms=magic', ': must be one of gaussian'),
        ('--mechanisms=tree --values=a', ': must be comma-'),
        ('--mechanisms=tree --relative_to=blt', ': must'),
        ('--mechanisms=tree --relative_to=tree', '--relative_to=tree: needs plot'),
        ('--mechanisms=tree --delta=1e-6', '--delta=1e-06: needs noise_multiplier'),
        ('', '--mechanisms: must be given'),
        ('--mechanisms=banded:4@30/10 --values=60,90', 'has fewer rounds than every value'),
        ('--mechanisms=tree --data=/nowhere/a.csv', ': must be in a directory'),
    ],
    (
        'studies.optimize_sampling',
        '--rounds=4 --population=60 --clients_per_round=6 --delta=1e-5 --output={out}',
    ): [
        ('', '--target_epsilon: or target_error must be given'),
        ('--target_epsilon=2 --target_error=3', '--target_error=3.0: cannot be combined'),
        ('--target_epsilon=2 --output=/no/a.npz', ': must be in'),
    ],
    ('plan_privacy', '--population=4210000 --rounds=1900 --clients_per_round=6500'): [
        ('--mechanisms=tree', ': must have a noise multiplier, as in NAME=7'),
        ('--mechanisms= --noise_multiplier=7', '--mechanisms: must name at least one'),
        ('--noise_multiplier=7 --model_dimension=0', ': must be an'),
        ('--mechanisms=tree=x', ': must be NAME or NAME=NOISE_MULTIPLIER'),
        ('--mechanisms=tree=7,tree=7', '--mechanisms=tree=7: must not be given twice'),
        ('--mechanisms=blt:4=7', '--mechanisms=blt:4: must have the schema that it is made'),
        ('--mechanisms=banded:9@20/9=7', 'are all made for fewer rounds'),
        ('--mechanisms=tree=7 --noise_multiplier=7', 'cannot have a noise multiplier beside'),
        ('--mechanisms=tree=7 --mechanism=tree', ': cannot be combined with'),
        ('--mechanism=tree --noise_multiplier=7 --data=a', ': must end in .csv'),
        (
            '--mechanism=tree --simulated_clients_per_round=9 --simulated_noise_multiplier=0',
            '--simulated_noise_multiplier=0.0: must be a finite number > 0',
        ),
        (
            '--mechanism=tree --noise_multiplier=7 --simulated_clients_per_round=9',
            ': needs simulated_noise_multiplier',
        ),
    ],
    ('plan_privacy', _CYCLIC): [
        (f'{_BAND} --groups=5', ': must be at least 342'),
        (f'{_BAND} --min_separation=9', '--min_separation: cannot be'),
        (f'{_BAND} --availability=0.5', ': must be 1'),
        ('--target_epsilon=1', '--mechanism=auto: cannot be combined with sampling='),
        (f'{_BAND} --sampling=none --groups=9', ': needs a sampling that has it'),
    ],
    (
        'plan_privacy',
        '--population=4210000 --rounds=1900 --clients_per_round=6500 --mechanism=tree',
    ): [
        ('', '--noise_multiplier: must be given, or a target, or a simulation'),
        ('--target_epsilon=1e-9 --accountant=rdp', '--target_epsilon=1e-09: must be at least'),
        ('--noise_multiplier=7 --min_separation=700', ': must be <= 647'),
        ('--noise_multiplier=7 --sweep_rounds=10,x', ': must be comma-'),
        ('--noise_multiplier=7 --mechanism=auto', '--model_dimension: must be given'),
        ('--noise_multiplier=7 --timer_hours=24', '--timer_hours=24.0: needs round_minutes'),
        ('--noise_multiplier=7 --rounds_by_day=3,4', ': needs timer_hours'),
        (
            '--noise_multiplier=7 --timer_hours=5 --round_times={times} --rounds=12 '
            '--max_participations=5',
            ': must be <= 4, what 12 rounds and a timer of 5 hours',
        ),
        (
            '--noise_multiplier=7 --timer_hours=96 --rounds_by_day=3,4',
            '--timer_hours=96.0: must be < 96',
        ),
        (
            '--noise_multiplier=7 --timer_hours=9 --rounds_by_day=3 --round_minutes=4',
            '--rounds_by_day=3: cannot be combined with round_minutes',
        ),
        (
            '--noise_multiplier=7 --timer_hours=9 --round_minutes=4 --daily_pattern=1,2',
            ': must be 24 numbers, has 2 entries',
        ),
        ('--noise_multiplier=7 --timer_hours=9 --round_times=absent.csv', ': cannot be read'),
    ],
    ('reproduce_figures', '--only=002/fig10'): [
        ('--only=005', ': must be the beginning of one of 000/fig4, 001/table1'),
        ('--output_dir=', '--output_dir: must be given'),
        ('--output_dir=/dev/null/a', ': Not a directory'),
    ],
    ('reproduce_tables', ''): [
        ('--only=005', ': must be the beginning of a row id, such as 000'),
    ],
    ('simulate_population', _SMALL_POPULATION): [
        ('--output=absent/log.npz', ': must be in a directory'),
        ('--output={run}', ': must not be a directory'),
        ('--output=log.csv', '--output=log.csv: must end in .npz'),
    ],
    ('simulate_population', ''): [
        ('--population=60 --clients_per_round=50', '--rounds: must be given'),
    ],
    ('studies.attack_membership', ''): [
        ('', '--run_dir: must be given'),
    ],
    ('studies.measure_exposure', ''): [
        ('', '--run_dirs: must be given'),
        ('--run_dirs=nowhere --plot=a.b', ': must end in'),
        ('--run_dirs=nowhere --data=/no/a.csv', ': must be in a directory'),
    ],
    ('studies.plant_secrets', '--output_dir={out}'): [
        ('', '--rounds: must be given'),
        ('--secret_copies=0', ': must be an integer >= 1'),
        ('--secret_holders=1,1', '--secret_holders=(1, 1): must be different values, and at'),
        ('--secrets=1 --secret_words=5', ': must leave at most 16777216'),
    ],
    ('audit_privacy', '--mechanism=gaussian'): [
        ('', '--rounds: must be given'),
        ('--rounds=4', '--noise_multiplier: must be given'),
        ('--rounds=4 --noise_multiplier=0', '--noise_multiplier=0.0: must be > 0 for an audit'),
        (
            '--rounds=1 --noise_multiplier=1 --resume_after=1',
            '--resume_after=1: must be below the number of rounds, which is 1',
        ),
        ('--rounds=4 --noise_multiplier=1 --clip_schedule=4:1', ': must have no round after 3'),
    ],
    ('studies.compare_generators', ''): [
        ('', '--output_dir: must be given'),
    ],
    ('studies.compare_vocabularies', ''): [
        ('', '--data_path: must be given'),
        ('--epsilons=0', '--epsilons=0'),
        ('--task=synthetic_text --plot=/no/a.png', ': must be in a directory'),
    ],
    ('studies.make_dataset', ''): [
        ('--data_path=x', '--output: must be given'),
        ('--data_path=x --output=/none/x', ': must be in a directory'),
        ('--data_path=/none --output=x.parquet', '--data_path=/none: cannot be read (No such'),
        ('--data_path=x --output=x --text_column=y', ': needs --from=jsonl'),
    ],
    ('sample_text', ''): [
        ('', '--output: missing'),
        ('--output=absent/texts.jsonl', ': must be in a directory'),
        ('--output={words}', '{words}: exists already'),
        ('--output=texts.csv', ': must not be named as CSV or Parquet'),
        ('--clients=0 --output=texts.jsonl', '--clients=0: must be an integer >= 1'),
    ],
    ('suggest', '--data_path=absent.jsonl'): [
        ('', '--data_path=absent.jsonl: cannot be read'),
    ],
    ('debug_images', '--output_dir={out}'): [
        ('--inject_share=0.1', ': needs inject'),
        ('--compare=fix', '--inject=: must name a fault for compare=fix'),
        ('--primary_model=/nowhere', ': holds no classifier'),
        ('--primary_model=/a --primary_steps=9', ': needs primary_model='),
        ('--task=emnist', '--data_path: must be given'),
        ('--output_dir={log}/run', '/run: must be writable'),
    ],
    ('debug_text', _DEBUG_TEXT): [
        ('--inject_share=1,1', ': must be different values'),
        ('--inject_share=1,x', ': must be comma-separated numbers'),
        ('--inject=', '--inject_share=0.01,0.1,1.0: needs inject'),
        ('--inspect=T1,T4', ': T4 needs primary_model'),
        ('--inspect=T2 --primary_model=none', ': must be a SavedModel'),
    ],
    (
        'studies.detection_power',
        '--flagfile=experiments/studies/detection_power_text.flags --output_dir={out}',
    ): [
        ('--epsilons=8,8', ': must be different values'),
        ('--seeds=', ': must be different values, at least one'),
    ],
    (
        'studies.detection_power_images',
        '--flagfile=experiments/studies/detection_power_images.flags --output_dir={out}',
    ): [
        ('--inject=', ': must name at least one fault'),
        ('--primary_model=mine --primary_steps=2500', '--primary_model=mine: must'),
    ],
    ('studies.label_images', '--output_dir={out}'): [
        ('', '--run_dir: must be given'),
        ('--labels=x.csv --rater=tiny', ': must not be given with labels'),
        ('--run_dir=nowhere', ': must be'),
        ('--rater_confidence=0.2', ': needs rater'),
    ],
    ('studies.compare_head_words', ''): [
        ('--models=', '--models: must be given'),
        ('--models=/nowhere', ': must be a SavedModel of a language model'),
        ('--models=/nowhere --task=synthetic_glyphs', ': must be'),
    ],
    ('export_run', ''): [
        ('', '--run_dir: must be given'),
        ('--run_dir={run}', '--output_dir: must be given'),
        ('--run_dir={run} --output_dir={run}/copy --public', 'copy: must not be within'),
        ('--run_dir={run} --output_dir={out}', '--public: must be given'),
        ('--run_dir={folder} --output_dir={out} --public', 'must hold a finished run'),
        ('--run_dir={out} --output_dir={out}x --public', 'out: must be a directory'),
    ],
    ('generate', ''): [
        ('--model_dir=/nowhere', ': must be a SavedModel'),
        ('--model_dir=x --length=0', ': must be an integer'),
    ],
    ('pretrain', '--output=x'): [
        ('--public_text=/nowhere', ': cannot be'),
    ],
    ('studies.run_study', '--jobs=1 --output_dir={out}'): [
        ('--study=none', ': must be a JSON file or one of'),
        ('--study=clip --seeds=1,b', ': must be'),
    ],
    ('train', '--flagfile=quickstart --output_dir={out}'): [
        ('--task=usertext', 'emnist; the nearest is user_text'),
        ('--model=lstm', 'tiny; the nearest is lstm_256'),
        ('--target_epsilon=', ': must be a number'),
        ('--strategy=/nowhere/at.all', ': must be a file or one of'),
        ('--client_update=fedsgd --client_max_batches=2', ': needs client_update=fedavg'),
        ('--client_update=fedsgd --client_epochs=2', 'epochs=2: needs client_update=fedavg'),
        (
            '--example_cap=9 --client_epochs=2',
            '--client_max_batches=2: must not be given with example_cap and client_epochs=2',
        ),
        ('--delta=0.02', ': must be <= 0.01; allow_large_delta accepts more'),
        ('--mechanism=none --strategy= --target_epsilon=1', 'mechanism=none has no noise'),
        ('--clip_each_batch --client_update=fedsgd', 'batch=True: needs client_update=fedavg'),
        ('--clip_schedule=a:1', 'clip_schedule'),
        ('--population=100', ': must be at least 3000 for clients_per_round'),
        ('--output_dir={log}/run', '/run: must be writable (Not a directory)'),
        ('--workers=a:1', '--workers: is gone; --ray=local, auto or host:port'),
        ('--worker_file=x', '--worker_file: is gone; --ray=local, auto or host:port'),
        ('--dry_run --resume', ': cannot be combined with --dry_run'),
        ('--dry_run --overwrite', ': cannot be combined with --dry_run'),
        ('--vocabulary_file=x', '--vocabulary_file: task=synthetic_text makes its own'),
    ],
    ('train', '--output_dir={out} --resume'): [
        ('', '--output_dir={out}: has no run that --resume could continue'),
        ('--rounds=3', '--noise_multiplier: must be given'),
    ],
    ('train', _STACKOVERFLOW): [
        ('--data_path={out}/none', ': cannot be read (No such file or directory)'),
        ('--data_path={sqlite} --population=13', ': must be <= 12, the clients'),
        ('--data_path={sqlite} --vocabulary_file=', '--vocabulary_file: must be given'),
        (
            '--data_path={sqlite} --vocabulary_text={words}',
            '--vocabulary_text: cannot be combined with vocabulary_file',
        ),
        ('', '--data_path: must be given for task=stackoverflow, or download'),
        ('--download', '--data_path: must say where to download to; there is no cache'),
    ],
    ('train', _USER_TEXT): [
        ('--download', ': task=user_text has no data set'),
    ],
    ('train', f'{_SMALL_TEXT} --task=git_log --vocabulary=data'): [
        ('--data_path={folder} --client_column=x', ': needs task='),
    ],
    ('train_gan', '--model=tiny --rounds=3 --population=40 --clients_per_round=2'): [
        ('--output_dir={out}', '--noise_multiplier: must be given'),
    ],
}


def _cases():
    for (binary, shared), rows in _REFUSED.items():
        for flags, message in rows:
            yield pytest.param(binary, f'{shared} {flags}', message, id=f'{binary} {flags}')


@pytest.fixture(scope='module', name='names')
def _names(tmp_path_factory):
    """Files that the command lines name."""
    folder = tmp_path_factory.mktemp('files')
    names = 'run folder damaged words lines.jsonl sqlite less more log.npz empty.npz '
    names += 'rows.csv times.csv key.pem public.pem open.pem'
    found = {name.partition('.')[0]: folder / name for name in names.split()}
    for name in ('run', 'folder'):
        found[name].mkdir()
    archives.write(found['run'])
    for name in ('less', 'more'):
        found[name].write_bytes((found['run'] / archive.REPORT).read_bytes())
    keys.write(found['key'], found['public'])
    found['open'].write_bytes(found['key'].read_bytes())
    found['open'].chmod(0o644)
    ParticipationLog([[1, 2]] * 40).save(found['log'])
    ParticipationLog([[], []]).save(found['empty'])
    found['rows'].write_text('device,round\n1,1000\n2,1002\n1,1003\n')
    # A round an hour, but only every second hour at first.
    hours = [0, 2, 4, 6, *range(8, 16)]
    rows = ''.join(f'{t},{3600 * hour}\n' for t, hour in enumerate(hours))
    found['times'].write_text(f'round,start\n{rows}')
    found['damaged'].write_bytes(found['log'].read_bytes()[:200])
    small_files.write_vocabulary(found['words'])
    small_files.write_json_lines(found['lines'])
    small_files.write_stackoverflow(found['sqlite'])
    return found


def test_every_binary_has_command_lines_that_are_refused():
    assert {binary for binary, _ in _REFUSED} == {*catalogue.binaries(), *catalogue.studies()}


@pytest.mark.standard
@pytest.mark.parametrize(('binary', 'flags', 'message'), _cases())
def test_a_bad_command_line_is_one_line_and_status_2(binary, flags, message, names, tmp_path):
    files = {**names, 'out': tmp_path / 'out'}
    done = forked_binaries.run(binary, *flags.format(**files).split())
    if message.startswith(':'):
        message = f'error: {flags.split()[-1]}{message}'
    assert (done.returncode, done.stdout) == (2, ''), done.stderr
    *others, error = done.stderr.splitlines()
    assert error.startswith('error: ') and message.format(**files) in error
    assert not any('error' in line or 'Traceback' in line for line in others)
    assert not list(tmp_path.iterdir())
