"""Has images of a private generator labelled, trains a model on them, and measures it.

Images on devices may not be shown to people who label; images of a private generator may
([Augenstein20], table 1, task T5). In two steps, with people in between:

  python -m experiments.studies.label_images --run_dir=runs/gan --output_dir=runs/labels
  python -m experiments.studies.label_images --run_dir=runs/gan --output_dir=runs/labels \
      --labels=labels.csv

The first draws images and writes label.html, a page on which a person labels them and saves
labels.csv. The second trains a classifier on these labels, another on as many public images, and
one on both, and measures them on the images of held-out clients. With --rater=cnn a classifier
labels in place of people, and both steps are one: a simulation. The output directory then has
images.npz, label.html, labels.csv and labelled.json.
"""

import functools
import json
import pathlib
from typing import Any, BinaryIO

from dpfl import _storage
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.reporting import plain_text
from experiments.studies.labelling.config import LabelConfig

_CONFIG = SettingsFlags(LabelConfig)
_OUTPUT = SettingsFlags(
    output_flags.RunDirectoryConfig,
    only=('output_dir',),
    help={'output_dir': 'Directory for images and results; earlier ones there are replaced.'},
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags; draws images to label, or trains on those that have labels."""
    config = _CONFIG.read()
    command_line.required(config, 'run_dir')
    directory = pathlib.Path(command_line.required(_OUTPUT.read(), 'output_dir'))
    is_json = _FORMAT.read().format == 'json'
    with command_line.refusing_bad_values():
        from experiments.studies.labelling import labelling
        from experiments.studies.labelling import study as label_study

        if config.labels is None:
            page = label_study.draw(config, directory)
            if config.rater is None:
                print(json.dumps({'page': str(page)}) if is_json else page)
                return
        found, labels = label_study.measure(config, directory)
    values = json.dumps(found.to_dict())
    for name, text in ((labelling.LABELS, labelling.as_csv(labels)), ('labelled.json', values)):
        _storage.write_atomically(directory / name, functools.partial(_write, text.encode()))
    if is_json:
        print(values)
        return
    print(f'{found.labelled} of {found.images} images have a label; {found.classes:.1f} classes')
    print(plain_text.columns([_row(each) for each in found.models]))


def _row(each: Any) -> dict[str, Any]:
    low, high = each.accuracy.interval()
    return {
        'trained on': each.learned_from,
        'images': '' if each.images is None else each.images,
        'accuracy': f'{each.accuracy.value:.3f}',
        '95 % interval': f'{low:.3f} to {high:.3f}',
    }


def _write(data: bytes, file: BinaryIO) -> None:
    file.write(data)


if __name__ == '__main__':
    command_line.run(main, threads_per_operation=1)
