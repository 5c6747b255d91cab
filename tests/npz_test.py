"""Archives of arrays: any type, shape and order is read back. tests/attacks has hostile ones."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dpfl import _npz

_ARRAYS = st.dictionaries(
    st.text('abcdef_/', min_size=1, max_size=8).filter(lambda name: not name.startswith('/')),
    arrays.arrays(
        st.sampled_from(['<f8', '<f4', '<i8', '<i4', '>f8', '|u1', '|b1', '<U3']),
        arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ),
    max_size=4,
)


@settings(max_examples=15, derandomize=True, deadline=None, database=None)
@given(_ARRAYS, st.booleans())
def test_arrays_are_read_back(tmp_path_factory, values, fortran):
    path = tmp_path_factory.getbasetemp() / 'arrays.npz'
    if fortran:
        values = {name: np.asfortranarray(array) for name, array in values.items()}
    np.savez_compressed(path, **{f'_{name}': array for name, array in values.items()})
    found = _npz.load(path)
    assert found.keys() == {f'_{name}' for name in values}
    for name, array in values.items():
        assert found[f'_{name}'].dtype == array.dtype
        np.testing.assert_array_equal(found[f'_{name}'], array)
