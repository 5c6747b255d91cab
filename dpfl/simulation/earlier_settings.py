"""Settings that runs of earlier versions have recorded, and this version does not have.

Such a run is read, and goes on, if it had the only value that is left; see the page on files about
how formats change.
"""

from collections.abc import Mapping
from typing import Any

from dpfl import errors

# Their names, and the values that are left.
_VALUES: Mapping[str, Any] = {
    'check_in_minutes': 30.0,
    'client_minutes': 4.0,
    'client_spread': 0.5,
    'daytime_share': 0.5,
    'download_sha256': None,
    'download_url': None,
    'drop_out': 0.08,
    'eligible_share': 0.5,
    'jitter_hours': 1.0,
    'match_momentum': 0.0,
    'over_selection': 1.3,
    'secret_prefix': 3,
    'server_cooldown_rounds': None,
    'server_final_rate': 0.1,
    'server_minutes': 1.0,
    'time_zone_hours': 3.0,
    'tree_completed': False,
    'vocabulary_marks': True,
    'window_hours': 7.0,
}
_LAST_READER = '1c71cccf'


def left_out(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Recorded settings, nested or not, without those that this version does not have.

    Raises:
      ArgumentError: if one of these has another value than the one that is left.
    """
    kept: dict[str, Any] = {}
    for name, value in recorded.items():
        if name not in _VALUES:
            kept[name] = left_out(value) if isinstance(value, Mapping) else value
        elif value != _VALUES[name]:
            what = errors.removed('is a setting of earlier versions', _LAST_READER)
            raise errors.ArgumentError(name, value, what)
    return kept
