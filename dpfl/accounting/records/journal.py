"""The journal of a run, `ledger.jsonl`: what was done with the clients' data, in order.

Everything that a run has drawn or released follows from its journal, from the client ids of its
cohorts, its strategy and its checkpoints. All other files are computed from these, or have their
digests here. An event is on the disk before anything that follows from it is: a draw before it is
made, a round before it is computed. So a file that knows more than the journal proves that the
journal was cut.

`ledger.jsonl` has a line of JSON for each event. A line ends with `chain`, the SHA-256 digest of
the line before and of its own values, so that no line can be changed, removed or moved unnoticed.
Lines that begin with `{"note"` are outside of the chain: times, and what happened to the process.
Nothing is judged by them, and they may differ between two runs with the same bits.

The journal is private. Its digests of the clients' data have a key, which is not in it, but its
digests of cohorts and models have none: whoever guesses them can check the guess.

How the format may change: an event may get a field with a default, which is left out of the line
while it has that default, so that journals written before keep their digests. Anything else needs
another `FORMAT`, and this module then names the version of dpfl that reads the format before.
"""

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from dpfl import _json, _validate, errors
from dpfl.accounting.reports import inputs

FORMAT = 3
_START = hashlib.sha256(b'dpfl journal').hexdigest()
_NOTE = b'{"note": '
_HEX = frozenset('0123456789abcdef')
_TEXT_FILE = re.compile(r'[A-Za-z0-9_-]+\.txt')


