"""The flags of `train` for a run that a plan describes."""

import shlex
from collections.abc import Mapping
from typing import Any

# What a plan decides; everything else that was asked for is passed on as it is.
_SCHEMA = ('min_separation', 'max_participations')
_OF_THE_PLAN = ('population', 'clients_per_round', 'rounds', 'noise_multiplier', 'delta')
# How the amount of noise was asked for, and the timer that the separation stands for.
_ANSWERED = ('target_epsilon', 'match', 'match_momentum', 'timer_hours')


def flags_of(row: Mapping[str, Any], given: Mapping[str, str], sampling: str = 'none') -> str:
    """The flags, separated by spaces.

    Args:
      row: the plan, as `answer` gives it.
      given: flags of `train` that were given, by name, as `--name=value`.
      sampling: that of the plan; random sampling decides who takes part when.
    """
    names = _OF_THE_PLAN if sampling != 'none' else (*_OF_THE_PLAN, *_SCHEMA)
    own = {name: f'--{name}={row[name]}' for name in names if row.get(name) is not None}
    kept = {name: text for name, text in given.items() if name not in (*own, *_ANSWERED)}
    return ' '.join(map(shlex.quote, {**kept, **own}.values()))
