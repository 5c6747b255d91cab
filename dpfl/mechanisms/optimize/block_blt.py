"""Optimiser of BLTs whose decays and scales change from block to block, with scaled columns.

All parameters are found together, by L-BFGS with analytic gradients. The sensitivity in the
objective is the bound of `matrix_sensitivity.upper_bound` for participations in some of the rounds,
by the search of `cutting_planes`. Candidates are compared by their proven loss, for participations
in all rounds.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
from scipy import sparse

from dpfl import _validate
from dpfl.mechanisms.block_blt import BlockBlt
from dpfl.mechanisms.blt import Blt
from dpfl.mechanisms.column_scaled import ColumnScaled
from dpfl.mechanisms.optimize import cutting_planes, driver
from dpfl.mechanisms.optimize.block_loss import Blocks, Columns, Layout, PrefixErrors
from dpfl.mechanisms.optimize.cutting_planes import PairSum
from dpfl.mechanisms.optimize.scaled_blt import from_entry, optimize_scaled_blt
from dpfl.participation import Participation

_VERSION = 2
# Most rounds, and most rounds^2 times participations: the sensitivity takes all pairs of rounds.
_MOST_ROUNDS = 4096
_MOST_STEPS = 1e9
# Most cells with a scale of their own, unless there are more separations, and the most of those.
_MOST_CELLS = 128
_MOST_SEPARATIONS = 256
# Number of blocks of rounds with the same decays and scales, about.
_BLOCKS = 12
# Bounds of the logs of rates, scales of buffers over rates, gains and scales of columns.
_BOUNDS = ((math.log(1e-6), math.log(0.99)), (-14.0, 5.0), (-3.0, 3.0), (-5.0, 5.0))
# A buffer counts if its scale over its rate is at least this much.
_LEAST_EFFECT = 0.01
_MAX_ITERATIONS = 60


def optimize_block_blt(
    participation: Participation,
    num_buffers: int = 4,
    loss: str = 'max',
    *,
    workload: np.ndarray | None = None,
    progress: bool = False,
) -> ColumnScaled:
    """Finds the BLT of least loss whose decays and scales change from block to block.

    The result is a `BlockBlt` with about 12 blocks of rounds and scaled columns, and takes the
    memory of a BLT with `num_buffers` buffers. Its loss, with the proven sensitivity, is at most
    that of `optimize_scaled_blt`, which is also the result beyond 4096 rounds, for more than 256
    separations, and where rounds^2 times participations exceed 1e9. The search takes about half a
    minute for 2000 rounds. It is deterministic, and results are cached on disk, see
    `optimize.driver`.

    Args:
      participation: the schema to optimise for; the mechanism can be run with others.
      num_buffers: d, the largest number of buffers.
      loss: 'max' or 'rms', see `Mechanism.max_loss` and `Mechanism.rms_loss`.
      workload: A, see `mechanisms.workload`; None for the prefix sums. For others the result is
        the better of the mechanism for the prefix sums and the scaled BLT for A.
      progress: whether to show the loss of each stage on standard error.

    Raises:
      ArgumentError: if an argument is out of its range.

    Example:
      >>> schema = Participation(20, min_separation=10)
      >>> blocks = optimize_block_blt(schema, num_buffers=1)
      >>> blocks.max_loss(schema) < Identity(20).max_loss(schema)
      True
    """
    _validate.integer('num_buffers', num_buffers, minimum=1, maximum=20)
    problem = driver.Problem('optimize_block_blt', participation, loss, workload, progress)

    def candidates() -> Iterator[ColumnScaled]:
        scaled = optimize_scaled_blt(participation, num_buffers, loss, workload=workload)
        yield problem.shown('one block', scaled)
        if problem.workload is not None:
            yield optimize_block_blt(participation, num_buffers, loss)
        elif _is_searched(participation):
            search = _Search(participation, num_buffers, loss, problem.report)
            yield problem.shown('blocks', search.from_scaled(scaled))

    return problem.solve(
        ColumnScaled, candidates, version=_VERSION, make=from_entry, num_buffers=num_buffers
    )


def _is_searched(participation: Participation) -> bool:
    n, separations = participation.rounds, -(-participation.rounds // participation.min_separation)
    steps = n**2 * participation.count
    return 1 < n <= _MOST_ROUNDS and separations <= _MOST_SEPARATIONS and steps <= _MOST_STEPS


def layout_of(participation: Participation) -> tuple[Layout, np.ndarray, Participation]:
    """Which rounds share parameters, and the rounds whose participations are looked at.

    Those are the first rounds of all cells, and the last rounds before other decays. Every
    separation is divided in the same way, so it holds the same number of the rounds that are looked
    at: two of these are at least a separation apart if and only if their numbers differ by at least
    that.

    Returns:
      The layout, the rounds, increasing, [m], and the schema by their numbers.
    """
    n = participation.rounds
    b = min(participation.min_separation, n)
    separations = -(-n // b)
    most = max(1, min(b, _MOST_CELLS // separations))
    # A division into equal cells, if there is one nearly as fine.
    parts = next((p for p in range(most, most // 2, -1) if b % p == 0), most)
    offsets = np.arange(parts) * b // parts
    if separations > _BLOCKS:
        firsts = np.arange(_BLOCKS) * separations // _BLOCKS * b
    else:
        inside = min(parts, _BLOCKS // separations)
        chosen = offsets[np.arange(inside) * parts // inside]
        firsts = np.add.outer(np.arange(separations) * b, chosen).ravel()
    looked_at = np.union1d(offsets, (np.unique(firsts % b) - 1) % b)
    cells, rounds = (
        np.add.outer(np.arange(separations) * b, places).ravel() for places in (offsets, looked_at)
    )
    layout = Layout(n, firsts[firsts < n], cells[cells < n])
    rounds = rounds[rounds < n]
    return layout, rounds, Participation(rounds.size, looked_at.size, participation.count)


class _Search(cutting_planes.Search[np.ndarray]):
    """The search for one schema and loss."""

    _most_additions = 12
    _most_sums = 100
    _excess = 2e-4

    def __init__(
        self,
        participation: Participation,
        num_buffers: int,
        loss: str,
        report: Callable[[str, float], None],
    ):
        self._buffers, self._report = num_buffers, report
        self._layout, self._rounds, self._schema = layout_of(participation)
        self._errors = PrefixErrors(self._layout, loss)
        regular = cutting_planes.regular(self._schema, 1)
        super().__init__(
            participation, [cutting_planes.in_rounds(one, self._rounds) for one in regular]
        )

    def from_scaled(self, start: ColumnScaled) -> ColumnScaled:
        """The mechanism of least loss that is found from a scaled BLT."""
        assert isinstance(start.base, Blt)
        rate = np.clip(1 - start.base.decay, 1e-6, 0.98)
        effect = start.base.scale * np.minimum(1 / rate, start.rounds)
        kept = effect >= _LEAST_EFFECT
        rate, scale = rate[kept], start.base.scale[kept]
        # Further buffers, with little effect and decays between the others.
        more = self._buffers - rate.size
        added = np.geomspace(rate.min(initial=0.1), 0.9, more + 2)[1:-1]
        rate, scale = np.append(rate, added), np.append(scale, 2 * _LEAST_EFFECT * added)
        blocks = self._layout.segments.size
        cells = start.column_scales()[self._layout.cells]
        x = self._vector(
            Blocks(np.tile(rate, (blocks, 1)), np.tile(scale, (blocks, 1)), np.ones(blocks), cells)
        )
        return self._mechanism(self._blocks(self.minimized(x)))

    def report(self, loss: float) -> None:
        self._report(f'{len(self.sums)} sums', loss)

    def error(self, point: np.ndarray) -> float:
        self._errors.sharpness = self.sharpness
        return self._errors(self._blocks(point))[0]

    def values(self, point: np.ndarray) -> np.ndarray:
        rounds, weights = _weights(self.sums)
        return weights @ Columns(self._layout, rounds, self._blocks(point)).products.ravel()

    def cuts(self, point: np.ndarray) -> cutting_planes.Cuts:
        products = Columns(self._layout, self._rounds, self._blocks(point)).products
        symmetric = products + np.triu(products, 1).T
        table = cutting_planes.GramTable(symmetric, self._schema)
        return cutting_planes.Cuts(table, self._schema, self._rounds)

    def descend(self, point: np.ndarray) -> np.ndarray:
        self._errors.sharpness = self.sharpness
        rounds, weights = _weights(self.sums)

        def value_and_gradient(x):
            blocks = self._blocks(x)
            with np.errstate(over='ignore', invalid='ignore'):
                error, by_error = self._errors(blocks)
            if not np.isfinite(error):
                return np.inf, np.zeros_like(x)
            columns = Columns(self._layout, rounds, blocks)
            values = weights @ columns.products.ravel()
            bound, by_value = driver.smooth_log_maximum(values, self.sharpness)
            shares = weights.T @ by_value
            by_sums = columns.gradient(shares.reshape(columns.products.shape))
            both = Blocks(*(one + other for one, other in zip(by_error, by_sums, strict=True)))
            gradient = both._replace(rate=both.rate + both.scale)
            return error + bound, np.concatenate([part.ravel() for part in gradient])

        sizes = [part.size for part in self._blocks(point)]
        _, x = driver.descend(
            value_and_gradient,
            point,
            iterations=_MAX_ITERATIONS,
            tolerance=1e-9,
            bounds=np.repeat(_BOUNDS, sizes, axis=0),
        )
        return x

    def _vector(self, blocks: Blocks) -> np.ndarray:
        """Logs of all parameters; those of the scales of buffers are relative to the rates."""
        relative = blocks._replace(scale=blocks.scale / blocks.rate)
        return np.log(np.concatenate([part.ravel() for part in relative]))

    def _blocks(self, x: np.ndarray) -> Blocks:
        """Inverse of `_vector`."""
        count = self._layout.segments.size
        table = np.exp(x[: 2 * count * self._buffers]).reshape(2, count, self._buffers)
        rest = np.exp(x[table.size :])
        return Blocks(table[0], table[0] * table[1], rest[:count], rest[count:])

    def _mechanism(self, blocks: Blocks) -> ColumnScaled:
        """The mechanism, with a first scale of 1."""
        n = self._layout.rounds
        starts = tuple(self._layout.segments[1:].tolist())
        base = BlockBlt(n, starts, 1 - blocks.rate, blocks.scale, blocks.gain)
        scale = blocks.column_scale / blocks.column_scale[0]
        lengths = np.diff(self._layout.cells)
        if lengths.size and (lengths == lengths[0]).all():
            return ColumnScaled(base, scale, n, int(lengths[0]))
        return ColumnScaled(base, scale[self._layout.of_rounds(self._layout.cells)], n)


def _weights(sums: list[PairSum]) -> tuple[np.ndarray, sparse.csr_matrix]:
    """The rounds in the sums, [m], and the weights of their pairs, [sums, m^2]."""
    early = np.concatenate([one.early for one in sums])
    late = np.concatenate([one.late for one in sums])
    rounds = np.unique(np.append(early, late))
    place = np.searchsorted(rounds, early) * rounds.size + np.searchsorted(rounds, late)
    which = np.repeat(np.arange(len(sums)), [one.early.size for one in sums])
    weight = np.concatenate([one.weight for one in sums])
    return rounds, sparse.csr_matrix((weight, (which, place)), (len(sums), rounds.size**2))
