"""Optimiser of the rest of a run: new parameters of a BLT from a given round on.

The rounds before are released and cannot be changed. The parameters of the new segment are found by
L-BFGS. Its objective is the log of error times sensitivity, where the sensitivity is that of the
patterns in `_patterns`, for speed; candidates are compared by their proven sensitivity.
Derivatives are differences of the objective at all parameters at once.
"""

import math

import numpy as np
from scipy import optimize, special

from dpfl import _validate, errors
from dpfl.mechanisms import blt, switched_blt
from dpfl.mechanisms.optimize import cache
from dpfl.mechanisms.optimize.blt import optimize_blt
from dpfl.mechanisms.switched_blt import SwitchedBlt
from dpfl.participation import Participation

_VERSION = 2
# Sharpness of the maximum over rounds and over patterns.
_SHARPNESS = 300.0
_STEP = 1e-6
# Price of a sensitivity above the limit, in logs: more than any gain in error.
_PENALTY = 10.0
_MAX_ITERATIONS = 60
# Value where C^-1 grows beyond all floats.
_UNSTABLE = 1e3
# Number of first rounds tried for evenly spaced patterns.
_OFFSETS = 8
# Bounds of the logits of decays, the logs of scales, the log of the gain, and of carries.
_BOUNDS = ((-6.0, 14.0), (-16.0, 1.0), (-3.0, 3.0), (-12.0, 4.0))


def optimize_switch(
    mechanism: blt.Blt | SwitchedBlt,
    at: int,
    participation: Participation,
    loss: str = 'max',
    *,
    max_sensitivity: float | None = None,
) -> SwitchedBlt:
    """Finds the parameters from round `at` on with the least loss of the whole run.

    The first `at` rounds are those of the mechanism. The result is never worse than going on
    unchanged, nor than a restart with the BLT that is optimised for the rounds that are left.

    The loss is the error at equal privacy. For a run whose noise multiplier is settled,
    `max_sensitivity` keeps its guarantee: the error is then least among the parameters with which
    the sensitivity of the whole run is at most that. Candidates above it are scaled to keep it.

    Args:
      mechanism: what the run was planned with.
      at: first round with other parameters, within 1 .. participation.rounds - 1.
      participation: the schema of the whole run, as it is expected now. The guarantee of the whole
        run must be computed for a schema that the whole run satisfies.
      loss: 'max' or 'rms', of the prefix sums.
      max_sensitivity: limit of the sensitivity under the schema; None to minimise the loss.

    Raises:
      ArgumentError: if an argument is out of its range, or the first `at` rounds alone exceed the
        limit.
    """
    mechanism = _checked(mechanism, at, participation, loss)
    if max_sensitivity is not None:
        _validate.number('max_sensitivity', max_sensitivity, above=0)

    def compute() -> SwitchedBlt:
        rest = _Rest(mechanism, at, participation, loss, max_sensitivity)
        begin = [rest.unchanged(), rest.restarted(), rest.carried()]
        candidates = [*begin, *(rest.improved(start) for start in begin)]
        return min(map(rest.within_limit, candidates), key=rest.loss)

    key = {
        'version': _VERSION,
        'mechanism': mechanism.digest(),
        'at': int(at),
        'participation': cache.participation_key(participation),
        'loss': loss,
        'max_sensitivity': max_sensitivity,
    }
    return cache.cached('optimize_switch', SwitchedBlt, key, compute)


def restarted_blt(
    mechanism: blt.Blt | SwitchedBlt, at: int, participation: Participation, loss: str = 'max'
) -> SwitchedBlt:
    """The mechanism until round `at`, and then a restart with the BLT for the rounds that are left.

    What `optimize_switch` is compared with. The second BLT has as many buffers, and is optimised as
    if the first rounds were no part of the run; the sensitivity is still that of the whole matrix.

    Args: as `optimize_switch`.

    Raises:
      ArgumentError: if an argument is out of its range.
    """
    return _Rest(_checked(mechanism, at, participation, loss), at, participation, loss).restarted()


def _checked(
    mechanism: blt.Blt | SwitchedBlt, at: int, participation: Participation, loss: str
) -> blt.Blt | SwitchedBlt:
    """The mechanism for the rounds of the schema."""
    _validate.choice('loss', loss, ('max', 'rms'))
    _validate.integer('at', at, minimum=1, maximum=participation.rounds - 1)
    if not switched_blt.is_switchable(mechanism):
        raise errors.ArgumentError('mechanism', errors.NOT_SHOWN, switched_blt.SWITCHABLE)
    return mechanism.with_rounds(participation.rounds)


