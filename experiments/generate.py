"""Prints text that a language model generates: sentences or, for a character model, words.

Example:
  dpfl generate --model_dir=runs/blt --count=20

Takes a SavedModel that dpfl wrote, or the directory of a run that contains one. The guarantee of a
model that was trained under a privacy plan covers whatever it writes, however much that is.
"""

import math

from absl import flags

from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.simulation.training import GenerateConfig, generate

_MODEL_DIR = flags.DEFINE_string(
    'model_dir', None, 'A SavedModel, or the directory of a run that contains one.'
)
_CONFIG = SettingsFlags(GenerateConfig)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags, generates text, and prints it with its probabilities."""
    config = _CONFIG.read()
    if not _MODEL_DIR.value:
        raise command_line.UsageError('--model_dir: must be given')
    with command_line.refusing_bad_values(path=_MODEL_DIR.name):
        texts = generate(config, _MODEL_DIR.value)
    rows = [{**each._asdict(), 'probability': math.exp(each.log_probability)} for each in texts]
    lines = [f'{row["probability"]:9.3g}  {row["text"]}' for row in rows]
    output_flags.show(_FORMAT, rows, '\n'.join(lines))


if __name__ == '__main__':
    command_line.run(main)
