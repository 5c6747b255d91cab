"""Comparisons of generators that are in directories of runs: verdicts, pages, refusals."""

import functools
import json
import shutil

import numpy as np
import pytest

from dpfl import Participation, accounting, errors, mechanisms
from dpfl.accounting.records import archive
from dpfl.debugging import differences
from dpfl.tasks.text import tokenization
from dpfl.tasks.text.models import architectures, saved_models
from dpfl.tasks.text.tokenization import NUM_SPECIAL_TOKENS, OOV_ID
from experiments.studies.shared import drawn_images, generators
from experiments.studies.shared.written import (
    Area,
    ClassifierConfig,
    ComparisonConfig,
    SamplesConfig,
    Verdict,
)
from tests import forked_binaries
from tests.studies import scripts_of_studies

pytestmark = pytest.mark.standard

_STUDY = scripts_of_studies.load('compare_generators')
_WORDS = tuple(f'w{i}' for i in range(12))
_CONFIG = ComparisonConfig(
    top=3,
    orders=2,
    splits=19,
    drawn=SamplesConfig(samples=800, images=100, sentence_length=5, word_length=5),
    classifier=ClassifierConfig(classifier_steps=0),
)


def _run(path, name, vocabulary, boosted, **of_plan):
    """A directory as a finished run leaves it, whose model prefers one token after all others."""
    num_tokens = (
        tokenization.NUM_BYTE_TOKENS if vocabulary is None else len(vocabulary) + NUM_SPECIAL_TOKENS
    )
    model = architectures.build(saved_models.ALL[name], num_tokens, 5, 0)
    weights = [np.array(weight) for weight in model.initial_weights[0]]
    bias = next(i for i, weight in enumerate(weights) if weight.shape == (num_tokens,))
    weights[bias][boosted] += 3
    path.mkdir(parents=True)
    saved_models.save(
        saved_models.LanguageModel(name, tuple(weights), vocabulary), path / saved_models.IN_RUN
    )
    fields = dict(
        mechanism=mechanisms.Identity(4),
        participation=Participation(rounds=4, min_separation=4, max_participations=1),
        clip_norm=1.0,
        noise_multiplier=2.0,
        clients_per_round=5,
    )
    plan = accounting.PrivacyPlan(**{**fields, **of_plan})
    accountant = 'analytic_gaussian' if plan.sampling is None else 'pld'
    record = archive.PlanRecord(plan, (1e-6,), accountant, noise_is_seeded=False, exported=True)
    (path / archive.PLAN).write_text(record.to_json())
    mechanisms.save(plan.mechanism, path / archive.STRATEGY)
    (path / archive.REPORT).write_text(record.report(None).to_json())
    (path / archive.SUMS).write_text(f'{"0" * 64}  {archive.MODEL}\n')
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
    assert not found.verdict.differing and found.verdict.text.startswith('No clear difference')
    assert 'sentence lengths (seen with probability 1/2: ' in found.verdict.text
    text = found.render()
    assert 'class="verdict"' in text and 'class=clear' not in text
    # One run guarantees less than two of them.
    one, both = found.guarantees[0], found.guarantees[2]
    assert (one['runs'], both['runs']) == (2, 4) and one['epsilon'] < both['epsilon']


def test_models_that_predict_no_better_than_chance_are_no_evidence(runs, tmp_path):
    directory = tmp_path / 'untrained'
    shutil.copytree(runs['plain'], directory)
    (directory / archive.METRICS).write_text('round,loss\n4,2.78\n')
    side = generators.open_side('a', [str(directory)])
    found = _STUDY.compare((side, side), _CONFIG)
    text = found.verdict.text
    assert 'class="verdict untold"' in found.render()
    assert text.startswith('Cannot tell: ') and 'No clear difference' not in text
    assert 'a held-out loss of 2.78 nats, and uniform draws have 2.77' in text


def test_the_smallest_difference_seen_is_seen_half_of_the_time():
    rng = np.random.default_rng(4)
    counts, share = 2000, 0.3

    def area(other):
        hits = [int(rng.binomial(counts, value)) for value in (share, other)]
        pair = [differences.Share(each, counts) for each in hits]
        return Area('words', differences.corrected([differences.compare('x', *pair)] * 5))

    smallest = area(share).smallest(0.05)
    clear = sum(bool(area(share + smallest).clear(0.05)) for _ in range(300))
    assert 110 <= clear <= 190
    nothing = Verdict((Area('words', ()),), 0.05)
    assert nothing.text == 'Nothing could be compared in words.'


def test_more_unknown_words_are_a_clear_difference(runs):
    first = generators.open_side('a', [runs['plain']])
    second = generators.open_side('b', [runs['unknown']])
    found = _STUDY.compare((first, second), _CONFIG)
    names = [area.name for area in found.verdict.differing]
    assert 'unknown words by position' in names and 'words' in names
    clear = {each.name for each in found.verdict.areas[0].clear(found.verdict.of_area)}
    assert 'all positions' in clear
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    unknown = values['sentences']['unknown'][0]
    assert unknown['first'] + 0.2 < unknown['second'] and unknown['high'] < 0
    words = {each['word']: each for each in values['sentences']['words']}
    assert words['UNK']['ranks'][1] == 1 and words['w1']['ranks'][0] == 1
    text = found.render()
    assert 'verdict differs' in text and 'class=clear' in text
    assert '<script' not in text and 'src=' not in text.replace('src="data:', '')


