import pathlib

import numpy as np
import pytest

from dpfl import mechanisms

_STRATEGIES = pathlib.Path(__file__).parents[2] / 'configs' / 'strategies'


@pytest.mark.parametrize('name, rounds, decay, scale', [
    ('blt_b100', 2000,
     [0.989739971007307, 0.7352001759538236, 0.16776199983448145, 0.1677619998016191],
     [0.20502892852480875, 0.23357939425278557, 0.03479503245420878, 0.03479509876050538]),
    ('blt_b400', 4000,
     [0.9999999999921251, 0.9944453083640997, 0.8985923474607591, 0.4912001418098778],
     [0.0070314825502323835, 0.10613806907600574, 0.1898159060327625, 0.1966594748073734]),
    ('blt_b1000', 4000,
     [0.9999999999983397, 0.9973412136664378, 0.9584629472313878, 0.6581796870749317],
     [0.008657392263671862, 0.05890891298180163, 0.14548176930698697, 0.2770117005326523]),
])
def test_production_strategies_are_those_of_document_002_appendix_a(name, rounds, decay, scale):
    strategy = mechanisms.load(_STRATEGIES / f'{name}.npz')
    assert strategy == mechanisms.Blt(rounds, decay, scale)


def test_a_file_of_another_kind_is_refused(tmp_path):
    text, array, archive = (tmp_path / name for name in ('a.txt', 'b.npy', 'c.npz'))
    text.write_text('no strategy')
    np.save(array, np.ones(3))
    np.savez(archive, weights=np.ones(3))
    for path in (text, array, tmp_path / 'absent.npz', tmp_path):
        with pytest.raises(ValueError, match='cannot be read as a mechanism'):
            mechanisms.load(path)
    with pytest.raises(ValueError, match='has schema version None: must be 1'):
        mechanisms.load(archive)


def test_unknown_names_and_parameters_are_refused():
    with pytest.raises(ValueError, match='mechanism=magic: must be one of gaussian, tree, '):
        mechanisms.from_dict({'mechanism': 'magic', 'rounds': 3})
    with pytest.raises(ValueError, match='mechanism=tree: does not take the parameters bands'):
        mechanisms.from_dict({'mechanism': 'tree', 'bands': 3})
