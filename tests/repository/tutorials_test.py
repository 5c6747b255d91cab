"""The tutorials run, and their saved outputs are of their code."""

import html
import json
import os
import re
import sys
import threading
import time

import jupyter_client
import nbformat
import pytest

from dpfl.simulation import run_directory
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
    installs_tff = 'computes a federated sum' in next(_texts(notebook))
    assert installs_tff == (name not in tutorials.WITHOUT_TFF)
    # A line that is written again and again; commands of a cell end their lines with both.
    assert not any(re.search(r'\r(?!\n)', text) for text in _texts(notebook))
    drawn = sum('image/png' in output.get('data', {}) for output in _outputs(notebook))
    assert drawn == len(list((tutorials.FOLDER / f'{name}_files').glob('*.png')))


_TRAIN = """\
from tests.simulation.training import small_config
changes = {'rounds': 60, 'population': 240, 'min_separation': 60}
small_config.train(small_config.BLT.with_values(changes), 'run', resume=True)
"""


@pytest.mark.exhaustive
def test_a_cell_can_be_interrupted_and_shows_the_page_of_its_result(tmp_path):
    """The kernel lives on, and the same cell continues the run."""
    manager, client = jupyter_client.manager.start_new_kernel(
        cwd=tmp_path, env={**os.environ, 'PYTHONPATH': str(tutorials.ROOT)}
    )
    shown = []

    def interrupt():
        while not (tmp_path / 'run' / 'cohorts.bin').exists():
            time.sleep(0.1)
        manager.interrupt_kernel()

    def keep(message):
        if page := message['content'].get('data', {}).get('text/html'):
            shown.append(page)

    try:
        threading.Thread(target=interrupt, daemon=True).start()
        reply = client.execute_interactive(_TRAIN, timeout=120, output_hook=keep)
        assert reply['content']['ename'] == 'KeyboardInterrupt' and not shown
        reply = client.execute_interactive(_TRAIN, timeout=120, output_hook=keep)
        assert reply['content']['status'] == 'ok', reply['content']
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    page = (tmp_path / 'run' / run_directory.HTML_REPORT).read_text(encoding='utf-8')
    (frame,) = shown
    assert frame.startswith('<iframe srcdoc="') and html.escape(page) in frame
    assert run_directory.verify(tmp_path / 'run').is_verified
