"""The lines of a ledger: what they hold, how they are chained, and how they are read.

`ledger.jsonl` begins with a line that names its format and the digest of the run's plan. After it
comes a line for each round. Every line ends with a digest of all lines so far, so that none can be
changed or removed unnoticed. Where a run was extended beyond the rounds it was planned for, a line
between two rounds says so and names the plan of the longer run.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Sequence

import numpy as np

from dpfl import _json, errors
from dpfl.accounting.reports import history, noise_keys

FORMAT = 2
# Start of the chain of digests.
_START = hashlib.sha256(b'dpfl ledger').hexdigest()


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
      data: of the batches that the clients train on, made with a key.
    """

    cohort: str
    model: str
    noise: str
    data: str

    def values(self) -> dict[str, str]:
        """The digests by name, as in a line."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Extension:
    """A run that goes on beyond the rounds it was planned for.

    Attributes:
      released: number of rounds in the ledger when it was extended.
      planned: rounds that were planned until then.
      rounds: rounds that are planned since then, more than before.
      plan: digest of the plan since then, of `archive.PlanRecord.digest`.
    """

    released: int
    planned: int
    rounds: int
    plan: str


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
    return _chained(_START, {'format': FORMAT, 'plan': plan})


def line(chain: str, round_index: int, entry: Entry) -> tuple[bytes, str]:
    """The line of a round, after a line that ends with `chain`; and the digest at its own end."""
    return _chained(chain, {'round': round_index, **entry.values()})


def extension_line(chain: str, extension: Extension) -> tuple[bytes, str]:
    """The line of an extension, after a line that ends with `chain`; and the digest at its end."""
    values = dataclasses.asdict(extension)
    return _chained(chain, {'extended': values.pop('released'), **values})


def _chained(chain: str, values: dict) -> tuple[bytes, str]:
    chain = hashlib.sha256((chain + json.dumps(values)).encode()).hexdigest()
    return (json.dumps({**values, 'chain': chain}) + '\n').encode(), chain


@dataclasses.dataclass
class Ledger:
    """The content of a ledger.

    Attributes:
      plan: digest of the plan of the run, the last one if it was extended; None in an empty
        ledger.
      entries: one for each round.
      extensions: in the order in which they happened.
      chain: the digests at the ends of the first line and of the lines of the rounds.
      end: the digest at the end of the last line of any kind; empty in an empty ledger.
      complete: length of the file in bytes, without a last line that was cut off.
    """

    plan: str | None = None
    entries: list[Entry] = dataclasses.field(default_factory=list)
    extensions: list[Extension] = dataclasses.field(default_factory=list)
    chain: list[str] = dataclasses.field(default_factory=list)
    end: str = ''
    complete: int = 0

    @property
    def noise_key_digest(self) -> str | None:
        """The digest of the run's noise keys, for its report; None before the first round."""
        return noise_keys.digest(self.entries[0].noise) if self.entries else None

    @property
    def history(self) -> tuple[history.Extension, ...]:
        """The extensions without the digests of their plans, as in `archive.PlanRecord`."""
        return tuple(
            history.Extension(each.released, each.planned, each.rounds) for each in self.extensions
        )


def parse(data: bytes) -> Ledger:
    """Reads a ledger; a last line that a crash cut off is ignored.

    Raises:
      LineError: if any other line was changed, or the format is of another version.
    """
    *lines, rest = data.split(b'\n')
    found = _begin(lines)
    for number, written in enumerate(lines, 1):
        if number == 1:
            continue
        if not (_add_round(found, written) or _add_extension(found, written)):
            raise LineError(f'line {number} is damaged')
    found.complete = len(data) - len(rest)
    # No crash leaves a rest as long as a whole line but without its end. (A power failure may leave
    # zeros.)
    if len(rest.rstrip(b'\0')) >= _next_length(found):
        raise LineError(f'line {len(lines) + 1} is damaged')
    return found


def _add_round(found: Ledger, written: bytes) -> bool:
    """Adds the round of a line; returns whether the line is that of the next round."""
    entry = _entry(written)
    if entry is None:
        return False
    expected, chain = line(found.end, len(found.entries), entry)
    if expected != written + b'\n':
        return False
    found.chain.append(chain)
    found.end = chain
    found.entries.append(entry)
    return True


def _add_extension(found: Ledger, written: bytes) -> bool:
    """Adds the extension of a line; returns whether the line is one that may follow.

    Raises:
      LineError: if the run got another matrix.
    """
    values = _values(written)
    if 'switched' in values:
        raise LineError(errors.removed('goes on with another matrix'))
    numbers: list[int] = [
        number
        for name in ('extended', 'planned', 'rounds')
        if type(number := values.get(name)) is int
    ]
    plan = values.get('plan')
    if len(numbers) != 3 or not isinstance(plan, str):
        return False
    extension = Extension(numbers[0], numbers[1], numbers[2], plan)
    expected, chain = extension_line(found.end, extension)
    is_next = extension.released == len(found.entries) <= extension.planned < extension.rounds
    if not is_next or expected != written + b'\n':
        return False
    found.extensions.append(extension)
    found.plan, found.end = plan, chain
    return True


def _begin(lines: Sequence[bytes]) -> Ledger:
    """A ledger with the content of the first line, if there is one."""
    if not lines:
        return Ledger()
    values = _values(lines[0])
    if 'format' not in values and 'round' in values:
        raise LineError(errors.removed('has format 1'))
    stated = values.pop('chain', None)
    expected, chain = _chained(_START, values)
    if stated != chain or expected != lines[0] + b'\n' or not isinstance(values.get('plan'), str):
        raise LineError('line 1 is damaged')
    if values.get('format') != FORMAT:
        stated = errors.shown(values.get('format'))
        raise LineError(f'has format {stated}, this version reads {FORMAT}')
    return Ledger(plan=values['plan'], chain=[chain], end=chain)


def _next_length(found: Ledger) -> int:
    """Length of the next line, with its end."""
    if not found.chain:  # The ledger is empty.
        return len(first_line('0' * 64)[0])
    entry = Entry(*['0' * 64] * 4)
    return len(line(found.end, len(found.entries), entry)[0])


def _entry(written: bytes) -> Entry | None:
    values = _values(written)
    names = ('cohort', 'model', 'noise', 'data')
    digests = [value for name in names if isinstance(value := values.get(name), str) and value]
    return Entry(*digests) if len(digests) == len(names) else None


def _values(written: bytes) -> dict:
    try:
        values = _json.loads(written)
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}
