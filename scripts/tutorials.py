"""Executes the tutorials, and makes their pages of text, code and saved outputs.

A tutorial is a script of cells, docs/tutorials/<name>.py (jupytext's percent format). Its outputs
are in docs/tutorials/<name>_files/: figures, and the printed text of each cell in outputs.json. The
site makes its page of both. A code cell that draws has a caption in its header:
`# %% caption="What is to be seen"`. Without names, all tutorials are executed:

    .venv/bin/python scripts/tutorials.py [NAME ...]
"""

import base64
import hashlib
import json
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

import dpfl

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / 'docs' / 'tutorials'
_SECONDS = 600
# Another process may take the ports of a kernel before the kernel does; it then ends at its start.
_TRIES = 3
_OUTPUTS = 'outputs.json'
_END = """---

*As a notebook: [{name}.ipynb]({name}.ipynb), whose first cell installs dpfl where it is missing.
Both are made from [{name}.py]({name}.py) by `scripts/tutorials.py`.*
"""
_INSTALL = """\
# Installs what is missing: dpfl from the wheel beside this notebook.
import importlib.util

if importlib.util.find_spec('dpfl') is None:
    %pip install --quiet 'dpfl-{version}-py3-none-any.whl[accounting]'"""
_INSTALL_TFF = """
# And TFF with what it needs.
import sys

!{sys.executable} -m dpfl install_tff"""
# They need no TFF.
WITHOUT_TFF = ('blt_and_tree',)
_COLOURS = re.compile(r'\x1b\[[0-9;]*m')


def names() -> list[str]:
    """Names of all tutorials."""
    return sorted(path.stem for path in FOLDER.glob('*.py'))


def source(name: str) -> nbformat.NotebookNode:
    """The notebook of a tutorial, without outputs."""
    return jupytext.read(FOLDER / f'{name}.py', fmt='py:percent')


def notebook(name: str) -> nbformat.NotebookNode:
    """The notebook of a tutorial for other machines: its first cell installs what it needs."""
    made, code = source(name), _INSTALL.format(version=dpfl.__version__)
    if name not in WITHOUT_TFF:
        code += f'\n{_INSTALL_TFF}'
    made.cells.insert(0, nbformat.v4.new_code_cell(code, id='install'))
    return made


def execute(notebook: nbformat.NotebookNode, packages: pathlib.Path = ROOT) -> None:
    """Executes a notebook in an empty folder, with the Python of this process.

    Args:
      notebook: the notebook, whose cells get outputs.
      packages: folder from which dpfl is imported.
    """
    changes = {
        'PYTHONPATH': os.pathsep.join([str(packages), os.environ.get('PYTHONPATH', '')]).strip(':'),
        # Notices of TensorFlow are not outputs.
        'TF_CPP_MIN_LOG_LEVEL': '3',
        'TF_ENABLE_ONEDNN_OPTS': '1',
        'TF_NUM_INTRAOP_THREADS': '1',
        'CUDA_VISIBLE_DEVICES': '',
    }
    with tempfile.TemporaryDirectory() as folder:
        for tries_left in reversed(range(_TRIES)):
            client = nbclient.NotebookClient(
                notebook,
                timeout=_SECONDS,
                kernel_name='python3',
                resources={'metadata': {'path': folder}},
            )
            try:
                client.execute(env={**os.environ, **changes})
                return
            except RuntimeError:
                begun = any(cell.get('execution_count') for cell in notebook.cells)
                if begun or not tries_left:
                    raise


def page(name: str) -> str:
    """The page of a tutorial, Markdown."""
    parts: list[str] = []
    texts = iter(json.loads((FOLDER / f'{name}_files' / _OUTPUTS).read_text())['texts'])
    figures = 0
    for cell in source(name).cells:
        if cell.cell_type == 'markdown':
            parts.append(cell.source)
            continue
        parts.append(f'```python\n{cell.source}\n```')
        if text := next(texts):
            parts.append(f'```text\n{text}\n```')
        if 'caption' in cell.metadata:
            figures += 1
            parts.append(f'![{cell.metadata["caption"]}]({name}_files/{figures}.png)')
    return '\n\n'.join([*parts, _END.format(name=name)])


def digest(notebook: nbformat.NotebookNode) -> str:
    """SHA-256 of the code, which tells whether saved outputs are of other code."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == 'code']
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()


def make(name: str) -> None:
    """Executes a tutorial, and writes its outputs."""
    notebook = source(name)
    execute(notebook)
    texts, figures = [], []
    for cell in notebook.cells:
        if cell.cell_type == 'code':
            text = ''
            for output in cell.outputs:
                data = output.get('data', {})
                if 'image/png' in data:
                    figures.append(base64.b64decode(data['image/png']))
                    continue
                text += output.text if output.output_type == 'stream' else data['text/plain']
            texts.append(_COLOURS.sub('', text).rstrip())
    folder = FOLDER / f'{name}_files'
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for number, figure in enumerate(figures, 1):
        (folder / f'{number}.png').write_bytes(figure)
    saved = {'code': digest(notebook), 'texts': texts}
    (folder / _OUTPUTS).write_text(json.dumps(saved, indent=1, ensure_ascii=False) + '\n')


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
