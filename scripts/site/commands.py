"""The page of the commands: what `dpfl NAME --help` prints, command by command."""

from absl import flags

from dpfl.cli import catalogue
from dpfl.cli.flags import settings_flags

PAGE = 'reference/commands.md'
_HEADER = """# Commands

For whoever types commands: what each does, with examples and all of its flags, as
`dpfl NAME --help` prints it. [Install](../install.md) says where `dpfl` is. What begins with
`studies.` is research, which a checkout runs as `python -m experiments.studies.NAME`.

- A bad flag gives one line, `error: --flag=value: what is allowed`, and exit status 2. A failure of
  the machine gives one line and exit status 1, Ctrl-C one line and 130.
- `--flagfile=FILE` reads flags from a file, one per line. Flags after it change them.
- `--noFLAG` sets a flag of type true or false to false. A list is comma-separated.
- `--helpfull` also shows the flags of libraries.

| command | what it does |
|---|---|
"""


def page() -> str:
    """Markdown: a table of the commands, and a section with the help of each."""
    binaries = [*catalogue.binaries().values(), *catalogue.studies().values()]
    rows = [
        f'| [`{each.name}`](#{each.name.replace(".", "")}) | {each.summary} |' for each in binaries
    ]
    return '\n\n'.join([_HEADER + '\n'.join(rows), *map(_section, binaries)]) + '\n'


def _section(binary: catalogue.Binary) -> str:
    before = set(flags.FLAGS)
    about = binary.define()['__doc__'].strip()
    text = settings_flags.help_text(binary.name).strip()
    for name in set(flags.FLAGS) - before:
        delattr(flags.FLAGS, name)
    settings_flags._classes.clear()
    return f'## {binary.name}\n\n```text\n{about}\n\n{text}\n```'
