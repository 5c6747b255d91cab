"""What a generator has learned: against every distribution of single tokens, and a perfect one."""

import numpy as np
import pytest

from dpfl.debugging.text import learned

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


def _measure(written, log_probabilities):
    return learned.measure(
        written, _HELDOUT, log_probabilities, num_tokens=_TOKENS, never=(_PAD, _BEGIN)
    )


def _constant(shares):
    """Log-probabilities of the held-out sequences, if all tokens are drawn by themselves."""
    logs = np.where(np.arange(_TOKENS) == _PAD, 0.0, np.log(np.maximum(shares, 1e-12)))
    return logs[_HELDOUT].sum(axis=1)


def _frequencies():
    counts = np.bincount(_HELDOUT.ravel(), minlength=_TOKENS).astype(float)
    counts[_PAD] = 0
    return counts / counts.sum()


@pytest.mark.parametrize('closeness', [0.0, 0.5, 0.9, 1.0])
def test_no_distribution_of_single_tokens_has_learned_anything(closeness):
    uniform = np.array([0, 0, *[1 / 6] * 6])
    shares = closeness * _frequencies() + (1 - closeness) * uniform
    drawn = np.random.default_rng(2).choice(_TOKENS, (400, 7), p=shares)
    found = _measure(drawn, _constant(shares))
    assert found.loss >= found.trivial - 1e-9 and found.share == 0
    assert 'not clearly below' in found.reason


def test_one_that_knows_the_order_has_learned_it():
    found = _measure(_sequences(5), np.full(400, -np.log(5) - 2.0))
    assert found.loss < found.trivial and found.share > 0.9
    # The same probabilities, but half of what it writes is a token that is nowhere else.
    half = np.where(np.random.default_rng(1).random((400, 7)) < 0.5, 3, _sequences(5))
    assert 0 < _measure(half, np.full(400, -np.log(5) - 2.0)).share < found.share


def test_without_held_out_text_nothing_is_known():
    empty = np.zeros((0, 7), int)
    found = learned.measure(_HELDOUT, empty, np.zeros(0), num_tokens=_TOKENS, never=(_PAD, _BEGIN))
    assert found.share == 0 and found.to_dict()['loss'] is None
