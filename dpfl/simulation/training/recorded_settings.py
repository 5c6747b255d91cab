"""Compares a run with the settings that it was made from, as its journal has recorded them.

The journal holds the settings as JSON, and the same as the lines of `flags.txt`, if a command made
the run. The plan, and everything else that the report states about the run, is made again from the
settings and compared: a journal whose plan somebody wrote anew contradicts its own settings.
"""

import csv
import itertools
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from dpfl import _json, _setting_texts, accounting, errors
from dpfl.accounting.records import archive, comparison
from dpfl.accounting.records.journal import Drew, State
from dpfl.mechanisms import registry
from dpfl.mechanisms.restarts import Restarted
from dpfl.simulation import earlier_settings, extension
from dpfl.simulation.training import mechanism as mechanism_lib
from dpfl.simulation.training import plan, prepared_task
from dpfl.simulation.training.config import GanConfig, TrainConfig
from dpfl.simulation.training.mechanism import AUTO, NONE, PARAMETERS
from dpfl.simulation.training.privacy_config import PrivacyConfig
from dpfl.tasks import federated_task
from dpfl.tasks.config import CUSTOM, SYNTHETIC_TASKS, not_covered_of_task

# Epsilon of a calibrated plan is at most its target, and below it by at most this relative amount.
_CALIBRATION = 1e-3


def read(directory: pathlib.Path) -> TrainConfig | GanConfig | None:
    """The settings of a run; None for a training loop of one's own, and for an export.

    Raises:
      ValueError: if its journal holds no settings of a run.
    """
    journal = archive.read_journal(directory)
    return None if journal is None else of_state(journal.state)


def of_state(state: State) -> TrainConfig | GanConfig | None:
    """The settings that a journal has; None for a training loop of one's own.

    Raises:
      ValueError: if they are no settings of a run.
    """
    return _of_recorded(state.settings)


def _of_recorded(settings: Mapping[str, Any] | None) -> TrainConfig | GanConfig | None:
    if settings is None:
        return None
    try:
        values = earlier_settings.left_out(settings)
        return TrainConfig.from_dict(values) if 'course' in values else GanConfig.from_dict(values)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f'{archive.CONFIG}: {errors.shown(error)}') from None


def flags_of(state: State) -> dict[str, str] | None:
    """The flags of a run: values by name, and the empty text for a name alone.

    None for a run that no command has made.

    Raises:
      ValueError: if a line is not a flag.
    """
    text = state.files.get(archive.FLAGS)
    if text is None:
        return None
    values = {}
    # Not `splitlines`, which also splits at characters that a value may contain.
    for number, line in enumerate(text.split('\n'), 1):
        name, _, value = line.removeprefix('--').partition('=')
        if line and not (line.startswith('--') and name.isidentifier()):
            raise ValueError(f'line {number} is not a flag')
        if line:
            values[name] = value
    return values


def texts_of(state: State) -> dict[str, str]:
    """As `flags_of`; for a run that no command has made, the flags that would have made it.

    Raises:
      ValueError: if a line is not a flag, or the journal holds no settings of a run.
    """
    texts = flags_of(state)
    config = of_state(state) if texts is None else None
    if config is None:
        return texts or {}
    return {
        name: _setting_texts.text(value)
        for name, value in config.changed().items()
        if value is not None
    }


def differences(state: State, record: archive.PlanRecord) -> list[str]:
    """How a run differs from its settings, a sentence each.

    Args:
      state: the state of its journal.
      record: its plan, and the other statements of its report.
    """
    try:
        config, of_extensions = of_state(state), [*_of_extensions(state)]
    except ValueError as error:
        return [errors.shown(error)]
    if config is None:
        is_stated = archive.OWN_LOOP in record.also_not_covered
        own = [] if is_stated else [f'{archive.PLAN}: does not say: {archive.OWN_LOOP}']
        return [*of_extensions, *own]
    return [
        *of_extensions,
        *_of_audit(state, config),
        *_of_flags(state, config),
        *(f'{archive.PLAN}: {text}' for text in _of_plan(state, config, record)),
        *(f'{archive.PLAN}: {text}' for text in _of_report(state, config, record)),
        *(f'{archive.PLAN}: {text}' for text in _of_limits(state, config, record)),
    ]


