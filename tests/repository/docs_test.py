"""The examples of README and pages run as they are printed, and what pages name exists."""

import fnmatch
import functools
import re

import numpy as np
import pytest

import dpfl
from dpfl.runtime import contexts
from dpfl.tasks import federated_task
from dpfl.tasks.config import IMAGE_MODELS, WORD_MODELS
from dpfl.tasks.images import classifiers
from dpfl.tasks.text import synthetic_text, word_clients
from dpfl.tasks.text.models import saved_models
from tests import paths
from tests.repository import threat_model

_DOCS = paths.ROOT / 'docs'
_README = paths.ROOT / 'README.md'
_REFERENCES = 'docs/papers/references.md'
_PAGES = sorted(path.relative_to(_DOCS).as_posix() for path in _DOCS.rglob('*.md'))
_NUMBER = re.compile(r'-?\d+\.?\d*(?:e-?\d+)?')
_KEY = re.compile(r'\[([A-Z][a-z]+(?:[A-Z][a-z]+)?\d{2}(?:-[a-z]+)?)\b')


def _examples(text):
    """Python fences, in order."""
    return re.findall(r'```python\n(.*?)```', text, re.DOTALL)


# Tutorials have a test of their own, which runs them in a kernel.
_WITH_EXAMPLES = [
    name
    for name in _PAGES
    if not name.startswith('tutorials/') and _examples((_DOCS / name).read_text())
]


def _promises(code):
    """What each `print` promises: the comment behind it, or None."""
    prints = re.findall(r'^ *print\(.*\)(?:  # (.*))?$', code, re.MULTILINE)
    return [promise or None for promise in prints]


def _numbers(text):
    values = {'True': '1', 'False': '0'}
    return [float(n) for n in _NUMBER.findall(re.sub('True|False', lambda m: values[m[0]], text))]


@pytest.mark.exhaustive
@pytest.mark.tff
@pytest.mark.parametrize('name', _WITH_EXAMPLES)
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


@pytest.mark.standard
@pytest.mark.tff
def test_the_example_of_the_readme_runs_and_its_noise_moves_the_model(capsys):
    (example,) = _examples(_README.read_text())
    task = synthetic_text.SyntheticText(vocabulary_size=60, sentence_length=6)
    names = {'model': saved_models.build('tiny', task.vocabulary_size + 4, 6, seed=0)}
    exec(example, names)
    promised = re.search(r'# ([\d.]+), ([\d.]+)\n', example).groups()
    printed = capsys.readouterr().out.split()
    np.testing.assert_allclose(*[list(map(float, each)) for each in (printed, promised)], atol=5e-5)
    rows = [word_clients.examples(task.tokens(client)) for client in range(2)]
    data = [federated_task.dataset(each, 4) for each in rows]
    with contexts.local_runtime():
        process = names['process']
        state = process.initialize()
        before = process.get_model_weights(state).trainable
        after = process.get_model_weights(process.next(state, data).state).trainable
    change = np.concatenate([np.ravel(a - b) for a, b in zip(after, before, strict=True)])
    # Two clients of 6,500 move the model little; the noise of the plan moves every coordinate.
    assert change.std() == pytest.approx(names['plan'].stddev / 6500, rel=0.2)


def test_the_readme_is_one_screen_and_pages_fit_their_width():
    assert len(_README.read_text().splitlines()) <= 90
    for path in (_README, *_DOCS.rglob('*.md')):
        lines = path.read_text().splitlines()
        assert [line for line in lines if len(line) > 120 and not line.startswith('|')] == [], path


@functools.cache
def _texts():
    """Texts of code, settings and pages, by path in the repository."""
    found = [*paths.ROOT.glob('*.md'), paths.ROOT / '.ci/run']
    for folder in ('dpfl', 'experiments', 'benchmarks', 'configs', 'docs', 'scripts', 'tests'):
        found += (paths.ROOT / folder).rglob('*')
    kinds = ('.py', '.md', '.json', '.flags', '.sh', '')
    texts = {path.relative_to(paths.ROOT).as_posix(): path for path in found}
    return {
        name: path.read_text()
        for name, path in texts.items()
        if path.suffix in kinds and path.is_file()
    }


def test_every_citation_key_is_resolved():
    known = re.findall(r'^\| \[([\w-]+)\] \|', _texts()[_REFERENCES], re.M)
    assert len(set(known)) == len(known) > 30
    cited = {name: set(_KEY.findall(text)) for name, text in _texts().items()}
    assert sum(map(len, cited.values())) > 200
    unknown = {name: keys - set(known) for name, keys in cited.items() if name != _REFERENCES}
    assert {name: keys for name, keys in unknown.items() if keys} == {}


def test_the_citation_file_agrees_with_the_package():
    text = (paths.ROOT / 'CITATION.cff').read_text()
    assert re.findall(r'^version: (.*)$', text, re.M) == [dpfl.__version__]


@pytest.mark.parametrize(
    'folders, pattern',
    [
        ('[CREA]*.md docs/* .ci/run scripts/*', r'(?<![\w/])tests/[\w/]+\.py(?:::\w+)?'),
        ('dpfl/* experiments/* benchmarks/* configs/* scripts/* tests/*', r'docs/[\w/]+\.md'),
    ],
)
def test_files_and_tests_that_pages_and_code_name_exist(folders, pattern):
    named = {
        (file, name)
        for name, text in _texts().items()
        if any(fnmatch.fnmatch(name, folder) for folder in folders.split())
        if name != 'tests/repository/site_test.py'  # Its links are made up.
        for file in re.findall(pattern, text)
    }
    assert len({file for file, _ in named}) > 15
    assert {each for each in named if not _is_there(each[0])} == set()


def _is_there(name):
    """Whether there is a file, or the test of a file."""
    path, _, test = name.partition('::')
    file = paths.ROOT / path
    return file.is_file() and (not test or f'def {test}(' in file.read_text())


def test_the_table_of_models_has_every_model_with_its_size():
    page = (_DOCS / 'reference' / 'presets.md').read_text()
    words, _, images = page.partition('## Images')
    rows = re.findall(r'^\| `(\w+)` \|.*?\| ([\d,]+) \| ([\d,]+) \|[^|]*\|$', words, re.M)
    assert [name for name, *_ in rows] == list(saved_models.WORD_MODELS)
    assert {*saved_models.WORD_MODELS} == {*WORD_MODELS}
    for name, *sizes in rows:
        model = saved_models.WORD_MODELS[name]
        assert sizes == [f'{model.num_parameters(count):,}' for count in (2_000, 10_000)]
    rows = re.findall(r'^\| `(\w+)` \| ([\d,]+) \|$', images, re.M)
    sizes = {name: f'{classifiers.PRESETS[name].num_parameters:,}' for name in IMAGE_MODELS}
    assert dict(rows) == sizes


def test_every_file_of_a_run_is_on_the_page_about_files():
    text = (_DOCS / 'reference' / 'files.md').read_text()
    named = set(re.findall(r'^\| `([^`]+)` \|', text, re.M))
    assert set(threat_model.table()) <= named
