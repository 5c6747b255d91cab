"""Citation keys are resolved in docs/papers/references.md; CITATION.cff agrees with the package."""

import re

import dpfl
from tests import paths

_KEY = re.compile(r'\[([A-Z][a-z]+(?:[A-Z][a-z]+)?\d{2}(?:-[a-z]+)?)\b')
_REFERENCES = paths.ROOT / 'docs' / 'papers' / 'references.md'


def _cited(text: str) -> set[str]:
    return set(_KEY.findall(text))


def _texts():
    for folder in ('dpfl', 'experiments', 'benchmarks', 'configs', 'docs', 'tests'):
        for path in sorted((paths.ROOT / folder).rglob('*')):
            if path.suffix in ('.py', '.md', '.json', '.flags') and path != _REFERENCES:
                yield path, path.read_text()
    for path in sorted(paths.ROOT.glob('*.md')):
        yield path, path.read_text()


def test_every_key_is_resolved():
    known = re.findall(r'^\| \[([\w-]+)\] \|', _REFERENCES.read_text(), re.M)
    assert len(set(known)) == len(known) > 30
    unknown = {
        str(path.relative_to(paths.ROOT)): cited - set(known)
        for path, text in _texts()
        if (cited := _cited(text)) - set(known)
    }
    assert unknown == {}


def test_keys_are_found():
    text = '([Xu23], table 1), [McMahan18, appendix B], [Kairouz21-discrete], not [L2] or [x12]'
    assert _cited(text) == {'Xu23', 'McMahan18', 'Kairouz21-discrete'}


def test_the_citation_file_agrees_with_the_package():
    text = (paths.ROOT / 'CITATION.cff').read_text()
    assert re.findall(r'^version: (.*)$', text, re.M) == [dpfl.__version__]
    assert re.findall(r'^license: (.*)$', text, re.M) == ['Apache-2.0']
    assert text.count('  - type: ') == 5
