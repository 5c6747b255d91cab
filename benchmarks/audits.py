"""Audits the aggregator of every mechanism with many seeds: is any claim exceeded, how close is it?

  python -m benchmarks.audits [--repeats=20] [--trials=8192] [--only=blt]

For every case, over the seeds 0, 1, ..: how often a lower bound was above the claim, the median of
the bounds divided by the claim, and the median seconds of an audit. At confidence 95 % each of the
bounds on mu and epsilon may exceed the claim in one of twenty audits; because rates have whole
numbers of errors and two attackers share the error, it is less often. Exits with status 1 if it is
more often than a chance of one in a thousand allows. docs/how_to/auditing.md has the table.
"""

import argparse
import dataclasses
import statistics
import sys
import time
from collections.abc import Callable

import tqdm
from scipy import stats

from dpfl import Participation, accounting, mechanisms
from dpfl.auditing import aggregator_audit
from dpfl.auditing.config import AggregatorAuditConfig

_SCHEMA = Participation(64, 16)
_DELTA = 1e-6
_CONFIDENCE = 0.95
# Coordinates of a run with rounding.
_ROTATED = 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--repeats', type=int, default=20, help='audits of each case')
    parser.add_argument('--trials', type=int, default=8192, help='trials of each audit')
    parser.add_argument('--only', default='', help='only cases whose name begins with this text')
    args = parser.parse_args()
    cases = {name: make for name, make in CASES.items() if name.startswith(args.only)}
    print('| case | exact | exceeded | reachable | mu_lower | if normal | seconds |')
    print('|---|---|---|---|---|---|---|', flush=True)
    total = 0
    with tqdm.tqdm(total=len(cases) * args.repeats, unit=' audits', disable=None) as bar:
        for name, make in cases.items():
            row, exceeded = measured(make(), args.repeats, args.trials, bar.update)
            print(f'| {name} | {row} |', flush=True)
            total += exceeded
    audits = len(cases) * args.repeats
    # Each of the two bounds, on mu and on epsilon, has the error.
    chance = stats.binom.sf(total - 1, audits, 2 * (1 - _CONFIDENCE))
    print(f'exceeded: {total} of {audits}; so many or more by chance: at most {chance:.2g}')
    sys.exit(chance < 1e-3)


@dataclasses.dataclass(frozen=True)
class Case:
    """A plan, and how it is audited."""

    plan: accounting.PrivacyPlan
    how: dict[str, object] = dataclasses.field(default_factory=dict)


def measured(
    case: Case, repeats: int, trials: int, on_audit: Callable[[], object]
) -> tuple[str, int]:
    """The cells of a case, and how many audits exceeded the claim."""
    found, seconds = [], []
    for seed in range(repeats):
        config = AggregatorAuditConfig(trials=trials, confidence=_CONFIDENCE, seed=seed, **case.how)
        start = time.perf_counter()
        found.append(aggregator_audit.audit(case.plan, config, _DELTA))
        seconds.append(time.perf_counter() - start)
        on_audit()
    claim = case.plan.mu
    exceeded = sum(each.exceeds_claim for each in found)
    cells = [
        'yes' if case.plan.sensitivity_is_exact else 'no',
        f'{exceeded} of {repeats}',
        f'{found[0].mu_of_canaries / claim:.3f}',
        f'{statistics.median(each.mu_lower for each in found) / claim:.3f}',
        f'{statistics.median(each.mu_lower_if_normal for each in found) / claim:.3f}',
        f'{statistics.median(seconds):.1f}',
    ]
    return ' | '.join(cells), exceeded


def _plan(mechanism: mechanisms.Mechanism, **fields) -> accounting.PrivacyPlan:
    """A plan with mu = 1, but for what the fields change."""
    values = dict(
        mechanism=mechanism,
        participation=_SCHEMA,
        clip_norm=1.0,
        noise_multiplier=mechanism.sensitivity(_SCHEMA),
        clients_per_round=aggregator_audit.COORDINATES,
    )
    return accounting.PrivacyPlan(**(values | fields))


def _blt() -> mechanisms.Mechanism:
    return mechanisms.optimize_blt(_SCHEMA, num_buffers=3)


def _restarted() -> mechanisms.Mechanism:
    return mechanisms.Restarted(_blt(), (20, 40), _SCHEMA.rounds)


def _rounded(scale: float) -> dict[str, object]:
    rounding = mechanisms.Discretization(scale, _ROTATED, 1.0)
    return dict(discretization=rounding, clients_per_round=_ROTATED)


_ROUNDS = _SCHEMA.rounds
CASES: dict[str, Callable[[], Case]] = {
    'gaussian': lambda: Case(_plan(mechanisms.Identity(_ROUNDS))),
    'tree, nodes': lambda: Case(_plan(mechanisms.BinaryTree(_ROUNDS))),
    'tree, prefix sums': lambda: Case(_plan(mechanisms.BinaryTree(_ROUNDS, 'prefix_sums'))),
    'honaker_tree, nodes': lambda: Case(_plan(mechanisms.HonakerTree(_ROUNDS))),
    'honaker_tree, prefix sums': lambda: Case(
        _plan(mechanisms.HonakerTree(_ROUNDS, 'prefix_sums'))
    ),
    'full_honaker_tree': lambda: Case(_plan(mechanisms.FullHonakerTree(_ROUNDS))),
    'banded': lambda: Case(_plan(mechanisms.optimize_banded(_SCHEMA, 16))),
    'banded_toeplitz': lambda: Case(_plan(mechanisms.optimize_banded_toeplitz(_SCHEMA, 16))),
    'banded_inverse': lambda: Case(_plan(mechanisms.BandedInverse.square_root(_ROUNDS, 4))),
    'blt': lambda: Case(_plan(_blt())),
    'blt, resumed': lambda: Case(_plan(_blt()), {'resume_after': 20}),
    'blt, noise in a ring, resumed': lambda: Case(
        _plan(_blt()), {'resume_after': 20, 'supplied_noise': True}
    ),
    'blt, replace_one': lambda: Case(_plan(_blt(), adjacency='replace_one')),
    'blt, restarted': lambda: Case(_plan(_restarted())),
    'blt, restarted, adaptive clip': lambda: Case(
        _plan(_restarted(), adaptive_clip=accounting.AdaptiveClip(count_stddev=20.0))
    ),
    'blt, hardened': lambda: Case(_plan(_blt(), noise='hardened')),
    'blt, rounding, scale 1e6': lambda: Case(_plan(_blt(), **_rounded(1e6))),
    'blt, rounding, scale 300': lambda: Case(_plan(_blt(), **_rounded(300.0))),
}


if __name__ == '__main__':
    main()
