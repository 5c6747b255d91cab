"""Whether a model can learn under the noise of a plan, before anything is trained.

The rule compares the noise in the final model with the most that the clients can move it. The sum
of the noised means of all rounds has noise of norm `stddev * max_error * sqrt(dimension) /
denominator`, and its signal is at most `rounds * clip_norm`. The quotient is `noise_in_model`.

The verdict was compared with 77 settings of training: synthetic text, commit messages (two models)
and synthetic glyphs, 20 to 150 rounds, BLT and independent noise, each with its best of two server
rates. A run has learned if it keeps at least half of the improvement of the held-out loss that the
run without noise makes. Of 44 settings with 'yes', all learned. Of 13 with 'no', 4 learned, all of
them on commit messages and no more than the frequencies of words: no accuracy was above that of the
most frequent word. Of 20 with 'doubtful', 15 learned. The rule is about noise alone: a run without
any may also fail, for its learning rates or for want of rounds.
"""

import contextlib
import dataclasses
import math
from typing import Any

import numpy as np

from dpfl import _json, accounting, errors, mechanisms
from dpfl.mechanisms import rounding

# Limits of `noise_in_model`, from the runs above.
LEARNS, FAILS = 0.5, 2.0
_MOST_DENSE_ROUNDS, _DRAWS = 2048, 16


@dataclasses.dataclass(frozen=True)
class Feasibility:
    """Whether training can succeed.

    Attributes:
      feasible: 'yes', 'doubtful' or 'no'. If the size of the model is not known, 'no' if no model
        can learn, and else 'doubtful'.
      noise_to_signal: norm of the noise of one round's mean over the clip norm; None if the size of
        the model is not known.
      advice: sentences, what it means first.
    """

    feasible: str
    noise_to_signal: float | None
    advice: tuple[str, ...]

    def __str__(self) -> str:
        is_open = self.noise_to_signal is None and self.feasible == 'doubtful'
        verdict = 'depends on the model' if is_open else self.feasible
        return f'feasible: {verdict}. {" ".join(self.advice)}'

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return _json.fields_of(self)


def estimate(
    plan: accounting.PrivacyPlan,
    dimension: int | None,
    delta: float | None = None,
    accountant: str = 'pld',
) -> Feasibility:
    """The verdict on a plan.

    Args:
      plan: the privacy plan.
      dimension: number of parameters that are trained; None if it is not known.
      delta: the advice has an epsilon that would do, at this delta; None for no such advice.
      accountant: of that epsilon.
    """
    if not plan.noise_multiplier:
        return Feasibility('yes', 0.0, ('There is no noise, and no guarantee.',))
    of_model = noise_in_model(plan, 1)
    most = math.floor((LEARNS / of_model) ** 2)
    if dimension is None:
        if of_model > FAILS:
            return Feasibility('no', None, ('The noise hides what clients teach any model.',))
        too_many = math.floor((FAILS / of_model) ** 2)
        sentence = (
            'Its number of parameters (model_dimension) is not given: '
            f'yes up to {most:,}, doubtful up to {too_many:,}, no above.'
        )
        return Feasibility('doubtful', None, (sentence,))
    noise = of_model * math.sqrt(dimension)
    of_sum = plan.update_noise_multiplier * _round_error(plan.mechanism, plan.participation.rounds)
    ratio = of_sum / plan.denominator * math.sqrt(dimension)
    if noise <= LEARNS:
        shown = (
            f'The noise of a round is {ratio:.2g} times the clip norm, and after all rounds '
            f'{noise:.2g} of the most that clients can move the model: little enough to '
            f'learn (limit: {LEARNS:g}).'
        )
        return Feasibility('yes', ratio, (shown,))
    feasible = 'doubtful' if noise <= FAILS else 'no'
    shown = (
        f'The noise of a round is {ratio:.2g} times the clip norm, and after all rounds '
        f'{noise:.2g} of the most that clients can move the model: '
        + ('it may hide' if feasible == 'doubtful' else 'it will hide')
        + f' what they teach (limit: {LEARNS:g}).'
    )
    what_would_do = _remedies(plan, noise / LEARNS, most, delta, accountant)
    return Feasibility(feasible, ratio, (shown, what_would_do))


def noise_in_model(plan: accounting.PrivacyPlan, dimension: int) -> float:
    """Norm of the noise after all rounds over the most that clients can move the model."""
    rounds = plan.participation.rounds  # The mechanism may have more.
    of_sum = math.sqrt(plan.mechanism.squared_error()[:rounds].max())
    of_mean = of_sum * plan.update_noise_multiplier / plan.denominator
    return of_mean * math.sqrt(dimension) / rounds


def _round_error(mechanism: mechanisms.Mechanism, rounds: int) -> float:
    """Root mean square over the first rounds of the noise of one, `C^-1 z`, for unit noise.

    Without a Toeplitz matrix and beyond a few thousand rounds, it is measured on drawn noise: the
    inverse would take gigabytes. Then it is within about one per cent.
    """
    longest = mechanism.rounds
    if mechanism.toeplitz_column(longest) is not None or longest <= _MOST_DENSE_ROUNDS:
        return math.sqrt(mechanism.squared_error(np.eye(1, longest)[0])[:rounds].mean())
    noise = np.random.default_rng(0).standard_normal([longest, _DRAWS])
    return math.sqrt((mechanisms.stream(mechanism.kernel(), noise)[:rounds] ** 2).mean())


def _remedies(
    plan: accounting.PrivacyPlan,
    factor: float,
    most: int,
    delta: float | None,
    accountant: str,
) -> str:
    cohort = math.ceil(plan.clients_per_round * factor)
    times = rounding.round_up(cohort / plan.clients_per_round, 3)
    remedies = [f'{cohort:,} clients per round, with {times} times the population']
    if delta is not None and plan.sampling is None:
        noise = plan.noise_multiplier / factor
        with contextlib.suppress(errors.ArgumentError):  # Hardened noise has a least size.
            epsilon = dataclasses.replace(plan, noise_multiplier=noise).epsilon(delta, accountant)
            if math.isfinite(epsilon):
                remedies.append(f'epsilon {accounting.round_up(epsilon)}')
    if most > 0:
        remedies.append(f'a model of at most {most:,} parameters')
    return f'Any of these would do: {"; ".join(remedies)}.'
