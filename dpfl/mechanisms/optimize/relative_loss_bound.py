r"""A proven lower bound on the worst relative loss of every mechanism over several schemas.

The error of a mechanism is the same under all schemas with as many rounds. Let l_i be what the loss
under schema i is divided by, and M_i in the convex hull of its patterns, see `lower_bound`. For
shares p_i >= 0 with sum 1

    max_i (loss_i / l_i)^2 = error^2 max_i sensitivity_i^2 / l_i^2 >= error^2 tr(X H),
    H = sum_i p_i M_i / l_i^2,

since the largest of some numbers is at least any mean of them. The proof in `lower_bound` needs of
M only that it is positive semidefinite, so the right side is at least `||W^(1/2) A H^(1/2)||_*^2`.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy import optimize, special

from dpfl import _validate, errors
from dpfl.mechanisms.optimize import lower_bound, relative_loss
from dpfl.mechanisms.optimize.blt import optimize_blt
from dpfl.mechanisms.optimize.proven_loss import loss_of
from dpfl.participation import Participation

# Rounds of the problem in which the shares are searched, about.
_ROUNDS = 400
_MAX_ITERATIONS = 60
_LARGEST_LOGIT = 20.0
# Share of the largest eigenvalue below which eigenvalues count as that share in gradients.
_LEAST_EIGENVALUE = 1e-13


def relative_loss_lower_bound(
    schemas: Sequence[Participation], num_buffers: int = 4, loss: str = 'max'
) -> float:
    """A number that the worst relative loss of no linear mechanism is below, whatever its matrix.

    It bounds the largest of `relative_losses` of any mechanism: how good one design can be under
    all of these schemas. The bound is that of `loss_lower_bound` with the patterns of all schemas.
    They are found for each schema on its own, so that a better bound may exist. It is
    deterministic. A search for each schema takes seconds, and the evaluation is that of
    `loss_lower_bound`.

    Args:
      schemas: the schemas, with as many rounds each.
      num_buffers: buffers of the BLTs whose losses it is relative to.
      loss: 'max' or 'rms', of the prefix sums.

    Raises:
      ArgumentError: if an argument is out of its range, or the schemas differ in their rounds.
    """
    _validate.choice('loss', loss, ('max', 'rms'))
    distinct = list(relative_loss.chances(schemas, None, 'worst'))
    rounds = distinct[0].rounds
    if any(schema.rounds != rounds for schema in distinct):
        raise errors.ArgumentError('schemas', errors.NOT_SHOWN, 'must all have the same rounds')
    least = [loss_of(optimize_blt(one, num_buffers, loss), one, loss) for one in distinct]
    found = [lower_bound.best_patterns(schema, loss) for schema in distinct]

    def moments_of(place: int) -> np.ndarray:
        chain, _, size = found[place]
        return chain.moments(rounds, size.separation, size.offsets) / least[place] ** 2

    every = np.array([weights for _, weights, _ in found])
    sampled = [_sampled(moments_of(place)) for place in range(len(distinct))]
    shares, mixed = _mixture(np.array(sampled), _sums(every))
    total = np.zeros((rounds, rounds))
    for place, share in enumerate(shares):
        total += share * moments_of(place)
    terms = len(distinct) + sum(chain.participations * chain.cells for chain, _, _ in found)
    return lower_bound.norm_of_moments(total, mixed @ every, terms)


def _groups(rounds: int) -> np.ndarray:
    """First round of each group of rounds that one stands for."""
    return np.arange(0, rounds, -(-rounds // _ROUNDS))


def _sampled(moments: np.ndarray) -> np.ndarray:
    """`A M A^T` in the first round of each group."""
    firsts = _groups(len(moments))
    return moments.cumsum(axis=0)[firsts].cumsum(axis=1)[:, firsts]


def _sums(weights: np.ndarray) -> np.ndarray:
    return np.add.reduceat(weights, _groups(weights.shape[1]), axis=1)


def _mixture(sampled: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The shares of the moments, and of the weights of the rounds, with the largest bound.

    Args:
      sampled: moments of the prefix sums for each schema, [schemas, m, m].
      weights: weights of the rounds for each schema, [schemas, m].

    Returns:
      Both shares, each with sum 1, [schemas].
    """
    count = len(sampled)
    objective = _objective(sampled, weights)
    # All schemas alike, and nearly the one alone whose own bound is the largest.
    single = [objective(_alone(place, count))[0] for place in range(count)]
    starts = [np.zeros(2 * count), _alone(int(np.argmin(single)), count) / 4]
    best = min(
        (
            optimize.minimize(
                objective,
                start,
                jac=True,
                method='L-BFGS-B',
                bounds=[(-_LARGEST_LOGIT, _LARGEST_LOGIT)] * start.size,
                options={'maxiter': _MAX_ITERATIONS},
            )
            for start in starts
        ),
        key=lambda result: result.fun,
    )
    return special.softmax(best.x[:count]), special.softmax(best.x[count:])


def _objective(
    sampled: np.ndarray, weights: np.ndarray
) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """Minus the logarithm of the bound, with its gradient, as a function of logits of both."""
    count = len(sampled)

    def value_and_gradient(logits):
        shares, mixed = special.softmax(logits[:count]), special.softmax(logits[count:])
        of_rounds = mixed @ weights
        roots = np.sqrt(of_rounds)
        total = np.tensordot(shares, sampled, 1) * np.outer(roots, roots)
        values, vectors = np.linalg.eigh(total)
        singular = np.sqrt(np.maximum(values, values[-1] * _LEAST_EIGENVALUE))
        norm = singular.sum()
        inner = (vectors / singular) @ vectors.T / 2 * np.outer(roots, roots)
        by_shares = np.einsum('ij,kij->k', inner, sampled)
        by_mixed = weights @ ((vectors**2 @ singular) / of_rounds) / 2
        gradient = [
            probability * (slope - probability @ slope)
            for probability, slope in ((shares, by_shares), (mixed, by_mixed))
        ]
        return -np.log(norm), -np.concatenate(gradient) / norm

    return value_and_gradient


def _alone(place: int, count: int) -> np.ndarray:
    """Logits of a mixture that is nearly one schema."""
    return np.tile(np.where(np.arange(count) == place, _LARGEST_LOGIT, 0.0), 2)
