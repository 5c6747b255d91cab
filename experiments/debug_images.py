"""Finds a bug in images that nobody may look at (document 004, section 6).

Example:
  python -m experiments.debug_images --output_dir=runs/debug_images

A classifier of letters and digits runs on devices, some of which invert their images. By its
accuracy the clients (or their examples) are divided; on those where it does well and on those where
it does badly a GAN is trained each, by DP-FedAvg-GAN, and then once more after the fix. The
directory then holds study.html, which shows the sheets of generated images side by side and
concludes; study.json with the same numbers; sheets/ with the pictures; primary/ with the
classifier; and a folder for each GAN, a run as those of experiments.train_gan.

With --resume, what is finished is kept, and a run that was interrupted goes on.
"""

import json
import sys

from absl import flags

from dpfl import _storage, accounting, errors
from experiments.command import command_line
from experiments.flags import gan_flags, image_flags, run_flags

flags.adopt_module_key_flags(gan_flags)
flags.adopt_module_key_flags(image_flags)
flags.adopt_module_key_flags(run_flags)
for _name, _value in dict(inverted_share=0.5, scale=100.0, checkpoint_every=25, rounds=150).items():
    flags.FLAGS.set_default(_name, _value)
_TASK = flags.DEFINE_enum('task', 'synthetic_glyphs', ['synthetic_glyphs', 'emnist'], 'Data set.')
_SELECTION = flags.DEFINE_enum(
    'selection',
    'client',
    ['client', 'example'],
    'What is chosen by the accuracy: clients (document 004, task T4), or examples (task T2).',
)
_POPULATION = flags.DEFINE_integer('population', 3_400, 'Number of clients.', lower_bound=1)
_PRIMARY_MODEL = flags.DEFINE_enum(
    'primary_model', 'small', ['small', 'cnn', 'tiny'], 'The classifier, as --model of train.'
)
_PRIMARY_CLIENTS = flags.DEFINE_integer(
    'primary_clients',
    1_000,
    'Held-out clients whose images it is trained on; they are public.',
    lower_bound=1,
)
_PRIMARY_STEPS = flags.DEFINE_integer(
    'primary_steps', 2_500, 'Batches of 64 that it is trained on.', lower_bound=1
)
_PRIMARY_LEARNING_RATE = flags.DEFINE_float(
    'primary_learning_rate', 0.004, 'Of the first; of Adam.'
)
_MODEL = flags.DEFINE_enum(
    'model', 'small', gan_flags.MODELS, 'Size of the GANs; dcgan has that of document 004.'
)
flags.declare_key_flag('rounds')
_CLIENTS_PER_ROUND = flags.DEFINE_integer(
    'clients_per_round', 10, 'Clients of a round, drawn without replacement.', lower_bound=1
)
_CLIP_NORM = flags.DEFINE_float('clip_norm', 1.0, "L2 bound of one client's update.")
_NOISE_MULTIPLIER = flags.DEFINE_float(
    'noise_multiplier', 0.01, 'Standard deviation of the noise divided by the clip norm.'
)
_ADJACENCY = flags.DEFINE_enum(
    'adjacency',
    'zero_out',
    accounting.ADJACENCIES,
    "Of the runs' reports, as in report_privacy. The page also has the figures of "
    'replace_one_half_shift, which document 004 prints.',
)
_REALISTIC_POPULATION = flags.DEFINE_integer(
    'realistic_population',
    2_000_000,
    'Number of clients of the larger runs that --scale speaks of.',
    lower_bound=1,
)
_SAMPLES = flags.DEFINE_integer(
    'samples', 512, 'Images that each generator makes for the measures.', lower_bound=2
)
_EVAL_CLIENTS = flags.DEFINE_integer(
    'eval_clients', 5, 'Held-out clients of the metrics of a run.', lower_bound=1
)
_SHARDS = flags.DEFINE_integer(
    'shards', 2, 'Parts of a cohort that are trained at a time.', lower_bound=1
)
_SEED = flags.DEFINE_integer(
    'seed', 0, 'Of data, bug, order of the clients, initial models and samples.', lower_bound=0
)
_NOISE_SEED = flags.DEFINE_integer(
    'noise_seed', None, 'Makes the noise repeatable, and the study a simulation.', lower_bound=0
)
_FORMAT = flags.DEFINE_enum('format', 'text', ['text', 'json'], 'Form of what is printed last.')

