"""The package dp_accounting and the two events that it lacks, imported when one is first used.

With scipy.stats and scipy.signal the import takes twice as long as all others of this room: what
makes no event, such as the help of a command, does not wait for it.
"""

from typing import Any

Event = Any
"""A `dp_accounting.DpEvent`."""


def __getattr__(name: str) -> Any:
    if name.startswith('__'):  # Of this module, which is no package, as dp_accounting is.
        raise AttributeError(name)
    import dp_accounting

    from dpfl.accounting import own_events

    value = getattr(own_events if hasattr(own_events, name) else dp_accounting, name)
    globals()[name] = value
    return value