class JournalError(ValueError):
    """A journal is damaged, or does not allow an event. One line, without the name of the file."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened in a run. Fields are JSON values."""

    name: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """The values of the line; numbers that are not finite are texts."""
        values: dict[str, Any] = {'event': self.name}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.default is dataclasses.MISSING or value != field.default:
                values[field.name] = _plain(value)
        return values


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planned(Event):
    """A run is about to read the clients' data, or to draw from them.

    Until the first round, another such event may follow: with other settings, or after a crash that
    came before the keys were written.

    Attributes:
      settings: all settings of the run, as its configuration gives them; None for a training loop
        of one's own.
      files: texts that describe the run, such as its flags, by the names of their files, `*.txt`.
      date: the day on which it began, as in ISO 8601.
      version: of dpfl.
      keys: digest of the root of its keys.
    """

    name: ClassVar[str] = 'planned'
    settings: Mapping[str, Any] | None
    files: Mapping[str, str]
    date: str
    version: str
    keys: str

    def __post_init__(self):
        if self.settings is not None:
            _json.checked_object('settings', self.settings)
        _files('files', self.files)
        _text('date', self.date)
        _text('version', self.version)
        _digest('keys', self.keys)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drew(Event):
    """Something private is drawn from the data before training, such as the words of a vocabulary.

    The event comes twice: without a result before the draw is made, and with it afterwards. From
    the first one on the draw counts, whether its result is known or not.

    Attributes:
      what: name of what is drawn.
      intent: all settings on which the draw depends, `release` with what it costs (the fields of
        `ReleaseBefore`), and `data`, a keyed digest of the data that it is made from.
      result: what was drawn, or None before.
    """

    name: ClassVar[str] = 'drew'
    what: str
    intent: Mapping[str, Any]
    result: Any = None

    def __post_init__(self):
        _text('what', self.what)
        _digest('data', _json.checked_object('intent', self.intent).get('data'))
        _json.checked_object('release', self.intent.get('release'))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Built(Event):
    """The plan of the run and everything else that its pages depend on are fixed.

    Attributes:
      record: the fields of `archive.PlanRecord`, of which `strategy.npz` has the mechanism.
      configuration: the settings that a run which continues must share, by name.
      data: a description of the data, with keyed digests.
      shows_clients: whether the ids of the clients are known, and so `cohorts.bin` has them.
      has_fixed_weights: whether the model has weights that are not trained, which `model.npz` does
        not hold.
      references: accuracies that those of the run are compared with, by name.
    """

    name: ClassVar[str] = 'built'
    record: Mapping[str, Any]
    configuration: Mapping[str, Any]
    data: Mapping[str, Any]
    shows_clients: bool = True
    has_fixed_weights: bool = False
    references: Mapping[str, float] | None = None

    def __post_init__(self):
        for name in ('record', 'configuration', 'data'):
            _json.checked_object(name, getattr(self, name))
        for name, value in _json.checked_object('references', self.references or {}).items():
            _validate.number(f'references {errors.shown(name)}', value, minimum=0, maximum=1)
        for name in ('shows_clients', 'has_fixed_weights'):
            _validate.truth(name, getattr(self, name))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Began(Event):
    """A round is about to be computed: from here on it counts as released.

    Attributes:
      round: the round, counted from 0.
      cohort: digest of the clients, see `cohort_digest`.
      model: digest of the model that they start from.
      noise: digest of the noise keys and of their place.
      data: keyed digest of the data that the clients train on; for a loop that shows none, of what
        stands for them.
    """

    name: ClassVar[str] = 'began'
    round: int
    cohort: str
    model: str
    noise: str
    data: str

    def __post_init__(self):
        _validate.integer('round', self.round, minimum=0, maximum=_validate.MOST_ROUNDS)
        for name in ('cohort', 'model', 'noise', 'data'):
            _digest(name, getattr(self, name))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Released(Event):
    """A round was computed.

    Attributes:
      round: the round, counted from 0.
      model: digest of the model.
      state: digest of all that the next round starts from.
      metrics: by name, numbers.
    """

    name: ClassVar[str] = 'released'
    round: int
    model: str
    state: str
    metrics: Mapping[str, float]

    def __post_init__(self):
        _validate.integer('round', self.round, minimum=0, maximum=_validate.MOST_ROUNDS)
        _digest('model', self.model)
        _digest('state', self.state)
        metrics = _json.checked_object('metrics', self.metrics)
        object.__setattr__(self, 'metrics', {name: _number(x) for name, x in metrics.items()})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extended(Event):
    """The run goes on with more rounds than were planned; its guarantee is that of all of them.

    Attributes:
      released: rounds that had begun.
      planned: rounds that were planned before.
      rounds: rounds that are planned from here on, more than before.
      record, configuration: as in `Built`, from here on.
      settings, files: as in `Planned`, from here on.
    """

    name: ClassVar[str] = 'extended'
    released: int
    planned: int
    rounds: int
    record: Mapping[str, Any]
    configuration: Mapping[str, Any]
    settings: Mapping[str, Any] | None
    files: Mapping[str, str]

    def __post_init__(self):
        _ = self.step  # Checks the numbers of rounds.
        for name in ('record', 'configuration'):
            _json.checked_object(name, getattr(self, name))
        _files('files', self.files)
        if self.settings is not None:
            _json.checked_object('settings', self.settings)

    @property
    def step(self) -> inputs.Extension:
        """The numbers of rounds, as the record of the plan has them."""
        return inputs.Extension(self.released, self.planned, self.rounds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Audited(Event):
    """The canaries of an audit were measured.

    Attributes:
      scores: digest of `audit.npz`.
    """

    name: ClassVar[str] = 'audited'
    scores: str

    def __post_init__(self):
        _digest('scores', self.scores)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended(Event):
    """Nothing more is released.

    Attributes:
      why: in words.
      results: digests of the files that cannot be computed again, such as the model, by name.
      test: metrics of the final model on test clients, by name; None without a test.
    """

    name: ClassVar[str] = 'ended'
    why: str
    results: Mapping[str, str]
    test: Mapping[str, float] | None = None

    def __post_init__(self):
        _text('why', self.why)
        for value in _json.checked_object('results', self.results).values():
            _digest('results', value)
        if self.test is not None:
            test = _json.checked_object('test', self.test)
            object.__setattr__(self, 'test', {name: _number(x) for name, x in test.items()})


_EVENTS: tuple[type[Event], ...] = (Planned, Drew, Built, Began, Released)
_EVENTS += (Extended, Audited, Ended)
_KINDS: Mapping[str, type[Event]] = {kind.name: kind for kind in _EVENTS}


@dataclasses.dataclass(frozen=True)
class State:
    """What a journal says so far. Its size does not grow with the rounds.

    Attributes:
      planned: the last event of this kind; None in an empty journal.
      drawn: the last event of each draw, by its name.
      built: None before the run was built.
      extended: one for each time that the run went on with more rounds.
      begun: rounds that began, and so count as released.
      last: the round that began last.
      is_released: whether that round was computed.
      model: digest of the model after it; None before a round was computed.
      audited: the audit, if the run has one and it was measured.
      ended: None while the run goes on.
    """

    planned: Planned | None = None
    drawn: Mapping[str, Drew] = dataclasses.field(default_factory=dict)
    built: Built | None = None
    extended: tuple[Extended, ...] = ()
    begun: int = 0
    last: Began | None = None
    is_released: bool = True
    model: str | None = None
    audited: Audited | None = None
    ended: Ended | None = None

    @property
    def record(self) -> Mapping[str, Any] | None:
        """The record of the plan in force; None before the run was built."""
        if self.extended:
            return self.extended[-1].record
        return None if self.built is None else self.built.record

    @property
    def configuration(self) -> Mapping[str, Any]:
        """The configuration in force."""
        if self.extended:
            return self.extended[-1].configuration
        return {} if self.built is None else self.built.configuration

    @property
    def settings(self) -> Mapping[str, Any] | None:
        """The settings in force."""
        if self.extended:
            return self.extended[-1].settings
        return None if self.planned is None else self.planned.settings

    @property
    def files(self) -> Mapping[str, str]:
        """Texts that describe the run, by the names of their files."""
        if self.extended:
            return self.extended[-1].files
        return {} if self.planned is None else self.planned.files


def step(state: State, event: Event) -> State:
    """The state after an event.

    Raises:
      JournalError: if the event cannot follow.
    """
    goes_on = state.built is not None and state.ended is None
    changes: dict[str, Any]
    match event:
        case Planned():
            is_allowed = state.last is None
            changes = {'planned': event, 'built': None, 'extended': ()}
            changes |= {'audited': None, 'ended': None}
        case Drew(result=None):
            before = state.drawn.get(event.what)
            is_allowed = state.planned is not None and state.built is None
            is_allowed = is_allowed and before in (None, event)
            changes = {'drawn': {**state.drawn, event.what: event}}
        case Drew():
            before = state.drawn.get(event.what)
            is_allowed = state.built is None
            is_allowed = is_allowed and before == dataclasses.replace(event, result=None)
            changes = {'drawn': {**state.drawn, event.what: event}}
        case Built():
            is_allowed = state.planned is not None and state.built is None
            is_allowed = is_allowed and all(e.result is not None for e in state.drawn.values())
            changes = {'built': event}
        case Began():
            is_allowed = goes_on and state.is_released and state.audited is None
            is_allowed = is_allowed and event.round == state.begun
            is_allowed = is_allowed and (state.last is None or event.noise != state.last.noise)
            is_allowed = is_allowed and state.model in (None, event.model)
            changes = {'begun': state.begun + 1, 'last': event, 'is_released': False}
        case Released():
            is_allowed = not state.is_released and event.round == state.begun - 1
            changes = {'is_released': True, 'model': event.model}
        case Extended():
            is_allowed = state.built is not None and event.released == state.begun
            planned = state.extended[-1].rounds if state.extended else event.planned
            is_allowed = is_allowed and event.planned == planned
            changes = {'extended': (*state.extended, event), 'audited': None, 'ended': None}
        case Audited():
            is_allowed = goes_on and state.is_released and state.audited is None
            changes = {'audited': event}
        case Ended():
            is_allowed, changes = goes_on and state.is_released, {'ended': event}
        case _:
            is_allowed, changes = False, {}
    if not is_allowed:
        raise JournalError(f'does not allow an event "{getattr(event, "name", event)}" here')
    return dataclasses.replace(state, **changes)


def line(chain: str, event: Event) -> tuple[bytes, str]:
    """The line of an event after a line that ends with `chain`, and the digest at its own end.

    Args:
      chain: empty for the first line of a journal.
      event: the event.
    """
    values = event.to_dict()
    if not chain:
        chain, values = _START, {'format': FORMAT, **values}
    end = hashlib.sha256((chain + json.dumps(values, allow_nan=False)).encode()).hexdigest()
    return (json.dumps({**values, 'chain': end}, allow_nan=False) + '\n').encode(), end


def note(values: Mapping[str, Any]) -> bytes:
    """A line outside of the chain, from values by name."""
    return _NOTE + json.dumps(_plain(values), allow_nan=False).encode() + b'}\n'


@dataclasses.dataclass(frozen=True)
class Journal:
    """The content of a journal.

    Attributes:
      events: in order.
      chain: the digest at the end of the line of each event.
      notes: the values of the lines outside of the chain, in order.
      state: what the events say.
      complete: length in bytes, without a last line that was cut off.
    """

    events: tuple[Event, ...] = ()
    chain: tuple[str, ...] = ()
    notes: tuple[Mapping[str, Any], ...] = ()
    state: State = State()
    complete: int = 0

    def of_kind(self, kind: type) -> list[Any]:
        """The events of one kind, in order."""
        return [event for event in self.events if type(event) is kind]

    def head(self) -> str:
        """The digest at the end of the last line; empty for an empty journal."""
        return self.chain[-1] if self.chain else ''

    def released_head(self) -> str | None:
        """The digest at the end of the last line but `audited` and `ended`; None without any.

        A report carries it. The lines of the end have digests of files that may differ between two
        runs with the same releases.
        """
        lines = zip(reversed(self.events), reversed(self.chain), strict=True)
        return next((end for event, end in lines if not isinstance(event, Audited | Ended)), None)

    def rows(self) -> list[dict[str, float]]:
        """The metrics of the rounds that were computed, `round` first, counted from 1."""
        seconds: dict[int, float] = {}
        for values in self.notes:
            at, value = values.get('round'), values.get('seconds')
            if isinstance(at, int) and isinstance(value, (int, float)):
                seconds[at] = float(value)
        return [
            {
                'round': event.round + 1,
                **event.metrics,
                **({'seconds': seconds[event.round]} if event.round in seconds else {}),
            }
            for event in self.of_kind(Released)
        ]


def parse(data: bytes) -> Journal:
    """Reads a journal; a last line that a crash cut off is left out.

    Raises:
      JournalError: if any other line was changed, removed or moved, or an event cannot follow those
        before it.
    """
    *lines, rest = data.split(b'\n')
    events: list[Event] = []
    chain: list[str] = []
    notes: list[Mapping[str, Any]] = []
    state = State()
    for number, written in enumerate(lines, 1):
        if written.startswith(_NOTE):
            try:
                notes.append(_json.checked_object('note', _json.loads(written)['note']))
            except (ValueError, KeyError, TypeError):
                raise JournalError(f'line {number} is damaged') from None
            continue
        event = _event(number, written, is_first=not events)
        expected, end = line(chain[-1] if chain else '', event)
        if expected != written + b'\n':
            raise JournalError(f'line {number} is damaged, or is not the one that was there')
        try:
            state = step(state, event)
        except JournalError as error:
            raise JournalError(f'line {number}: {error}') from None
        events.append(event)
        chain.append(end)
    return Journal(tuple(events), tuple(chain), tuple(notes), state, len(data) - len(rest))


def _event(number: int, written: bytes, is_first: bool) -> Event:
    try:
        values = _json.checked_object('event', _json.loads(written))
    except ValueError:
        raise JournalError(f'line {number} is damaged') from None
    version = values.pop('format', None)
    if is_first and version != FORMAT:
        if version in (None, 1, 2):
            raise JournalError(errors.removed('was begun before a run was a journal'))
        raise JournalError(f'has format {errors.shown(version)}, this version reads {FORMAT}')
    values.pop('chain', None)
    kind = _KINDS.get(str(values.pop('event', None)))
    if kind is None:
        raise JournalError(f'line {number} is damaged')
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise JournalError(f'line {number} is damaged ({errors.shown(error)})') from None


def cohort_digest(cohort: Sequence[int] | np.ndarray) -> str:
    """Digest of a set of clients: their order does not matter."""
    return digest([np.sort(np.asarray(cohort, dtype=np.int64))])


def digest(arrays: Iterable[Any]) -> str:
    """Digest of arrays, including their types and shapes."""
    total = hashlib.sha256()
    for array in map(np.asarray, arrays):
        total.update(f'{array.dtype.str} {array.shape}\n'.encode())
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


def _plain(value: Any) -> Any:
    """A JSON value for `value`, in which numbers that are not finite are texts."""
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value


def _number(value: Any) -> float:
    """A number from its JSON form."""
    if value in ('nan', 'inf', '-inf'):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise errors.ArgumentError('metrics', errors.NOT_SHOWN, 'must be numbers')
    return value


def _text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise errors.ArgumentError(name, errors.NOT_SHOWN, 'must be a text')


def _files(name: str, value: Any) -> None:
    """Refuses names that could be those of another file of a run, or lead out of its directory."""
    for file, text in _json.checked_object(name, value).items():
        if not _TEXT_FILE.fullmatch(file):
            raise errors.ArgumentError(name, errors.shown(file), 'must be a name such as notes.txt')
        _text(name, text)


def _digest(name: str, value: Any) -> None:
    if not isinstance(value, str) or len(value) != 64 or not set(value) <= _HEX:
        raise errors.ArgumentError(name, errors.NOT_SHOWN, 'must be 64 hexadecimal digits')