def test_sides_that_cannot_be_compared_are_refused(runs, tmp_path):
    plain, char = (generators.open_side('a', [runs[name]]) for name in ('plain', 'char'))
    with pytest.raises(errors.ArgumentError, match=r'kinds of generators of a \(word\), has char'):
        _STUDY.compare((plain, char), _CONFIG)
    other = generators.open_side('b', [runs['other words']])
    with pytest.raises(errors.ArgumentError, match='12 words against 12, 11 in common'):
        _STUDY.compare((plain, other), _CONFIG)
    with pytest.raises(errors.ArgumentError, match='second generator of kind word'):
        generators.open_side('a', [runs['plain'], runs['unknown']])
    with pytest.raises(errors.ArgumentError, match='must be the directory of a finished run'):
        generators.open_side('a', [str(tmp_path)])


def test_guarantees_of_other_adjacencies_are_not_added_up(runs):
    first = generators.open_side('a', [runs['char']])
    second = generators.open_side('b', [runs['replaced']])
    found = _STUDY.compare((first, second), _CONFIG)
    assert found.guarantees[0]['epsilon'] is not None
    assert found.guarantees[2]['epsilon'] is None
    assert 'adjacency=replace_one: must be zero_out' in found.guarantees[2]['remark']
    assert any('kinds of characters' in area.name for area in found.verdict.differing)
    assert 'adjacency=replace_one: must be zero_out' in found.render()


def test_the_binary_takes_directories_without_flags_and_refuses_in_one_line(runs, tmp_path):
    run = functools.partial(forked_binaries.run, 'studies.compare_generators')
    done = run(
        runs['plain'],
        runs['unknown'],
        f'--output_dir={tmp_path}/out',
        '--samples=300',
        '--orders=1',
        '--sentence_length=4',
        '--splits=19',
        check=True,
    )
    assert done.stdout.startswith('Differs clearly in ')
    values = json.loads((tmp_path / 'out/comparison.json').read_text())
    assert values['verdict']['differs'] and (tmp_path / 'out/comparison.html').is_file()
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


def _images(seed, level):
    rng = np.random.default_rng(seed)
    return np.clip(rng.normal(level, 0.1, (200, 28, 28)), 0, 1)


def _inference(pixels):
    """Class 1 where there is more ink than paper, and two features."""
    dark = pixels.mean(axis=(1, 2)) < 0.5
    probabilities = np.eye(62)[dark.astype(int)]
    return probabilities, np.stack([pixels.mean(axis=(1, 2)), pixels.std(axis=(1, 2))], axis=1)


def test_inverted_images_differ_in_ink_and_classes():
    config = ComparisonConfig(splits=19)
    first, second, other = _images(0, 0.8), _images(1, 0.8), 1 - _images(2, 0.8)
    same = drawn_images.of_samples((first, second), (first, second), _inference, config)
    assert not Verdict(same.areas, config.alpha).differing
    found = drawn_images.of_samples((first, other), (first, other), _inference, config)
    verdict = Verdict(found.areas, config.alpha)
    assert [area.name for area in verdict.differing] == ['ink', 'class mix']
    assert found.values['distance']['p_value'] == 1 / 20
    assert found.values['effective_classes'] == [1.0, 1.0]
    assert 'Class mix' in found.render(verdict.of_area)
    without = drawn_images.of_samples((first, other), (first, other), None, config)
    assert 'Class mix' not in without.render(0.05) and len(without.areas) == 1


def test_ink_inversion_and_contrast_by_hand():
    pixels = np.ones((4, 28, 28))
    pixels[0] = 0  # All ink.
    pixels[1, :7] = 0  # A quarter.
    found = drawn_images.measures(pixels)
    assert found['ink, share of the area'].value == pytest.approx(1.25 / 4)
    inverted = found['inverted: more ink than paper']
    assert (inverted.hits, inverted.count) == (1, 4)
    contrast = found['contrast: standard deviation of the pixels']
    assert contrast.value == pytest.approx(np.sqrt(0.25 * 0.75) / 4)


def test_class_mix_counts_every_class():
    mix = drawn_images.class_mix(np.array([0, 0, 10, 61]))
    assert len(mix) == 62 and sum(share.hits for share in mix.values()) == 4
    assert mix['0'].hits == 2 and mix['A'].hits == 1 and mix['z'].count == 4


def test_sets_of_images_are_apart_only_if_they_differ():
    rng = np.random.default_rng(4)
    first, second = rng.normal(size=(2, 120, 3))
    equal = drawn_images.apart(first, second, splits=19, seed=0)
    assert equal.p_value > 0.05 and equal.frechet < 4 * equal.floor
    moved = drawn_images.apart(first, second + 2, splits=19, seed=0)
    assert moved.p_value == 1 / 20
    assert moved.frechet == pytest.approx(12, rel=0.3)
    with pytest.raises(ValueError, match='number of images'):
        drawn_images.apart(first[:3], second, splits=19, seed=0)
