"""Settings that runs of earlier versions have recorded, and this version does not have.

Such a run is read, and goes on, if it had the only value that is left; see the page on files about
how formats change.
"""

from collections.abc import Mapping
from typing import Any

from dpfl import errors

# By the last commit that reads them: their names, and the values that are left.
_VALUES: Mapping[str, Mapping[str, Any]] = {
    '1c71cccf': {
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
    },
    '8b7dc965': {
        'secrets': 0,
        'secret_choices': 64,
        'secret_copies': [1],
        'secret_holders': [1],
        'secret_words': 2,
    },
    'b549fb5d': {
        'author_max_words': 3000,
        'client_min_sentences': 0,
        'fork_from': None,
        'generator_every': 1,
        'match': None,
        'profile': False,
        'select_min_examples': 1,
        'selection_epsilon': None,
        'server_beta2': None,
        'server_epsilon': None,
        'server_warmup_rounds': 0,
        'stop_at_epsilon': None,
        'strict': False,
        'vocabulary_choice': 'frequent',
        'vocabulary_delta': None,
        'vocabulary_rounds': 3,
        'workload': 'prefix_sums',
    },
}
_LEFT = {name: (last, value) for last, of in _VALUES.items() for name, value in of.items()}
# Of runs that train a generator; others still have these settings.
_LEFT_OF_GENERATORS: Mapping[str, tuple[str, Any]] = {
    'select_clients': ('b549fb5d', []),
    'select_examples': ('b549fb5d', []),
    'selection_model': ('b549fb5d', None),
}


def left_out(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Recorded settings, nested or not, without those that this version does not have.

    A group of which nothing is left goes with them.

    Raises:
      ArgumentError: if one of these has another value than the one that is left.
    """
    groups = (recorded, recorded.get('optimization'))
    trains_generator = any(isinstance(g, Mapping) and 'generator_steps' in g for g in groups)
    return _left_out(recorded, {**_LEFT, **(_LEFT_OF_GENERATORS if trains_generator else {})})


def _left_out(recorded: Mapping[str, Any], left: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in recorded.items():
        if name not in left:
            inner = _left_out(value, left) if isinstance(value, Mapping) else value
            if inner or not value:
                kept[name] = inner
            continue
        last_reader, only = left[name]
        if value != only:
            what = errors.removed('is a setting of earlier versions', last_reader)
            raise errors.ArgumentError(name, value, what)
    return kept
