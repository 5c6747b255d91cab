"""Compares the plan of a run with its recorded flags and configuration.

`flags.txt` is a file for --flagfile, `config.json` is the configuration as JSON. If someone changed
the plan afterwards, it differs from both, even if the report and all digests were made anew.
"""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from dpfl import _files, _json, _setting_texts, accounting, errors
from dpfl._settings import kind_of
from dpfl.accounting import plan_match
from dpfl.accounting.records import archive
from dpfl.mechanisms import registry
from dpfl.mechanisms.restarts import Restarted
from dpfl.simulation.training import before_training, noise_matching
from dpfl.simulation.training.config import choice_not_covered
from dpfl.simulation.training.sampling_config import AMPLIFIED
from dpfl.tasks.config import OF_PRIVATE_WORDS, PRIVATE_VOCABULARY, TextConfig
from dpfl.tasks.selection_config import SelectionConfig

# Epsilon of a calibrated plan is at most its target, and below it by at most this relative amount.
_CALIBRATION = 1e-3


def read(directory: pathlib.Path) -> dict[str, str] | None:
    """Reads flags.txt of a run: values by name, 'true' or 'false' for switches; None if missing.

    Raises:
      ValueError: If a line is not a flag.
    """
    path = directory / archive.FLAGS
    if not path.exists():
        return None
    values = {}
    # Not `splitlines`, which also splits at characters that a value may contain.
    for number, line in enumerate(path.read_text(errors='replace').split('\n'), 1):
        if not line:
            continue
        if not line.startswith('--'):
            raise ValueError(f'line {number} is not a flag')
        name, separator, value = line[2:].partition('=')
        if not separator:
            name, value = (name[2:], 'false') if name.startswith('no') else (name, 'true')
        values[name] = value
    return values


def read_config(directory: pathlib.Path) -> dict[str, str] | None:
    """Reads config.json of a run: values by name, as the text of flags; None if it is missing.

    Raises:
      ValueError: If the file is not a configuration.
    """
    path = directory / archive.CONFIG
    if not path.exists():
        return None
    values: dict[str, str] = {}

    def collect(settings: Mapping[str, Any]) -> None:
        for name, value in settings.items():
            if isinstance(value, dict) and 'mechanism' not in value:
                collect(value)
            elif value is not None:
                values[name] = _text(value)

    found = _json.loads(_files.read_bytes(path))
    if not isinstance(found, dict):
        raise ValueError('is not an object')
    # A mechanism is given by its name, or by an object with its parameters.
    for name, value in found.items():
        collect(value if isinstance(value, dict) else {name: value})
    return values


def differences(directory: pathlib.Path, report: accounting.PrivacyReport) -> list[str]:
    """How the plan of a run differs from its flags and its configuration, a sentence each.

    Args:
      directory: Directory of the run. A missing flags.txt or config.json is not compared.
      report: Report made from the plan.
    """
    found = []
    for name, reader in ((archive.FLAGS, read), (archive.CONFIG, read_config)):
        try:
            values = reader(directory)
        except (OSError, ValueError) as error:
            found.append(f'{name}: {errors.shown(error)}')
            continue
        found += [] if values is None else _differences(values, name, report)
    return found


