"""Where the time goes: every second once, told by a clock that the tests set."""

import inspect
import re
import threading

import pytest

from dpfl.simulation import profile, program


class _Clock:
    """A clock that goes on when it is told to."""

    now = 100.0

    def __call__(self):
        return self.now

    def wait(self, seconds):
        self.now += seconds


@pytest.fixture(name='clock')
def _clock():
    return _Clock()


def test_every_second_counts_for_the_innermost_span_or_the_thread_that_worked_for_it(clock):
    measured = profile.Profile(clock)
    with measured.span('TFF'):
        thread = threading.Thread(target=measured.observe, args=('clients', 3.0))
        thread.start()
        thread.join()
        clock.wait(5)
    measured.observe('moving in', 0.5)
    clock.wait(2)
    measured.begin('1')
    clock.wait(2)
    with measured.span('TFF'):
        clock.wait(4)
        with measured.span('data'):
            clock.wait(8)
        with measured.span('data'):
            clock.wait(16)
        clock.wait(32)
    clock.wait(64)
    measured.begin('end')
    assert {period.name: period.stages for period in measured.periods} == {
        'start': {'clients': 3, 'TFF': 2, 'moving in': 0.5, 'other': 1.5},
        '1': {'TFF': 36, 'data': 24, 'other': 66},
    }
    assert [period.seconds for period in measured.periods] == [7, 126]


def test_table_has_medians_and_shares_of_all_rounds_but_the_first(clock):
    measured = profile.Profile(clock)
    for name, seconds in (('1', 10.0), ('2', 1.0), ('3', 3.0)):
        measured.begin(name)
        with measured.span('data'):
            clock.wait(seconds)
        clock.wait(1.0)
    measured.begin('end')
    measured.begin('')
    lines = measured.render().splitlines()
    cells = {line.split()[0]: line.split() for line in lines[1:]}
    assert cells['data'][1:3] == ['2000.00', '66.7%']
    assert cells['other'][1:3] == ['1000.00', '33.3%']
    assert cells['a'][2:4] == ['3000.00', '100.0%']
    assert lines[-1] == 'start 0.00 s, first round 11.00 s, end 0.00 s'


def test_the_table_has_every_stage_of_a_run():
    """The noise of a file was measured, and in no row: shares added up to less than all."""
    stages = set(re.findall(r"span\('([^']+)'\)", inspect.getsource(program)))
    assert {'noise', 'audit', 'TFF'} < stages <= profile._STAGES.keys()
