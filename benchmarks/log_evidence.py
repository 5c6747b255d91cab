"""Which logs that break a sampled plan are refuted, and how often an honest log is.

  python -m benchmarks.log_evidence [--logs=20] [--honest=2000] [--only=poisson]

For every plan of tests/accounting/evidence/dishonest_logs.py: epsilon that the plan claims, epsilon
that a log alone gives (the median over its draws), and how many draws are refuted. Then how many
honest logs, drawn by the samplers of dpfl.simulation, are refuted at a false alarm of 0.01 and of
1e-6. Exits with status 1 if an honest log is refuted at 1e-6, if more are at 0.01 than a chance of
one in a thousand allows, or if a log is missed that all tests should refute.
docs/research/log_evidence.md has the tables.
"""

import collections
import math
import statistics
import sys
from collections.abc import Callable

import numpy as np
import tqdm
from scipy import stats

from benchmarks import measuring
from dpfl import ParticipationLog, accounting
from dpfl.accounting.evidence import refutation
from dpfl.mechanisms.sensitivities import pattern_sensitivity
from tests.accounting.evidence.dishonest_logs import CASES, Cases

_DELTA = 1e-5
_LEVEL = 0.01


def main() -> None:
    parser = measuring.parser(__doc__)
    parser.add_argument('--logs', type=int, default=20, help='draws of each dishonest log')
    parser.add_argument('--honest', type=int, default=2000, help='honest logs of each plan')
    parser.add_argument('--only', default='', help='only plans whose name begins with this text')
    args = parser.parse_args()
    cases = {name: case for name, case in CASES.items() if name.startswith(args.only)}
    draws = sum(args.logs * len(case.dishonest) + args.honest for case in cases.values())
    with tqdm.tqdm(total=draws, unit=' logs', disable=None) as bar:
        is_missed = dishonest_table(cases, args.logs, bar.update)
        is_refuted = honest_table(cases, args.honest, bar.update)
    sys.exit(is_missed or is_refuted)


def dishonest_table(
    cases: dict[str, Cases], draws: int, on_log: Callable[[], object] = lambda: None
) -> bool:
    """Prints a row for each dishonest log; whether one was missed that should not be."""
    measuring.print_head(
        'plan', 'log', 'the plan claims', 'the log alone gives', f'refuted of {draws}', 'tests'
    )
    is_missed = False
    for name, case in cases.items():
        claimed = case.plan.epsilon(_DELTA, 'best')
        for what, draw in case.dishonest.items():
            epsilons, tests, refuted = [], collections.Counter(), 0
            for seed in range(draws):
                log = draw(np.random.default_rng(seed))
                found = refutation.refutations(case.plan, log)
                refuted += bool(found)
                tests.update(test.name for test in found)
                epsilons.append(_epsilon_of_log(case.plan, log))
                on_log()
            is_missed = is_missed or (refuted < draws and what not in case.weak)
            alone, best = statistics.median(epsilons), dict(tests.most_common(2))
            measuring.print_row(
                name, what, f'{claimed:.4g}', f'{alone:.4g}', refuted, ', '.join(best)
            )
    return is_missed


def honest_table(
    cases: dict[str, Cases], logs: int, on_log: Callable[[], object] = lambda: None
) -> bool:
    """Prints a row for each plan; whether more honest logs were refuted than chance allows."""
    most = int(stats.binom.ppf(0.999, logs, _LEVEL))
    print()
    measuring.print_head(
        'plan', 'honest logs', f'refuted at 0.01 (at most {most})', 'refuted at 1e-6'
    )
    is_refuted = False
    for name, case in cases.items():
        at_level = at_report = 0
        for seed in range(logs):
            tests = refutation.log_tests(case.plan, case.honest(seed))
            least = float(min(test.p_value for test in tests)) * refutation.MOST_TESTS
            at_level += least <= _LEVEL
            at_report += least <= refutation.FALSE_ALARM
            on_log()
        is_refuted = is_refuted or at_level > most or at_report > 0
        measuring.print_row(name, logs, at_level, at_report)
    return is_refuted


def _epsilon_of_log(plan: accounting.PrivacyPlan, log: ParticipationLog) -> float:
    """Epsilon of the clients of a log without relying on sampling."""
    plain = plan.without_sampling(log.observed())
    squared = pattern_sensitivity.of_log(plain.mechanism, log).squared
    run = plain.run_of_sensitivity(plain.shift * math.sqrt(squared))
    return run.bound(_DELTA, 'best', plain.neighbours).epsilon


if __name__ == '__main__':
    main()
