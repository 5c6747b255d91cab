r"""Finds a bug in images that nobody may look at ([Augenstein20], section 6).

Example:
  dpfl debug_images --flagfile=configs/debug_images.flags \
    --output_dir=runs/debug_images

A classifier of letters and digits runs on devices: one that the study trains on public images,
those of held-out clients, or your own (--primary_model). The clients (or their examples) are
divided by its accuracy. DP-FedAvg-GAN trains a GAN where it does well, one where it does badly, one
on all clients, and one on public images; the study says what differs and names the fault. With
--compare=fix and --inject it is the study of the paper: two GANs while some devices have a fault,
and two after the fix. The output directory then has
- study.html: sheets of generated images side by side, and the conclusion;
- study.json: the same numbers;
- sheets/ with the pictures, and primary/ with the classifier;
- a folder for each GAN with the files of a run of dpfl train_gan.

With --resume, what is finished is kept, and an interrupted run continues.
"""

from typing import TYPE_CHECKING, Any

from dpfl import accounting
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.debugging.images.config import StudyConfig
from dpfl.reporting import plain_text
from dpfl.simulation.training import (
    EvaluationConfig,
    ExecutionConfig,
    GanConfig,
    ImageTaskConfig,
    PrivacyConfig,
    SamplingConfig,
)

if TYPE_CHECKING:
    from dpfl.debugging.images import findings

_DEFAULTS = GanConfig(
    task=ImageTaskConfig(),
    privacy=PrivacyConfig(mechanism='gaussian', clip_norm=1.0, noise_multiplier=0.01),
    sampling=SamplingConfig(rounds=150, clients_per_round=10),
    evaluation=EvaluationConfig(eval_clients=5),
    execution=ExecutionConfig(checkpoint_every=25),
)
_CONFIG = SettingsFlags(
    _DEFAULTS,
    # Mechanism, schema and sampling are those of [Augenstein20], algorithm 1.
    skip={
        *PrivacyConfig().flat(),
        *SamplingConfig().flat(),
        'eval_every',
        'release_train_metrics',
    }
    - {
        'clip_norm',
        'noise_multiplier',
        'adjacency',
        'rounds',
        'population',
        'clients_per_round',
    },
    help={
        'population': 'Number of clients; by default all that --task=emnist does not hold out, or '
        '3,400 synthetic ones.',
        'clients_per_round': 'Number of clients in a round, drawn without replacement.',
        'model': 'Size of the GANs; [Augenstein20] uses dcgan.',
        'adjacency': 'Adjacency of the privacy reports, as in report_privacy. The page also has '
        'the figures for replace_one_half_shift, which [Augenstein20] prints.',
        'noise_seed': 'Makes the noise repeatable, and the study a simulation.',
    },
)
_STUDY = SettingsFlags(StudyConfig)
_DIRECTORY = SettingsFlags(output_flags.RunDirectoryConfig)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags, trains what is missing, and writes the page."""
    where, config, base = _DIRECTORY.read(), _STUDY.read(), _CONFIG.read()
    output_dir = output_flags.directory(where)
    with command_line.refusing_bad_values(directory='output_dir'):
        from dpfl.debugging import page
        from dpfl.debugging.images import page as image_page
        from dpfl.debugging.images.study import Study

        found = Study(
            config=config,
            base=base,
            directory=output_dir,
            resume=where.resume,
            overwrite=where.overwrite,
        ).run()
    path, numbers = page.write(output_dir, image_page.render(found), found)
    if _FORMAT.read().format == 'json':
        print(numbers)
        return
    print(plain_text.columns([_row(each) for each in found.results]))
    print(f'\n{found.text}\n{path}')


def _row(each: 'findings.Finding') -> dict[str, Any]:
    row: dict[str, Any] = {
        'state': each.state,
        'trained on': each.subpopulation,
        'clients': each.clients,
        'inverted': each.traits['inverted'].value,
        'Frechet distance': each.learned.numbers['frechet'],
    }
    here, realistic = each.guarantees or (None, None)
    if here is None or realistic is None:
        return row | {'epsilon': 'public', 'realistic': '', 'as document 004 counts': ''}
    return row | {
        'epsilon': here.epsilon,
        'realistic': accounting.round_up(realistic.epsilon),
        'as document 004 counts': accounting.round_up(realistic.epsilon_half_shift),
    }


if __name__ == '__main__':
    command_line.run(main, threads_per_operation=1)
