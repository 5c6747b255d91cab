"""Configurations of the presets in configs, with other values."""

import pathlib
from typing import Any

from dpfl._setting_texts import with_texts
from dpfl.cli.command import flagfiles
from dpfl.debugging.images.config import StudyConfig as ImageStudyConfig
from dpfl.simulation.training import GanConfig, TrainConfig
from tests import paper_presets

_CONFIGS = {'train': TrainConfig(), 'train_gan': GanConfig()}
# A study, and the configuration that its runs are made from.
_STUDIES = {'debug_images': (ImageStudyConfig(), GanConfig())}


def config(name: str, **changes: Any) -> Any:
    """The configuration of a preset; None leaves a flag out."""
    preset = paper_presets.load()[name]
    return with_texts(_CONFIGS[preset.binary], _texts(preset, changes))


def flags(path: pathlib.Path) -> dict[str, str]:
    """The flags of a flag file by name, as text."""
    lines = (line.removeprefix('--').partition('=') for line in flagfiles.read(str(path)))
    return {name: value or 'true' for name, _, value in lines}


def study(name: str, **changes: Any) -> tuple[Any, Any]:
    """The configuration of a study, and the one that its runs are made from."""
    preset = paper_presets.load()[name]
    texts, (of_study, of_runs) = _texts(preset, changes), _STUDIES[preset.binary]
    own = {key: text for key, text in texts.items() if key in of_study.flat()}
    rest = {key: text for key, text in texts.items() if key not in own}
    return with_texts(of_study, own), with_texts(of_runs, rest)


def _texts(preset: paper_presets.Preset, changes: dict[str, Any]) -> dict[str, str]:
    values = {**preset.flags(), **changes}
    return {key: str(value) for key, value in values.items() if value is not None}
