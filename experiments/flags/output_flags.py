"""Settings of what a binary writes and prints: each a flag that several binaries have."""

import dataclasses

from dpfl._settings import Settings, setting

FORMATS = ('text', 'json')


@dataclasses.dataclass(frozen=True, kw_only=True)
class FormatConfig(Settings):
    """How a result is printed."""

    format: str = setting('text', 'Form of the result printed last.', choices=FORMATS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunDirectoryConfig(Settings):
    """The directory of a run, and what becomes of an earlier run there."""

    output_dir: str | None = setting(None, 'Directory of the run.')
    overwrite: bool = setting(False, 'Replace an earlier run in that directory.')
    resume: bool = setting(
        False,
        'Continue the run in that directory, with the flags that it had, to the result that it '
        'would have had; begin one if there is none.',
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunDirConfig(Settings):
    """A finished run that is read."""

    run_dir: str | None = setting(None, 'Directory of a finished run.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlotConfig(Settings):
    """A plot in a file."""

    plot: str | None = setting(None, 'File of the plot.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputConfig(Settings):
    """A result in a file."""

    output: str | None = setting(None, 'File of the result.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeedConfig(Settings):
    """The seed of everything random."""

    seed: int = setting(0, 'Seed of everything random.', minimum=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepConfig(Settings):
    """A quantity that is varied."""

    vary: str | None = setting(None, 'Quantity that is varied.')
    values: tuple[str, ...] | None = setting(None, 'Values of the quantity, comma-separated.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossConfig(Settings):
    """The loss of a mechanism."""

    loss: str = setting(
        'max',
        'Loss that is plotted: largest or root mean square noise of the prefix sums.',
        choices=('max', 'rms'),
    )
