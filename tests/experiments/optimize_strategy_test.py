"""The binaries that optimise and compare mechanisms, against calls of the library."""

import functools

import pytest

from dpfl import Participation, accounting, mechanisms
from dpfl.mechanisms import rounding
from tests import forked_binaries

# Two processes may use other numbers of threads.
_about = functools.partial(pytest.approx, rel=1e-9)
_SCHEMA = ('--rounds=60', '--min_separation=20', '--max_participations=3')
_OF_60 = Participation(60, 20, 3)


@pytest.mark.parametrize(
    'flags',
    [
        ['--mechanism=blt', '--buffers=2'],
        pytest.param(['--mechanism=banded'], marks=pytest.mark.standard),
    ],
    ids=lambda flags: flags[0],
)
def test_an_optimised_strategy_goes_into_a_report(flags, tmp_path):
    output = tmp_path / 'strategy.npz'
    result = forked_binaries.printed('optimize_strategy', *_SCHEMA, *flags, f'--output={output}')
    mechanism = mechanisms.load(output)
    assert mechanism.name == result['mechanism']
    assert mechanism.sensitivity(_OF_60) == _about(result['sensitivity'])
    assert mechanism.kernel().buffers == result['buffers']
    assert mechanism.max_loss(_OF_60) == pytest.approx(result['max_loss'])
    shown = forked_binaries.printed(
        'report_privacy', *_SCHEMA, flags[0], f'--strategy={output}', '--noise_multiplier=5'
    )
    assert shown['sensitivity'] == _about(result['sensitivity'])


@pytest.mark.standard
def test_comparison_has_a_row_for_each_mechanism_and_value(tmp_path):
    plot = tmp_path / 'losses.png'
    made = forked_binaries.printed(
        'compare_mechanisms',
        *_SCHEMA,
        '--vary=min_separation',
        '--values=10,20,30',
        '--mechanisms=tree,honaker_tree,full_honaker_tree,blt:2,best_blt:2,banded:20,blt_b100',
        '--relative_to=tree',
        '--noise_multiplier=3',
        f'--plot={plot}',
    )
    rows = {(row['mechanism'], row['min_separation']): row for row in made}
    assert len(rows) == 21
    tree = mechanisms.BinaryTree(60)
    assert rows['tree', 30]['max_loss'] == _about(tree.max_loss(Participation(60, 30, 3)))
    assert rows['tree', 30]['epsilon'] > 0
    for value in (10, 20, 30):
        best = rows['best_blt:2', value]['max_loss']
        assert best <= rows['blt:2', value]['max_loss'] * (1 + 1e-6)
        assert best < rows['full_honaker_tree', value]['max_loss']
    # Bands beyond the separation cost: the sensitivity is a bound there.
    assert rows['banded:20', 20]['exact'] and not rows['banded:20', 10]['exact']
    assert plot.stat().st_size > 5000


def test_a_comparison_rounds_epsilon_up_and_has_none_without_noise():
    flags = ('--mechanisms=tree,gaussian', '--rounds=60', '--min_separation=10')
    rows = forked_binaries.printed('compare_mechanisms', *flags, '--noise_multiplier=3')
    for row in rows:
        mu = rounding.quotient_up(row['sensitivity'], 3.0)
        assert row['epsilon'] == accounting.epsilon_from_mu(mu, 1e-10)
    silent = forked_binaries.printed('compare_mechanisms', *flags, '--noise_multiplier=0')
    assert [row['epsilon'] for row in silent] == [None, None]
