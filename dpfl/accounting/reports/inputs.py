"""The inputs of a report before the first round of a run; `plan.json` has the same.

One of them is the digest of the noise keys: runs that used the same noise cannot be composed.
"""

import dataclasses
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from dpfl import _json, _validate, errors
from dpfl._validate import Limits, Probability
from dpfl.accounting import gaussian
from dpfl.accounting.plan import PrivacyPlan

if TYPE_CHECKING:
    from dpfl.accounting.reports.report import PrivacyReport

_DOMAIN = b'dpfl noise key\n'
_LEDGER = b'dpfl ledger of an earlier run\n'
# It becomes part of a page, and files may come from anybody.
_PLAIN = re.compile(r'[\w .:+()/-]{0,80}', re.ASCII)


def noise_key_digest(noise: str) -> str:
    """Digest of the noise keys of a run, in hexadecimal.

    Args:
      noise: `journal.Began.noise` of its first round, a digest of the keys before any noise
        was drawn. All noise of the run follows from these keys.
    """
    return hashlib.sha256(_DOMAIN + noise.encode()).hexdigest()


def checked_key(name: str, value: Any) -> str | None:
    """Returns `value`; raises ArgumentError unless it is None or such a digest."""
    if value is None or (isinstance(value, str) and re.fullmatch('[0-9a-f]{64}', value)):
        return value
    raise errors.ArgumentError(name, value, 'must be null or 64 hexadecimal digits')


def _checked_keys(name: str, values: Any) -> tuple[str, ...]:
    """Returns `values` as a tuple; raises ArgumentError unless all are from `earlier_keys`."""
    if not isinstance(values, (list, tuple)) or not all(
        isinstance(run, str) and re.fullmatch('[0-9a-f]{64}(:[0-9a-f]{64})?', run) for run in values
    ):
        raise errors.ArgumentError(name, values, 'must be a list of digests')
    return tuple(values)


def earlier_keys(key: str, chain: str | None) -> str:
    """What a report has of an earlier run: the digest of its keys, and one of its ledger.

    Args:
      key: from `noise_key_digest`.
      chain: digest at the end of the last line of its ledger that counts; None if unknown.
    """
    if chain is None:
        return key
    return f'{key}:{hashlib.sha256(_LEDGER + chain.encode()).hexdigest()}'


def check_noise(own: str | None, others: Sequence[str]) -> None:
    """Checks that a run has other noise than the earlier runs from which it continues.

    Args:
      own: digest of the run; None if it is not known.
      others: of the earlier runs, from `earlier_keys`.

    Raises:
      ArgumentError: if two of these runs share noise.
    """
    known: dict[str, str] = {own: ''} if own else {}
    for run in others:
        key, _, ledger = run.partition(':')
        if key in known and not (ledger and ledger == known[key]):
            raise errors.ArgumentError(
                'noise_key_digest',
                key,
                'must differ between a run and the earlier runs that it continues from: with the '
                'same noise there is no joint guarantee (was one noise_seed given twice?)',
            )
        known[key] = ledger


def shared_noise(reports: 'Sequence[PrivacyReport]') -> tuple[int, str] | None:
    """Why reports cannot be composed: two of the runs, or earlier runs of them, share noise.

    An earlier run that two reports have in common, with the same ledger, is no obstacle.

    Returns:
      The index of the later one of the two reports, and the reason in words; None if the keys that
      are known allow it. Reports without a run, and of older versions, have no key.
    """
    owners: dict[str, tuple[int, str]] = {}
    for number, report in enumerate(reports):
        for run in (report.noise_key_digest or '', *report.earlier_noise_key_digests):
            key, _, ledger = run.partition(':')
            if not key:
                continue
            owner, known = owners.setdefault(key, (number, ledger))
            if owner != number and not (ledger and ledger == known):
                return number, (
                    f'has the noise key of report {owner + 1} (its digest begins with {key[:8]}). '
                    'A run that begins with the model of another one has it, and its own report '
                    'counts both; so has a copy of a run that was continued: together they show '
                    'where their sums differ, which no noise covers, without a joint guarantee'
                )
    return None


@dataclasses.dataclass(frozen=True)
class About(_json.JsonFields):
    """The identity of a run; an unknown field is empty.

    Attributes:
      begun: the day of the first round, in UTC, as 2026-11-23.
      version: of dpfl, with which the run began.
      task: the data set.
      model: its name.
      parameters: number of parameters that are trained.
      ray_losses: how many shards of its rounds were lost by Ray and computed again; None if Ray
        computed none.

    Raises:
      ValueError: if a text is long or has other characters than letters, digits and ` .:+()/_-`.

    Example:
      >>> About(task='stackoverflow', model='cifg_670').line()
      'stackoverflow, cifg_670'
    """

    begun: str = ''
    version: str = ''
    task: str = ''
    model: str = ''
    parameters: Annotated[int, Limits('parameters', minimum=0)] | None = None
    ray_losses: Annotated[int, Limits('shards', minimum=0)] | None = None

    def __post_init__(self):
        for name in ('begun', 'version', 'task', 'model'):
            value = getattr(self, name)
            if not isinstance(value, str) or not _PLAIN.fullmatch(value):
                raise errors.ArgumentError(name, value, 'must be a short text of plain characters')
        super().__post_init__()

    def line(self) -> str:
        """The identity in one line."""
        by = f'dpfl {self.version}' if self.version else ''
        size = '' if self.parameters is None else f'{self.parameters:,} parameters'
        again = f'on Ray; {self.ray_losses} shards were lost and computed again'
        ray = '' if self.ray_losses is None else again
        return ', '.join(filter(None, (self.task, self.model, size, self.begun, by, ray)))


