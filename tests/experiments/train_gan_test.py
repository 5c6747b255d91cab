"""The binary that trains GANs as its users meet it: results, a kill, and one-line errors."""

import functools
import json
import shutil

import pytest

from dpfl import accounting
from dpfl.accounting.records import archive
from dpfl.simulation import run_directory
from tests import forked_binaries
from tests.repository import threat_model

_SMALL = (
    '--model=tiny --rounds=3 --population=40 --clients_per_round=2 --client_max_batches=1 '
    '--client_batch_size=4 --eval_clients=1 --eval_every=3 --sampling=without_replacement '
    '--adjacency=replace_one_half_shift --delta=1e-3 --noise_multiplier=0.5 --noise_seed=1 '
    '--checkpoint_every=1'
).split()
_run = functools.partial(forked_binaries.run, 'train_gan', *_SMALL)


@pytest.fixture(scope='module', name='finished')
def _finished(tmp_path_factory):
    path = tmp_path_factory.mktemp('finished')
    flags = (f'--output_dir={path}', '--format=json')
    return path, _run(*flags, check=True)


@pytest.mark.exhaustive
@pytest.mark.tff
def test_a_finished_run_gets_back_what_is_computed_and_misses_what_was_made_once(
    finished, tmp_path
):
    path, result = shutil.copytree(finished[0], tmp_path / 'copied'), json.loads(finished[1].stdout)
    report = accounting.PrivacyReport.from_json((path / archive.REPORT).read_text())
    assert report.guarantee.epsilons == (result['epsilon'],) and report.noise_is_seeded
    assert threat_model.shared_by_mistake(path) == []
    listed = (path / 'SHA256SUMS').read_text()
    assert 'gan_report.md' in listed and 'generator/saved_model.pb' in listed
    for name in ('gan_report.md', 'SHA256SUMS'):  # As if the process had ended before them.
        (path / name).unlink()
    done = _run(f'--output_dir={path}', '--resume', check=True)
    assert 'is finished, all 3 rounds are done' in done.stderr
    assert run_directory.verify(path).is_verified
    page = (path / 'gan_report.md').read_text()
    (path / 'gan_report.md').write_text(page.replace('this run', 'that run'))
    (path / 'SHA256SUMS').write_text(archive.digests(path))
    (difference,) = run_directory.verify(path).differences
    assert difference.startswith('gan_report.md: says')
    shutil.rmtree(path / 'generator')
    done = _run(f'--output_dir={path}', '--resume')
    assert done.returncode == 1 and 'restore it from a copy' in done.stderr
