"""Finds a fault of tokenisation in text that nobody may look at (document 004, section 5).

Example:
  python -m experiments.debug_text --flagfile=configs/debug_text.flags --output_dir=runs/debug_text

In each setting of --bug_rates, another share of the sentences has its first two words joined to one
token. For each, a word model of all sentences and a character model of the words outside the
vocabulary are trained under a privacy plan, and only what these models write is looked at. The
directory then holds study.html, which shows the settings side by side and concludes, study.json
with the same numbers, and a folder for each model, a run as those of experiments.train. The preset
trains eight small models on synthetic text, in about five minutes on two cores.

With --resume, models that are finished are kept, and one that was interrupted goes on.
"""

import json
import sys

from absl import flags

from dpfl import _storage, errors
from experiments.command import command_line
from experiments.flags import privacy_flags, run_flags, sampling_flags, schema_flags, text_flags

flags.adopt_module_key_flags(text_flags)
flags.adopt_module_key_flags(privacy_flags)
flags.adopt_module_key_flags(run_flags)
flags.adopt_module_key_flags(sampling_flags)
_TASK = flags.DEFINE_enum(
    'task', 'synthetic_text', ['synthetic_text', 'stackoverflow', 'user_text'], 'Data set.'
)
_BUG_RATES = flags.DEFINE_list(
    'bug_rates',
    ['0', '0.01', '0.1', '1'],
    'Shares of sentences with the fault, comma-separated, 0 first; a setting for each.',
)
_WORD_MODEL = flags.DEFINE_enum(
    'word_model',
    'micro',
    ['small', 'cifg_670', 'tiny', 'micro', 'lstm_256', 'lstm_tiny'],
    'The word model, as --model of train.',
)
_CHAR_MODEL = flags.DEFINE_enum(
    'char_model',
    'char_tiny',
    ['char_cifg_256', 'char_small', 'char_tiny'],
    'The character model; char_cifg_256 is that of document 004.',
)
_WORD_LENGTH = flags.DEFINE_integer(
    'word_length', 24, 'Bytes of a word, its end included; longer words are cut.', lower_bound=2
)
_MECHANISM = flags.DEFINE_enum(
    'mechanism',
    'gaussian',
    [*privacy_flags.MECHANISMS, 'none'],
    'How the noise of the rounds is correlated: gaussian is DP-FedAvg; none: no noise and no '
    'guarantee.',
)
_TARGET_EPSILON = flags.DEFINE_float(
    'target_epsilon', None, 'Use the noise that this epsilon of one model at --delta needs.'
)
_WORD_CLIP_NORM = flags.DEFINE_float('word_clip_norm', 0.2, 'Clip norm of the word model.')
_CHAR_CLIP_NORM = flags.DEFINE_float('char_clip_norm', 0.1, 'Clip norm of the character model.')
_CLIENT_LEARNING_RATE = flags.DEFINE_float('client_learning_rate', 0.5, "Of the clients' SGD.")
_CLIENT_BATCH_SIZE = flags.DEFINE_integer(
    'client_batch_size', 16, 'Sentences, or words, in a batch.', lower_bound=1
)
_CLIENT_MAX_BATCHES = flags.DEFINE_integer(
    'client_max_batches', None, 'Most batches that a client trains on in a round.', lower_bound=1
)
_SERVER_LEARNING_RATE = flags.DEFINE_float('server_learning_rate', 1.0, "Of the server's SGD.")
_SERVER_MOMENTUM = flags.DEFINE_float('server_momentum', 0.9, "Of the server's SGD.")
_EVAL_EVERY = flags.DEFINE_integer(
    'eval_every', 10, 'Rounds between two evaluations.', lower_bound=1
)
_EVAL_CLIENTS = flags.DEFINE_integer(
    'eval_clients', 50, 'Held-out clients of an evaluation.', lower_bound=1
)
_SHARDS = flags.DEFINE_integer(
    'shards', 2, 'Parts of a cohort that are trained at a time.', lower_bound=1
)
_SAMPLES = flags.DEFINE_integer(
    'samples',
    20_000,
    'Sentences and words that each model writes (100000 in document 004).',
    lower_bound=100,
)
_TOP = flags.DEFINE_integer('top', 20, 'Words in a ranking.', lower_bound=1)
_SEED = flags.DEFINE_integer(
    'seed', 0, 'Of data, fault, order of the clients, initial models and samples.', lower_bound=0
)
_NOISE_SEED = flags.DEFINE_integer(
    'noise_seed', None, 'Makes the noise repeatable, and the study a simulation.', lower_bound=0
)
_FORMAT = flags.DEFINE_enum('format', 'text', ['text', 'json'], 'Form of what is printed last.')

