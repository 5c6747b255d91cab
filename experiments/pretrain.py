r"""Trains a word model centrally on public text, for --warm_start of experiments.train.

Example:
  python -m experiments.pretrain --public_text=books.txt --vocabulary_size=9996 --model=cifg_670 \
      --output=runs/public
  python -m experiments.train --task=user_text --warm_start=runs/public \
      --vocabulary_file=runs/public.vocabulary.txt --model=cifg_670 ...

Nothing protects the text: it has to be public. Without --public_text it is synthetic text, of the
language of --seed but of clients that no run trains on. The model is a SavedModel, and its
vocabulary lies beside it, as a file for --vocabulary_file.
"""

import json
import pathlib

import numpy as np
import tqdm
from absl import flags

from dpfl import _storage, errors
from experiments.command import command_line
from experiments.flags import schema_flags

_PUBLIC_TEXT = flags.DEFINE_string('public_text', None, 'UTF-8 text file; default: synthetic text.')
_VOCABULARY_SIZE = flags.DEFINE_integer(
    'vocabulary_size', 9_996, 'Words in the vocabulary; four special tokens are added.'
)
_VOCABULARY_FILE = flags.DEFINE_string(
    'vocabulary_file',
    None,
    'Text file with a word in each line; by default the most frequent words of the public text.',
)
_SENTENCE_LENGTH = flags.DEFINE_integer(
    'sentence_length', 20, 'Longer sentences are cut.', lower_bound=1
)
_MODEL = flags.DEFINE_enum(
    'model',
    'small',
    ['small', 'cifg_670', 'tiny', 'micro', 'lstm_256', 'lstm_tiny'],
    'The model, as --model of train.',
)
_PUBLIC_CLIENTS = flags.DEFINE_integer(
    'public_clients', 300, 'How many clients have written the synthetic text.', lower_bound=1
)
_EPOCHS = flags.DEFINE_integer('epochs', 1, 'Passes over the text.')
_BATCH_SIZE = flags.DEFINE_integer('batch_size', 64, 'Sentences of a step.')
_LEARNING_RATE = flags.DEFINE_float('learning_rate', 0.003, 'Of Adam.')
_SEED = flags.DEFINE_integer(
    'seed', 0, 'Of synthetic text, initial model and order.', lower_bound=0
)
_OUTPUT = flags.DEFINE_string('output', None, 'Folder of the SavedModel; replaced if it exists.')
_FORMAT = flags.DEFINE_enum('format', 'text', ['text', 'json'], 'Form of the result printed last.')
# Synthetic clients of public text: neither trained on nor held out.
_FIRST_PUBLIC = 3 * 2**62


def main() -> None:
    """Checks the flags, trains, and writes the model."""
    output = pathlib.Path(schema_flags.required('output'))
    from dpfl.tasks.text.models import catalog, pretraining, saved_models

    with command_line.refusing_bad_values(vocabulary_text=_PUBLIC_TEXT.name):
        words, tokens = _synthetic() if _PUBLIC_TEXT.value is None else _public()
        architecture = catalog.WORD_MODELS[_MODEL.value]
        initial = architecture.initial_weights(len(words) + _special_tokens(), _SEED.value)
        losses: list[float] = []
        steps = _EPOCHS.value * (len(tokens) // max(_BATCH_SIZE.value, 1))
        with tqdm.tqdm(total=steps, unit='step', dynamic_ncols=True) as bar:

            def report(step: int, loss: float) -> None:
                losses.append(loss)
                bar.set_postfix(loss=f'{loss:.4g}')
                bar.update()

            weights = pretraining.train(
                architecture,
                initial,
                tokens,
                epochs=_EPOCHS.value,
                batch_size=_BATCH_SIZE.value,
                learning_rate=_LEARNING_RATE.value,
                seed=_SEED.value,
                report=report,
            )
    vocabulary_file = output.with_name(output.name + '.vocabulary.txt')
    with _storage.naming(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        saved_models.save(saved_models.LanguageModel(_MODEL.value, weights, words), output)
    listed = ''.join(f'{word}\n' for word in words).encode()
    _storage.write_atomically(vocabulary_file, lambda file: file.write(listed))
    summary = {
        'output': str(output),
        'vocabulary_file': str(vocabulary_file),
        'words': len(words),
        'sentences': len(tokens),
        'steps': len(losses),
        'loss': float(np.mean(losses[-max(1, len(losses) // 10) :])),
    }
    print(json.dumps(summary) if _FORMAT.value == 'json' else command_line.table(summary))


def _special_tokens() -> int:
    from dpfl.tasks.text import token_ids

    return token_ids.NUM_SPECIAL_TOKENS


def _synthetic() -> tuple[tuple[str, ...], np.ndarray]:
    """Vocabulary and token ids of synthetic text."""
    from dpfl.tasks.text import synthetic_text

    if _VOCABULARY_FILE.value is not None:
        raise command_line.UsageError('--vocabulary_file: synthetic text makes its own vocabulary')
    language = synthetic_text.SyntheticText(
        vocabulary_size=_VOCABULARY_SIZE.value,
        sentence_length=_SENTENCE_LENGTH.value,
        seed=_SEED.value,
    )
    clients = range(_FIRST_PUBLIC, _FIRST_PUBLIC + _PUBLIC_CLIENTS.value)
    return tuple(language.vocabulary), np.concatenate([language.tokens(c) for c in clients])


def _public() -> tuple[tuple[str, ...], np.ndarray]:
    """Vocabulary and token ids of the text file."""
    from dpfl.tasks.text import tokenization, vocabulary, word_clients

    path = _PUBLIC_TEXT.value
    if _VOCABULARY_FILE.value is not None:
        words = vocabulary.load(_VOCABULARY_FILE.value, None)
    else:
        words = vocabulary.count_public_text(path, _VOCABULARY_SIZE.value)
    try:
        with open(path, encoding='utf-8-sig') as file:
            sentences = (words for line in file for words in tokenization.sentences(line))
            tokens = word_clients.encode(sentences, words.ids, _SENTENCE_LENGTH.value)
    except OSError as error:
        raise errors.ArgumentError(
            'public_text', path, f'cannot be read ({error.strerror})'
        ) from None
    except UnicodeDecodeError:
        raise errors.ArgumentError('public_text', path, 'must be UTF-8 text') from None
    if not len(tokens):
        raise errors.ArgumentError('public_text', path, 'must have sentences')
    return words.words, tokens


if __name__ == '__main__':
    command_line.run(main)
