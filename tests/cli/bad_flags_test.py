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
from tests.cli import accounting_command_lines
from tests.tasks.text import small_files

_SMALL_TEXT = (
    '--model=micro --mechanism=gaussian --noise_multiplier=1 --rounds=3 --clients_per_round=5 '
    '--min_separation=3 --delta=1e-6 --output_dir={out}'
)
_STACKOVERFLOW = f'{_SMALL_TEXT} --task=stackoverflow --vocabulary_file={{words}}'
_USER_TEXT = f'{_SMALL_TEXT} --task=user_text --data_path={{lines}} --vocabulary_file={{words}}'
_GAN = (
    '--model=tiny --rounds=3 --population=40 --clients_per_round=2 --delta=1e-3 '
    '--sampling=without_replacement --noise_multiplier=0.5 --output_dir={out}'
)
_DEBUG_TEXT = (
    '--flagfile=debug_text --vocabulary_size=96 --rounds=2 --min_separation=2 --population=40 '
    '--clients_per_round=4 --output_dir={out}'
)

# As `accounting_command_lines.REFUSED`.
_REFUSED = [
    *accounting_command_lines.REFUSED,
    (
        'studies.attack_membership',
        '',
        [
            ('', '--run_dir: must be given'),
            ('--run_dir=nowhere', '--run_dir=nowhere: must be the directory of a finished run'),
        ],
    ),
    (
        'studies.measure_exposure',
        '',
        [
            ('', '--run_dirs: must be given'),
            ('--run_dirs=nowhere --plot=a.b', '--plot=a.b: must end in'),
            ('--run_dirs=nowhere --data=/no/a.csv', '--data=/no/a.csv: must be in a directory'),
        ],
    ),
    (
        'studies.plant_secrets',
        '--output_dir={out}',
        [
            ('', '--rounds: must be given'),
            ('--secret_copies=0', '--secret_copies=0: must be an integer >= 1'),
            ('--secret_holders=1,1', '--secret_holders=(1, 1): must be different values, and at'),
            ('--secrets=1 --secret_words=5', '--secret_words=5: must leave at most 16777216'),
        ],
    ),
    (
        'audit_privacy',
        '--mechanism=gaussian',
        [
            ('', '--rounds: must be given'),
            ('--rounds=4', '--noise_multiplier: must be given'),
            ('--rounds=4 --noise_multiplier=0', '--noise_multiplier=0.0: must be > 0 for an audit'),
            ('--rounds=4 --noise_multiplier=1 --resume_after=4', '--resume_after=4: must be an'),
        ],
    ),
    (
        'studies.compare_generators',
        '',
        [('', '--output_dir: must be given')],
    ),
    (
        'studies.compare_vocabularies',
        '',
        [
            ('', '--data_path: must be given'),
            ('--epsilons=0', '--epsilons=0'),
            ('--task=synthetic_text --plot=/no/a.png', '--plot=/no/a.png: must be in a directory'),
        ],
    ),
    (
        'studies.make_dataset',
        '',
        [
            ('--data_path=x', '--output: must be given'),
            ('--data_path=x --output=/none/x', '--output=/none/x: must be in a directory'),
            ('--data_path=/none --output=x.parquet', '--data_path=/none: cannot be read (No such'),
            ('--data_path=x --output=x --text_column=y', '--text_column=y: needs --from=jsonl'),
        ],
    ),
    (
        'sample_text',
        '',
        [
            ('', '--output: missing'),
            ('--output=absent/texts.jsonl', '--output=absent/texts.jsonl: must be in a directory'),
            ('--output={words}', '{words}: exists already'),
            ('--output=texts.parquet', '--output=texts.parquet: must not have the name of a Parq'),
            ('--clients=0 --output=texts.jsonl', '--clients=0: must be an integer >= 1'),
        ],
    ),
    (
        'suggest',
        '--data_path=absent.jsonl',
        [('', '--data_path=absent.jsonl: cannot be read')],
    ),
    (
        'debug_images',
        '--output_dir={out}',
        [
            ('--inject_share=0.1', '--inject_share=0.1: needs inject'),
            ('--compare=fix', '--inject=: must name a fault for compare=fix'),
            ('--primary_model=/nowhere', '--primary_model=/nowhere: holds no classifier'),
            (
                '--primary_model=/a --primary_steps=9',
                '--primary_steps=9: needs primary_model=',
            ),
            ('--task=emnist', '--data_path: must be given'),
            ('--output_dir={log}/run', '/run: must be writable'),
        ],
    ),
    (
        'debug_text',
        _DEBUG_TEXT,
        [
            ('--inject_share=1,1', '--inject_share=1,1: must be different values'),
            ('--inject_share=1,x', '--inject_share=1,x: must be comma-separated numbers'),
            ('--inject=', '--inject_share=0.01,0.1,1.0: needs inject'),
            ('--inspect=T1,T4', '--inspect=T1,T4: T4 needs primary_model'),
            ('--inspect=T2 --primary_model=none', '--primary_model=none: must be a SavedModel'),
        ],
    ),
    (
        'studies.detection_power',
        '--flagfile=experiments/studies/detection_power_text.flags --output_dir={out}',
        [
            ('--epsilons=8,8', '--epsilons=8,8: must be different values'),
            ('--seeds=', '--seeds=: must be different values, at least one'),
        ],
    ),
    (
        'studies.detection_power_images',
        '--flagfile=experiments/studies/detection_power_images.flags --output_dir={out}',
        [
            ('--inject=', '--inject=: must name at least one fault'),
            ('--primary_model=mine --primary_steps=2500', '--primary_model=mine: must'),
        ],
    ),
    (
        'studies.label_images',
        '--output_dir={out}',
        [
            ('', '--run_dir: must be given'),
            ('--labels=x.csv --rater=tiny', '--rater=tiny: must not be given with labels'),
            ('--run_dir=nowhere', '--run_dir=nowhere: must be'),
            ('--rater_confidence=0.2', '--rater_confidence=0.2: needs a rater'),
        ],
    ),
    (
        'studies.compare_head_words',
        '',
        [
            ('--models=', '--models: must be given'),
            ('--models=/nowhere', '--models=/nowhere: must be a SavedModel of a language model'),
            ('--models=/nowhere --task=synthetic_glyphs', '--task=synthetic_glyphs: must be'),
        ],
    ),
    (
        'export_run',
        '',
        [
            ('', '--run_dir: must be given'),
            ('--run_dir={run}', '--output_dir: must be given'),
            ('--run_dir={run} --output_dir={run}/copy --public', 'copy: must not be within'),
            ('--run_dir={run} --output_dir={out}', '--public: must be given'),
            ('--run_dir={folder} --output_dir={out} --public', 'must hold a finished run'),
            ('--run_dir={out} --output_dir={out}x --public', 'out: must be a directory'),
        ],
    ),
    (
        'generate',
        '',
        [
            ('--model_dir=/nowhere', '--model_dir=/nowhere: must be a SavedModel'),
            ('--model_dir=x --temperature=1e-30', '--temperature=1e-30: must be a finite'),
            ('--model_dir=x --rank=9 --top_k=2', '--rank=9: cannot be combined with top_k'),
        ],
    ),
    (
        'pretrain',
        '--output=x',
        [('--public_text=/nowhere', '--public_text=/nowhere: cannot be')],
    ),
    (
        'studies.run_study',
        '--jobs=1 --output_dir={out}',
        [
            ('--study=none', '--study=none: must be a JSON file or one of'),
            ('--study=clip --seeds=1,b', '--seeds=1,b: must be'),
            ('--study=clip --override=rounds', '--override=rounds: must be'),
            ('--study=clip --override=seed=1', '--override=seed=1: must be'),
        ],
    ),
    (
        'train',
        '--flagfile=quickstart --output_dir={out}',
        [
            ('--rounds=abc', '--rounds=abc: must be an integer'),
            ('--task=usertext', 'emnist; the nearest is user_text'),
            ('--model=lstm', 'tiny; the nearest is lstm_256'),
            ('--target_epsilon=', '--target_epsilon=: must be a number'),
            ('--strategy=/nowhere/at.all', '--strategy=/nowhere/at.all: must be a file or one of'),
            (
                '--client_update=fedsgd --client_max_batches=2',
                '--client_max_batches=2: needs client_update=fedavg',
            ),
            ('--client_update=fedsgd --client_epochs=2', 'epochs=2: needs client_update=fedavg'),
            (
                '--example_cap=9 --client_epochs=2',
                '--client_max_batches=2: must not be given with example_cap and client_epochs=2',
            ),
            ('--adaptive_clip', ': must be >= 130 for adaptive_clip, whose clip norm first'),
            ('--match=rmse', '--match=rmse: must be QUANTITY:MECHANISM,NOISE_MULTIPLIER@ROUND or'),
            ('--delta=0.02', '--delta=0.02: must be <= 0.01; allow_large_delta accepts more'),
            ('--mechanism=none --strategy= --target_epsilon=1', 'mechanism=none has no noise'),
            ('--clip_each_batch --client_update=fedsgd', 'batch=True: needs client_update=fedavg'),
            ('--clip_schedule=a:1', 'clip_schedule'),
            ('--clip_schedule=2:0', 'clip_schedule'),
            ('--match=rho:1 --target_epsilon=1', 'cannot be combined with target_epsilon'),
            ('--population=100', '--population=100: must be at least 3000 for clients_per_round'),
            ('--output_dir={log}/run', '/run: must be writable (Not a directory)'),
            ('--ray=nowhere', '--ray=nowhere: must be local, auto or host:port'),
            ('--workers=a:1', '--workers: is gone; --ray=local, auto or host:port'),
            ('--worker_file=x', '--worker_file: is gone; --ray=local, auto or host:port'),
            ('--dry_run --resume', '--resume: cannot be combined with --dry_run'),
            ('--dry_run --overwrite', '--overwrite: cannot be combined with --dry_run'),
            ('--vocabulary_file=x', '--vocabulary_file: task=synthetic_text makes its own'),
        ],
    ),
    (
        'train',
        '--output_dir={out} --resume',
        [
            ('', '--output_dir={out}: has no run that --resume could continue'),
            ('--rounds=3', '--noise_multiplier: must be given'),
        ],
    ),
    (
        'train',
        _STACKOVERFLOW,
        [
            ('--data_path={truncated}', '--data_path={truncated}: is truncated, it has '),
            ('--data_path={damaged}', '--data_path={damaged}: must be an SQLite file'),
            (
                '--data_path={out}/none',
                '--data_path={out}/none: cannot be read (No such file or directory)',
            ),
            ('--data_path={sqlite} --population=13', '--population=13: must be <= 12, the clients'),
            ('--data_path={sqlite} --vocabulary_size=51', '--vocabulary_size=51: must be <= 50'),
            ('--data_path={sqlite} --vocabulary_file=', '--vocabulary_file: must be given'),
            (
                '--data_path={sqlite} --vocabulary_text={words}',
                '--vocabulary_text: cannot be combined with vocabulary_file',
            ),
            ('', '--data_path: must be given for task=stackoverflow, or download'),
            ('--download', '--data_path: must say where to download to; there is no cache'),
        ],
    ),
    (
        'train',
        _USER_TEXT,
        [
            ('--download', '--download: task=user_text has no data set'),
            ('--strict', '--data_path={lines}: line 181 is malformed: not JSON'),
            ('--client_column=user', '--client_column=user: must be one of the 2 columns: client'),
            ('--data_path={out}.parquet', 'out.parquet: cannot be read (No such'),
        ],
    ),
    (
        'train_gan',
        _GAN,
        [
            ('--population=1', '--population=1: must be an integer >= 2'),
            ('--scale=2', '--scale=2.0: needs scaled_population'),
            ('--scale=0.3 --scaled_population=9', '--scale=0.3: must make whole cohorts of 2'),
        ],
    ),
]


