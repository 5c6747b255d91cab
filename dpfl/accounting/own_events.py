"""The two events of releases that dp_accounting does not have."""

import dataclasses

import dp_accounting

from dpfl.accounting.losses import dominating_pairs


@dataclasses.dataclass(frozen=True)
class RevealingDpEvent(dp_accounting.DpEvent):
    """With probability `delta` everything is revealed, else nothing: it is (0, delta)-DP.

    Attributes:
      delta: at least 0 and below 1.
    """

    delta: float


@dataclasses.dataclass(frozen=True)
class TruncatedPoissonDpEvent(dp_accounting.DpEvent):
    """A Gaussian release of the sum over a truncated Poisson sample.

    Its neighbours zero a client out, which stays in the population.

    Attributes:
      population: number of clients.
      sampling_probability: q, of each client before truncation.
      cap: largest size of the sample, at least 1.
      event: the Gaussian release.
    """

    population: int
    sampling_probability: float
    cap: int
    event: dp_accounting.GaussianDpEvent

    def full(self) -> tuple[float, float]:
        """Probabilities t and p, rounded up; see `dominating_pairs.full_sample`."""
        return dominating_pairs.full_sample(self.population, self.sampling_probability, self.cap)
