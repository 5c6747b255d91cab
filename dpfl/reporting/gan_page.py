"""The page on the meaning of a GAN's privacy report for its generator. No TensorFlow."""

from dpfl import accounting
from dpfl.mechanisms import rounding
from dpfl.planning.planner import ScaledUp
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


def render(report: accounting.PrivacyReport, scaled: ScaledUp | None) -> str:
    """The page as Markdown.

    Args:
      report: Privacy report of the run.
      scaled: The larger run that it stands for, or None.
    """
    lines = [
        '# What the guarantee means for the generator',
        '',
        report.to_dict()['statement'],
        '',
        '## Covered',
        '',
        _COVERED,
        '',
        '## Not covered',
        '',
        *(f'- {item}' for item in _NOT_COVERED),
        '',
        '## Accounting',
        '',
        '```',
        plain_text.columns(rows(report, scaled)),
        '```',
        '',
        *_assumptions(report.plan, scaled),
        '## Files',
        '',
        '- `model.npz`: the weights of the generator; `generator/`: the same as a SavedModel, '
        'whose signature `generate` makes pixels of standard normal inputs.',
        '- `plots/generated_<round>.png`: images that it made at each evaluation, of the same '
        'inputs.',
    ]
    return '\n'.join(lines) + '\n'


def rows(report: accounting.PrivacyReport, scaled: ScaledUp | None) -> list[dict]:
    """The parameters in [Augenstein20], tables 3 and 13, for a run and the larger run."""
    result = [_row('this run', report.plan, report.guarantee.epsilons[0], report.deltas[0])]
    if scaled is not None:
        result.append(_row('scaled up', scaled.plan, scaled.epsilon, scaled.delta))
    return result


def _row(name, plan, epsilon, delta):
    return {
        '': name,
        'clients per round': plan.clients_per_round,
        'population': '' if plan.population is None else plan.population,
        'rounds': plan.participation.rounds,
        'clip norm': plan.clip_norm,
        'noise multiplier': plan.noise_multiplier,
        'epsilon': accounting.round_up(epsilon) if plan.noise_multiplier else 'none',
        'delta': rounding.shown_delta(delta),
    }


def _assumptions(plan, scaled):
    lines = []
    if plan.sampling is not None:
        lines += [
            f'Cohorts are drawn at random ({plan.sampling_name.replace("_", " ")}), and the '
            'guarantee rests on that; `privacy_report.md` says under which adjacency.',
            '',
        ]
    if plan.adjacency == 'replace_one_half_shift':
        lines += [
            'As in Augenstein et al. 2020, replacing a client is counted as moving the sum of a '
            'round by one clip norm. Clipping alone ensures two: --adjacency=replace_one has the '
            'strict figure.',
            '',
        ]
    if scaled is not None:
        lines += [
            'In the run that is scaled up, the mean of a round has the same noise. So it can be '
            'expected to reach images of this quality in as many rounds. No such run was made.',
            '',
        ]
    return lines