_Rounds = Annotated[int, Limits('rounds', minimum=0, maximum=_validate.MOST_ROUNDS)]


@dataclasses.dataclass(frozen=True)
class Extension(_json.JsonFields):
    """How a run went on with more rounds.

    Attributes:
      released: rounds that were released until then.
      planned: rounds that were planned until then.
      rounds: rounds that are planned since then.

    Raises:
      ArgumentError: if a field is no number of rounds, or they do not ascend.
    """

    released: _Rounds
    planned: _Rounds
    rounds: _Rounds

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.released <= self.planned < self.rounds:
            raise errors.ArgumentError('rounds', self.rounds, f'must be above {self.planned}')


def deltas(values: Any) -> tuple[float, ...]:
    """Returns `values` as a tuple; raises ValueError unless they are numbers within (0, 1)."""
    if not isinstance(values, (list, tuple)) or not values:
        raise errors.ArgumentError('deltas', values, 'must be a list of numbers')
    return tuple(_validate.number('delta', delta, above=0, below=1) for delta in values)


def texts(name: str, values: Any) -> tuple[str, ...]:
    """Returns `values` as a tuple; raises ValueError unless they are a list of texts."""
    if not isinstance(values, (list, tuple)) or not all(isinstance(v, str) for v in values):
        raise errors.ArgumentError(name, values, 'must be a list of texts')
    return tuple(values)


def _extensions(name: str, values: Any) -> tuple[Extension, ...]:
    values = _json.list_of(name, values, 'objects')
    if any('switched' in _json.checked_object(name, value) for value in values):
        raise errors.ArgumentError(name, errors.NOT_SHOWN, errors.removed('has another matrix'))
    return tuple(Extension.from_dict(value) for value in values)


def _of_run(read: Callable[[str, Any], Any], **default: Any) -> Any:
    """A field of `Inputs`, and how its value is read from JSON, by its name."""
    return dataclasses.field(metadata={'read': read}, **default)


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The inputs of a report, as far as they are known before the run.

    Attributes:
      plan: the privacy plan of the run.
      deltas: at which epsilon is reported, each strictly between 0 and 1, at least one.
      accountant: by which epsilon is computed.
      noise_is_seeded: whether the noise came from a known seed; the run is then a simulation.
      sampling_is_seeded: whether the cohorts came from a known seed; a run whose guarantee relies
        on sampling is then a simulation.
      also_not_covered: what else of the run the guarantee does not cover, one sentence each.
      train_metrics_released: whether metrics of the training clients were released without noise.
      remarks: what the report says besides the guarantee, one item each: how the models are made
        from what was released. The guarantee does not depend on it.
      noise_key_digest: of the keys from which all noise of the run follows, see the function
        `noise_key_digest`; None without a run. Runs with the same one cannot be composed.
      earlier_noise_key_digests: of the runs in `plan.earlier`, as far as they are known; see
        `earlier_keys`.
      warm_start_is_public: whether the run, or an earlier one of `plan.earlier`, began with a model
        that was declared to be public.
      about: which run it is; None if that is not known.
      extensions: how the run went on with more rounds, in order.
      stop_at_accuracy: accuracy at which the run stops before its last round; None without such a
        rule.
    """

    plan: PrivacyPlan
    deltas: tuple[Probability, ...]
    accountant: Annotated[str, Limits(choices=gaussian.ACCOUNTANTS)]
    noise_is_seeded: bool = _of_run(_validate.truth)
    sampling_is_seeded: bool = _of_run(_validate.truth, default=False)
    also_not_covered: tuple[str, ...] = _of_run(texts, default=())
    train_metrics_released: bool = _of_run(_validate.truth, default=False)
    remarks: tuple[str, ...] = _of_run(texts, default=())
    noise_key_digest: str | None = _of_run(checked_key, default=None)
    earlier_noise_key_digests: tuple[str, ...] = _of_run(_checked_keys, default=())
    warm_start_is_public: bool = _of_run(_validate.truth, default=False)
    about: About | None = _of_run(lambda name, value: About.from_dict(value), default=None)
    extensions: tuple[Extension, ...] = _of_run(_extensions, default=())
    stop_at_accuracy: Annotated[float, Limits(minimum=0)] | None = _of_run(
        lambda name, value: _validate.number(name, value, minimum=0), default=None
    )

    def of_run(self, required: Sequence[str]) -> dict[str, Any]:
        """The inputs that `read` reads, as JSON values; without those that say nothing.

        Args:
          required: names of the inputs that are always there.
        """
        values = {name: _json.plain(getattr(self, name)) for name in OF_RUN}
        given = _json.given(values)
        return {name: values[name] for name in OF_RUN if name in given or name in required}


# The inputs besides plan, deltas and accountant, and the checks of their JSON values.
OF_RUN: dict[str, Callable[[str, Any], Any]] = {
    field.name: field.metadata['read'] for field in dataclasses.fields(Inputs) if field.metadata
}


def read(values: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    """The inputs that `Inputs.of_run` wrote; those that may be missing then have their default.

    Raises:
      KeyError: if one of `required` is missing.
      ValueError: if a value is not allowed.
    """
    return {
        name: check(name, values[name])
        for name, check in OF_RUN.items()
        if name in values or name in required
    }


def checked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a report by name, after the checks of those that `read` reads.

    Raises:
      ValueError: if a value is not allowed.
    """
    return {
        name: value
        if value is None or name not in OF_RUN
        else OF_RUN[name](name, _json.plain(value))
        for name, value in values.items()
    }
