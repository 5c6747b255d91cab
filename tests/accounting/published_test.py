"""Published numbers of documents 000, 002 and 003, recomputed."""

import json
import math
import pathlib

import pytest

from dpfl import Participation, accounting, mechanisms

_ROOT = pathlib.Path(__file__).parents[2]
_ROWS = json.loads((_ROOT / 'experiments' / 'published.json').read_text())


def _computed_zcdp(row) -> float:
    inputs = row['inputs']
    if row['mechanism'] == 'gaussian':
        return inputs['rho']
    schema = Participation.from_rounds_between(inputs['rounds'], inputs['MinS'], inputs['MaxP'])
    if row['mechanism'] == 'tree':
        mechanism = mechanisms.BinaryTree(inputs['rounds'])
        noise_multiplier = inputs['noise_multiplier']
    else:
        path = _ROOT / 'configs' / 'strategies' / f'blt_b{inputs["blt_appA"]}.npz'
        mechanism = mechanisms.load(path).with_rounds(inputs['rounds'])
        noise_multiplier = inputs['sigma_abs']
    plan = accounting.PrivacyPlan(
        mechanism=mechanism, participation=schema, clip_norm=1.0,
        noise_multiplier=noise_multiplier, clients_per_round=6500,
    )
    assert plan.sensitivity_is_exact
    return plan.rho


def _prints_as(value: float, published: float, rounding: str) -> bool:
    """Whether `value` rounds to `published` at the digits that `published` is printed with."""
    digits = len(repr(published).partition('.')[2]) if published != int(published) else 1
    unit = 10.0**-max(digits, 2)
    nearest, up = round(value / unit) * unit, math.ceil(value / unit - 1e-9) * unit
    return math.isclose({'nearest': nearest, 'up': up}[rounding], published, rel_tol=1e-9)


def _matches(row) -> bool:
    published, zcdp = row['published'], _computed_zcdp(row)
    matches = 'zcdp' not in published or _prints_as(zcdp, published['zcdp'], row['rounding'])
    if 'eps' in published:
        accountant, _, source = row['method']['eps'].partition(' of the ')
        rho = published.get('zcdp', zcdp) if source == 'zcdp as printed' else zcdp
        epsilon = accounting.epsilon_from_rho(rho, row['inputs']['delta'], accountant)
        matches &= _prints_as(epsilon, published['eps'], row['rounding'])
    return matches


@pytest.mark.parametrize('row', _ROWS, ids=lambda row: row['id'])
def test_row_matches_where_it_can(row):
    assert _matches(row) == row['reproducible']


def test_rows_cover_the_tables():
    reproducible = [row['mechanism'] for row in _ROWS if row['reproducible']]
    assert {kind: reproducible.count(kind) for kind in set(reproducible)} == {
        'tree': 21, 'blt': 6, 'gaussian': 2
    }
    assert all(row.get('note') for row in _ROWS if not row['reproducible'])


def test_wrong_values_do_not_print_the_same():
    assert _prints_as(0.4796, 0.48, 'nearest')
    assert not _prints_as(0.4849, 0.48, 'up')
    assert not _prints_as(0.4751, 0.47, 'nearest')
    assert _prints_as(0.022231, 0.0223, 'up')
