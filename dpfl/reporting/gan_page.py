"""The page on the meaning of a GAN's privacy report for its generator. No TensorFlow."""

from dpfl import accounting
from dpfl.mechanisms import rounding
from dpfl.reporting import plain_text

_COVERED = """\
The guarantee in `privacy_report.md` holds for the generator, and for all images that it makes. In
every round, the data of the clients enter through one set of vectors only: the noised mean of the
clients' clipped changes to the discriminator. The privacy plan is about these. The server computes
the generator from them and from its own random numbers. Whatever is computed from the result of a
differentially private algorithm, without the data, has the guarantee of that algorithm
(post-processing). So only the discriminator needs clipping and noise. The generator may be trained
for any number of steps, sampled any number of times, published, and looked at (Augenstein et al.
2020, section 6, algorithm 1).\
"""
_NOT_COVERED = (
    'Losses, accuracy and critic gap in `metrics.csv` and TensorBoard: they are measured on images '
    'of held-out clients, without noise. If those are real clients, these numbers are not private, '
    'nor is the choice of a generator by them. Intensity and diversity are measured on generated '
    'images, so they are covered.',
    'The training metrics of --release_train_metrics, if they were recorded.',
    'The selection of the clients, if they were selected, for example by the accuracy of a primary '
    'model on their data: who belongs to the population, and how many clients do.',
    'The primary model, a second GAN, and anything else that was trained on the same clients: the '
    'guarantees add up (`dpfl report_privacy --compose_with`).',
)


def render(report: accounting.PrivacyReport) -> str:
    """The page of a run's report as Markdown."""
    parts = [
        '# What the guarantee means for the generator',
        report.to_dict()['statement'],
        '## Covered',
        _COVERED,
        '## Not covered',
        '\n'.join(f'- {item}' for item in _NOT_COVERED),
        '## Accounting',
        f'```\n{plain_text.columns([_row(report)])}\n```',
        *_assumptions(report.plan),
        '## Files',
        '- `model.npz`: the weights of the generator; `generator/`: the same as a SavedModel, '
        'whose signature `generate` makes pixels of standard normal inputs.\n'
        '- `plots/generated_<round>.png`: images that it made at each evaluation, of the same '
        'inputs.',
    ]
    return '\n\n'.join(parts) + '\n'


def _row(report):
    """The parameters in [Augenstein20], tables 3 and 13."""
    plan = report.plan
    return {
        '': 'this run',
        'clients per round': plan.clients_per_round,
        'population': '' if plan.population is None else plan.population,
        'rounds': plan.participation.rounds,
        'clip norm': plan.clip_norm,
        'noise multiplier': plan.noise_multiplier,
        'epsilon': (
            accounting.round_up(report.guarantee.epsilons[0]) if plan.noise_multiplier else 'none'
        ),
        'delta': rounding.shown_delta(report.deltas[0]),
    }


def _assumptions(plan):
    if plan.sampling is not None:
        yield (
            f'Cohorts are drawn at random ({plan.sampling_name.replace("_", " ")}), and the '
            'guarantee rests on that; `privacy_report.md` says under which adjacency.'
        )
    if plan.adjacency == 'replace_one_half_shift':
        yield (
            'As in Augenstein et al. 2020, replacing a client is counted as moving the sum of a '
            'round by one clip norm. Clipping alone ensures two: --adjacency=replace_one has the '
            'strict figure.'
        )
