"""What a report is about: when a run began, and what it trains. No guarantee depends on it."""

import dataclasses
import re

from dpfl import _json, _validate, errors

# It becomes part of a page, and files may come from anybody.
_PLAIN = re.compile(r'[\w .:+()/-]{0,80}', re.ASCII)


@dataclasses.dataclass(frozen=True)
class About(_json.JsonFields):
    """The identity of a run; what is not known is empty.

    Attributes:
      begun: the day of the first round, in UTC, as 2026-11-23.
      version: of dpfl, with which the run began.
      task: the data set.
      model: its name.
      parameters: number of parameters that are trained.
      ray_losses: how many shards of its rounds were lost by Ray and computed again; None if Ray
        computed none.

    Raises:
      ValueError: if a text is long or has other characters than letters, digits and ` .:+()/_-`.
    """

    begun: str = ''
    version: str = ''
    task: str = ''
    model: str = ''
    parameters: int | None = None
    ray_losses: int | None = None

    def __post_init__(self):
        for name in ('begun', 'version', 'task', 'model'):
            value = getattr(self, name)
            if not isinstance(value, str) or not _PLAIN.fullmatch(value):
                raise errors.ArgumentError(name, value, 'must be a short text of plain characters')
        for name in ('parameters', 'ray_losses'):
            if getattr(self, name) is not None:
                _validate.integer(name, getattr(self, name), minimum=0)

    def line(self) -> str:
        """What it says, in one line."""
        by = f'dpfl {self.version}' if self.version else ''
        size = '' if self.parameters is None else f'{self.parameters:,} parameters'
        again = f'on Ray; {self.ray_losses} shards were lost and computed again'
        ray = '' if self.ray_losses is None else again
        return ', '.join(filter(None, (self.task, self.model, size, self.begun, by, ray)))
