"""Settings of a larger run that a small run stands for, and its guarantee. No TensorFlow."""

import dataclasses

from dpfl import accounting
from dpfl._settings import Settings, setting
from dpfl.accounting import extrapolation, large_delta
from dpfl.errors import ArgumentError, renaming


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScaleConfig(Settings):
    """The larger run."""

    scale: float | None = setting(
        None,
        'Also report the guarantee of a run with this many times the clients per round and the '
        'noise multiplier, which has the same noise in the mean: 100 in [Augenstein20]. Needs '
        '--scaled_population.',
    )
    scaled_population: int | None = setting(
        None, 'Number of clients of the run of --scale.', minimum=1
    )
    scaled_delta: float | None = setting(
        None,
        'Delta of the guarantee of the run of --scale; by default 0.01 / --scaled_population, as '
        'in [Augenstein20].',
        above=0,
        maximum=large_delta.USUAL_MOST,
    )

    def check(self) -> None:
        """Checks that scale and population are given together."""
        for one, other in (('scale', 'scaled_population'), ('scaled_population', 'scale')):
            if getattr(self, one) is not None and getattr(self, other) is None:
                raise ArgumentError(one, getattr(self, one), f'needs {other}')

    def scaled_up(
        self, plan: accounting.PrivacyPlan, accountant: str
    ) -> extrapolation.ScaledUp | None:
        """The larger run; None if the settings do not ask for one.

        Args:
          plan: of the small run.
          accountant: by which the epsilon of the larger one is computed.

        Raises:
          ArgumentError: if there is no such plan.
        """
        if self.scale is None or self.scaled_population is None:
            return None
        delta = self.scaled_delta
        if delta is None:
            delta = 0.01 / self.scaled_population
        with renaming(delta='scaled_delta', population='scaled_population'):
            larger = extrapolation.with_cohort_scaled(plan, self.scale, self.scaled_population)
            return extrapolation.ScaledUp(larger, delta, larger.epsilon(delta, accountant))
