"""Shell blocks of pages run as they are copied, from a wheel, in the order of a page.

Each page begins in a folder that has nothing but the files that the page takes to be there.
"""

import collections
import json
import mailbox
import os
import random
import re
import shutil
import subprocess
import sys

import pyarrow
import pytest
from pyarrow import parquet

from dpfl.simulation.training import train
from tests import paths
from tests.simulation.training import small_config
from tests.tasks.images import emnist_files
from tests.tasks.text import repositories

_PAGES = sorted(
    page.relative_to(paths.ROOT).as_posix()
    for page in paths.ROOT.glob('docs/**/*.md')
    if '```sh\n' in page.read_text()
)
_BLOCK = re.compile(r'^```sh\n(.*?)^```$', re.DOTALL | re.MULTILINE)
# What is in capital letters is for the reader to fill in.
_PLACEHOLDER = re.compile(r'=[A-Z]{2,}')
# What a page says is the same for a wheel.
_OF_A_WHEEL = {
    './scripts/quickstart.sh': 'dpfl train --flagfile=quickstart --output_dir=runs/quickstart'
}
# Commands that do not run here, by how they begin.
_NOT_HERE = {
    './scripts/': 'of a checkout; .ci/run begins with them',
    'source ': 'of a checkout',
    '.venv/bin/python benchmarks/': 'minutes to hours, of a checkout',
    'dpfl reproduce_': 'minutes; tests/experiments runs all of them',
    'pip install': 'the wheel is unpacked; scripts/wheel.sh --try installs it',
    'python -m experiments.studies.detection_power': 'hours; tests/studies/every_study_test.py',
    'python -m experiments.studies.run_study': 'hours; tests/studies/every_study_test.py',
    'python -m experiments.studies.compare_generators': 'of two studies; tests/studies',
}
# Flags that are put behind the others where these are among them, so that a run takes seconds.
_FEW = '--rounds=3 --clients_per_round=4 --min_separation=3 --max_participations=1 --eval_clients=4'
_GENERATORS = f'--samples=300 {_FEW}'
_GANS = (
    '--population=60 --primary_clients=40 --primary_model=tiny --primary_steps=60 --model=tiny '
    '--rounds=2 --clients_per_round=4 --samples=40 --client_max_batches=1 --eval_clients=1'
)
_SHORTER = {
    '--flagfile=quickstart': '--rounds=3',
    '--output=mine.flags': '--rounds=20',
    '--flagfile=synthetic_text.blt': '--rounds=3',
    '--flagfile=debug_text': f'--population=40 --inject_share=1 {_GENERATORS}',
    '--vocabulary_text=public.txt': f'--vocabulary_size=50 {_GENERATORS}',
    '--flagfile=commit_messages.debug': f'--vocabulary_size=50 {_GENERATORS}',
    '--flagfile=debug_images': _GANS,
    '--primary_model=my_classifier': f'{_GANS} --clients_per_round=1',
    '--noise_multiplier=2': '--seed=1',  # Otherwise one of twenty right audits exceeds.
    '--flagfile=user_text.blt': _FEW,
    '--flagfile=git_log.blt': _FEW,
    '--flagfile=git_log.none': '--rounds=2',
}
_PYTHON = """\
#!/bin/sh
exec "{python}" "$@"
"""
_DPFL = """\
#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import os, sys
arguments = sys.argv[1:]
for given, shorter in {shorter!r}.items():
    if given in arguments:
        arguments += shorter.split()
os.execv(sys.executable, [sys.executable, '-m', 'dpfl', *arguments])
"""


def _commands(block):
    """The commands of a block, without what does not run here."""
    for line in re.sub(r'\\\n\s*', '', block).splitlines():
        line = _OF_A_WHEEL.get(line, line)
        if not line.startswith(tuple(_NOT_HERE)) and not _PLACEHOLDER.search(line):
            yield line


def _commands_of(page):
    blocks = _BLOCK.findall((paths.ROOT / page).read_text())
    return [command for block in blocks for command in _commands(block)]


_PAGES_WITH = collections.Counter(command for page in _PAGES for command in _commands_of(page))
_OUTPUT = re.compile(r'--output(?:_dir)?=(\S+)')


