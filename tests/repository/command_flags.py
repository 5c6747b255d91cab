"""The commands with their flags, and arguments that they refuse, for tests of pages.

Each command is imported, which loads no TensorFlow, and its flags are taken from absl again before
the next one. So that is done in a process of its own.
"""

import collections
import functools
import json
import subprocess
import sys
from collections.abc import Iterable

from absl import flags

from dpfl import _setting_texts, _settings
from dpfl.cli import catalogue
from dpfl.cli.flags import settings_flags
from tests import paths


def helps() -> dict[str, dict[str, str]]:
    """The help text of every flag of every command."""
    return {name: texts for name, (texts, _) in _read(()).items()}


def refused(arguments: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """What is wrong with arguments such as `--rounds=3`, each behind the command that it is of."""
    found = _read(tuple(sorted(set(arguments))))
    return {(name, each): why for name, (_, wrong) in found.items() for each, why in wrong.items()}


@functools.cache
def _read(arguments: tuple[tuple[str, str], ...]) -> dict[str, tuple[dict, dict]]:
    done = subprocess.run(
        [sys.executable, '-m', 'tests.repository.command_flags'],
        input=json.dumps(arguments),
        cwd=paths.ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def _main() -> None:
    given = collections.defaultdict(list)
    for name, argument in json.load(sys.stdin):
        given[name].append(argument)
    found = {}
    for binary in (*catalogue.binaries().values(), *catalogue.studies().values()):
        before = set(flags.FLAGS)
        names = binary.define()
        own = {flag.name: flag for flag in flags.FLAGS.flags_by_module_dict().get(binary.name, [])}
        made = [each for each in names.values() if isinstance(each, settings_flags.SettingsFlags)]
        leaves = {
            row[0].name: row
            for each in made
            for row in each._base.table()
            if row[0].name in each.names
        }
        wrong = {each: _why_refused(each, own, leaves) for each in given[binary.name]}
        found[binary.name] = (
            {name: flag.help for name, flag in own.items()},
            {each: why for each, why in wrong.items() if why},
        )
        for name in set(flags.FLAGS) - before:
            delattr(flags.FLAGS, name)
        settings_flags._classes.clear()
    json.dump(found, sys.stdout)


def _why_refused(argument: str, own: dict[str, flags.Flag], leaves: dict[str, list]) -> str:
    """What is wrong with an argument; nothing if its flag takes its value."""
    name, mark, text = argument.removeprefix('--').partition('=')
    flag = own.get(name, own.get(name.removeprefix('no')))
    if flag is None:
        return 'no such flag'
    if not mark:
        return ''
    try:
        flag.parse(text)
        if name in leaves:
            field, kind, _ = leaves[name]
            _settings._checked(field, kind, _setting_texts.value_of(name, kind, text))
    except (ValueError, flags.Error) as error:
        return str(error)
    return ''


if __name__ == '__main__':
    _main()
