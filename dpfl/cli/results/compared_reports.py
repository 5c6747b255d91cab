"""The comparison of two reports that `report_privacy --compare` prints."""

import json

from dpfl import _json, accounting, errors
from dpfl.accounting.reports import two_reports
from dpfl.cli.command import command_line
from dpfl.cli.results import report_inputs
from dpfl.reporting import comparison_page


def render(names: tuple[str, ...], form: str) -> str:
    """The comparison of two reports.

    Args:
      names: the two, as files or as directories of runs.
      form: 'text' or 'json'.

    Raises:
      UsageError: If one of them is not a report, or the form is another one.
    """
    if form not in ('text', 'json'):
        raise command_line.UsageError(f'--format={form}: must be text or json with --compare')
    contents = [report_inputs.read('compare', report_inputs.path_of(name)) for name in names]
    first, second = map(_report, names, contents)
    with command_line.refusing_bad_values():
        values = two_reports.compare(first, second, (names[0], names[1]))
    for side, content in zip(two_reports.SIDES, contents, strict=True):
        if 'composition' in _json.loads(content):
            values['notes'].append(
                f'The report of the {side} also states a joint guarantee with other runs, which '
                'is not compared.'
            )
    if form == 'json':
        return json.dumps(values, indent=2, allow_nan=False)
    return comparison_page.render(values)


def _report(name: str, content: bytes) -> accounting.PrivacyReport:
    try:
        return accounting.PrivacyReport.from_json(content, with_selection=True)
    except ValueError as error:
        raise command_line.UsageError(f'--compare={name}: {errors.shown(error)}') from None
