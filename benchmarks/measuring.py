"""What benchmarks share: their command lines, their plans, and tables in Markdown."""

import argparse
from typing import Any

from dpfl import Participation, accounting, mechanisms


def parser(text: str | None) -> argparse.ArgumentParser:
    """A parser of flags whose help begins with a module's docstring."""
    return argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def print_head(*names: str) -> None:
    """Prints the first two lines of a table."""
    print_row(*names)
    print('|---' * len(names) + '|', flush=True)


def print_row(*cells: Any) -> None:
    """Prints a row of a table."""
    print(f'| {" | ".join(map(str, cells))} |', flush=True)


def plan(mechanism: mechanisms.Mechanism, clients: int, **fields: Any) -> accounting.PrivacyPlan:
    """A plan with noise of one clip norm, in whose rounds every client may take part.

    Args:
      mechanism: of the plan.
      clients: the planned cohort.
      **fields: of the plan, in place of these or besides.
    """
    values = dict(
        mechanism=mechanism,
        participation=Participation(mechanism.rounds),
        clip_norm=1.0,
        noise_multiplier=1.0,
        clients_per_round=clients,
    )
    return accounting.PrivacyPlan(**(values | fields))
