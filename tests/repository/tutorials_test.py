"""The tutorials run, and their saved outputs are of their code."""

import json
import re
import sys

import nbformat
import pytest

from scripts import tutorials

_NAMES = tutorials.names()


def _outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get('outputs', ())]


def _texts(notebook):
    for output in _outputs(notebook):
        yield output.get('text') or output.get('data', {}).get('text/plain', '')


@pytest.mark.parametrize('name', _NAMES)
def test_a_page_has_the_outputs_and_the_figures_of_its_source(name):
    """Outputs may differ: noise is random, and another machine has other speeds."""
    page, source = tutorials.page(name), tutorials.source(name)
    folder = tutorials.FOLDER / f'{name}_files'
    saved = json.loads((folder / 'outputs.json').read_text())
    assert saved['code'] == tutorials.digest(source), f'run scripts/tutorials.py {name}'
    # No progress bars, colours, tracebacks, notices of libraries.
    assert not re.search(r'[\r\x08\x1b]|Traceback|Warning|INFO:', page)
    linked = re.findall(rf'!\[[^\]]+\]\({name}_files/(\d+\.png)\)', page)
    assert linked and sorted(linked) == sorted(path.name for path in folder.glob('*.png'))


@pytest.mark.exhaustive
def test_the_kernel_is_that_of_this_environment():
    code = (
        'import sys, dpfl, pathlib\n'
        'from dpfl import _progress\n'
        'for _ in _progress.bar(range(3)): pass\n'
        'print(sys.prefix, pathlib.Path(dpfl.__file__).parent.parent)'
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    tutorials.execute(notebook)
    progress, printed = _texts(notebook)
    assert printed.split() == [sys.prefix, str(tutorials.ROOT)]
    assert re.fullmatch(r'3 of 3 steps \(100 %\), .*', progress.strip())


@pytest.mark.exhaustive
@pytest.mark.parametrize('name', _NAMES)
def test_a_notebook_runs_from_a_wheel(name, site):
    notebook = tutorials.notebook(name)
    tutorials.execute(notebook, site)
    assert 'computes a federated sum' in next(_texts(notebook))
    # A line that is written again and again; commands of a cell end their lines with both.
    assert not any(re.search(r'\r(?!\n)', text) for text in _texts(notebook))
    drawn = sum('image/png' in output.get('data', {}) for output in _outputs(notebook))
    assert drawn == len(list((tutorials.FOLDER / f'{name}_files').glob('*.png')))