def _differences(
    values: Mapping[str, str], file: str, report: accounting.PrivacyReport
) -> list[str]:
    found = []
    expected = _expected(report)
    if values.get('stop_at_epsilon'):
        expected |= _expected_of_stopped(report)
    for name, (stated, agrees) in expected.items():
        if not values.get(name):
            continue
        try:
            same = agrees(values[name])
        except ValueError:
            same = False
        if not same:
            found.append(f'{archive.PLAN}: has {stated}, {file} has --{name}={values[name]}')
    is_public = values.get('warm_start_is_public') == 'true'
    continues = bool(values.get('fork_from'))
    if values.get('warm_start') and 'warm_start_is_public' in values:
        continues = not is_public  # Older versions did not count the run of the model.
    if is_public and not report.warm_start_is_public:
        found.append(f'{archive.PLAN}: does not say that warm_start_is_public, {file} does')
    if continues != bool(report.plan.earlier):
        earlier = 'has' if report.plan.earlier else 'has no'
        found.append(f'{archive.PLAN}: {earlier} earlier plans, {file} does not say so')
    if _before(values, report) != report.plan.before:
        found.append(f'{archive.PLAN}: has other releases before training than {file} asks for')
    for sentence in choice_not_covered(_entries(values, 'chosen_without_noise')):
        if sentence not in report.also_not_covered:
            found.append(f'{archive.PLAN}: does not say what {file} does: {sentence}')
    # The noise of an earlier run may have had a seed.
    may_be_seeded = bool(values.get('noise_seed')) or (
        bool(report.plan.earlier) and report.noise_is_seeded
    )
    if may_be_seeded != report.noise_is_seeded:
        found.append(
            f'{archive.PLAN}: says that noise is {"" if report.noise_is_seeded else "not "}seeded, '
            f'{file} has {"a" if values.get("noise_seed") else "no"} --noise_seed'
        )
    return found


def _before(
    values: Mapping[str, str], report: accounting.PrivacyReport
) -> tuple[accounting.ReleaseBefore, ...] | None:
    """The releases before training that recorded values ask for; None if they are not valid."""
    rest = report.deltas[0], report.plan.neighbours.adjacency
    try:
        text, selection = TextConfig(), SelectionConfig()
        if values.get('vocabulary') == PRIVATE_VOCABULARY:
            given = {name: values[name] for name in OF_PRIVATE_WORDS if values.get(name)}
            text = TextConfig(
                vocabulary=PRIVATE_VOCABULARY,
                **{name: kind_of(TextConfig, name).scalar(each) for name, each in given.items()},
            )
        if values.get('selection_epsilon'):
            selection = SelectionConfig(
                select_examples=_entries(values, 'select_examples'),
                select_clients=_entries(values, 'select_clients'),
                selection_model=values.get('selection_model') or None,
                selection_epsilon=float(values['selection_epsilon']),
            )
        made = (
            before_training.word_release(text, *rest),
            before_training.quantile_release(selection, *rest),
        )
    except ValueError:
        return None
    return tuple(each.before() for each in made if each is not None)


