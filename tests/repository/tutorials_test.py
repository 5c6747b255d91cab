"""The tutorials run, and their pages have the text and the code of their sources."""

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
def test_a_page_has_the_text_the_code_and_the_figures_of_its_source(name):
    """Outputs may differ: noise is random, and another machine has other speeds."""
    page, source = (tutorials.FOLDER / f'{name}.md').read_text(), tutorials.source(name)
    expected, _ = tutorials.page(name, source)
    same = tutorials.without_outputs(page) == expected
    assert same, f'run .venv/bin/python scripts/tutorials.py {name}'
    # No progress bars, colours, tracebacks, notices of libraries.
    assert not re.search(r'[\r\x08\x1b]|Traceback|Warning|INFO:', page)
    linked = re.findall(rf'!\[[^\]]+\]\({name}_files/(\d+\.png)\)', page)
    folder = tutorials.FOLDER / f'{name}_files'
    assert linked and sorted(linked) == sorted(path.name for path in folder.iterdir())
    captions = [cell.metadata.get('caption') for cell in source.cells]
    assert len(linked) == sum(caption is not None for caption in captions)


def test_outputs_are_told_from_text_and_code():
    cell = nbformat.v4.new_code_cell('print(1)\nplot()', metadata={'caption': 'A line'})
    cell.outputs = [
        nbformat.v4.new_output('stream', name='stderr', text='\x1b[31mone\x1b[0m\n'),
        nbformat.v4.new_output('stream', name='stdout', text='two\n'),
        nbformat.v4.new_output('display_data', {'image/png': 'AAAA', 'text/plain': '<Figure>'}),
        nbformat.v4.new_output('execute_result', {'text/plain': '3'}, execution_count=1),
    ]
    text = nbformat.v4.new_markdown_cell('# Title')
    notebook = nbformat.v4.new_notebook(cells=[text, cell])
    page, figures = tutorials.page('a', notebook)
    assert page.startswith(
        '# Title\n\n```python\nprint(1)\nplot()\n```\n\n```text\none\ntwo\n```\n\n'
        '![A line](a_files/1.png)\n\n```text\n3\n```\n\n---\n'
    )
    assert figures == {'1.png': b'\0\0\0'}
    cell.outputs = []
    assert tutorials.without_outputs(page) == tutorials.page('a', notebook)[0]


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
def test_a_tutorial_runs(name):
    notebook = tutorials.source(name)
    tutorials.execute(notebook)
    assert not any('\r' in text for text in _texts(notebook))
    drawn = sum('image/png' in output.get('data', {}) for output in _outputs(notebook))
    assert drawn == len(list((tutorials.FOLDER / f'{name}_files').iterdir()))
