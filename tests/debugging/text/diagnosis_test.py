"""Verdicts follow from the traits: found names a fault, suspected does not.

A generator's learning is measured against distributions of single tokens, and a perfect one.
"""

import dataclasses

import numpy as np
import pytest

from dpfl.debugging import differences
from dpfl.debugging.diagnosis import Generated
from dpfl.debugging.text import diagnosis, faults, traits
from tests.debugging import contrasts

_COUNT = 20_000
_CLEAN = {
    trait.name: differences.Share(100 if trait.spread >= 0.5 else 2000, _COUNT)
    if trait.unit == '%'
    else differences.Mean(10.0, 0.02, _COUNT)
    for trait in traits.ALL.values()
}


_EFFECTS = {
    'joined_words': {'inner_space': 0.3},
    'wrong_tokenizer': {'punctuated': 0.3},
    'encoding': {'mis_decoded': 0.5},
    'truncated': {'length': -5.0, 'last_unknown': 0.4},
    'duplicated_client': {'repeated': 1.0},
}


def _diagnose(first, reference, learned=1.0, **question):
    compared = {'all': contrasts.of(first, reference, learned)}
    return diagnosis.diagnose(compared, diagnosis.Question(_EFFECTS, **question))


def _alone(measures, learned=1.0, **question):
    contrast = contrasts.of(measures, measures, learned)
    return diagnosis.alone(contrast, diagnosis.Question(_EFFECTS, **question))


def _with(clean=_CLEAN, **values):
    """Measures with some other values, or other hits and counts."""
    changed = dict(clean)
    for name, value in values.items():
        if isinstance(value, tuple):
            changed[name] = differences.Share(*value)
        elif isinstance(changed[name], differences.Share):
            changed[name] = differences.Share(round(value * _COUNT), _COUNT)
        else:
            changed[name] = dataclasses.replace(changed[name], value=value)
    return changed


# A text that has hardly a fault.
_TIDY = _with(inner_space=0.0025, noise=0.0025, punctuated=0.0025, mis_decoded=0.0025)


_WORDS = {name: _CLEAN[name] for name in traits.WORD_NAMES}
_NO_MIS_DECODED = _with(mis_decoded=(0, 10**7))


@pytest.mark.parametrize(
    'changes, verdict, named, clean',
    [
        ({}, 'not seen', (), _CLEAN),
        ({'inner_space': 0.3}, 'found', ('joined_words',), _CLEAN),
        ({'inner_space': 0.0}, 'suspected', (), _CLEAN),  # Fewer than in the reference.
        ({'punctuated': 0.3}, 'found', ('wrong_tokenizer',), _CLEAN),
        ({'mis_decoded': 0.6, 'first_unknown': 0.5}, 'found', ('encoding',), _CLEAN),
        ({'length': 7.0, 'last_unknown': 0.6}, 'found', ('truncated',), _CLEAN),
        ({'length': 7.0}, 'suspected', (), _CLEAN),
        ({'repeated': 0.7}, 'found', ('duplicated_client',), _CLEAN),
        ({'digits': 0.4}, 'suspected', (), _CLEAN),
        (
            {'inner_space': 0.3, 'punctuated': 0.3},
            'found',
            ('joined_words', 'wrong_tokenizer'),
            _CLEAN,
        ),
        # Significant, but trainings differ by as much.
        ({'inner_space': 0.009}, 'not seen', (), _CLEAN),
        # A certain difference, below the least one and above it.
        ({'mis_decoded': (20_000, 10**7)}, 'not seen', (), _NO_MIS_DECODED),
        ({'mis_decoded': (10**6, 10**7)}, 'found', ('encoding',), _NO_MIS_DECODED),
        # Traits of one kind of generator are enough.
        ({'inner_space': 0.3}, 'found', ('joined_words',), _WORDS),
    ],
)
def test_verdicts(changes, verdict, named, clean):
    found = _diagnose(_with(clean, **changes), clean)
    assert (found.verdict, found.faults) == (verdict, named)
    assert set(found.clear) <= set(changes)
    for fault in named:
        assert fault in found.text
    assert len(found.differences) == len(clean)


@pytest.mark.parametrize(
    'changes, question, verdict, shown',
    [
        ({}, {}, 'not seen', ''),
        (dict(inner_space=0.04), {}, 'found', '4.00%'),
        # By its lower bound: 16 of 1000 may be drawn from 1%.
        (dict(inner_space=(16, 1000)), {}, 'not seen', ''),
        # A model that draws at random is not judged.
        (dict(inner_space=0.04, noise=0.1), {}, 'cannot tell', '10.00%'),
        # 0.9 % of the words, which the fault in 3 % of the text leaves, and 1 % is no alarm. What
        # is there and not found does not add to its own power.
        (dict(inner_space=0.009), dict(share=0.03, fault='joined_words'), 'cannot tell', ''),
    ],
)
def test_without_a_reference_only_what_no_text_has_is_found(changes, question, verdict, shown):
    found = _alone(_with(_TIDY, **changes), **question)
    assert found.verdict == verdict and shown in found.text and found.differences == ()
    assert found.faults == (('joined_words',) if verdict == 'found' else ())
    if 'noise' in changes:
        assert {each.verdict for each in found.of_faults} == {'cannot tell'}


