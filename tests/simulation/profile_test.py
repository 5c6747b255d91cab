"""Where the time goes: every second once, told by a clock that the tests set."""

import threading

import pytest

from dpfl.simulation import profile


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def wait(self, seconds):
        self.now += seconds


@pytest.fixture(name='clock')
def _clock():
    return Clock()


def _stages(measured, name):
    (period,) = (period for period in measured.periods if period.name == name)
    assert sum(period.stages.values()) == period.seconds
    return period.stages


def test_seconds_count_for_the_innermost_span(clock):
    measured = profile.Profile(clock)
    clock.wait(1)
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
    assert _stages(measured, 'start') == {'other': 1}
    assert _stages(measured, '1') == {'TFF': 36, 'data': 24, 'other': 66}


def test_what_another_thread_does_for_a_span_is_taken_from_it(clock):
    measured = profile.Profile(clock)
    with measured.span('TFF'):
        thread = threading.Thread(target=measured.observe, args=('clients', 3.0))
        thread.start()
        thread.join()
        clock.wait(5)
    measured.observe('moving in', 0.5)
    clock.wait(2)
    measured.begin('end')
    assert _stages(measured, 'start') == {'clients': 3, 'TFF': 2, 'moving in': 0.5, 'other': 1.5}


def _of_three_rounds(clock):
    measured = profile.Profile(clock)
    for name, seconds in (('1', 10.0), ('2', 1.0), ('3', 3.0)):
        measured.begin(name)
        with measured.span('data'):
            clock.wait(seconds)
        clock.wait(1.0)
    measured.begin('end')
    measured.begin('')
    return measured


def test_table_has_medians_and_shares_of_all_rounds_but_the_first(clock):
    lines = _of_three_rounds(clock).render().splitlines()
    cells = {line.split()[0]: line.split() for line in lines[1:]}
    assert cells['data'][1:3] == ['2000.00', '66.7%']
    assert cells['other'][1:3] == ['1000.00', '33.3%']
    assert cells['a'][2:4] == ['3000.00', '100.0%']
    assert lines[-1] == 'start 0.00 s, first round 11.00 s, end 0.00 s'


def test_nothing_measures_nothing():
    nothing = profile.Nothing()
    nothing.begin('1')
    with nothing.span('data'), nothing.span('data'):
        pass
    assert nothing.observe is None
    assert not vars(nothing)
