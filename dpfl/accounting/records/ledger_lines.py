"""The lines of a ledger: what they hold, how they are chained, and how they are read.

`ledger.jsonl` begins with a line that names its format and the digest of the run's plan. After it
comes a line for each round. Every line ends with a digest of all lines so far, so that none can be
changed or removed unnoticed. Ledgers of format 1 have no such first line and no digest of the
clients' data; they can be read and checked, but not continued.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Sequence

import numpy as np

from dpfl import _json, errors

FORMAT = 2
# Start of the chain of digests, by format.
_STARTS = {
    1: hashlib.sha256(b'dpfl ledger 1').hexdigest(),
    FORMAT: hashlib.sha256(b'dpfl ledger').hexdigest(),
}


class LineError(ValueError):
    """A ledger cannot be read. The message is one line, without the name of the file."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """What the release of one round depends on, as SHA-256 digests in hexadecimal.

    Attributes:
      cohort: of the clients; see `cohort_digest`. It is made without a key, so that it can be
        checked against the log.
      model: of the weights that the clients start from; see `digest`.
      noise: of the noise keys and their positions; see `digest`.
      data: of the batches that the clients train on, made with a key; None in format 1.
    """

    cohort: str
    model: str
    noise: str
    data: str | None = None

    def values(self) -> dict[str, str]:
        """The digests by name, as in a line."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value}


def cohort_digest(cohort: Sequence[int]) -> str:
    """Digest of a set of clients: their order does not matter."""
    return digest([np.sort(np.asarray(cohort, dtype=np.int64))])


def digest(arrays: Iterable[np.ndarray]) -> str:
    """Digest of arrays, including their types and shapes."""
    total = hashlib.sha256()
    for array in map(np.asarray, arrays):
        total.update(f'{array.dtype.str} {array.shape}\n'.encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


def first_line(plan: str) -> tuple[bytes, str]:
    """The first line of a ledger of this format, and the digest at its end.

    Args:
      plan: digest of the plan of the run, of `archive.PlanRecord.digest`.
    """
    return _chained(_STARTS[FORMAT], {'format': FORMAT, 'plan': plan})


def line(chain: str, round_index: int, entry: Entry) -> tuple[bytes, str]:
    """The line of a round, after a line that ends with `chain`; and the digest at its own end."""
    return _chained(chain, {'round': round_index, **entry.values()})


def _chained(chain: str, values: dict) -> tuple[bytes, str]:
    chain = hashlib.sha256((chain + json.dumps(values)).encode()).hexdigest()
    return (json.dumps({**values, 'chain': chain}) + '\n').encode(), chain


@dataclasses.dataclass
class Ledger:
    """The content of a ledger.

    Attributes:
      format: format of its lines, 1 or 2.
      plan: digest of the plan of the run; None in format 1, and in an empty ledger.
      entries: one for each round.
      chain: the digests at the ends of the first line and of the lines of the rounds.
      complete: length of the file in bytes, without a last line that was cut off.
    """

    format: int = FORMAT
    plan: str | None = None
    entries: list[Entry] = dataclasses.field(default_factory=list)
    chain: list[str] = dataclasses.field(default_factory=list)
    complete: int = 0


def parse(data: bytes) -> Ledger:
    """Reads a ledger; a last line that a crash cut off is ignored.

    Raises:
      LineError: if any other line was changed, or the format is of another version.
    """
    *lines, rest = data.split(b'\n')
    found = _begin(lines)
    for number, written in enumerate(lines, 1):
        if found.format == FORMAT and number == 1:
            continue
        entry = _entry(written, found.format)
        if entry is None:
            raise LineError(f'line {number} is damaged')
        expected, chain = line(found.chain[-1], len(found.entries), entry)
        if expected != written + b'\n':
            raise LineError(f'line {number} is damaged')
        found.chain.append(chain)
        found.entries.append(entry)
    found.complete = len(data) - len(rest)
    # No crash leaves a rest as long as a whole line but without its end. (A power failure may leave
    # zeros.)
    if len(rest.rstrip(b'\0')) >= _next_length(found):
        raise LineError(f'line {len(lines) + 1} is damaged')
    return found


def _begin(lines: Sequence[bytes]) -> Ledger:
    """A ledger with the content of the first line, if there is one."""
    if not lines:
        return Ledger()
    values = _values(lines[0])
    if 'format' not in values:
        return Ledger(format=1, chain=[_STARTS[1]])
    stated = values.pop('chain', None)
    expected, chain = _chained(_STARTS[FORMAT], values)
    if stated != chain or expected != lines[0] + b'\n' or not isinstance(values.get('plan'), str):
        raise LineError('line 1 is damaged')
    if values['format'] != FORMAT:
        stated = errors.shown(values['format'])
        raise LineError(f'has format {stated}, this version reads 1 and {FORMAT}')
    return Ledger(plan=values['plan'], chain=[chain])


def _next_length(found: Ledger) -> int:
    """Length of the next line, with its end."""
    if not found.chain:  # The ledger is empty.
        return len(first_line('0' * 64)[0])
    entry = Entry(*['0' * 64] * (3 if found.format == 1 else 4))
    return len(line(found.chain[-1], len(found.entries), entry)[0])


def _entry(written: bytes, version: int) -> Entry | None:
    values = _values(written)
    names = ('cohort', 'model', 'noise') if version == 1 else ('cohort', 'model', 'noise', 'data')
    digests = [value for name in names if isinstance(value := values.get(name), str) and value]
    return Entry(*digests) if len(digests) == len(names) else None


def _values(written: bytes) -> dict:
    try:
        values = _json.loads(written)
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}
