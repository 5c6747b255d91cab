"""The README's examples run as they are printed, and their numbers are true."""

import re

import numpy as np
import pytest
import tensorflow_federated as tff

from dpfl.tasks.text import synthetic_text
from dpfl.tasks.text.models import catalog
from tests import paths

_README = paths.ROOT / 'README.md'


def _examples():
    return re.findall(r'```python\n(.*?)```', _README.read_text(), re.S)


@pytest.mark.tff
def test_an_aggregator_runs_and_prints_what_the_example_says(capsys):
    _, example = _examples()
    task = synthetic_text.SyntheticText(vocabulary_size=60, sentence_length=6)
    names = {
        'model': catalog.build('tiny', task.num_tokens, 6, seed=0),
        'client_data': [task.client_dataset(client, batch_size=4) for client in range(2)],
    }
    exec(example, names)
    printed = [float(number) for number in capsys.readouterr().out.split()]
    promised = [float(number) for number in re.search(r'# ([\d.]+), ([\d.]+)\n', example).groups()]
    np.testing.assert_allclose(printed, promised, atol=5e-5)
    assert isinstance(names['process'], tff.learning.templates.LearningProcess)


@pytest.mark.slow
@pytest.mark.tff
def test_a_run_is_a_value(tmp_path, monkeypatch):
    example, _ = _examples()
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(example.replace('=30', '=2'), names)
    report = names['report']
    assert report.plan.participation.rounds == 2 and report.guarantee.epsilons[0] > 0
    assert (tmp_path / 'runs/notebook/privacy_report.json').is_file()


def test_commands_of_the_readme_exist():
    text = _README.read_text()
    root = _README.parent
    for name in re.findall(r'-m experiments\.(\w+)', text):
        assert (root / 'experiments' / f'{name}.py').is_file()
    for name in re.findall(r'(scripts/\w+\.sh|configs/[\w/.]+\.(?:flags|npz))', text):
        assert (root / name).is_file()
    for name in re.findall(r'\]\((docs/\S+?)\)', text):
        assert (root / name).is_file()


def test_the_readme_fits_its_width():
    lines = re.sub(r'```.*?```', '', _README.read_text(), flags=re.S).splitlines()
    assert [line for line in lines if len(line) > 120 and not line.startswith('|')] == []