def _cases():
    for binary, shared, rows in _REFUSED:
        for flags, message in rows:
            yield pytest.param(binary, f'{shared} {flags}', message, id=f'{binary} {flags}')


@pytest.fixture(scope='module', name='names')
def _names(tmp_path_factory):
    """Files that the command lines name."""
    folder = tmp_path_factory.mktemp('files')
    names = ('run', 'folder', 'damaged', 'words', 'lines', 'sqlite', 'truncated', 'less', 'more')
    found = {name: folder / name for name in names}
    found |= {name: folder / f'{name}.npz' for name in ('log', 'empty')}
    found |= {name: folder / f'{name}.csv' for name in ('rows', 'times')}
    found |= {name: folder / f'{name}.pem' for name in ('key', 'public', 'open')}
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
    found['lines'] = found['lines'].rename(folder / 'lines.jsonl')
    with open(found['lines'], 'a') as file:
        file.write('{"client": \n')
    small_files.write_stackoverflow(found['sqlite'])
    whole = found['sqlite'].read_bytes()
    found['truncated'].write_bytes(whole[: len(whole) * 2 // 3])
    return found


def test_every_binary_has_command_lines_that_are_refused():
    assert {binary for binary, *_ in _REFUSED} == {*catalogue.binaries(), *catalogue.studies()}


@pytest.mark.standard
@pytest.mark.parametrize(('binary', 'flags', 'message'), _cases())
def test_a_bad_command_line_is_one_line_and_status_2(binary, flags, message, names, tmp_path):
    files = {**names, 'out': tmp_path / 'out'}
    done = forked_binaries.run(binary, *flags.format(**files).split())
    assert (done.returncode, done.stdout) == (2, ''), done.stderr
    *others, error = done.stderr.splitlines()
    assert error.startswith('error: ') and message.format(**files) in error
    assert not any('error' in line or 'Traceback' in line for line in others)
    assert not list(tmp_path.iterdir())
