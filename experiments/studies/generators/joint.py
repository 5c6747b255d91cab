"""What the runs of a comparison guarantee together."""

from typing import Any

from dpfl.accounting.reports import joint
from dpfl.errors import ArgumentError
from experiments.studies.generators.sides import Side


def guarantees(sides: tuple[Side, Side]) -> list[dict[str, Any]]:
    """Epsilons of the runs of each side, and of all runs, for a client that all learn from.

    Returns:
      A row for each: `of` ('a', 'b' or 'both'), `runs`, `delta`, and `epsilon`, which is None if it
      is infinite or cannot be composed; `remark` then says why.
    """
    rows = []
    for name, chosen in (('a', sides[:1]), ('b', sides[1:]), ('both', sides)):
        reports = [each.report for side in chosen for each in side.values()]
        try:
            epsilon = joint.guarantee(reports).finite_epsilon
            remark = '' if epsilon is not None else 'infinite'
        except ArgumentError as error:
            epsilon, remark = None, f'the runs cannot be composed: {error}'
        rows.append(
            {
                'of': name,
                'runs': len(reports),
                'delta': reports[0].deltas[0],
                'epsilon': epsilon,
                'remark': remark,
            }
        )
    return rows
