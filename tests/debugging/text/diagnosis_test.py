"""Verdicts follow from the traits: found names a fault, suspected does not."""

import dataclasses

import numpy as np
import pytest

from dpfl import errors
from dpfl.debugging import differences
from dpfl.debugging.text import diagnosis, traits
from dpfl.tasks.text import faults

_COUNT = 20_000
_CLEAN = {
    trait.name: differences.Share(100 if trait.spread >= 0.5 else 2000, _COUNT)
    if trait.unit == '%'
    else differences.Mean(10.0, 0.02, _COUNT)
    for trait in traits.ALL.values()
}


def _with(**values):
    changed = dict(_CLEAN)
    for name, value in values.items():
        measure = changed[name]
        changed[name] = (
            differences.Share(round(value * _COUNT), _COUNT)
            if isinstance(measure, differences.Share)
            else dataclasses.replace(measure, value=value)
        )
    return changed


@pytest.mark.parametrize(
    'changes, verdict, named',
    [
        ({}, 'not seen', ()),
        ({'inner_space': 0.3}, 'found', ('joined_words',)),
        ({'inner_space': 0.0}, 'suspected', ()),  # Fewer than in the reference.
        ({'punctuated': 0.3}, 'found', ('wrong_tokenizer',)),
        ({'mis_decoded': 0.6, 'first_unknown': 0.5}, 'found', ('encoding',)),
        ({'length': 7.0, 'last_unknown': 0.6}, 'found', ('truncated',)),
        ({'length': 7.0}, 'suspected', ()),
        ({'repeated': 0.7}, 'found', ('duplicated_client',)),
        ({'digits': 0.4}, 'suspected', ()),
        ({'inner_space': 0.3, 'punctuated': 0.3}, 'found', ('joined_words', 'wrong_tokenizer')),
        ({'inner_space': 0.009}, 'not seen', ()),  # Significant, but trainings differ by as much.
    ],
)
def test_verdicts(changes, verdict, named):
    found = diagnosis.diagnose(_with(**changes), _CLEAN)
    assert (found.verdict, found.faults) == (verdict, named)
    assert set(found.clear) <= set(changes)
    for fault in named:
        assert fault in found.text
    assert len(found.to_dict()['differences']) == len(_CLEAN)


def test_a_certain_difference_below_the_least_one_is_not_clear():
    reference = {**_CLEAN, 'mis_decoded': differences.Share(0, 10**7)}
    some = {**_CLEAN, 'mis_decoded': differences.Share(20_000, 10**7)}
    more = {**_CLEAN, 'mis_decoded': differences.Share(10**6, 10**7)}
    few, many = (diagnosis.diagnose(each, reference) for each in (some, more))
    assert few.verdict == 'not seen' and many.faults == ('encoding',)


def test_every_fault_has_a_signature_of_known_traits():
    assert {each.fault for each in diagnosis.SIGNATURES} == set(faults.NAMES)
    signs = {sign.trait for each in diagnosis.SIGNATURES for sign in each.signs}
    assert signs <= set(traits.ALL)


def test_traits_of_one_kind_of_generator_are_enough():
    words = {trait.name for trait in traits.OF_WORDS}
    clean = {name: each for name, each in _CLEAN.items() if name in words}
    damaged = {name: each for name, each in _with(inner_space=0.3).items() if name in words}
    assert diagnosis.diagnose(damaged, clean).faults == ('joined_words',)
    with pytest.raises(errors.ArgumentError):
        diagnosis.diagnose(damaged, _CLEAN)


_TIDY = {**_CLEAN, **{name: differences.Share(50, _COUNT) for name in ('inner_space', 'noise')}}
_TIDY |= {name: differences.Share(50, _COUNT) for name in ('punctuated', 'mis_decoded')}


def test_without_a_reference_only_what_no_text_has_is_found():
    assert diagnosis.alone(_TIDY).verdict == 'not seen'
    joined = {**_TIDY, 'inner_space': differences.Share(800, _COUNT)}
    found = diagnosis.alone(joined)
    assert (found.verdict, found.faults) == ('found', ('joined_words',))
    assert '4.00%' in found.text and found.differences == ()
    # By its lower bound: 16 of 1000 may be drawn from 1%.
    few = {**_TIDY, 'inner_space': differences.Share(16, 1000)}
    assert diagnosis.alone(few).verdict == 'not seen'


def test_a_model_that_draws_at_random_is_not_judged_without_a_reference():
    noisy = {**_TIDY, 'inner_space': differences.Share(800, _COUNT)}
    noisy['noise'] = differences.Share(2000, _COUNT)
    found = diagnosis.alone(noisy)
    assert found.verdict == 'not seen' and '10.00%' in found.text


def test_trainings_that_differ_by_themselves_are_rarely_called_different():
    rng = np.random.default_rng(5)
    verdicts = []
    for _ in range(300):
        first, second = (
            {
                name: differences.Share(int(rng.binomial(_COUNT, _moved(0.1, trait, rng))), _COUNT)
                for name, trait in traits.ALL.items()
                if trait.unit == '%'
            }
            for _ in range(2)
        )
        verdicts.append(diagnosis.diagnose(first, second).verdict)
    # All differences together are called clear with probability ALPHA at most: 3 of 300.
    assert 300 - verdicts.count('not seen') <= 15


def _moved(share, trait, rng):
    """A share of a training: log odds deviate so that two trainings differ by the spread."""
    odds = np.log(share / (1 - share)) + rng.normal(0, trait.spread / np.sqrt(2))
    return 1 / (1 + np.exp(-odds))
