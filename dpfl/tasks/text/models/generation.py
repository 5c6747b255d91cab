"""Samples sequences from a recurrent language model, and ranks and scores what it generates.

A model gives p(x_{i+1} | x_i .. x_0), where x_0 is always the begin token. The probability of a
sequence x_1 .. x_n that ends with the end token is the product of these conditional probabilities
([Augenstein20], equation 1). Samples are drawn token by token from the same probabilities. The most
probable words of a character model are those of [Augenstein20], tables 2 and 8.
"""

import dataclasses
import functools
from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl import _random, errors
from dpfl.tasks.text import tokenization
from dpfl.tasks.text.models import architectures, metrics
from dpfl.tasks.text.tokenization import PAD_ID

_BATCH = 1024  # Sequences that are sampled at a time.
_MOST_LOGITS = 2**22  # Computed at a time by `scorer`.


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """Ids of the special tokens. Padding after the end of a sequence is `PAD_ID`.

    Attributes:
      begin: first token x_0 of every sequence.
      end: last token of every sequence that was not cut.
    """

    begin: int
    end: int


WORDS = SpecialTokens(tokenization.BOS_ID, tokenization.EOS_ID)
BYTES = SpecialTokens(tokenization.WORD_BEGIN_ID, tokenization.WORD_END_ID)


@dataclasses.dataclass(frozen=True)
class Samples:
    """Sequences drawn from a model.

    Attributes:
      tokens: int32 [N, L]: the sequence without begin token, end token, padding. Sequences cut
        after L tokens have no end token.
      log_probabilities: float64 [N], natural logarithm of equation 1 over the tokens drawn, under
        the model itself, whose probability of begin and padding is not 0.
    """

    tokens: np.ndarray
    log_probabilities: np.ndarray


