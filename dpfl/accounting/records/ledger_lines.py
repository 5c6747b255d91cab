"""The lines of a ledger: what they hold, how they are chained, and how they are read.

`ledger.jsonl` begins with a line that names its format and the digest of the run's plan. After it
comes a line for each round. Every line ends with a digest of all lines so far, so that none can be
changed or removed unnoticed. Where a run was extended beyond the rounds it was planned for, a line
between two rounds says so and names the plan of the longer run. Ledgers of format 1 have no such
lines and no digest of the clients' data; they can be read and checked, but not continued. The same
line says that a run goes on with another matrix.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Sequence

import numpy as np

from dpfl import _json, errors
from dpfl.accounting.reports import history, noise_keys

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


@dataclasses.dataclass(frozen=True)
class Extension:
    """A run that goes on beyond the rounds it was planned for, or with another matrix.

    Attributes:
      released: number of rounds in the ledger when it was extended.
      planned: rounds that were planned until then.
      rounds: rounds that are planned since then: more than before, or at least as many if it is
        switched.
      plan: digest of the plan since then, of `archive.PlanRecord.digest`.
      switched: whether rounds that had been planned have another matrix since then. The line has
        it only if so.
    """

    released: int
    planned: int
    rounds: int
    plan: str
    switched: bool = False


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


def extension_line(chain: str, extension: Extension) -> tuple[bytes, str]:
    """The line of an extension, after a line that ends with `chain`; and the digest at its end."""
    values = dataclasses.asdict(extension)
    if not values['switched']:
        del values['switched']
    return _chained(chain, {'extended': values.pop('released'), **values})


def _chained(chain: str, values: dict) -> tuple[bytes, str]:
    chain = hashlib.sha256((chain + json.dumps(values)).encode()).hexdigest()
    return (json.dumps({**values, 'chain': chain}) + '\n').encode(), chain


@dataclasses.dataclass
class Ledger:
    """The content of a ledger.

    Attributes:
      format: format of its lines, 1 or 2.
      plan: digest of the plan of the run, the last one if it was extended; None in format 1, and
        in an empty ledger.
      entries: one for each round.
      extensions: in the order in which they happened.
      chain: the digests at the ends of the first line and of the lines of the rounds.
      end: the digest at the end of the last line of any kind; empty in an empty ledger.
      complete: length of the file in bytes, without a last line that was cut off.
    """

    format: int = FORMAT
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
            history.Extension(each.released, each.planned, each.rounds, each.switched)
            for each in self.extensions
        )


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
    entry = _entry(written, found.format)
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
    """Adds the extension of a line; returns whether the line is one that may follow."""
    values = _values(written)
    numbers: list[int] = [
        number
        for name in ('extended', 'planned', 'rounds')
        if type(number := values.get(name)) is int
    ]
    plan = values.get('plan')
    if len(numbers) != 3 or not isinstance(plan, str):
        return False
    extension = Extension(numbers[0], numbers[1], numbers[2], plan, 'switched' in values)
    expected, chain = extension_line(found.end, extension)
    is_next = extension.released == len(found.entries) <= extension.planned <= extension.rounds
    if extension.switched:
        is_next = is_next and extension.released < extension.planned
    else:
        is_next = is_next and extension.planned < extension.rounds
    if found.format != FORMAT or not is_next or expected != written + b'\n':
        return False
    found.extensions.append(extension)
    found.plan, found.end = plan, chain
    return True


def _begin(lines: Sequence[bytes]) -> Ledger:
    """A ledger with the content of the first line, if there is one."""
    if not lines:
        return Ledger()
    values = _values(lines[0])
    if 'format' not in values:
        return Ledger(format=1, chain=[_STARTS[1]], end=_STARTS[1])
    stated = values.pop('chain', None)
    expected, chain = _chained(_STARTS[FORMAT], values)
    if stated != chain or expected != lines[0] + b'\n' or not isinstance(values.get('plan'), str):
        raise LineError('line 1 is damaged')
    if values['format'] != FORMAT:
        stated = errors.shown(values['format'])
        raise LineError(f'has format {stated}, this version reads 1 and {FORMAT}')
    return Ledger(plan=values['plan'], chain=[chain], end=chain)


def _next_length(found: Ledger) -> int:
    """Length of the next line, with its end."""
    if not found.chain:  # The ledger is empty.
        return len(first_line('0' * 64)[0])
    entry = Entry(*['0' * 64] * (3 if found.format == 1 else 4))
    return len(line(found.end, len(found.entries), entry)[0])


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
