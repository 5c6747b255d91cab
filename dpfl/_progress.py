"""Progress of long work: a bar in a terminal, lines now and then in a log or a notebook.

A bar is redrawn in place by carriage returns. A file keeps them all, and so does the saved output
of a notebook. So these get a whole line every ten seconds and one at the end.
"""

import sys
from collections.abc import Iterable
from typing import Any

import tqdm

# Seconds between two lines of a log, and between two changes of a bar.
_LOG_SECONDS = 10.0
_TERMINAL_SECONDS = 0.1


def bar(
    iterable: Iterable[Any] | None = None,
    desc: str = '',
    *,
    total: float | None = None,
    unit: str = 'step',
    unit_scale: bool = False,
    initial: float = 0,
    delay: float = 0.0,
    leave: bool = True,
    smoothing: float = 0.3,
    disable: bool = False,
) -> 'Bar':
    """Progress on standard error.

    It shows what is done, the time since the start, the time left, the speed, and what
    `set_postfix` gets. The speed of rounds is per minute.

    Args:
      iterable: what to go through, if the bar counts it.
      desc: name of the work.
      total: how many units there are, if this is known and not the length of `iterable`.
      unit: what is counted, in the singular; 'B' for bytes.
      unit_scale: whether to write large numbers with prefixes, such as 3.4k.
      initial: how many units were done before.
      delay: seconds before anything is shown.
      leave: whether the last state stays visible after the end.
      smoothing: of the speed: 0 for the average so far, 1 for the latest.
      disable: show nothing.
    """
    if getattr(sys.stderr, 'isatty', bool)():
        kind, seconds = Bar, _TERMINAL_SECONDS
    else:
        kind, seconds = _LogLines, _LOG_SECONDS
    return kind(
        iterable,
        desc,
        total=total,
        unit=unit,
        unit_scale=unit_scale,
        initial=initial,
        delay=delay,
        leave=leave,
        smoothing=smoothing,
        disable=disable or sys.stderr is None,
        mininterval=seconds,
        # Without this, how often a terminal is looked at depends on earlier speeds.
        miniters=None if kind is Bar else 1,
        dynamic_ncols=kind is Bar,
    )


class Bar(tqdm.tqdm):
    """Progress as a bar that a terminal redraws in place."""

    @property
    def format_dict(self) -> dict[str, Any]:
        values = super().format_dict
        values['speed'] = self._speed(values)
        share = '{desc}: {percentage:3.0f}%' if self.desc else '{percentage:3.0f}%'
        values['bar_format'] = (
            share + '|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {speed}{postfix}]'
            if self.total
            else '{desc}{colon}{n_fmt} {units} [{elapsed}, {speed}{postfix}]'
        )
        values['colon'] = ': ' if self.desc else ''
        values['units'] = self._units()
        return values

    def set_postfix(self, ordered_dict: Any = None, refresh: bool = False, **kwargs: Any) -> None:
        """Sets the figures at the end; they are shown with the next update."""
        super().set_postfix(ordered_dict, refresh, **kwargs)

    def set_postfix_str(self, s: str = '', refresh: bool = False) -> None:
        """Sets the text at the end; it is shown with the next update."""
        super().set_postfix_str(s, refresh)

    def line(self) -> str:
        """The state as one line of text."""
        values = self.format_dict
        of_total = '{n_fmt} of {total_fmt} {units} ({percentage:.0f} %)'
        left = '{remaining} left, ' if self.n < (self.total or 0) else ''
        values['bar_format'] = (
            '{desc}{colon}'
            + (of_total if self.total else '{n_fmt} {units}')
            + f', {{elapsed}} so far, {left}{{speed}}{{postfix}}'
        )
        return self.format_meter(**values)

    def _units(self) -> str:
        return self.unit if self.unit.endswith(('s', 'B')) else self.unit + 's'

    def _speed(self, values: dict[str, Any]) -> str:
        seconds = values['elapsed']
        rate = values['rate'] or ((self.n - self.initial) / seconds if seconds else 0)
        if self.unit == 'round':
            return f'{60 * rate:.3g} rounds/min' if rate else '? rounds/min'
        if not rate:
            return f'? {self._units()}/s'
        shown = self.format_sizeof(rate) if self.unit_scale else f'{rate:.3g} '
        return f'{shown}{self._units()}/s'


class _LogLines(Bar):
    """Lines in a file: none at the start, one every ten seconds, one at the end."""

    _shown = -1.0

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        del msg, pos
        # The first call comes from the constructor.
        if hasattr(self, 'start_t') and self.n not in (self.initial, self._shown):
            self._shown = self.n
            self.fp.write(self.line() + '\n')
            self.fp.flush()
        return True

    def clear(self, nolock: bool = False) -> None:
        """Nothing: what is in a log stays there."""

    def close(self) -> None:
        if self.disable:
            return
        self.disable: bool = True
        self._decr_instances(self)
        if self.leave and self._time() - self.start_t >= self.delay:
            # The speed of the whole, not the latest.
            self._ema_dt = lambda: None
            self.display()
