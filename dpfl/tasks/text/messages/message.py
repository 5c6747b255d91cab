"""A message, and the names of what is counted while messages become text."""

import dataclasses

# Longest message in bytes that is read; the rest of a longer one is left out.
MAX_BYTES = 1 << 18


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """What one author wrote at one time.

    Attributes:
      author: who wrote it, such as an address in lower case; no digest yet.
      source: number of the repository or file, from 0.
      text: the message as it was written.
    """

    author: str
    source: int
    text: str


def decoded(data: bytes) -> tuple[str, bool]:
    """Text of bytes that should be UTF-8, and whether they are not: bad ones become U+FFFD."""
    try:
        return data.decode(), False
    except UnicodeDecodeError:
        return data.decode(errors='replace'), True
