"""Prints a preset of a paper: its parameters, and where each comes from.

configs/presets.json holds what the papers state, with the place, and why other values were taken.
The values themselves are those of the flag files in configs.

Run: python -m scripts.paper_presets NAME
"""

import dataclasses
import json
import pathlib
import sys
import textwrap

_CONFIGS = pathlib.Path(__file__).parents[1] / 'configs'
_WIDTH = 118
_TABLE = ('| flag | value | source |', '|---|---|---|')


@dataclasses.dataclass(frozen=True)
class Preset:
    """A preset and the sources of its values.

    Attributes:
      name: name of its file in configs, without `.flags`.
      binary: the binary in experiments that it is for.
      about: what it is.
      source: the paper, with table or section.
      stated: value and place in the paper, by name of the flag.
      taken: reason for a value that the paper does not state, by name of the flag.
      differs: in what the preset differs from the paper, a sentence each.
      like: the preset that this one is described by; None for none.
    """

    name: str
    binary: str
    about: str
    source: str
    stated: dict[str, tuple[str, str]]
    taken: dict[str, str]
    differs: tuple[str, ...]
    like: 'Preset | None'

    @property
    def path(self) -> pathlib.Path:
        """The file of flags."""
        return _CONFIGS / f'{self.name}.flags'

    def flags(self) -> dict[str, str]:
        """The values in the file, by name; 'true' for a flag without a value."""
        lines = [line[2:] for line in self.path.read_text().splitlines() if line.startswith('--')]
        return dict(line.split('=', 1) if '=' in line else (line, 'true') for line in lines)


def load() -> dict[str, Preset]:
    """The presets by name, in the order of configs/presets.json.

    An entry with `like` has the values of that preset, except those that it names in `without` or
    has itself.
    """
    found: dict[str, Preset] = {}
    for entry in json.loads((_CONFIGS / 'presets.json').read_text()):
        base = found.get(entry.get('like', ''))
        own = {**entry.get('stated', {}), **entry.get('taken', {})}
        gone = {*entry.get('without', ()), *own}
        stated = {} if base is None else {k: v for k, v in base.stated.items() if k not in gone}
        taken = {} if base is None else {k: v for k, v in base.taken.items() if k not in gone}
        stated |= {name: (value, where) for name, (value, where) in entry.get('stated', {}).items()}
        taken |= entry.get('taken', {})
        differs = entry.get('differs', () if base is None else base.differs)
        found[entry['preset']] = Preset(
            entry['preset'],
            entry['binary'],
            entry['about'],
            entry['source'],
            stated,
            taken,
            tuple(differs),
            base,
        )
    return found


def table(preset: Preset) -> str:
    """Markdown: what the preset is, its values and their sources."""
    values, shown, base = preset.flags(), preset.flags(), preset.like
    parts = [f'## {preset.name}', _wrapped(f'{preset.source}: {preset.about}.')]
    if base is not None:
        before = base.flags()
        gone = ', '.join(f'`--{name}`' for name in before if name not in values)
        without = f' Without {gone}.' if gone else ''
        parts.append(_wrapped(f'As `{base.name}`, but for these values.{without}'))
        shown = {
            name: each
            for name, each in values.items()
            if before.get(name) != each or _source(preset, name) != _source(base, name)
        }
    rows = [
        f'| `--{name}` | {values[name]} | {where} |'
        for name, (_, where) in preset.stated.items()
        if name in shown
    ]
    rows += [
        f'| `--{name}` | {values[name]} | not stated: {why} |'
        for name, why in preset.taken.items()
        if name in shown
    ]
    parts += [_wrapped(note) for note in preset.differs if base is None or note not in base.differs]
    return '\n\n'.join([*parts, '\n'.join([*_TABLE, *rows])]) + '\n'


def _source(preset: Preset, name: str) -> tuple[bool, str]:
    """Whether the paper states the value, and where or why not."""
    if name in preset.stated:
        return True, preset.stated[name][1]
    return False, preset.taken.get(name, '')


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_long_words=False)


if __name__ == '__main__':
    print(table(load()[sys.argv[1]]), end='')