# What changes no bit of a trained model.
_FREE = ('format', 'bug_rates', 'samples', 'top')
_DEFAULT_POPULATION = 10_000
_ENDLESS = 2**62
# Synthetic clients that are not trained on: no population reaches their numbers.
_FIRST_HELDOUT = 2**63
# A synthetic language with a few usual ways to begin a sentence, as natural ones have.
_SYNTHETIC = dict(num_themes=6, function_share=0.02)


def main() -> None:
    """Checks the flags, trains what is not trained yet, and writes the page."""
    try:
        _main()
    except (errors.RunError, errors.DataError) as error:
        sys.exit(f'error: {error}')


def _main() -> None:
    output_dir = run_flags.output_dir()
    rates = _rates()
    for flag in (_WORD_CLIP_NORM, _CHAR_CLIP_NORM, _CLIENT_LEARNING_RATE, _SERVER_LEARNING_RATE):
        if not 0 < flag.value < float('inf'):
            raise command_line.UsageError(f'--{flag.name}={flag.value}: must be > 0')
    if not 0 <= _SERVER_MOMENTUM.value < 1:
        raise command_line.UsageError(
            f'--{_SERVER_MOMENTUM.name}={_SERVER_MOMENTUM.value}: must be >= 0 and < 1'
        )
    # Both models have the same cohorts.
    sampler = sampling_flags.sampler(schema_flags.participation(), _population(), _SEED.value)
    plans = {'word': _plan(_WORD_CLIP_NORM), 'char': _plan(_CHAR_CLIP_NORM)}
    # TensorFlow takes seconds to import: only after what may be refused.
    from experiments.debugging.text import page, results

    text = _text()
    settings: list[results.Setting] = []
    for rate in rates:
        settings.append(
            _setting(rate, text, plans, sampler, output_dir, settings[0] if settings else None)
        )
    page_path, json_path = output_dir / 'study.html', output_dir / 'study.json'
    summary = {'settings': [setting.to_dict() for setting in settings]}
    for path, content in ((page_path, page.render(settings)), (json_path, json.dumps(summary))):
        data = content.encode()
        _storage.write_atomically(path, lambda file, data=data: file.write(data))
    if _FORMAT.value == 'json':
        print(json.dumps(summary))
    else:
        print(command_line.columns([_row(setting) for setting in settings]))
        print(f'\n{page_path}')


def _rates() -> tuple[float, ...]:
    try:
        rates = tuple(map(float, _BUG_RATES.value))
    except ValueError:
        raise command_line.UsageError(
            f'--{_BUG_RATES.name}={",".join(_BUG_RATES.value)}: must be comma-separated numbers'
        ) from None
    valid = all(0 <= rate <= 1 for rate in rates) and len(set(rates)) == len(rates)
    if not rates or rates[0] != 0 or not valid:
        raise command_line.UsageError(
            f'--{_BUG_RATES.name}={",".join(_BUG_RATES.value)}: must be different numbers >= 0 and '
            '<= 1, the first of them 0'
        )
    return rates


def _plan(clip_norm):
    plan = privacy_flags.plan(
        _MECHANISM.value,
        clip_norm=clip_norm.value,
        clients_per_round=sampling_flags.clients_per_round(),
        **sampling_flags.plan_fields(_population),
    )
    with command_line.refusing_bad_values():
        plan.epsilon(flags.FLAGS.delta, privacy_flags.accountant(plan))
    return plan


