r"""Makes a data set of clients from messages: commits of git, mailboxes, or texts in JSON Lines.

Example:
  python -m experiments.studies.make_dataset --from=git --data_path=linux,git \
      --output=commits.parquet

One author is one client, under a name that nobody can trace to the address without the key in the
cache directory. What is no prose is removed: trailers, quotes, code, diffs, links, addresses and
hashes. The Parquet file has a sentence in each row, with the columns client, source, text and
sentence; --task=user_text reads it. What was removed, and what stays, is counted and printed. NOT
private: the file has the text of the authors.
"""

import json

from absl import flags

from dpfl.cli.command import command_line, files
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.reporting import plain_text
from dpfl.tasks.config import DataConfig, TextConfig
from experiments.studies.data import dataset

_FROM = flags.DEFINE_enum(
    'from',
    'git',
    list(dataset.KINDS),
    'What the messages are: commits of git repositories, mailboxes in mbox format, or JSON Lines.',
)
_DATA = SettingsFlags(
    DataConfig,
    only=('data_path',),
    help={'data_path': 'Repositories, mailboxes or files, comma-separated.'},
)
_TEXT = SettingsFlags(
    TextConfig,
    only=('client_column', 'text_column', 'author_max_words'),
    help={
        'client_column': 'Key of the author in JSON Lines.',
        'text_column': 'Key of the text in JSON Lines.',
        'author_max_words': 'Words of an author, the first ones in whole sentences; 0 for all.',
    },
)
_OUTPUT = SettingsFlags(
    output_flags.OutputConfig, help={'output': 'Parquet file; replaced if it exists.'}
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Checks the flags, writes the file, and prints the counts."""
    paths = command_line.required(_DATA.read(), 'data_path')
    output, text = command_line.required(_OUTPUT.read(), 'output'), _TEXT.read()
    kind = _FROM.value
    for name in ('client_column', 'text_column'):
        if kind != 'jsonl' and getattr(text, name) != getattr(TextConfig(), name):
            raise command_line.UsageError(f'--{name}={getattr(text, name)}: needs --from=jsonl')
    files.check_writable(output, None)
    with command_line.refusing_bad_values():
        made = dataset.make(
            kind,
            paths,
            output,
            max_words=text.author_max_words,
            client_column=text.client_column,
            text_column=text.text_column,
        )
    if _FORMAT.read().format == 'json':
        print(json.dumps({'output': output, **made}))
        return
    values = {'clients': made['clients'], 'sources': ', '.join(made['sources'])}
    for group in ('history', 'kept'):
        values |= made[group]
    values |= {f'removed {name}': count for name, count in made['removed'].items()}
    print(plain_text.table(values))


if __name__ == '__main__':
    command_line.run(main)
