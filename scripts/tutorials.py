"""Executes the tutorials and writes their pages: text, code and saved outputs.

A tutorial is a script of cells, docs/tutorials/<name>.py (jupytext's percent format). Its page is
docs/tutorials/<name>.md, with figures in docs/tutorials/<name>_files/. A code cell that draws has a
caption in its header: `# %% caption="What is to be seen"`. Without names, all tutorials are made:

    .venv/bin/python scripts/tutorials.py [NAME ...]
"""

import base64
import os
import pathlib
import re
import resource
import shutil
import sys
import tempfile
import time

import jupytext
import nbclient
import nbformat

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / 'docs' / 'tutorials'
_SECONDS = 600
_END = """---

*Made from [{name}.py]({name}.py) by `scripts/tutorials.py`. As a notebook:*
`.venv/bin/jupytext --to notebook docs/tutorials/{name}.py`
"""
_OUTPUT = re.compile(r'```text\n.*?```\n\n|!\[[^\n]*\n\n', re.DOTALL)
_COLOURS = re.compile(r'\x1b\[[0-9;]*m')


def names() -> list[str]:
    """Names of all tutorials."""
    return sorted(path.stem for path in FOLDER.glob('*.py'))


def source(name: str) -> nbformat.NotebookNode:
    """The notebook of a tutorial, without outputs."""
    return jupytext.read(FOLDER / f'{name}.py', fmt='py:percent')


def execute(notebook: nbformat.NotebookNode) -> None:
    """Executes a notebook in an empty folder, with the Python of this process."""
    changes = {
        'PYTHONPATH': os.pathsep.join([str(ROOT), os.environ.get('PYTHONPATH', '')]).strip(':'),
        # Notices of TensorFlow are not outputs.
        'TF_CPP_MIN_LOG_LEVEL': '3',
        'TF_ENABLE_ONEDNN_OPTS': '1',
        'TF_NUM_INTRAOP_THREADS': '1',
        'CUDA_VISIBLE_DEVICES': '',
    }
    with tempfile.TemporaryDirectory() as folder:
        client = nbclient.NotebookClient(
            notebook,
            timeout=_SECONDS,
            kernel_name='python3',
            resources={'metadata': {'path': folder}},
        )
        client.execute(env={**os.environ, **changes})


def page(name: str, notebook: nbformat.NotebookNode) -> tuple[str, dict[str, bytes]]:
    """The page of a notebook, and its figures by file name."""
    parts: list[str] = []
    figures: dict[str, bytes] = {}
    for cell in notebook.cells:
        if cell.cell_type == 'markdown':
            parts.append(cell.source)
            continue
        parts.append(f'```python\n{cell.source}\n```')
        for output in cell.get('outputs', ()):
            data = output.get('data', {})
            if 'image/png' in data:
                figure = f'{len(figures) + 1}.png'
                figures[figure] = base64.b64decode(data['image/png'])
                parts.append(f'![{cell.metadata["caption"]}]({name}_files/{figure})')
                continue
            text = output.text if output.output_type == 'stream' else data['text/plain']
            text = _COLOURS.sub('', text).rstrip()
            if parts[-1].startswith('```text'):
                text = parts.pop().removeprefix('```text\n').removesuffix('```') + text
            parts.append(f'```text\n{text}\n```')
    return '\n\n'.join([*parts, _END.format(name=name)]), figures


def without_outputs(text: str) -> str:
    """A page without what the cells put out."""
    return _OUTPUT.sub('', text)


def make(name: str) -> None:
    """Executes a tutorial, and writes its page and figures."""
    notebook = source(name)
    execute(notebook)
    text, figures = page(name, notebook)
    (FOLDER / f'{name}.md').write_text(text)
    folder = FOLDER / f'{name}_files'
    shutil.rmtree(folder, ignore_errors=True)
    if figures:
        folder.mkdir()
    for figure, content in figures.items():
        (folder / figure).write_bytes(content)


def main() -> None:
    for name in sys.argv[1:] or names():
        began, before = time.monotonic(), _cpu_seconds()
        make(name)
        seconds, cpu = time.monotonic() - began, _cpu_seconds() - before
        print(f'{name}: {seconds:.0f} s, {cpu:.0f} s of CPU')


def _cpu_seconds() -> float:
    """Seconds of CPU of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == '__main__':
    main()
