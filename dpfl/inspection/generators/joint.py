"""What the runs of a comparison guarantee together."""

import math
from collections.abc import Sequence
from typing import Any

from dpfl.accounting import PrivacyReport
from dpfl.accounting.reports import noise_keys
from dpfl.inspection.generators.sides import Side
from dpfl.inspection.text import results


def guarantees(sides: tuple[Side, Side]) -> list[dict[str, Any]]:
    """Epsilons of the runs of each side, and of all runs, for a client that all learn from.

    Returns:
      A row for each: `of` ('a', 'b' or 'both'), `runs`, `delta`, and `epsilon`, which is None if it
      is infinite or cannot be composed; `remark` then says why.
    """
    rows = []
    for name, chosen in (('a', sides[:1]), ('b', sides[1:]), ('both', sides)):
        reports = [each.report for side in chosen for each in side.values()]
        obstacle = _obstacle(reports)
        epsilon = results.together(reports) if obstacle is None else None
        rows.append(
            {
                'of': name,
                'runs': len(reports),
                'delta': reports[0].deltas[0],
                'epsilon': epsilon,
                'remark': obstacle or ('' if epsilon is not None else 'infinite'),
            }
        )
    return rows


def _obstacle(reports: Sequence[PrivacyReport]) -> str | None:
    """Why the guarantees of runs cannot be added up; None if they can."""
    for name in ('adjacency', 'group_size'):
        values = sorted({str(getattr(report.plan, name)) for report in reports})
        if len(values) > 1:
            return f'the runs differ in {name.replace("_", " ")}: {", ".join(values)}'
    shared = noise_keys.obstacle(reports)
    if shared is not None:
        return f'run {shared[0] + 1} {shared[1]}'
    for report in reports:
        epsilon = report.guarantee.epsilons[0]
        if epsilon is None or math.isinf(epsilon):
            return 'infinite'
    return None
