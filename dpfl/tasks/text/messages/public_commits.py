"""The commit messages of public repositories as text whose authors do not matter."""

import collections
from collections.abc import Iterator

from dpfl.tasks.text.messages import git_history, prose


def texts(paths: str) -> Iterator[str]:
    """The text of each commit, without what is no prose; a sentence in each line.

    Args:
      paths: comma-separated directories, as for `git_history.find`.

    Raises:
      ArgumentError: if a repository cannot be read; it names `data_path`.
    """
    counts: collections.Counter[str] = collections.Counter()
    for message in git_history.messages(git_history.find(paths), counts):
        if sentences := prose.sentences(message.text, counts):
            yield '\n'.join(sentences)
