"""The presets that come with dpfl, found by name from any directory.

In a checkout they are in `configs/`, in an installed package in `dpfl/configs/`.
"""

import os
import pathlib

_INSTALLED = pathlib.Path(__file__).with_name('configs')
FOLDER = _INSTALLED if _INSTALLED.is_dir() else pathlib.Path(__file__).parents[1] / 'configs'
_SUFFIX = '.flags'


def names() -> tuple[str, ...]:
    """Names of the presets, sorted: files for --flagfile, without their suffix."""
    return tuple(sorted(path.name.removesuffix(_SUFFIX) for path in FOLDER.glob(f'*{_SUFFIX}')))


def find(
    name_or_path: str | os.PathLike[str], beside: pathlib.Path | None = None
) -> pathlib.Path | None:
    """The file that a text means; None if there is none.

    A file that exists wins, then one in the folder `beside`, then what comes with dpfl:
    `synthetic_text.blt`, `synthetic_text.blt.flags` and `configs/synthetic_text.blt.flags` are one.

    Args:
      name_or_path: the text.
      beside: folder of the file that has the text in it.
    """
    for path in (pathlib.Path(name_or_path), *([beside / name_or_path] if beside else [])):
        if os.path.lexists(path) and not path.is_dir():
            return path
    name = str(name_or_path).removeprefix('configs/').removesuffix(_SUFFIX)
    return FOLDER / f'{name}{_SUFFIX}' if name in names() else None


def lock(gpu: bool = False) -> pathlib.Path:
    """The versions of TensorFlow Federated and of all that it needs, as requirements of pip.

    Args:
      gpu: those of TensorFlow with kernels for GPUs instead, which replace tensorflow-cpu.
    """
    return FOLDER / ('requirements-gpu.lock' if gpu else 'requirements.lock')