# What changes no bit of a trained model.
_FREE = (
    'format',
    'samples',
    'scale',
    'scaled_population',
    'scaled_delta',
    'realistic_population',
)
_PRIMARY = (
    'task',
    'data_path',
    'seed',
    'primary_model',
    'primary_clients',
    'primary_steps',
    'primary_learning_rate',
)
# Flags of modules that this binary shares with others, without a meaning here.
_REFUSED = {
    'scaled_population': 'here it is --realistic_population',
    'scaled_delta': 'here it is 0.01 by the number of selected clients',
    'min_separation': 'cohorts are drawn at random, and a client may come again at once',
    'max_participations': 'cohorts are drawn at random, and a client may come in every round',
}
_SHEET_IMAGES = 72
_SELECTED = (
    "Who was selected, and how many: by the accuracy of a classifier on the clients' images, "
    'compared with thresholds that were computed on them, without noise.',
)


def main() -> None:
    """Checks the flags, trains what is not trained yet, and writes the page."""
    try:
        _main()
    except (errors.RunError, errors.DataError) as error:
        sys.exit(f'error: {error}')


def _main() -> None:
    for name, reason in _REFUSED.items():
        if flags.FLAGS[name].present:
            raise command_line.UsageError(f'--{name}: {reason}')
    output_dir = run_flags.output_dir()
    configuration = run_flags.configuration(free=_FREE)
    from experiments.debugging.images import settings

    data = _data()
    heldout, _ = data[settings.FIXED].heldout_examples(_EVAL_CLIENTS.value)
    study, trainings, model = _select(data, output_dir, configuration)
    plans = [_plan(training) for training in trainings]  # All, before anything takes long.
    results = []
    for training, plan in zip(trainings, plans, strict=True):
        results.append(_train(training, plan, model, output_dir, configuration, heldout))
    _write(output_dir, study, results)


def _data() -> dict:
    """The clients with the bug and without, by state."""
    from experiments.debugging.images import settings

    shares = {settings.BUG: flags.FLAGS.inverted_share, settings.FIXED: 0.0}
    data = {
        state: image_flags.data(_TASK.value, share, _SEED.value) for state, share in shares.items()
    }
    there = getattr(data[settings.FIXED], 'population', None)
    if there is not None and _POPULATION.value > there:
        raise command_line.UsageError(
            f'--population={_POPULATION.value}: must be <= {there}, the clients that the data have'
        )
    return data


def _select(data: dict, output_dir, configuration):
    """Trains the classifier, and divides the clients or their examples."""
    from dpfl.tasks.images import image_selection
    from experiments.debugging.images import page, primary, settings

    recipe = primary.Recipe(
        _PRIMARY_MODEL.value,
        _PRIMARY_CLIENTS.value,
        _PRIMARY_STEPS.value,
        _PRIMARY_LEARNING_RATE.value,
        _SEED.value,
    )
    with command_line.refusing_bad_values(learning_rate=_PRIMARY_LEARNING_RATE.name):
        made_from = {name: value for name, value in configuration.items() if name in _PRIMARY}
        resume = run_flags.RESUME.value
        model = primary.train(
            recipe,
            data[settings.FIXED],
            output_dir,
            made_from,
            resume=resume,
            overwrite=run_flags.OVERWRITE.value,
        )
        made_from |= {name: configuration[name] for name in ('population', 'inverted_share')}
        verdicts = {
            state: primary.judge(
                model, state, task, _POPULATION.value, output_dir, made_from, resume=resume
            )
            for state, task in data.items()
        }
        limits = image_selection.thresholds(verdicts[settings.FIXED])
    trainings = [
        settings.Training(state, data[state], chosen)
        for state in (settings.BUG, settings.FIXED)
        for chosen in settings.select(_SELECTION.value, verdicts[state], limits)
    ]
    study = page.Study(
        share=flags.FLAGS.inverted_share,
        selection=_SELECTION.value,
        population=_POPULATION.value,
        limits=limits,
        accuracies={state: each.accuracies for state, each in verdicts.items()},
        noise_is_seeded=_NOISE_SEED.value is not None,
    )
    return study, trainings, model


