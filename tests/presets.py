"""The presets of papers, with the source of each value, and their configurations.

configs/presets.json holds what the papers state, with the place, and why other values were taken.
The values themselves are those of the flag files in configs.
"""

import dataclasses
import json
import pathlib
from typing import Any

from dpfl._setting_texts import with_texts
from dpfl.cli.command import flagfiles
from dpfl.debugging.images.config import StudyConfig as ImageStudyConfig
from dpfl.simulation.training import GanConfig, TrainConfig
from tests import paths

_FILES = paths.ROOT / 'configs'
_CONFIGS = {'train': TrainConfig(), 'train_gan': GanConfig()}
# A study, and the configuration that its runs are made from.
_STUDIES = {'debug_images': (ImageStudyConfig(), GanConfig())}


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
        return _FILES / f'{self.name}.flags'

    def flags(self) -> dict[str, str]:
        """The values in the file, by name."""
        return flags(self.path)


def load() -> dict[str, Preset]:
    """The presets by name, in the order of configs/presets.json.

    An entry with `like` has the values of that preset, except those that it names in `without` or
    has itself.
    """
    found: dict[str, Preset] = {}
    for entry in json.loads((_FILES / 'presets.json').read_text()):
        base = found.get(entry.get('like', ''), Preset('', '', {}, {}, ()))
        own = {**entry.get('stated', {}), **entry.get('taken', {})}
        gone = {*entry.get('without', ()), *own}
        found[entry['preset']] = Preset(
            entry['preset'],
            entry['binary'],
            {name: each for name, each in base.stated.items() if name not in gone}
            | {name: (value, where) for name, (value, where) in entry.get('stated', {}).items()},
            {name: each for name, each in base.taken.items() if name not in gone}
            | entry.get('taken', {}),
            tuple(entry.get('differs', base.differs)),
        )
    return found


def config(name: str, **changes: Any) -> Any:
    """The configuration of a preset; None leaves a flag out."""
    preset = load()[name]
    return with_texts(_CONFIGS[preset.binary], _texts(preset, changes))


def flags(path: pathlib.Path) -> dict[str, str]:
    """The flags of a flag file by name, as text; 'true' for a flag without a value."""
    lines = (line.removeprefix('--').partition('=') for line in flagfiles.read(str(path)))
    return {name: value or 'true' for name, _, value in lines}


def study(name: str, **changes: Any) -> tuple[Any, Any]:
    """The configuration of a study, and the one that its runs are made from."""
    preset = load()[name]
    texts, (of_study, of_runs) = _texts(preset, changes), _STUDIES[preset.binary]
    own = {key: text for key, text in texts.items() if key in of_study.flat()}
    rest = {key: text for key, text in texts.items() if key not in own}
    return with_texts(of_study, own), with_texts(of_runs, rest)


def _texts(preset: Preset, changes: dict[str, Any]) -> dict[str, str]:
    values = {**preset.flags(), **changes}
    return {key: str(value) for key, value in values.items() if value is not None}
