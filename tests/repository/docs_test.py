"""The examples of the pages in docs run as they are printed, and print what they say."""

import re

import numpy as np
import pytest

from tests import paths

_DOCS = paths.ROOT / 'docs'
_PAGES = sorted(path.relative_to(_DOCS).as_posix() for path in _DOCS.rglob('*.md'))
_NUMBER = re.compile(r'-?\d+\.?\d*(?:e-?\d+)?')


def _examples(text):
    """Python fences, in order."""
    return re.findall(r'```python\n(.*?)```', text, re.DOTALL)


def _promises(code):
    """What each `print` promises: the comment behind it, or None."""
    prints = re.findall(r'^ *print\(.*\)(?:  # (.*))?$', code, re.MULTILINE)
    return [promise or None for promise in prints]


def _numbers(text):
    values = {'True': '1', 'False': '0'}
    return [float(n) for n in _NUMBER.findall(re.sub('True|False', lambda m: values[m[0]], text))]


@pytest.mark.exhaustive
@pytest.mark.tff
# Tutorials have a test of their own, which runs them in a kernel.
@pytest.mark.parametrize('name', [name for name in _PAGES if not name.startswith('tutorials/')])
def test_examples_run_and_print_what_they_say(name, capsys):
    namespace = {}
    for code in _examples((_DOCS / name).read_text()):
        exec(compile(code, name, 'exec'), namespace)
        printed = capsys.readouterr().out.splitlines()
        promises = _promises(code)
        assert len(printed) == len(promises), code
        for line, promise in zip(printed, promises, strict=True):
            if promise is not None:
                # 'about': a search, which ends elsewhere on another machine, within one percent.
                room = 1e-2 if promise.startswith('about ') else 5e-4
                np.testing.assert_allclose(_numbers(line), _numbers(promise), rtol=room)


def test_a_print_and_its_promise_are_found():
    code = 'print(1)\nwith a:\n    print(f(2), 3)  # 2.5, 3\nx = 4  # 5\n'
    assert _promises(code) == [None, '2.5, 3']
    assert _numbers('(6, 1e-06) True -2.5') == [6, 1e-6, 1, -2.5]


@pytest.mark.parametrize('name', _PAGES)
def test_documents_fit_their_width(name):
    lines = (_DOCS / name).read_text().splitlines()
    assert [line for line in lines if len(line) > 120 and not line.startswith('|')] == []
