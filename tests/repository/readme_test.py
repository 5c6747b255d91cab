"""The README's examples run as they are printed, and their numbers are true."""

import re

import numpy as np
import pytest

from dpfl.runtime import contexts
from dpfl.tasks.text import synthetic_text
from dpfl.tasks.text.models import catalog
from tests import paths

_README = paths.ROOT / 'README.md'


@pytest.mark.tff
def test_an_aggregator_runs_and_prints_what_the_example_says(capsys):
    (example,) = re.findall(r'```python\n(.*?)```', _README.read_text(), re.S)
    task = synthetic_text.SyntheticText(vocabulary_size=60, sentence_length=6)
    names = {'model': catalog.build('tiny', task.num_tokens, 6, seed=0)}
    exec(example, names)
    printed = [float(number) for number in capsys.readouterr().out.split()]
    promised = [float(number) for number in re.search(r'# ([\d.]+), ([\d.]+)\n', example).groups()]
    np.testing.assert_allclose(printed, promised, atol=5e-5)
    data = [task.client_dataset(client, batch_size=4) for client in range(2)]
    with contexts.local_runtime():
        process = names['process']
        state = process.initialize()
        before = process.get_model_weights(state).trainable
        after = process.get_model_weights(process.next(state, data).state).trainable
    change = np.concatenate([np.ravel(a - b) for a, b in zip(after, before, strict=True)])
    # Two clients of 6,500 move the model little; the noise of the plan moves every coordinate.
    assert change.std() == pytest.approx(names['plan'].stddev / 6500, rel=0.2)


def test_the_readme_is_one_screen():
    text = _README.read_text()
    assert len(text.splitlines()) <= 90
    # What the pictures, the tables of the pages and the long lists hold is not said again.
    assert text.count('```') == 4


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
