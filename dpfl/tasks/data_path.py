"""Where the data of a task are, after their download if one was asked for."""

import pathlib

from dpfl.errors import NOT_SHOWN, ArgumentError
from dpfl.mechanisms.optimize import cache
from dpfl.tasks.config import DataConfig


def required(config: DataConfig, task: str) -> pathlib.Path:
    """The path of data that cannot be downloaded.

    Raises:
      ArgumentError: if it is not given, or a download is asked for.
    """
    if config.download:
        raise ArgumentError('download', NOT_SHOWN, f'task={task} has no data set to download')
    if not config.data_path:
        raise ArgumentError('data_path', NOT_SHOWN, f'must be given for task={task}')
    return pathlib.Path(config.data_path)


def downloadable(
    config: DataConfig, task: str, url: str, name: str, sha256: str | None = None
) -> pathlib.Path:
    """The path of a data set that TFF publishes, after its download if it is asked for.

    Args:
      config: where the data are.
      task: named in errors.
      url: address that TFF uses.
      name: of the file in the cache directory.
      sha256: of the compressed file, if it is known.

    Raises:
      ArgumentError: if there is neither a path nor a download.
      DataError: if the download fails.
    """
    path = config.data_path
    if not config.download:
        if not path:
            raise ArgumentError(
                'data_path', NOT_SHOWN, f'must be given for task={task}, or download'
            )
        return pathlib.Path(path)
    directory = cache.cache_directory()
    if not path and directory is None:
        raise ArgumentError(
            'data_path', NOT_SHOWN, 'must say where to download to; there is no cache directory'
        )
    from dpfl.tasks import download

    return download.fetch_lzma(
        config.download_url or url,
        path or pathlib.Path(directory or '') / name,
        config.download_sha256 or sha256,
    )


def refuse(config: DataConfig, task: str) -> None:
    """Raises ArgumentError if a setting says where data are, for a task that makes its own."""
    for name in ('data_path', 'download'):
        if getattr(config, name):
            raise ArgumentError(name, NOT_SHOWN, f'task={task} makes its own data')