def _population() -> int:
    given = sampling_flags.given_population()
    if _TASK.value == 'synthetic_text':
        return _DEFAULT_POPULATION if given is None else given
    there = text_flags.num_clients()
    if given is not None and given > there:
        raise command_line.UsageError(f'--population={given}: must be <= {there}, all clients')
    return there if given is None else given


def _text():
    from dpfl.tasks.text import synthetic_text, vocabulary, word_clients
    from experiments.debugging.text import settings

    if _TASK.value != 'synthetic_text':
        data = text_flags.load()
        task = data.task
        return settings.Text(
            task.training, task.heldout, task.vocabulary, task.max_tokens, data.not_covered
        )
    with command_line.refusing_bad_values():
        language = synthetic_text.SyntheticText(
            vocabulary_size=text_flags.synthetic_vocabulary_size(),
            sentence_length=text_flags.sentence_length(),
            seed=_SEED.value,
            **_SYNTHETIC,
        )

    def clients(first: int) -> word_clients.WordClients:
        return word_clients.WordClients(
            _ENDLESS,
            lambda client: [sentence.split() for sentence in language.text(client + first)],
        )

    words = vocabulary.Vocabulary(tuple(language.vocabulary))
    return settings.Text(clients(0), clients(_FIRST_HELDOUT), words)


def _setting(rate: float, text, plans: dict, sampler, output_dir, clean):
    """Trains the two models of a setting, and lets them write."""
    from experiments.debugging.text import results, settings, training

    names = {settings.WORD: _WORD_MODEL.value, settings.CHAR: _CHAR_MODEL.value}
    tasks, trained = {}, {}
    for kind, plan in plans.items():
        tasks[kind] = settings.task(
            kind,
            text,
            rate,
            model=names[kind],
            sentence_length=text_flags.sentence_length(),
            word_length=_WORD_LENGTH.value,
            eval_clients=_EVAL_CLIENTS.value,
            seed=_SEED.value,
        )
        with command_line.refusing_bad_values():
            trained[kind] = training.train(
                tasks[kind],
                plan,
                sampler,
                flags.FLAGS.delta,
                privacy_flags.accountant(plan),
                _hyperparameters(),
                output_dir / f'joined_{rate:g}' / kind,
                {**run_flags.configuration(free=_FREE), 'bug_rate': rate, 'kind': kind},
                not_covered=text.not_covered,
                resume=run_flags.RESUME.value,
                overwrite=run_flags.OVERWRITE.value,
            )
    return results.evaluate(
        rate,
        text,
        tasks,
        trained,
        clean,
        samples=_SAMPLES.value,
        top=_TOP.value,
        seed=_SEED.value,
    )


def _hyperparameters():
    from experiments.debugging.text import training

    return training.Hyperparameters(
        client_learning_rate=_CLIENT_LEARNING_RATE.value,
        client_batch_size=_CLIENT_BATCH_SIZE.value,
        client_max_batches=_CLIENT_MAX_BATCHES.value,
        server_learning_rate=_SERVER_LEARNING_RATE.value,
        server_momentum=_SERVER_MOMENTUM.value,
        eval_every=_EVAL_EVERY.value,
        num_shards=_SHARDS.value,
        checkpoint_every=run_flags.CHECKPOINT_EVERY.value,
        keep_checkpoints=run_flags.KEEP_CHECKPOINTS.value,
        seed=_SEED.value,
        noise_seed=_NOISE_SEED.value,
    )


def _row(setting) -> dict:
    conclusion = setting.conclusion
    return {
        'setting': setting.name,
        'OOV rate, first position': setting.positions.rates[0],
        'overall': setting.positions.overall,
        'two-word share': conclusion.joined_share
        if conclusion
        else setting.to_dict()['joined_share'],
        **{f'accuracy, {kind}': model['accuracy'] for kind, model in setting.models.items()},
        **{
            f'epsilon, {kind}': _epsilon(model['epsilon']) for kind, model in setting.models.items()
        },
        'epsilon, both': _epsilon(setting.together),
        'fault': conclusion.verdict if conclusion else '-',
    }


def _epsilon(value: float | None) -> float:
    return float('inf') if value is None else value


if __name__ == '__main__':
    command_line.run(main, threads_per_operation=1)
