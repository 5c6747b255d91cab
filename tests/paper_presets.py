"""The presets of papers, with the source of each value.

configs/presets.json holds what the papers state, with the place, and why other values were taken.
The values themselves are those of the flag files in configs.
"""

import dataclasses
import json
import pathlib

from tests import paths

_CONFIGS = paths.ROOT / 'configs'


@dataclasses.dataclass(frozen=True)
class Preset:
    """A preset and the sources of its values.

    Attributes:
      name: name of its file in configs, without `.flags`.
      binary: the binary in experiments that it is for.
      stated: value and place in the paper, by name of the flag.
      taken: reason for a value that the paper does not state, by name of the flag.
      differs: in what the preset differs from the paper, a sentence each.
    """

    name: str
    binary: str
    stated: dict[str, tuple[str, str]]
    taken: dict[str, str]
    differs: tuple[str, ...]

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
            stated,
            taken,
            tuple(differs),
        )
    return found