def with_flags(config: Any, texts: Mapping[str, str]) -> Any:
    """Settings with the values of flags, as `read_flags` returns them; other names are left out.

    Raises:
      ValueError: if a value is not allowed.
    """
    values: dict[str, Any] = {}
    for field, kind, _ in config.table():
        name = field.name
        if kind.is_tuple and name in texts:
            entries = _entries(name, texts[name])
            values[name] = _setting_texts.entries(name, kind.scalar, entries)
        elif name in texts:
            text = (texts[name] or 'true') if kind.scalar is bool else texts[name]
            values[name] = _setting_texts.value_of(name, kind, text)
        elif kind.scalar is bool and f'no{name}' in texts:
            values[name] = False
    # All at once: some settings are allowed only beside others.
    return config.with_values(values)


def _entries(name: str, text: str) -> list[str]:
    try:
        return next(csv.reader([text]), [])
    except csv.Error as error:
        raise errors.ArgumentError(name, text, f'must be a list ({error})') from None


def _of_flags(state: State, config: TrainConfig | GanConfig) -> list[str]:
    """How the flags differ from the settings. A flag that is not there has its default."""
    try:
        texts = flags_of(state)
        if texts is None:
            return []
        of_flags = with_flags(type(config)(), texts).flat()
    except ValueError as error:
        return [f'{archive.FLAGS}: {errors.shown(error)}']
    return [
        f'{archive.FLAGS}: has --{name}={_setting_texts.text(of_flags[name])}, {archive.CONFIG} '
        f'{_setting_texts.text(value)}'
        for name, value in config.flat().items()
        if of_flags[name] != value
    ]


def _of_extensions(state: State) -> Iterator[str]:
    """How a run that went on with more rounds went on with other settings."""
    assert state.planned is not None
    recorded = [state.planned.settings, *(extended.settings for extended in state.extended)]
    try:
        configs = [_of_recorded(settings) for settings in recorded]
        for before, now in itertools.pairwise(configs):
            was, is_now = ({} if each is None else each.fixed() for each in (before, now))
            extension.require_configuration(_json.plain(was), is_now, extension.PLAN_SETTINGS)
    except ValueError as error:
        yield f'{archive.CONFIG}: {errors.shown(error)}'


def _of_audit(state: State, config: TrainConfig | GanConfig) -> Iterator[str]:
    """How a run that has ended lacks the audit that its settings ask for."""
    if config.audit.audit and state.ended is not None and state.audited is None:
        yield f'{archive.LEDGER}: says that the run ended, and lacks the audit of its settings'


def _of_plan(
    state: State, config: TrainConfig | GanConfig, record: archive.PlanRecord
) -> Iterator[str]:
    """How the plan differs from the one that the settings give."""
    plan = record.plan
    try:
        made = _rebuilt(config, plan, state.drawn, has_own_data=_has_own_data(state, config))
        for where, was, now in comparison.differences(plan.to_dict(), made.to_dict()):
            was, now = comparison.short(was), comparison.short(now)
            yield f'{where} is {was}, by {archive.CONFIG} {now}'
        yield from _of_noise(config.privacy, record)
        if not _has_mechanism(config.privacy, plan):
            yield f'its mechanism, {plan.mechanism.name}, is not the one of {archive.CONFIG}'
    except ValueError as error:
        yield f'cannot be the plan of {archive.CONFIG} ({errors.shown(error)})'


def _rebuilt(
    config: TrainConfig | GanConfig,
    recorded: accounting.PrivacyPlan,
    drawn: Mapping[str, Drew],
    *,
    has_own_data: bool,
) -> accounting.PrivacyPlan:
    """The plan of a configuration, with the mechanism and the amount of noise of the one found."""
    privacy = config.privacy
    if privacy.mechanism != NONE:
        defaults = PrivacyConfig()
        own = {'mechanism': recorded.mechanism, 'noise_multiplier': recorded.noise_multiplier}
        privacy = privacy.with_values(
            {name: getattr(defaults, name) for name in (*PARAMETERS, 'target_epsilon')} | own
        )
    before = () if config.task.task == CUSTOM else prepared_task.of_run(config).releases
    before = prepared_task.counted(before, drawn)
    size = 1 if recorded.discretization is None else recorded.discretization.dimension
    is_synthetic = config.task.task in SYNTHETIC_TASKS and not has_own_data
    return plan.build_plan(
        privacy,
        config.sampling,
        population=lambda: federated_task.population(
            config.sampling.population, None if is_synthetic else recorded.population
        ),
        dimension=lambda: size,
        earlier=recorded.earlier,
        before=before,
    )


