import concurrent.futures
import threading
import time

import pytest

from dpfl.aggregators.noise import noise_ring


def test_no_part_is_worked_on_any_more_when_another_one_has_failed():
    begun, failed, still_working = threading.Event(), threading.Event(), []

    def work(part):
        if part == 0:
            begun.wait(10)
            failed.set()
            raise MemoryError('in a block')
        begun.set()
        failed.wait(10)
        time.sleep(0.2)
        still_working.append(part)

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        with pytest.raises(MemoryError, match='in a block'):
            noise_ring.run_all(threads, work, range(2))
        assert still_working == [1]
