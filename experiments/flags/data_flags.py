"""Flags of where the data of a task come from. No TensorFlow."""

import pathlib

from absl import flags

from dpfl.mechanisms.optimize import cache
from experiments.command import command_line

_DATA_PATH = flags.DEFINE_string('data_path', None, 'File with the data of the clients.')
_DOWNLOAD = flags.DEFINE_bool(
    'download',
    False,
    'Download the data set of TFF to --data_path (by default a place in the cache directory) '
    'unless it is there. A download that was cut off goes on where it stopped.',
)
_DOWNLOAD_URL = flags.DEFINE_string(
    'download_url', None, 'Where --download finds the data set; by default where TFF has it.'
)
_DOWNLOAD_SHA256 = flags.DEFINE_string(
    'download_sha256',
    None,
    'SHA-256 of what --download downloads (compressed); by default the one that is known, or else '
    'the MD5 that the server states is compared.',
)
_HELDOUT_FRACTION = flags.DEFINE_float(
    'heldout_fraction',
    0.1,
    'Share of the clients that are not trained on but evaluated on, where the data do not say '
    'which clients that are.',
)


def heldout_fraction() -> float:
    """Value of --heldout_fraction."""
    return _HELDOUT_FRACTION.value


def required_path() -> pathlib.Path:
    """Value of --data_path.

    Raises:
      UsageError: if it is not given, or --download is.
    """
    if _DOWNLOAD.value:
        raise command_line.UsageError(f'--download: --task={flags.FLAGS.task} has no data set')
    if not _DATA_PATH.value:
        raise command_line.UsageError(f'--data_path: must be given for --task={flags.FLAGS.task}')
    return pathlib.Path(_DATA_PATH.value)


def downloadable_path(url: str, name: str, sha256: str | None = None) -> pathlib.Path:
    """Path of a data set that TFF has, after its download if --download is given.

    Args:
      url: where TFF has it.
      name: of the file in the cache directory.
      sha256: of the compressed file, if it is known.

    Raises:
      UsageError: if there is neither --data_path nor --download.
      DataError: if the download fails.
    """
    path = _DATA_PATH.value
    if not _DOWNLOAD.value:
        if not path:
            raise command_line.UsageError(
                f'--data_path: must be given for --task={flags.FLAGS.task}, or --download'
            )
        return pathlib.Path(path)
    directory = cache.cache_directory()
    if not path and directory is None:
        raise command_line.UsageError('--data_path: must say where to; there is no cache directory')
    from dpfl.tasks import download

    return download.fetch_lzma(
        _DOWNLOAD_URL.value or url, path or directory / name, _DOWNLOAD_SHA256.value or sha256
    )


def refuse() -> None:
    """Raises UsageError if a flag says where data are, for a task that makes its own."""
    for flag in (_DATA_PATH, _DOWNLOAD):
        if flag.value:
            raise command_line.UsageError(
                f'--{flag.name}: --task={flags.FLAGS.task} makes its own data'
            )
