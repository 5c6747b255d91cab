"""Comparisons of generators that are in directories of runs: verdicts, pages, refusals."""

import functools
import json
import shutil

import numpy as np
import pytest

from dpfl import errors
from dpfl.accounting.records import archive
from dpfl.tasks.text import tokenization
from dpfl.tasks.text.models import architectures, saved_models
from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS, OOV_ID
from experiments.studies.shared import generators
from tests import forked_binaries
from tests.accounting import plans
from tests.studies import scripts_of_studies, small_study

pytestmark = pytest.mark.standard

_STUDY = scripts_of_studies.load('compare_generators')
_WORDS = tuple(f'w{i}' for i in range(12))
_CONFIG = _STUDY.ComparisonConfig(samples=800, images=100, sentence_length=5, word_length=5)


def _run(path, name, vocabulary, boosted, **of_plan):
    """A directory as a finished run leaves it, whose model prefers one token after all others."""
    num_tokens = (
        tokenization.NUM_BYTE_TOKENS if vocabulary is None else len(vocabulary) + NUM_SPECIAL_TOKENS
    )
    model = architectures.build(saved_models.ALL[name], num_tokens, 5, 0)
    weights = [np.array(weight) for weight in model.initial_weights[0]]
    bias = next(i for i, weight in enumerate(weights) if weight.shape == (num_tokens,))
    weights[bias][boosted] += 3
    small_study.write_records(path, plans.independent(4, **of_plan))
    saved_models.save(
        saved_models.LanguageModel(name, tuple(weights), vocabulary), path / saved_models.IN_RUN
    )
    return str(path)


@pytest.fixture(scope='module', name='runs')
def _runs(tmp_path_factory):
    root = tmp_path_factory.mktemp('runs')
    return {
        'plain': _run(root / 'plain', 'micro', _WORDS, 5),
        'unknown': _run(root / 'unknown', 'micro', _WORDS, OOV_ID),
        'other words': _run(root / 'other', 'micro', (*_WORDS[:-1], 'x'), 5),
        'char': _run(root / 'char', 'char_tiny', None, 97),
        'replaced': _run(root / 'replaced', 'char_tiny', None, 32, adjacency='replace_one'),
    }


def test_a_model_does_not_differ_from_itself_and_its_page_says_so(runs):
    side = generators.open_side('a', [runs['plain'], runs['char']])
    found = _STUDY.compare((side, side), _CONFIG)
    assert found.clear == []
    assert found.verdict == 'No clear difference in 21 traits.'
    text = found.render()
    assert 'class="unsure"' in text and 'class="clear"' not in text
    # One run guarantees less than two of them.
    one, both = found.guarantees[0], found.guarantees[2]
    assert (one['runs'], both['runs']) == (2, 4) and one['epsilon'] < both['epsilon']


def test_models_that_predict_no_better_than_chance_are_no_evidence(runs, tmp_path):
    directory = tmp_path / 'untrained'
    shutil.copytree(runs['plain'], directory)
    (directory / archive.METRICS).write_text('round,loss\n4,2.78\n')
    side = generators.open_side('a', [str(directory)])
    verdict = _STUDY.compare((side, side), _CONFIG).verdict
    assert verdict.startswith('Cannot tell: ') and 'No clear difference' not in verdict
    assert 'a held-out loss of 2.78 nats, and uniform draws have 2.77' in verdict


def test_more_unknown_words_are_a_clear_difference(runs):
    first = generators.open_side('a', [runs['plain']])
    second = generators.open_side('b', [runs['unknown']])
    found = _STUDY.compare((first, second), _CONFIG)
    assert found.verdict.startswith('Differs clearly: ')
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert {'first_unknown', 'later_unknown'} <= set(values['clear'])
    traits_of = {each['name']: each for each in values['traits']['word']}
    unknown = traits_of['later_unknown']
    assert unknown['first'] + 0.2 < unknown['second'] and unknown['high'] < 0
    words = {each['name']: each for each in values['words']}
    assert words['UNK']['difference'] < 0 < words['w1']['difference']
    text = found.render()
    assert 'class="bad"' in text and 'class="clear"' in text
    assert '<script' not in text and 'src=' not in text.replace('src="data:', '')


@pytest.mark.parametrize(
    'first, second, message',
    [
        (['plain'], ['char'], r'kinds of generators of a \(word\), has char'),
        (['plain'], ['other words'], '12 words against 12, 11 in common'),
        (['plain', 'unknown'], [], 'second generator of kind word'),
        (['no run'], [], 'must be the directory of a finished run'),
    ],
)
def test_sides_that_cannot_be_compared_are_refused(runs, tmp_path, first, second, message):
    known = {**runs, 'no run': str(tmp_path)}
    with pytest.raises(errors.ArgumentError, match=message):
        sides = [
            generators.open_side('a', [known[run] for run in side]) for side in (first, second)
        ]
        _STUDY.compare(tuple(sides), _CONFIG)


def test_guarantees_of_other_adjacencies_are_not_added_up(runs):
    first = generators.open_side('a', [runs['char']])
    second = generators.open_side('b', [runs['replaced']])
    found = _STUDY.compare((first, second), _CONFIG)
    assert found.guarantees[0]['epsilon'] is not None
    assert found.guarantees[2]['epsilon'] is None
    assert 'inner_space' in {each.name for each in found.clear}
    assert 'adjacency=replace_one: must be zero_out' in found.render()


def test_the_binary_takes_directories_without_flags_and_refuses_in_one_line(runs, tmp_path):
    run = functools.partial(forked_binaries.run, 'studies.compare_generators')
    done = run(
        runs['plain'],
        runs['unknown'],
        f'--output_dir={tmp_path}/out',
        '--samples=300',
        '--sentence_length=4',
        check=True,
    )
    assert done.stdout.startswith('Differs clearly: ')
    values = json.loads((tmp_path / 'out/comparison.json').read_text())
    assert values['clear'] and (tmp_path / 'out/comparison.html').is_file()
    for arguments, message in (
        ([runs['plain']], f'{runs["plain"]}: is not a flag'),
        ([runs['plain'], runs['char']], f'--b={runs["char"]}: must have the kinds'),
        ([f'--a={runs["plain"]}'], '--b: must be given'),
        ([f'--a={runs["plain"]}', '--b=nowhere'], '--b=nowhere: must be the directory of'),
    ):
        refused = run(*arguments, f'--output_dir={tmp_path}/none')
        assert refused.returncode == 2 and refused.stdout == ''
        assert refused.stderr.startswith(f'error: {message}'), refused.stderr
        assert len(refused.stderr.splitlines()) == 1