def _plan(training) -> accounting.PrivacyPlan:
    from experiments.debugging.images import settings

    with command_line.refusing_bad_values():
        return settings.plan(
            training,
            rounds=flags.FLAGS.rounds,
            clients_per_round=_CLIENTS_PER_ROUND.value,
            clip_norm=_CLIP_NORM.value,
            noise_multiplier=_NOISE_MULTIPLIER.value,
            adjacency=_ADJACENCY.value,
        )


def _train(training, plan, model, output_dir, configuration, heldout):
    """Trains one GAN, and measures what it makes."""
    from experiments import gan_run
    from experiments.debugging.images import findings, runs

    with command_line.refusing_bad_values(
        population='realistic_population', clients_per_round='scale'
    ):
        guarantees = findings.guarantees(
            plan, flags.FLAGS.scale, _REALISTIC_POPULATION.value, _POPULATION.value
        )
        gan = gan_run.Training(
            model=_MODEL.value,
            seed=_SEED.value,
            noise_seed=_NOISE_SEED.value,
            **gan_flags.training_fields(),
        )
        trained = runs.train(
            training,
            plan,
            gan,
            output_dir,
            {**configuration, 'trained_on': training.name},
            heldout=heldout,
            samples=_SAMPLES.value,
            resume=run_flags.RESUME.value,
            overwrite=run_flags.OVERWRITE.value,
            not_covered=_SELECTED,
            num_shards=_SHARDS.value,
            checkpoint_every=run_flags.CHECKPOINT_EVERY.value,
            keep_checkpoints=run_flags.KEEP_CHECKPOINTS.value,
            workers=run_flags.workers(),
        )
    return findings.find(training, trained, model, guarantees)


def _write(output_dir, study, results) -> None:
    """Writes sheets, numbers and page, and prints the numbers."""
    from experiments import gan_run
    from experiments.debugging.images import findings, page

    for each in results:
        name = f'{each.state}_{each.subpopulation}.png'
        for kind, pixels in (('generated', each.generated), ('real', each.real)):
            gan_run.write_sheet(output_dir / 'sheets' / f'{kind}_{name}', pixels[:_SHEET_IMAGES])
    verdict = findings.conclude(results)
    summary = {
        'bug_is_visible': verdict.bug_is_visible,
        'fix_is_visible': verdict.fix_is_visible,
        'conclusion': verdict.text,
        'thresholds': {'poor': study.limits.poor, 'strong': study.limits.strong},
        'population': study.population,
        'results': [each.to_dict() for each in results],
    }
    page_path, json_path = output_dir / 'study.html', output_dir / 'study.json'
    for path, content in (
        (page_path, page.render(study, results)),
        (json_path, json.dumps(summary) + '\n'),
    ):
        data = content.encode()
        _storage.write_atomically(path, lambda file, data=data: file.write(data))
    if _FORMAT.value == 'json':
        print(json.dumps(summary))
        return
    print(command_line.columns([_row(each) for each in results]))
    print(f'\n{verdict.text}\n{page_path}')


def _row(each) -> dict:
    here, realistic = each.guarantees
    return {
        'state': each.state,
        'trained on': each.subpopulation,
        'clients': each.clients,
        'inverted': each.measures.inverted_by_intensity,
        'by the classifier': each.measures.inverted_by_classifier,
        'Frechet distance': each.measures.frechet,
        'epsilon': here.epsilon,
        'realistic': realistic.epsilon,
        'as document 004 counts': realistic.epsilon_half_shift,
    }


if __name__ == '__main__':
    command_line.run(main, threads_per_operation=1)