def _entries(values: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(each for each in values.get(name, '').split(',') if each)


def _expected_of_stopped(
    report: accounting.PrivacyReport,
) -> dict[str, tuple[str, Callable[[str], bool]]]:
    """What differs in `_expected` for a run that stops at an epsilon."""
    schema, epsilon = report.plan.participation, report.plan_guarantee.epsilons[0]

    def within(text: str) -> bool:
        return epsilon is not None and epsilon <= float(text) * (1 + 1e-9)

    most = schema.max_participations
    return {
        'rounds': (f'rounds={schema.rounds}', lambda text: schema.rounds <= int(text)),
        'max_participations': (
            f'max_participations={most}',
            lambda text: most is not None and most <= int(text),
        ),
        'stop_at_epsilon': (f'epsilon={epsilon}', within),
        'target_epsilon': (f'epsilon={epsilon}', within),
    }


def _text(value: Any) -> str:
    """A JSON value as the text of a flag."""
    if isinstance(value, dict):  # A mechanism given by its parameters.
        return str(value.get('mechanism'))
    return _setting_texts.text(value)


def _expected(report: accounting.PrivacyReport) -> dict[str, tuple[str, Callable[[str], bool]]]:
    """For each flag, what the plan has, and a test whether a value of the flag agrees with it."""
    plan = report.plan
    schema = plan.participation
    numbers = {
        'rounds': schema.rounds,
        'min_separation': schema.min_separation,
        'max_participations': schema.max_participations,
        'clip_norm': plan.clip_norm,
        'noise_multiplier': plan.noise_multiplier,
        'clients_per_round': plan.clients_per_round,
        'delta': report.deltas[0],
        'cohort_weight': plan.estimator.weight,
        'example_cap': plan.estimator.example_cap,
        'match_momentum': 0.0 if plan.noise_match is None else plan.noise_match.momentum,
    }
    if plan.sampling != 'none':
        numbers['population'] = plan.population
    if plan.groups is not None:
        numbers['groups'] = plan.groups
    if plan.cohort_cap is not None:
        numbers['cohort_cap'] = plan.cohort_cap
    words = {
        'adjacency': plan.adjacency,
        'estimator': plan.estimator.kind,
        'noise': plan.noise,
        'adaptive_clip': _setting_texts.text(plan.adaptive_clip is not None),
        'secagg': _setting_texts.text(plan.discretization is not None),
    }
    expected = {name: (f'{name}={value}', _is_number(value)) for name, value in numbers.items()}
    if schema.min_separation == plan.groups:  # What groups keep, if a run has the default, 1.
        shown, agrees = expected['min_separation']
        expected['min_separation'] = (shown, lambda text: text == '1' or agrees(text))
    return {
        **expected,
        **{name: (f'{name}={value}', value.__eq__) for name, value in words.items()},
        'sampling': (
            f'sampling={plan.sampling}',
            lambda text: (text if text in AMPLIFIED else 'none') == plan.sampling,
        ),
        'mechanism': (f'mechanism={plan.mechanism.name}', lambda text: _is_mechanism(text, plan)),
        'target_epsilon': (
            f'epsilon={report.plan_guarantee.epsilons[0]}',
            lambda text: _is_calibrated(float(text), report.plan_guarantee.epsilons[0]),
        ),
        'match': (
            f'noise_multiplier={plan.noise_multiplier}',
            lambda text: _is_matched(text, plan),
        ),
        'clip_schedule': (
            f'clip_schedule={list(map(list, plan.clip_schedule))}',
            lambda text: _schedule(text) == tuple(plan.clip_schedule),
        ),
    }


def _is_number(value: float | None) -> Callable[[str], bool]:
    return lambda text: value is not None and math.isclose(float(text), value, rel_tol=1e-12)


def _is_mechanism(text: str, plan: accounting.PrivacyPlan) -> bool:
    """Whether a plan has the mechanism of --mechanism. Restarts are separate flags."""
    base = plan.mechanism
    if isinstance(base, Restarted):
        base = base.base
    if text == 'none':
        return not plan.noise_multiplier
    made = registry.ENTRIES[text].kind.name if text in registry.ENTRIES else text
    return made in ('auto', base.name)


def _is_calibrated(target: float, epsilon: float | None) -> bool:
    return epsilon is not None and target * (1 - _CALIBRATION) <= epsilon <= target * (1 + 1e-9)


def _is_matched(text: str, plan: accounting.PrivacyPlan) -> bool:
    """Whether the noise of a plan is that of --match.

    The other mechanism is made again if that takes no file and no time; otherwise the value that
    the plan states for it counts.
    """
    request, match = noise_matching.parse(text), plan.noise_match
    if match is None:
        return False
    stated = match.value if request.mechanism is None else match.noise_multiplier
    rounds = plan.participation.rounds if request.rounds is None else request.rounds
    if (match.quantity, match.rounds, stated) != (request.quantity, rounds, request.number):
        return False
    silent = dataclasses.replace(plan, noise_multiplier=0.0, noise_match=None)
    if request.mechanism is None or request.mechanism.is_at_hand:
        again = request.resolve(silent, match.momentum)
    else:
        again = plan_match.matched(silent, match)
    return math.isclose(again.noise_multiplier, plan.noise_multiplier, rel_tol=1e-9)


def _schedule(text: str) -> tuple[tuple[int, float], ...]:
    changes = [change.split(':') for change in text.split(',')]
    return tuple((int(first), float(norm)) for first, norm in changes)
