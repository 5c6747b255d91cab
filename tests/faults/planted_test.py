"""The list of faults, and the command that plants them."""

import pytest

from tests import paths
from tests.faults import planted


@pytest.mark.parametrize('fault', planted.FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_planted_in_one_place(fault):
    assert (paths.ROOT / fault.path).read_text().count(fault.before) == 1
    assert fault.after != fault.before
    assert fault.near and all(
        (paths.ROOT / near.partition('::')[0]).exists() for near in fault.near
    )


def test_faults_have_names_of_their_own():
    names = [fault.name for fault in planted.FAULTS]
    assert len({*names}) == len(names)
