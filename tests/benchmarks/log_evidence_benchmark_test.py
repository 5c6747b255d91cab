"""The tables of logs and their refutations, tiny."""

from benchmarks import log_evidence
from tests.accounting.evidence import dishonest_logs

_CASE = dishonest_logs.CASES['without_replacement']


def test_rows_of_both_tables(capsys):
    case = dishonest_logs.Cases(
        _CASE.plan, _CASE.honest, {'in turn': _CASE.dishonest['in turn'], 'none': _of_honest}
    )
    assert log_evidence.dishonest_table({'fixed': case}, 2)
    assert not log_evidence.honest_table({'fixed': case}, 3)
    rows = capsys.readouterr().out.splitlines()
    tests = 'overlap at lag 1, overlaps with earlier cohorts'
    assert rows[2] == f'| fixed | in turn | 3.18 | 4.089 | 2 | {tests} |'
    assert rows[3].startswith('| fixed | none | 3.18 |') and rows[3].endswith('| 0 |  |')
    assert rows[-1] == '| fixed | 3 | 0 | 0 |'


def test_refuted_honest_logs_are_an_error():
    case = dishonest_logs.Cases(
        _CASE.plan,
        lambda seed: dishonest_logs.with_client_always(_CASE.honest(seed), [0], 2000),
        {},
    )
    assert log_evidence.honest_table({'fixed': case}, 1)


def _of_honest(rng):
    return _CASE.honest(int(rng.integers(1000)))
