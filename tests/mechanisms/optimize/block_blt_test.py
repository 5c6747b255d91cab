import pytest

from dpfl import Participation, mechanisms
from dpfl.mechanisms.optimize import block_blt


@pytest.mark.standard
@pytest.mark.parametrize('loss, most', [('max', 0.97), ('rms', 0.99)])
def test_changing_blocks_are_better_than_scaled_columns(loss, most):
    schema, name = Participation(48, 8, 6), f'{loss}_loss'
    found = block_blt.optimize_block_blt(schema, 2, loss)
    scaled = mechanisms.optimize_scaled_blt(schema, 2, loss)
    assert isinstance(found.base, mechanisms.BlockBlt) and found.num_buffers() == 2
    assert getattr(found, name)(schema) < most * getattr(scaled, name)(schema)
    assert getattr(found, name)(schema) > mechanisms.loss_lower_bound(schema, loss=loss)


@pytest.mark.parametrize(
    'schema', [Participation(5000, 1000), Participation(600, 2), Participation(4000, 50)], ids=str
)
def test_large_schemas_are_left_to_scaled_blts(schema, monkeypatch):
    monkeypatch.setattr(block_blt, '_Search', None)
    scaled = mechanisms.ColumnScaled(
        mechanisms.Blt(schema.rounds, [0.9], [0.1]), [1.0], schema.rounds
    )
    monkeypatch.setattr(block_blt, 'optimize_scaled_blt', lambda *_, **__: scaled)
    assert block_blt.optimize_block_blt(schema, 1) is scaled