def _write_texts(folder):
    """Text of 400 clients, in the forms of `docs/own_data.md`, with its words."""
    draw = random.Random(0)
    words = [f'word{i}' for i in range(60)]
    rows = [
        {'client': f'client {i}', 'text': ' '.join(draw.choices(words, range(60, 0, -1), k=8))}
        for i in range(400)
        for _ in range(6)
    ]
    (folder / 'texts.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / 'texts.parquet')
    (folder / 'words.txt').write_text('\n'.join(words))
    (folder / 'public.txt').write_text('\n'.join(row['text'] for row in rows))
    (folder / 'messages.parquet').symlink_to('texts.parquet')
    (folder / 'data').mkdir()
    for name in ('commit', 'public'):
        (folder / 'data' / f'{name}_messages.parquet').symlink_to(folder / 'texts.parquet')


def _write_mail(folder):
    box = mailbox.mbox(folder / 'list.mbox')
    for i in range(6):
        message = mailbox.mboxMessage()
        message['From'] = f'Somebody <somebody{i}@example.org>'
        message.set_payload('The parser is slow with long lines.\n')
        box.add(message)
    box.close()


def _write_repositories(folder):
    for name in ('curl', 'git', 'requests'):
        repositories.of_authors(folder / name, authors=150)


def _write_more_repositories(folder):
    (folder / 'data').mkdir()
    for name in 'ansible buildroot curl git moby nova puppet rails symfony u-boot'.split():
        repositories.of_authors(folder / name, authors=5)


def _write_round_times(folder):
    rows = [f'{i},{1e9 + 360 * i}' for i in range(2100)]
    (folder / 'times.csv').write_text('\n'.join(['round,start', *rows]))


def _write_runs(folder):
    for name in ('a', 'b', 'blt'):
        train(small_config.BLT.with_values({'noise_seed': None}), folder / 'runs' / name)


def _write_images(folder):
    emnist_files.write_sqlite(folder / 'emnist_all.sqlite', {f'f{i:04}_00': 9 for i in range(600)})


# What a page takes its reader to have.
_FILES = {
    'docs/install.md': [_write_texts],
    'docs/debug_images.md': [_write_images],
    'docs/debug_text.md': [_write_texts],
    'docs/papers/real_text_results.md': [_write_more_repositories],
    'docs/papers/studies.md': [_write_runs],
    'docs/own_data.md': [_write_texts, _write_mail, _write_repositories],
    'docs/production.md': [_write_round_times],
    'docs/read_the_report.md': [_write_runs],
    'docs/reference/files.md': [_write_runs],
}


@pytest.fixture(name='run')
def _run(site, tmp_path):
    """Runs a block in a folder in which `dpfl` and `python` are those of the wheel."""
    programs, folder = tmp_path / 'bin', tmp_path / 'folder'
    programs.mkdir()
    folder.mkdir()
    (folder / 'experiments').symlink_to(paths.ROOT / 'experiments')
    for name, text in (('python', _PYTHON), ('dpfl', _DPFL)):
        (programs / name).write_text(text.format(python=sys.executable, shorter=_SHORTER))
        (programs / name).chmod(0o755)
    environment = {
        **os.environ,
        'BROWSER': 'true',
        'PATH': f'{programs}:{os.environ["PATH"]}',
        'PYTHONPATH': str(site),
        'DPFL_CACHE_DIR': str(tmp_path / 'cache'),
    }

    def run(command):
        return subprocess.run(
            ['bash', '-c', command], cwd=folder, env=environment, capture_output=True, text=True
        )

    return folder, run


def test_the_readme_has_no_commands_but_those_of_pages():
    assert set(_commands_of('README.md')) <= set(_PAGES_WITH)


@pytest.fixture(scope='module', name='kept')
def _kept(tmp_path_factory):
    """By command that several pages have: what it wrote on the first of them.

    Such commands read what is the same on all of these pages.
    """
    shared = [command for command, pages in _PAGES_WITH.items() if pages > 1]
    return {command: tmp_path_factory.mktemp('kept') / 'written' for command in shared}


@pytest.mark.exhaustive
@pytest.mark.tff
@pytest.mark.parametrize('page', _PAGES)
def test_blocks_of_a_page_run_in_their_order(page, run, kept):
    folder, run = run
    for write in _FILES.get(page, ()):
        write(folder)
    for command in _commands_of(page):
        written = kept.get(command)
        if written and written.exists():
            _copy(written, folder / _OUTPUT.search(command)[1])
            continue
        done = run(command)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        if written and (output := _OUTPUT.search(command)):
            _copy(folder / output[1], written)


def _copy(source, target):
    target.parent.mkdir(exist_ok=True)
    (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
