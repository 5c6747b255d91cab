"""The guarantee of the best of several runs: what tuning costs ([Papernot22]).

A number of runs is drawn from a distribution, before and independently of everything else. Each run
has fresh noise, and settings that are drawn without looking at the data. Only the best run by some
score is released, and the score may be computed from the data without noise.
"""

import dataclasses
import math
from typing import Annotated, Literal

from dpfl import _json, _validate, errors
from dpfl._validate import Epsilon, Limits
from dpfl.accounting import dp, events
from dpfl.accounting.losses.dominating_pairs import Neighbours

# Shapes of the distributions of the number of runs, truncated negative binomials; that of the
# Poisson distribution is the limit.
DISTRIBUTIONS = {'logarithmic': 0.0, 'geometric': 1.0, 'poisson': math.inf}
_FORM = (
    'must be a distribution and its mean, such as poisson:10; the distribution is one of '
    f'{", ".join(DISTRIBUTIONS)}, or the shape of a negative binomial one, such as 0.5:10'
)


@dataclasses.dataclass(frozen=True)
class Selection(_json.JsonFields):
    """A random number of runs, the best of which is released.

    Attributes:
      distribution: of the number: one of `DISTRIBUTIONS`, or the shape, above 0, of a negative
        binomial distribution without 0. Only a Poisson number may be 0: then nothing is released.
      mean: of the number, at least 1.

    Raises:
      ArgumentError: if a value is out of its range.
    """

    distribution: str | float
    mean: Annotated[float, Limits('runs', minimum=1)]

    def __post_init__(self):
        if isinstance(self.distribution, str):
            _validate.choice('distribution', self.distribution, tuple(DISTRIBUTIONS))
        else:
            _validate.number('distribution', self.distribution, above=0)
        super().__post_init__()
        if self.distribution != 'poisson' and self.mean == 1:
            raise errors.ArgumentError(
                'mean', self.mean, 'must be above 1, or the distribution must be poisson'
            )

    @classmethod
    def from_text(cls, text: str) -> 'Selection':
        """The selection that a text such as 'poisson:10' names.

        Raises:
          ArgumentError: if it is of another form, or a value is out of its range; the error is
            about 'selected_from'.
        """
        name, _, mean = text.partition(':')
        try:
            return cls(name if name in DISTRIBUTIONS else float(name), float(mean))
        except ValueError as error:
            allowed = error.allowed if isinstance(error, errors.ArgumentError) else ''
            reason = f' ({error.name} {allowed})' if isinstance(error, errors.ArgumentError) else ''
            raise errors.ArgumentError('selected_from', text, _FORM + reason) from None

    def describe(self) -> str:
        """The distribution in words."""
        if isinstance(self.distribution, str):
            name = {'poisson': 'Poisson'}.get(self.distribution, self.distribution)
            return f'{name} distribution with mean {self.mean:g}'
        return (
            f'truncated negative binomial distribution of shape {self.distribution:g} with mean '
            f'{self.mean:g}'
        )

    @property
    def shape(self) -> float:
        """Shape of the negative binomial distribution; infinity for Poisson."""
        if isinstance(self.distribution, str):
            return DISTRIBUTIONS[self.distribution]
        return self.distribution


@dataclasses.dataclass(frozen=True)
class Selected:
    """The guarantee of the run that a selection releases.

    Attributes:
      selection: of that run.
      epsilons: one for each delta of the report; infinite without noise.
    """

    selection: Selection
    epsilons: tuple[Epsilon, ...]

    @property
    def epsilon(self) -> Epsilon:
        """Epsilon at the first delta; infinite without noise."""
        return self.epsilons[0]

    @property
    def rho(self) -> None:
        """None: the bound is not one of zCDP."""

    @property
    def accountant(self) -> Literal['rdp']:
        """Method of epsilon."""
        return 'rdp'


def epsilon(
    event: dp.Event,
    selection: Selection,
    delta: float,
    neighbours: Neighbours | None = None,
) -> float:
    """Epsilon at `delta` of the best of several runs.

    By Renyi DP: [Papernot22], theorem 2 for negative binomial numbers of runs and theorem 6 for
    Poisson ones, as dp_accounting implements them.

    Args:
      event: one run, as in `events.bound`.
      selection: how many runs there are.
      delta: strictly between 0 and 1.
      neighbours: as in `events.bound`.

    Returns:
      An upper bound; infinity without noise.

    Raises:
      ArgumentError: if delta is out of its range or the event has no Renyi divergences.
    """
    _validate.number('delta', delta, above=0, below=1)
    orders, divergences = events.renyi_divergences(event, neighbours)
    # dp_accounting publishes this only for events whose divergences it computes itself.
    together = dp.rdp.rdp_privacy_accountant._compute_rdp_repeat_and_select(
        orders, divergences, selection.mean, selection.shape
    )
    return float(dp.rdp.compute_epsilon(orders, together, delta)[0])