class _Rest:
    """The rounds from `at` on, with everything that follows from the rounds before."""

    def __init__(
        self,
        mechanism: blt.Blt | SwitchedBlt,
        at: int,
        participation: Participation,
        loss: str,
        limit: float | None = None,
    ):
        self._mechanism, self._at, self._schema = mechanism, at, participation
        self._kind, self._limit = loss, limit
        self._before = before = switched_blt.as_switched(mechanism).with_rounds(at)
        self._d = before.decay.shape[1]
        self._inputs = _patterns(participation, at)
        covariance = np.zeros((1 + self._d, 1 + self._d))
        squared = np.zeros(at)
        reached = np.zeros((len(self._inputs), self._d))
        self._released = np.zeros(len(self._inputs))
        segment = np.searchsorted(before.starts, np.arange(at), side='right')
        for t, linear_map in enumerate(before._maps()):
            a = segment[t]
            if t in before.starts:
                reached = reached @ before.carry[before.starts.index(t)].T
            step, noise = linear_map.copy(), linear_map[:, 0]
            step[:, 0] = 0.0
            step[0, 0] = 1.0
            covariance = switched_blt.step_covariance(covariance, step, noise)
            squared[t] = covariance[0, 0]
            inputs = self._inputs[:, t]
            self._released += (before.gain[a] * (inputs + reached @ before.scale[a])) ** 2
            reached = before.decay[a] * reached + inputs[:, None]
        self._covariance, self._squared, self._reached = covariance, squared, reached

    def loss(self, mechanism: SwitchedBlt) -> float:
        """The loss with the proven sensitivity; with a limit, which it keeps, the error."""
        error = mechanism.max_error() if self._kind == 'max' else mechanism.rms_error()
        return error if self._limit is not None else error * mechanism.sensitivity(self._schema)

    def within_limit(self, mechanism: SwitchedBlt) -> SwitchedBlt:
        """The mechanism with a gain of the last segment so small that the limit is kept.

        For each pattern the squared norm is affine in the squared gain. So the squared sensitivity
        is convex in it, and at most its linear interpolation between no gain and the present one.
        """
        if self._limit is None:
            return mechanism
        target = self._limit**2 * (1 - 1e-9)
        first = self._before.sensitivity_bound(self._schema.within(self._at)).squared
        if first >= target:
            raise errors.ArgumentError(
                'max_sensitivity',
                self._limit,
                f'must be above {math.sqrt(first):.6g}, that of the first {self._at} rounds',
            )
        while (squared := mechanism.sensitivity_bound(self._schema).squared) > self._limit**2:
            # A bound need not be convex; then the next step is a little smaller still.
            share = 0.999 * math.sqrt((target - first) / (squared - first))
            last = mechanism.decay[-1], mechanism.scale[-1], mechanism.gain[-1] * share
            mechanism = self._with(*last, mechanism.carry[-1])
        return mechanism

    def unchanged(self) -> SwitchedBlt:
        """The mechanism that goes on as it was planned, as one that switches to the same."""
        whole = switched_blt.as_switched(self._mechanism)
        now = int(np.searchsorted(whole.starts, self._at, side='right'))
        return self._with(whole.decay[now], whole.scale[now], whole.gain[now], np.eye(self._d))

    def restarted(self) -> SwitchedBlt:
        """A restart with the BLT for the rounds that are left."""
        return self._with_best(self._schema.rounds - self._at, 0.0)

    def carried(self) -> SwitchedBlt:
        """The BLT for all rounds, with buffers that keep their contents."""
        return self._with_best(self._schema.rounds, 1.0)

    def _with_best(self, rounds: int, carry: float) -> SwitchedBlt:
        schema = Participation(rounds, self._schema.min_separation, self._schema.max_participations)
        best = optimize_blt(schema, self._d, self._kind)
        decay, scale = np.full(self._d, 0.5), np.zeros(self._d)
        order = np.argsort(-best.decay)
        decay[: order.size], scale[: order.size] = best.decay[order], best.scale[order]
        # The slowest buffer goes on as the slowest.
        ranks = np.argsort(np.argsort(-self._before.decay[-1]))
        return self._with(decay[ranks], scale[ranks], 1.0, carry * np.eye(self._d))

    def improved(self, start: SwitchedBlt) -> SwitchedBlt:
        """A local optimum near the parameters of the last segment."""
        d = self._d
        bounds = np.repeat(_BOUNDS, [d, d, 1, d * d], axis=0)
        point = np.concatenate(
            [
                special.logit(np.clip(start.decay[-1], 1e-3, 1 - 1e-7)),
                np.log(np.maximum(start.scale[-1], 1e-5)),
                [np.log(start.gain[-1])],
                np.log(np.maximum(start.carry[-1].ravel(), 1e-3)),
            ]
        )
        result = optimize.minimize(
            self._value_and_slopes,
            np.clip(point, *bounds.T),
            jac=True,
            method='L-BFGS-B',
            bounds=bounds,
            options={'maxiter': _MAX_ITERATIONS, 'maxcor': 20, 'ftol': 1e-10},
        )
        decay, scale, gain, carry = (part[0] for part in self._parameters(result.x[None]))
        return self._with(decay, scale, gain, carry)

    def _with(self, decay, scale, gain, carry) -> SwitchedBlt:
        return SwitchedBlt.after(
            self._before,
            self._at,
            decay,
            scale,
            gain=float(gain),
            carry=carry,
            rounds=self._schema.rounds,
        )

    def _parameters(self, points: np.ndarray) -> tuple[np.ndarray, ...]:
        """Decay, scale, gain and carry, with the points along the first axis."""
        d = self._d
        decay = special.expit(points[:, :d])
        scale = np.exp(points[:, d : 2 * d])
        carry = np.exp(points[:, 2 * d + 1 :]).reshape(-1, d, d)
        return decay, scale, np.exp(points[:, 2 * d]), carry

    def _value_and_slopes(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        points = np.vstack([point, point + _STEP * np.eye(point.size)])
        with np.errstate(over='ignore', invalid='ignore'):
            values = self._log_losses(points)
        values = np.where(np.isfinite(values), values, _UNSTABLE)
        return float(values[0]), (values[1:] - values[0]) / _STEP

    def _log_losses(self, points: np.ndarray) -> np.ndarray:
        """Log of the squared loss at each point, with the sensitivity of the patterns alone."""
        decay, scale, gain, carry = self._parameters(points)
        count, d = decay.shape
        step = np.zeros((count, 1 + d, 1 + d))
        step[:, 0, 0] = 1.0
        step[:, :, 1:] = -scale[:, None]
        step[:, range(1, 1 + d), range(1, 1 + d)] += decay
        noise = np.repeat(1 / gain[:, None], 1 + d, axis=1)
        into = np.zeros((count, 1 + d, 1 + d))
        into[:, 0, 0], into[:, 1:, 1:] = 1.0, carry
        covariance = into @ self._covariance @ np.swapaxes(into, 1, 2)
        reached = self._reached @ np.swapaxes(carry, 1, 2)  # [points, patterns, d]
        released = np.zeros((count, len(self._inputs)))
        squared = np.empty((self._schema.rounds - self._at, count))
        for t in range(self._schema.rounds - self._at):
            covariance = switched_blt.step_covariance(covariance, step, noise)
            squared[t] = covariance[:, 0, 0]
            inputs = self._inputs[:, self._at + t]
            released += (inputs + (reached * scale[:, None]).sum(axis=2)) ** 2
            reached = decay[:, None] * reached + inputs[:, None]
        total = self._released + gain[:, None] ** 2 * released
        if self._kind == 'max':
            log_error = special.logsumexp(_SHARPNESS * np.log(squared), axis=0) / _SHARPNESS
            log_error = np.logaddexp(
                _SHARPNESS * log_error, _SHARPNESS * np.log(self._squared.max())
            )
            log_error /= _SHARPNESS
        else:
            log_error = np.log(squared.sum(axis=0) + self._squared.sum())
        squared_norm = special.logsumexp(_SHARPNESS * np.log(total), axis=1) / _SHARPNESS
        if self._limit is None:
            return log_error + squared_norm
        excess = squared_norm - 2 * math.log(self._limit)
        return log_error + _PENALTY * np.logaddexp(0.0, _SHARPNESS * excess) / _SHARPNESS


def _patterns(participation: Participation, at: int) -> np.ndarray:
    """Admitted patterns that may be the worst, as rows of zeros and ones, [patterns, rounds].

    Evenly spaced from several first rounds, and from round 0 with a gap before round `at`.
    """
    n, b, k = participation.rounds, participation.min_separation, participation.count
    found = set()
    last_first = n - 1 - (k - 1) * b
    firsts = {*np.linspace(0, max(last_first, b - 1), _OFFSETS, dtype=int).tolist(), min(at, n - 1)}
    for first in firsts:
        found.add(tuple(range(first, n, b)[:k]))
    for earlier in range(1, -(-at // b) + 1):
        head = list(range(0, at, b))[: min(earlier, k)]
        tail = list(range(max(at, head[-1] + b), n, b))[: k - len(head)]
        found.add((*head, *tail))
    inputs = np.zeros((len(found), n))
    for row, pattern in zip(inputs, sorted(found), strict=True):
        row[list(pattern)] = 1.0
    return inputs
