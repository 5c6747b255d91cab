"""What a report is made from before the first round of a run; `plan.json` has the same."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpfl import _validate, errors
from dpfl.accounting.plan import PrivacyPlan
from dpfl.accounting.reports import history, noise_keys
from dpfl.accounting.reports.about import About


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What a report is made from, as far as it is known before the run.

    Attributes:
      plan: the privacy plan of the run.
      deltas: at which epsilon is reported, each strictly between 0 and 1, at least one.
      accountant: by which epsilon is computed.
      noise_is_seeded: whether the noise came from a known seed; the run is then a simulation.
      sampling_is_seeded: whether the cohorts came from a known seed; a run whose guarantee relies
        on sampling is then a simulation.
      also_not_covered: what else of the run the guarantee does not cover, one sentence each.
      train_metrics_released: whether metrics of the training clients were released without noise.
      extensions: how the run went on with more rounds, in order.
      stop_at_accuracy: accuracy at which the run stops before its last round; None without such a
        rule.
      remarks: what the report says besides the guarantee, one item each: how the models are made
        from what was released. The guarantee does not depend on it.
      about: which run it is; None if that is not known.
      noise_key_digest: of the keys from which all noise of the run follows, see `noise_keys`; None
        without a run. Runs with the same one cannot be composed.
      earlier_noise_key_digests: of the runs in `plan.earlier`, as far as they are known; see
        `noise_keys.earlier`.
      warm_start_is_public: whether the run, or an earlier one of `plan.earlier`, began with a model
        that was declared to be public.
    """

    plan: PrivacyPlan
    deltas: tuple[float, ...]
    accountant: str
    noise_is_seeded: bool
    sampling_is_seeded: bool = False
    also_not_covered: tuple[str, ...] = ()
    train_metrics_released: bool = False
    extensions: tuple[history.Extension, ...] = ()
    stop_at_accuracy: float | None = None
    remarks: tuple[str, ...] = ()
    about: About | None = None
    noise_key_digest: str | None = None
    earlier_noise_key_digests: tuple[str, ...] = ()
    warm_start_is_public: bool = False


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


# The inputs besides plan, deltas and accountant, and the checks of their JSON values.
OF_RUN: dict[str, Callable[[str, Any], Any]] = {
    'noise_is_seeded': _validate.truth,
    'sampling_is_seeded': _validate.truth,
    'also_not_covered': texts,
    'train_metrics_released': _validate.truth,
    'extensions': history.extensions,
    'stop_at_accuracy': lambda name, value: _validate.number(name, value, minimum=0),
    'remarks': texts,
    'about': lambda name, value: About.from_dict(value),
    'noise_key_digest': noise_keys.checked,
    'earlier_noise_key_digests': noise_keys.checked_list,
    'warm_start_is_public': _validate.truth,
}


def of_run(values: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    """The inputs in `OF_RUN` from JSON values; those that may be missing then have their default.

    Raises:
      KeyError: if one of `required` is missing.
      ValueError: if a value is not allowed.
    """
    return {
        name: check(name, values[name])
        for name, check in OF_RUN.items()
        if name in values or name in required
    }