@pytest.mark.parametrize(
    'found',
    [
        diagnosis.diagnose({'all': contrasts.of(_CLEAN, _CLEAN)}),
        diagnosis.alone(contrasts.of(_TIDY, _TIDY)),
        *(
            judge(*measures, **weak)
            for judge, measures in ((_diagnose, (_CLEAN, _CLEAN)), (_alone, (_TIDY,)))
            for weak in (dict(learned=0.0), dict(learned=0.2), dict(share=1e-4))
        ),
        # Generators that have learned nothing raise no alarm.
        _diagnose(_with(inner_space=0.3, digits=0.4), _CLEAN, learned=0.0),
        _alone(_with(_TIDY, inner_space=0.04), learned=0.0),
    ],
)
def test_without_power_nothing_can_be_told(found):
    assert (found.verdict, found.faults, found.clear) == ('cannot tell', (), ())
    assert {each.fault: each.verdict for each in found.of_faults} == dict.fromkeys(
        faults.NAMES, 'cannot tell'
    )
    assert all(each.power < 0.5 and each.reason for each in found.of_faults)
    assert 'Cannot tell: ' in found.text


def test_only_what_is_measured_is_called_not_seen():
    found = _diagnose(_WORDS, _WORDS)
    verdicts = {each.fault: each for each in found.of_faults}
    assert verdicts['truncated'].verdict == verdicts['duplicated_client'].verdict == 'cannot tell'
    assert verdicts['joined_words'].verdict == 'not seen' == found.verdict
    assert 'no trait that is judged here shows it' in found.text
    # If the fault is known that is in the text, the verdict is about it.
    for fault, verdict in (('joined_words', 'not seen'), ('truncated', 'cannot tell')):
        assert _diagnose(_WORDS, _WORDS, fault=fault).verdict == verdict
    # By itself a generator shows no fault of sentences.
    by_itself = {each.fault: each.verdict for each in _alone(_TIDY).of_faults}
    assert by_itself['truncated'] == 'cannot tell' and by_itself['encoding'] == 'not seen'


@pytest.mark.standard
def test_the_power_is_the_share_of_trainings_in_which_the_fault_is_found():
    (told,) = (each for each in _diagnose(_CLEAN, _CLEAN).of_faults if each.fault == 'joined_words')
    rng = np.random.default_rng(7)
    trait, share = traits.ALL['inner_space'], _CLEAN['inner_space'].value
    found = 0
    for _ in range(100):
        damaged = _moved(share + 0.3 * told.share, trait, rng)
        pair = [
            _with(inner_space=(int(rng.binomial(_COUNT, value)), _COUNT))
            for value in (damaged, _moved(share, trait, rng))
        ]
        found += _diagnose(*pair).faults == ('joined_words',)
    assert 0.5 <= told.power < 0.75
    assert abs(found / 100 - told.power) < 0.15


@pytest.mark.standard
def test_trainings_that_differ_by_themselves_are_rarely_called_different():
    rng = np.random.default_rng(5)
    verdicts = []
    for _ in range(100):
        first, second = (
            {
                name: differences.Share(int(rng.binomial(_COUNT, _moved(0.1, trait, rng))), _COUNT)
                for name, trait in traits.ALL.items()
                if trait.unit == '%'
            }
            for _ in range(2)
        )
        verdicts.append(_diagnose(first, second, 0.01).verdict)
    # All differences together are called clear with probability ALPHA at most: 1 of 100.
    assert 100 - verdicts.count('cannot tell') <= 7


def _moved(share, trait, rng):
    """A share of a training: log odds deviate so that two trainings differ by the spread."""
    odds = np.log(share / (1 - share)) + rng.normal(0, trait.spread / np.sqrt(2))
    return 1 / (1 + np.exp(-odds))


_PAD, _BEGIN, _END, _TOKENS = 0, 1, 2, 8


def _sequences(seed, count=400):
    """Tokens 3 to 7 in turn, from a random one on, and an end."""
    rng = np.random.default_rng(seed)
    tokens = np.full((count, 7), _PAD)
    for row in tokens:
        length = rng.integers(3, 7)
        row[:length] = 3 + (rng.integers(5) + np.arange(length)) % 5
        row[length] = _END
    return tokens


_HELDOUT = _sequences(1)


def _measure(written, log_probabilities, heldout=_HELDOUT):
    return diagnosis.measure_learned(
        written, heldout, log_probabilities, num_tokens=_TOKENS, never=(_PAD, _BEGIN)
    )


@pytest.mark.parametrize('closeness', [0.0, 0.5, 0.9, 1.0])
def test_no_distribution_of_single_tokens_has_learned_anything(closeness):
    counts = np.bincount(_HELDOUT[_HELDOUT != _PAD], minlength=_TOKENS)
    uniform = np.array([0, 0, *[1 / 6] * 6])
    shares = closeness * counts / counts.sum() + (1 - closeness) * uniform
    drawn = np.random.default_rng(2).choice(_TOKENS, (400, 7), p=shares)
    # Log-probabilities of the held-out sequences, if all tokens are drawn by themselves.
    logs = np.log(np.maximum(shares, 1e-12))
    logs[_PAD] = 0
    found = _measure(drawn, logs[_HELDOUT].sum(axis=1))
    assert found.numbers['loss'] >= found.numbers['trivial'] - 1e-9 and found.share == 0
    assert 'not clearly below' in found.reason


def test_one_that_knows_the_order_has_learned_it():
    found = _measure(_sequences(5), np.full(400, -np.log(5) - 2.0))
    assert found.numbers['loss'] < found.numbers['trivial'] and found.share > 0.9
    # The same probabilities, but half of what it writes is a token that is nowhere else.
    half = np.where(np.random.default_rng(1).random((400, 7)) < 0.5, 3, _sequences(5))
    assert 0 < _measure(half, np.full(400, -np.log(5) - 2.0)).share < found.share
    # Without held-out text nothing is known.
    none = _measure(_HELDOUT, np.zeros(0), np.zeros((0, 7), int))
    assert none.share == 0
    learned = differences.json_values(Generated('nothing', {}, none))['learned']
    nothing = {'loss': None, 'trivial': None, 'is_better': 0, 'covered': 0, 'share': 0}
    assert learned == nothing
