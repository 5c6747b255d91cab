"""The joint guarantee of several runs on the same clients."""

import dataclasses
from typing import Any

from dpfl import accounting, errors
from dpfl._settings import Settings, setting
from dpfl.accounting.reports import joint
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
      UsageError: If a file is not a report, or the reports cannot be composed.
    """
    if not config.compose_with:
        return None
    reports = [report]
    for path in config.compose_with:
        reports.append(_read(path))
        try:
            joint.check(reports)
        except errors.ArgumentError as error:
            raise command_line.UsageError(f'--compose_with={path}: {error}') from None
    return joint.to_dict(reports)


def render(values: dict) -> str:
    """The section of the page about the joint guarantee."""
    return f'\n## Composition\n\n{values["statement"]}\n'


def _read(path: str) -> accounting.PrivacyReport:
    try:
        with open(path, errors='replace') as file:
            return accounting.PrivacyReport.from_json(file.read())
    except OSError as error:
        reason = str(error.strerror)
    except ValueError as error:
        reason = str(error)
    raise command_line.UsageError(f'--compose_with={path}: {" ".join(reason.split())}')
