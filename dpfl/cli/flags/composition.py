"""The joint guarantee of several runs on the same clients."""

import dataclasses
import math
from typing import Any

import dp_accounting

from dpfl import accounting
from dpfl._settings import Settings, setting
from dpfl.accounting import events
from dpfl.accounting.reports import checklist, noise_keys
from dpfl.cli.command import command_line


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompositionConfig(Settings):
    """Other runs on the same clients."""

    compose_with: tuple[str, ...] = setting(
        (),
        'Files privacy_report.json of other runs on the same clients, comma-separated. The report '
        'then also gives the guarantee of all runs together. Each run may depend on the results of '
        'earlier ones.',
    )


def together(report: accounting.PrivacyReport, config: CompositionConfig) -> dict[str, Any] | None:
    """The joint guarantee of a report and those of --compose_with; None without the flag.

    Raises:
      UsageError: If a file is not a report, or the reports have different adjacencies.
    """
    if not config.compose_with:
        return None
    reports = [report, *map(_read, config.compose_with)]
    for path, other in zip(config.compose_with, reports[1:], strict=True):
        for name in ('adjacency', 'group_size'):
            expected, found = getattr(report.plan, name), getattr(other.plan, name)
            if found != expected:
                raise command_line.UsageError(
                    f'--compose_with={path}: must have {name}={expected} like the first report, '
                    f'has {found}'
                )
    shared = noise_keys.obstacle(reports)
    if shared is not None:
        number, reason = shared
        raise command_line.UsageError(f'--compose_with={config.compose_with[number - 1]}: {reason}')
    event = dp_accounting.ComposedDpEvent([each.dp_event() for each in reports])
    slack = sum(each.plan.slack for each in reports)
    rhos = [each.guarantee.rho for each in reports]
    known = [rho for rho in rhos if rho is not None]
    neighbours = report.plan.neighbours
    with command_line.refusing_bad_values():
        found = accounting.with_slack(
            lambda delta: events.bound(event, delta, report.accountant, neighbours=neighbours),
            report.deltas[0],
            slack,
        )
    values = {
        'reports': len(reports),
        'rho': sum(known) if len(known) == len(rhos) else None,
        'delta': report.deltas[0],
        'epsilon': None if math.isinf(found.epsilon) else found.epsilon,
        'accountant': found.accountant,
        'noise_is_seeded': any(each.noise_is_seeded for each in reports),
        'sampling_is_seeded': any(each.sampling_is_seeded for each in reports),
        'train_metrics_released': any(each.train_metrics_released for each in reports),
    }
    return {'statement': checklist.statement_together(reports, _guarantee(values)), **values}


def render(values: dict) -> str:
    """The section of the page about the joint guarantee."""
    return f'\n## Composition\n\n{values["statement"]}\n'


def _guarantee(values: dict) -> str:
    """The guarantee in words, rounded up; empty if there is none."""
    if values['epsilon'] is None:
        return ''
    round_up = accounting.round_up
    rho = '' if values['rho'] is None else f'{round_up(values["rho"])}-zCDP and '
    return f'{rho}({round_up(values["epsilon"])}, {values["delta"]:g})-DP'


def _read(path: str) -> accounting.PrivacyReport:
    try:
        with open(path, errors='replace') as file:
            return accounting.PrivacyReport.from_json(file.read())
    except OSError as error:
        reason = str(error.strerror)
    except ValueError as error:
        reason = str(error)
    raise command_line.UsageError(f'--compose_with={path}: {" ".join(reason.split())}')