def _of_noise(privacy: PrivacyConfig, record: archive.PlanRecord) -> Iterator[str]:
    """How the amount of noise differs from the settings."""
    amount, given = record.plan.noise_multiplier, privacy.noise_multiplier
    if given is not None and not comparison.is_close(given, amount):
        yield f'noise_multiplier is {amount}, by {archive.CONFIG} {given}'
    if (target := privacy.target_epsilon) is not None:
        epsilon = record.plan.epsilon(record.deltas[0], record.accountant)
        if not (1 - _CALIBRATION) * target <= epsilon <= target * (1 + 1e-9):
            yield f'epsilon is {epsilon}, by {archive.CONFIG} target_epsilon is {target}'


def _has_mechanism(privacy: PrivacyConfig, recorded: accounting.PrivacyPlan) -> bool:
    """Whether a plan has the mechanism of the settings.

    It is made again if that takes no file and no time; otherwise kind and restarts are compared.
    """
    asked, base = privacy.mechanism, recorded.mechanism
    if asked == NONE:
        return not recorded.noise_multiplier
    if isinstance(base, Restarted):
        base = base.base
    entry = registry.ENTRIES.get(asked) if isinstance(asked, str) else None
    is_simple = not isinstance(asked, str) or (entry is not None and not entry.optimizer)
    if (is_simple or privacy.blt_decay) and not privacy.strategy:
        made = mechanism_lib.build(privacy, recorded.mechanism.rounds)
        return made.digest() == recorded.mechanism.digest()
    kind = asked if entry is None else entry.kind.name
    if kind == Restarted.name:  # The file has the restarts.
        return recorded.mechanism.name == kind
    made = mechanism_lib.with_restarts(base, privacy)
    return kind in (AUTO, base.name) and made.fresh_rounds == recorded.mechanism.fresh_rounds


def _of_report(
    state: State, config: TrainConfig | GanConfig, record: archive.PlanRecord
) -> Iterator[str]:
    """How the statements of the report, except the plan, differ from the settings."""
    plan, continues = record.plan, bool(record.plan.earlier)
    expected: dict[str, Any] = {
        'deltas': (config.privacy.delta,),
        'accountant': config.privacy.accountant_of(plan),
        # The noise of an earlier run may have had a seed, and its model may have been public.
        'noise_is_seeded': config.noise_seed is not None or (continues and record.noise_is_seeded),
        'sampling_is_seeded': plan.sampling is not None,
        'train_metrics_released': config.evaluation.release_train_metrics,
        'stop_at_accuracy': config.course.stop_at_accuracy,
        'warm_start_is_public': (
            config.course.warm_start_is_public or (continues and record.warm_start_is_public)
        ),
        'remarks': config.remarks(plan.participation.rounds),
    }
    for name, value in expected.items():
        stated = getattr(record, name)
        if stated != value:
            was, now = comparison.short(stated), comparison.short(value)
            yield f'{name} is {was}, by {archive.CONFIG} {now}'
    if config.counts_warm_start != continues:
        yield f'has {"" if continues else "no "}earlier plans, {archive.CONFIG} says otherwise'
    if record.about is not None:
        for name, value in (('task', config.task.task), ('model', config.model_name)):
            if getattr(record.about, name) != value:
                yield f'about.{name} is not {value}, as {archive.CONFIG} says'


def _of_limits(
    state: State, config: TrainConfig | GanConfig, record: archive.PlanRecord
) -> Iterator[str]:
    """How the limits that the report states differ from those of the settings.

    Whoever gives data of their own states more, and so does an earlier run.
    """
    is_own, limits = _has_own_data(state, config), config.not_covered
    if not is_own:
        limits += not_covered_of_task(config.task, {} if state.built is None else state.built.data)
    stated = record.also_not_covered
    yield from (f'does not say: {limit}' for limit in limits if limit not in stated)
    if not (is_own or record.plan.earlier):
        yield from (
            f'says what no setting gives: {sentence}'
            for sentence in stated
            if sentence not in limits
        )


def _has_own_data(state: State, config: TrainConfig | GanConfig) -> bool:
    """Whether the clients of a run may have been given in Python."""
    if isinstance(config, TrainConfig):
        return config.task.task == CUSTOM
    return archive.FLAGS not in state.files  # Only a command cannot give clients.
