r"""Trains a word model centrally on public text, for --warm_start of dpfl train.

Example:
  dpfl pretrain --public_text=corpus.txt --vocabulary_size=9996 \
      --output=runs/pretrained

NOT private: the text must be public. Without --public_text it is synthetic text of clients that no
run trains on or holds out, in the language of --seed; give the run the same seed. The model is a
SavedModel that dpfl generate and plain TensorFlow can load. Its vocabulary is written beside
it, as a file for --vocabulary_file.
"""

from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.reporting import plain_text
from dpfl.simulation.training import PretrainConfig, pretrain

_CONFIG = SettingsFlags(PretrainConfig)
_OUTPUT = SettingsFlags(
    output_flags.OutputConfig,
    help={'output': 'Folder for the SavedModel; an earlier SavedModel there is replaced.'},
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags, trains, and writes the model."""
    config, output = _CONFIG.read(), command_line.required(_OUTPUT.read(), 'output')
    with command_line.refusing_bad_values():
        result = pretrain(config, output)
    summary = result.summary()
    output_flags.show(_FORMAT, summary, plain_text.table(summary))


if __name__ == '__main__':
    command_line.run(main)
