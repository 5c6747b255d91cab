"""Samples sequences from a recurrent language model, and ranks and scores what it generates.

A model gives p(x_{i+1} | x_i .. x_0), where x_0 is always the begin token. The probability of a
sequence x_1 .. x_n that ends with the end token is the product of these conditional probabilities
([Augenstein20], equation 1). Samples are drawn token by token from the same probabilities. The most
probable words of a character model are those of [Augenstein20], tables 2 and 8.
"""

import dataclasses
from collections.abc import Container, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl import _random, errors
from dpfl.tasks.text import tokenization
from dpfl.tasks.text.models import architectures

_BATCH = 1024  # Sequences that are sampled at a time.


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """Ids of the special tokens.

    Attributes:
      pad: fills a sequence after its end.
      begin: first token x_0 of every sequence.
      end: last token of every sequence that was not cut.
    """

    pad: int
    begin: int
    end: int


WORDS = SpecialTokens(tokenization.PAD_ID, tokenization.BOS_ID, tokenization.EOS_ID)
BYTES = SpecialTokens(
    tokenization.BYTE_PAD_ID, tokenization.WORD_BEGIN_ID, tokenization.WORD_END_ID
)


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
    forbidden[[special.pad, special.begin]] = -np.inf

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
            token = tf.where(ended, special.pad, chosen)
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
    architectures.check_weights(architecture, weights)
    weights = tuple(tf.convert_to_tensor(weight) for weight in weights)
    length = tokens.shape[1]

    @tf.function(input_signature=[tf.TensorSpec([None, length], tf.int32)])
    def score(targets: tf.Tensor) -> tf.Tensor:
        begin = tf.fill([tf.shape(targets)[0], 1], special.begin)
        inputs = tf.concat([begin, targets[:, :-1]], axis=1)
        gained = tf.nn.log_softmax(architecture.logits(weights, inputs))
        gained = tf.cast(tf.gather(gained, targets, batch_dims=2), tf.float64)
        present = tf.cast(tf.not_equal(targets, special.pad), tf.float64)
        return tf.reduce_sum(gained * present, axis=1)

    parts = [
        score(tf.constant(tokens[first : first + _BATCH // 4], tf.int32)).numpy()
        for first in range(0, len(tokens), _BATCH // 4)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


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
    sequences, counts = np.unique(drawn.tokens[ended], axis=0, return_counts=True)
    probabilities = np.exp(log_probabilities(architecture, weights, BYTES, sequences))
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
