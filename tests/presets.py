"""Configurations of the presets in configs, with other values."""

from typing import Any

from dpfl._setting_texts import with_texts
from dpfl.simulation.training import GanConfig, TrainConfig
from scripts import presets_page

_CONFIGS = {'train': TrainConfig, 'train_gan': GanConfig}


def config(name: str, **changes: Any) -> Any:
    """The configuration of a preset; None leaves a flag out."""
    preset = presets_page.load()[name]
    values = {**preset.flags(), **changes}
    texts = {key: str(value) for key, value in values.items() if value is not None}
    return with_texts(_CONFIGS[preset.binary](), texts)
