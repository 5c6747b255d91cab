"""Prints what a language model writes: sentences of a word model, words of a character model.

Example:
  python -m experiments.generate --model_dir=runs/blt --count=20 --temperature=0.8

Works on a SavedModel that dpfl wrote, or on the directory of a run that has one. What a model
trained under a privacy plan writes is covered by its guarantee, however much it writes.
"""

import json

import numpy as np
from absl import flags

from experiments.command import command_line
from experiments.flags import schema_flags

_MODEL_DIR = flags.DEFINE_string(
    'model_dir', None, 'A SavedModel, or the directory of a run that has one.'
)
_COUNT = flags.DEFINE_integer('count', 10, 'How many are printed.')
_LENGTH = flags.DEFINE_integer('length', 20, 'Most tokens of each: words, or bytes.')
_TEMPERATURE = flags.DEFINE_float(
    'temperature', 1.0, 'Below 1 the probable becomes more probable; 1 is the model itself.'
)
_TOP_K = flags.DEFINE_integer('top_k', None, 'Draw from so many most probable tokens only.')
_RANK = flags.DEFINE_integer(
    'rank',
    None,
    'Draw so many, and print the distinct ones of the highest joint probability that are complete '
    '(document 004, equation 1).',
    lower_bound=1,
)
_SEED = flags.DEFINE_integer('seed', 0, 'Of the draws.', lower_bound=0)
_FORMAT = flags.DEFINE_enum('format', 'text', ['text', 'json'], 'Form of what is printed.')


def main() -> None:
    """Checks the flags, draws, and prints."""
    path = schema_flags.required(_MODEL_DIR.name)
    if _RANK.value is not None and (_TEMPERATURE.value != 1 or _TOP_K.value is not None):
        raise command_line.UsageError('--rank: goes without --temperature and --top_k')
    from dpfl.tasks.text import encoding, oov_ranking
    from dpfl.tasks.text.models import generation, saved_models

    with command_line.refusing_bad_values(path=_MODEL_DIR.name):
        model = saved_models.load(path)
        special = oov_ranking.BYTES if model.vocabulary is None else generation.WORDS
        drawn = generation.sample(
            model.architecture,
            model.weights,
            special,
            count=_COUNT.value if _RANK.value is None else _RANK.value,
            length=_LENGTH.value,
            seed=_SEED.value,
            temperature=_TEMPERATURE.value,
            top_k=_TOP_K.value,
        )
    tokens, scores = drawn.tokens, drawn.log_probabilities
    if _RANK.value is not None:
        tokens, scores = _most_probable(tokens, scores, special.end)
    texts = (
        encoding.decode_words(tokens)
        if model.vocabulary is None
        else encoding.decode_sentences(tokens, model.vocabulary)
    )
    probabilities = np.exp(scores)
    if _FORMAT.value == 'json':
        print(
            json.dumps(
                [
                    {
                        'text': text,
                        'probability': float(probability),
                        'log_probability': float(score),
                    }
                    for text, probability, score in zip(texts, probabilities, scores, strict=True)
                ]
            )
        )
    else:
        for text, probability in zip(texts, probabilities, strict=True):
            print(f'{probability:9.3g}  {text}')


def _most_probable(tokens: np.ndarray, scores: np.ndarray, end: int):
    """The distinct sequences that ended, of the highest scores, at most --count."""
    ended = (tokens == end).any(axis=1)
    distinct, first = np.unique(tokens[ended], axis=0, return_index=True)
    order = np.argsort(-scores[ended][first], kind='stable')[: _COUNT.value]
    return distinct[order], scores[ended][first][order]


if __name__ == '__main__':
    command_line.run(main)
