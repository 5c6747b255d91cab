"""Writes made-up text of many clients, for a first try of what needs text of one's own.

Example: 400 clients, then the flags of a run with their text,

  dpfl sample_text --output=texts.jsonl
  dpfl suggest --data_path=texts.jsonl --target_epsilon=4 --output=mine.flags

Each line of the file has a client and a sentence of the language of `--task=synthetic_text`, with
words made of letters; it is text as `--data_path` reads it.
"""

import dataclasses
import json

from dpfl import _parquet
from dpfl._settings import Settings, setting
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.tasks.text import synthetic_text


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleConfig(Settings):
    """How much text there is."""

    clients: int = setting(400, 'Number of clients.', minimum=1, maximum=10_000_000)
    vocabulary_size: int = setting(96, 'Number of frequent words.', minimum=1, maximum=1_000_000)


_SAMPLE = SettingsFlags(SampleConfig)
_SEED = SettingsFlags(output_flags.SeedConfig)
_OUTPUT = SettingsFlags(
    output_flags.OutputConfig, help={'output': 'File for the text, JSON Lines; must be new.'}
)


def main() -> None:
    """Writes the file."""
    sample, output = _SAMPLE.read(), _OUTPUT.read().output
    if output is None:
        raise command_line.UsageError('--output: missing; the file for the text')
    command_line.check_writable(output, None)
    if output.endswith(('.csv', *_parquet.SUFFIXES)):
        raise command_line.UsageError(
            f'--output={output}: must not be named as CSV or Parquet; it gets JSON Lines'
        )
    with command_line.refusing_bad_values():
        population = synthetic_text.SyntheticText(
            vocabulary_size=sample.vocabulary_size, seed=_SEED.read().seed, sentence_length=10
        )
    sentences = 0
    try:
        with open(output, 'x', encoding='utf-8') as file:
            for client in range(sample.clients):
                for text in population.text(client):
                    file.write(json.dumps({'client': f'client{client}', 'text': text}) + '\n')
                    sentences += 1
    except FileExistsError:
        raise command_line.UsageError(
            f'--output={output}: exists already; sample text replaces nothing'
        ) from None
    print(f'{sentences:,} sentences of {sample.clients:,} clients in {output}')


if __name__ == '__main__':
    command_line.run(main)