def sample(
    architecture: architectures.Architecture,
    weights: Sequence[Any],
    special: SpecialTokens,
    *,
    count: int,
    length: int,
    seed: int,
) -> Samples:
    """Draws sequences. The begin token and padding are never drawn.

    Args:
      architecture: architecture of the model.
      weights: weights of the model.
      special: its special tokens.
      count: N, the number of sequences.
      length: L, the most tokens of a sequence.
      seed: integer in [0, 2**64). The result is a pure function of all arguments.

    Raises:
      ValueError: if weights or seed are outside their range; the message names them.
      DataError: if probabilities are not numbers.
    """
    num_tokens = architectures.check_weights(architecture, weights)
    rng = _random.generator('text.samples', _random.check_seed('seed', seed))
    batch_size = min(count, _BATCH)
    forbidden = np.zeros(num_tokens, np.float32)
    forbidden[[PAD_ID, special.begin]] = -np.inf

    def choose(logits: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        drawn = tf.random.stateless_categorical(logits + forbidden, 1, seed, tf.int32)[:, 0]
        return tf.minimum(drawn, num_tokens - 1)  # It is `num_tokens` if logits are no numbers.

    @tf.function
    def draw(weights: Any, seeds: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Tokens [L, B] and log probabilities [B], from seeds [L, 2]."""
        state = architecture.start(weights, batch_size)
        token = tf.fill([batch_size], special.begin)
        ended = tf.fill([batch_size], False)
        total = tf.zeros([batch_size], tf.float64)
        tokens = tf.TensorArray(tf.int32, length)
        for position in tf.range(length):
            state, logits = architecture.step(weights, state, token)
            chosen = choose(logits, seeds[position])
            gained = tf.gather(tf.nn.log_softmax(logits), chosen, batch_dims=1)
            total += tf.where(ended, np.float64(0), tf.cast(gained, tf.float64))
            token = tf.where(ended, PAD_ID, chosen)
            ended = ended | tf.equal(token, special.end)
            tokens = tokens.write(position, token)
        return tokens.stack(), total

    weights = tuple(tf.convert_to_tensor(weight) for weight in weights)
    parts = []
    for _ in range(0, count, batch_size):
        seeds = rng.integers(-(2**31), 2**31, (length, 2)).astype(np.int32)
        tokens, total = draw(weights, tf.constant(seeds))
        parts.append((tokens.numpy().T, total.numpy()))
    tokens, totals = (np.concatenate(arrays)[:count] for arrays in zip(*parts, strict=True))
    if np.isnan(totals).any():
        raise errors.DataError('the model gives probabilities that are not numbers: it diverged')
    return Samples(tokens, totals)


def log_probabilities(
    architecture: architectures.Architecture,
    weights: Sequence[Any],
    special: SpecialTokens,
    tokens: np.ndarray,
) -> np.ndarray:
    """Log-probabilities of whole sequences ([Augenstein20], equation 1).

    Args:
      architecture: architecture of the model.
      weights: weights of the model.
      special: its special tokens.
      tokens: integers [N, L] as in `Samples`; padding is ignored.

    Returns:
      Natural logarithms, float64 [N].
    """
    begin = np.full([len(tokens), 1], special.begin, tokens.dtype)
    losses, _ = scorer(architecture, weights)(
        np.concatenate([begin, tokens[:, :-1]], axis=1), tokens
    )
    return -losses


def scorer(
    architecture: architectures.Architecture, weights: Sequence[Any]
) -> Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Losses and right predictions of a model, as a function that is safe to call in any thread.

    Args:
      architecture: architecture of the model.
      weights: weights of the model.

    Returns:
      A function of inputs and targets, integers [N, L] both. It returns two float64 [N]: the sum of
      the cross entropies of the targets that are not padding, in nats; and how many words of the
      vocabulary the model predicts, as `accuracy` in `metrics` counts them.

    Raises:
      ValueError: if the weights do not fit the architecture.
    """
    num_tokens = architectures.check_weights(architecture, weights)
    weights = tuple(map(tf.convert_to_tensor, weights))

    @functools.cache
    def compiled(length: int) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
        @tf.function(reduce_retracing=True)
        def scores(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            x, y = (tf.ensure_shape(part, [None, length]) for part in (x, y))
            logits = architecture.logits(weights, x)
            entropies = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            counted = tf.where(
                tf.not_equal(y, PAD_ID), tf.cast(entropies, tf.float64), np.float64(0)
            )
            right, _ = metrics.hits(y, logits)
            return tf.reduce_sum(counted, axis=1), right

        return scores

    def of_rows(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        losses, right = np.zeros(len(y)), np.zeros(len(y))
        step = max(1, _MOST_LOGITS // (x.shape[1] * num_tokens))
        for i in range(0, len(y), step):
            rows = slice(i, i + step)
            parts = compiled(x.shape[1])(
                tf.constant(x[rows], tf.int32), tf.constant(y[rows], tf.int32)
            )
            losses[rows], right[rows] = (part.numpy() for part in parts)
        return losses, right

    return of_rows


@dataclasses.dataclass(frozen=True)
class RankedWord:
    """A word that the model generated.

    Attributes:
      word: the text.
      probability: joint probability of its bytes and its end ([Augenstein20], equation 1).
      count: number of times that it was drawn.
    """

    word: str
    probability: float
    count: int


@dataclasses.dataclass(frozen=True)
class Ranking:
    """Words by decreasing probability.

    Attributes:
      words: the most probable words that were drawn.
      samples: number of draws.
      missing: upper bound of the probability that a word at least as probable as the last of
        `words` was never drawn.
    """

    words: tuple[RankedWord, ...]
    samples: int
    missing: float


def rank_words(
    architecture: architectures.Architecture,
    weights: Sequence[Any],
    *,
    samples: int,
    length: int,
    top: int,
    seed: int,
    known: Container[str] = (),
) -> Ranking:
    """Draws words from a model and ranks the distinct ones by joint probability.

    Args:
      architecture: architecture of a model of `tokenization.NUM_BYTE_TOKENS` tokens.
      weights: weights of the model.
      samples: number of words to draw.
      length: most bytes of a word, including its end. Longer words and the empty word are not
        ranked.
      top: number of words to keep.
      seed: seed of the draws.
      known: words to leave out, such as those of the vocabulary: the model was trained on words
        outside it.

    Raises:
      ValueError: if the model has another number of tokens.
    """
    if architectures.check_weights(architecture, weights) != tokenization.NUM_BYTE_TOKENS:
        raise errors.ArgumentError(
            'weights',
            errors.NOT_SHOWN,
            f'must be of a model of {tokenization.NUM_BYTE_TOKENS} tokens',
        )
    drawn = sample(architecture, weights, BYTES, count=samples, length=length, seed=seed)
    ended = (drawn.tokens == BYTES.end).any(axis=1) & (drawn.tokens[:, 0] != BYTES.end)
    sequences, places, counts = np.unique(
        drawn.tokens[ended], axis=0, return_index=True, return_counts=True
    )
    probabilities = np.exp(drawn.log_probabilities[ended][places])
    ranked = sorted(
        (
            RankedWord(word, float(probability), int(number))
            for word, probability, number in zip(
                tokenization.decode_words(sequences), probabilities, counts, strict=True
            )
            if word not in known
        ),
        key=lambda word: -word.probability,
    )
    words = tuple(ranked[:top])
    if len(words) < top:
        return Ranking(words, samples, missing=1.0)
    # Union bound: at most 1 / p words have probability >= p; each is missed with (1 - p)^n. Draws
    # have at least the model's probability: since begin-of-word and padding are never drawn, their
    # probability mass goes to the other ids.
    least = words[-1].probability
    return Ranking(words, samples, min(1.0, (1 - least) ** samples / least))
