"""Sensitivity of the patterns that really occurred: the clients' rounds in a participation log.

Let a client have updates u_i of norm at most 1 in the rounds i of its pattern, and let G be the
Gram matrix of what is released. Then `||C u||_F^2 <= sum_{i,j} |G_ij|` over all pairs of the
pattern (see `matrix_sensitivity`). The largest such sum over the clients of a log is at most the
sensitivity of any schema that the log satisfies, and needs no theorem about patterns. A client
that is listed m times in a round has m updates in it.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from dpfl import _validate
from dpfl.mechanisms import blt, kernels
from dpfl.mechanisms.base import Mechanism
from dpfl.mechanisms.blt import Blt
from dpfl.mechanisms.restarts import Restarted
from dpfl.mechanisms.sensitivities.matrix_sensitivity import Sensitivity
from dpfl.mechanisms.sensitivities.tree_sensitivity import Forest
from dpfl.participation import ParticipationLog
from dpfl.participation.log import ClientRounds

# Most entries of the Gram matrix, and of other arrays, in memory at once.
_GRAM_ENTRIES = 2**25
_ENTRIES = 2**22
# Clients whose states are in memory at once, and listings whose nodes are.
_CLIENTS = 2**16
_LISTINGS = 2**20
_ROUNDING = 1e-12


def of_log(mechanism: Mechanism, log: ParticipationLog) -> Sensitivity:
    """Largest squared norm of `C u` over the clients of the log, for clip norm 1.

    The result is exact if G has no negative entry between the rounds of the worst client, or if
    the signs of its updates can be chosen so that all of its pairs add up. Otherwise it is an
    upper bound.

    Trees, BLTs and banded matrices take time and memory linear in rounds
    and listings. For other matrices, and where a banded one has many pairs within its bands, the
    Gram matrix of n rounds takes O(n^2) time, in blocks of rows.

    Args:
      mechanism: the mechanism of the run, with at least the rounds of the log.
      log: a log with at least one client.

    Returns:
      The squared sensitivity, and whether it is exact.

    Raises:
      ValueError: if the log has no client.
      ArgumentError: if the log has more rounds than the mechanism.
    """
    if not log.cohort_sizes.any():
        raise ValueError('the participation log holds no client')
    _validate.integer('rounds', log.rounds, minimum=1, maximum=mechanism.rounds)
    by_client = log.by_client()
    listings = dataclasses.replace(by_client, clients=np.arange(by_client.clients.size))
    sums = np.zeros(listings.clients.size)
    # What is counted for a run that stops early may be more than it releases.
    exact = log.rounds == mechanism.rounds or mechanism.shortens
    stopped = mechanism.with_rounds(log.rounds) if mechanism.shortens else mechanism
    positive = _add_sums(sums, stopped, listings, log.rounds)
    worst = int(sums.argmax())
    if exact and not positive:
        pattern = by_client.rounds[by_client.offsets[worst] : by_client.offsets[worst + 1]]
        exact = _signs_agree(_columns(stopped, log.rounds, np.unique(pattern)))
    count = int(by_client.counts.max())
    bound = Sensitivity(float(sums[worst]), exact)
    return mechanism.rounded_up(bound, log.rounds, count, terms=4 * (log.rounds + count))


def _add_sums(sums: np.ndarray, mechanism: Mechanism, listings: ClientRounds, rounds: int) -> bool:
    """Adds each client's sum of |G_ij| over the pairs of its listings, and says if all G_ij >= 0.

    Args:
      sums: by client, changed in place, [any].
      mechanism: what releases G.
      listings: clients as indices of `sums`, and their rounds.
      rounds: number of rounds.
    """
    forest = mechanism.forest()
    if forest is not None:
        _add_nodes(sums, forest, listings)
        return True
    if isinstance(mechanism, Blt):
        _add_states(sums, mechanism, listings)
        return True
    bands = _bands(mechanism)
    if bands is not None and _has_few_pairs(listings, bands.shape[1], rounds):
        return _add_bands(sums, bands, listings, rounds)
    if isinstance(mechanism, Restarted):
        return _add_segments(sums, mechanism, listings)
    return _add_grams(sums, mechanism, listings, rounds)


def _add_nodes(sums: np.ndarray, forest: Forest, listings: ClientRounds) -> None:
    """Squared counts of the nodes, level by level: participations in one node become one entry."""
    widths = 2 ** np.array(forest.levels)
    first = np.repeat(np.cumsum(widths) - widths, widths)  # First round of the subtree, by round.
    place = (np.arange(first.size) - first).astype(np.int32)
    first, width = first.astype(np.int32), np.repeat(widths, widths).astype(np.int32)
    for part in _parts(listings):
        client = np.repeat(np.arange(part.clients.size, dtype=np.int32), part.counts)
        node, count = part.rounds, np.ones(client.size)
        totals = np.zeros(part.clients.size)
        for level in range(max(forest.levels) + 1):
            # A node is known by its first round, and smaller subtrees have none of this level.
            if (width >> level == 0).any():
                exists = (width >> level > 0)[node]
                client, node, count = client[exists], node[exists], count[exists]
            node = first[node] + (place[node] >> level << level)
            new = np.append(True, (node[1:] != node[:-1]) | (client[1:] != client[:-1]))
            new = new[: node.size]
            if not new.all():
                count = np.add.reduceat(count, np.flatnonzero(new))
                client, node = client[new], node[new]
            squares = count**2
            if not forest.right_children:
                squares[place[node] >> level & 1 == 1] = 0.0
            totals += np.bincount(client, squares, minlength=totals.size)
        sums[part.clients] += totals


def _parts(listings: ClientRounds) -> Iterator[ClientRounds]:
    """The listings in parts, some clients in each, for which arrays stay small."""
    offsets = listings.offsets
    start = 0
    while start < listings.clients.size:
        end = np.searchsorted(offsets, offsets[start] + _LISTINGS, side='right') - 1
        end = max(int(end), start + 1)
        yield ClientRounds(
            listings.clients[start:end],
            offsets[start : end + 1] - offsets[start],
            listings.rounds[offsets[start] : offsets[end]],
        )
        start = end


def _add_states(sums: np.ndarray, mechanism: Blt, listings: ClientRounds) -> None:
    """For C >= 0: one participation after the other, of all clients at once.

    The earlier participations i of a client add s_k = sum_i theta_k^(t-i-1) to buffer k in round t.
    The inner product of column t with the columns of all of them is `sum_k v_k(t) s_k`, with
    `v_k(t) = omega_k sum_{m < n-t} c_m theta_k^m`: the outputs of buffer k from round t on.
    """
    column = mechanism.coefficients()
    squared_norms = np.cumsum(column**2)[::-1]
    powers = blt.powers(1 - mechanism.decay, mechanism.rounds)
    products = mechanism.scale[:, None] * np.cumsum(column * powers, axis=1)[:, ::-1]
    order = np.argsort(-listings.counts, kind='stable')
    for first in range(0, order.size, _CLIENTS):
        part = order[first : first + _CLIENTS]
        starts, counts = listings.offsets[part], listings.counts[part]
        totals = np.zeros(part.size)
        state, last = np.zeros((mechanism.decay.size, part.size)), np.full(part.size, -1)
        repeats = np.zeros(part.size)  # Listings of the client in its round, so far.
        for place in range(counts[0]):
            size = np.searchsorted(-counts, -place)  # Clients with more listings come first.
            now = listings.rounds[starts[:size] + place]
            state, last, repeats = state[:, :size], last[:size], repeats[:size]
            again = now == last
            state = np.where(
                again,
                state,
                (mechanism.decay[:, None] * state + repeats)
                * powers[:, np.maximum(now - last - 1, 0)],
            )
            repeats = np.where(again, repeats + 1, 1.0)
            pairs = (products[:, now] * state).sum(axis=0)
            totals[:size] += (2 * repeats - 1) * squared_norms[now] + 2 * pairs
            last = now
        sums[listings.clients[part]] += totals


def _bands(mechanism: Mechanism) -> np.ndarray | None:
    """Entries C[t, t - j], [rounds or 1, b], if C has few bands."""
    if mechanism.is_identity:
        return np.ones((1, 1))
    if mechanism.strategy_bands is None or 4 * mechanism.strategy_bands > mechanism.rounds:
        return None
    kernel = mechanism.kernel()
    return kernel.bands if isinstance(kernel, kernels.BandedSolve) else None


def _has_few_pairs(listings: ClientRounds, bands: int, rounds: int) -> bool:
    """Whether looking up the pairs within the bands costs less than multiplying by G."""
    client = np.repeat(np.arange(listings.clients.size), listings.counts)
    place = client * (rounds + bands) + listings.rounds
    pairs = np.searchsorted(place, place + bands) - np.arange(place.size)
    return bool(100 * pairs.sum() < listings.clients.size * float(rounds) ** 2)


def _add_bands(sums: np.ndarray, bands: np.ndarray, listings: ClientRounds, rounds: int) -> bool:
    """`_add_sums` of the pairs within the bands: each listing with the next, the one after, .."""
    client, listed = np.repeat(listings.clients, listings.counts), listings.rounds
    # Row d holds G[i, i + d], computed when a pair has this distance.
    gram = np.zeros((bands.shape[1], rounds))
    known = np.zeros(bands.shape[1], bool)
    positive = True
    for ahead in range(client.size):
        size = client.size - ahead
        lag = listed[ahead:] - listed[:size]
        near = np.flatnonzero((client[ahead:] == client[:size]) & (lag < bands.shape[1]))
        if not near.size:
            break
        lag = lag[near]
        present = np.bincount(lag, minlength=known.size) > 0
        for new in np.flatnonzero(present & ~known).tolist():
            gram[new, : rounds - new] = _gram_diagonal(bands, new, rounds)
            known[new] = True
        entries = gram[lag, listed[near]]
        positive = positive and bool((entries >= 0).all())
        weights = (2 if ahead else 1) * np.abs(entries)
        sums += np.bincount(client[near], weights, minlength=sums.size)
    return positive


def _gram_diagonal(bands: np.ndarray, lag: int, rounds: int) -> np.ndarray:
    """G[i, i + lag] of a banded C, float64 [rounds - lag]."""
    if bands.shape[0] == 1:  # Toeplitz: all columns are the same, until the last row cuts them.
        sums = np.cumsum(bands[0, lag:] * bands[0, : bands.shape[1] - lag])
        left = np.arange(rounds - 1, lag - 1, -1)  # Rows below the diagonal of C, by column.
        return sums[np.minimum(left, bands.shape[1] - 1) - lag]
    diagonal = np.zeros(rounds - lag)
    for j in range(lag, min(bands.shape[1], rounds)):
        diagonal[: rounds - j] += bands[j:, j] * bands[j:, j - lag]
    return diagonal


def _add_segments(sums: np.ndarray, mechanism: Restarted, listings: ClientRounds) -> bool:
    """`_add_sums` of each segment: participations in different ones do not interact."""
    firsts = np.array([0, *mechanism.starts])
    client = np.repeat(listings.clients, listings.counts)
    segment = np.searchsorted(firsts, listings.rounds, side='right') - 1
    order = np.argsort(segment, kind='stable')
    edges = np.searchsorted(segment[order], np.arange(firsts.size + 1))
    positive = True
    for index, part in enumerate(mechanism.segments()):
        inside = order[edges[index] : edges[index + 1]]
        clients, starts = np.unique(client[inside], return_index=True)
        within = ClientRounds(
            clients, np.append(starts, inside.size), listings.rounds[inside] - firsts[index]
        )
        if clients.size:
            positive = _add_sums(sums, part, within, part.rounds) and positive
    return positive


def _add_grams(sums: np.ndarray, mechanism: Mechanism, listings: ClientRounds, rounds: int) -> bool:
    """`_add_sums` from the whole Gram matrix."""
    groups = list(listings.patterns())
    positive = True
    for low, gram in _gram_blocks(mechanism, rounds):
        positive = positive and bool((gram >= 0).all())
        weights = 2 * np.abs(gram)
        block = np.arange(len(gram))
        weights[block, low + block] /= 2
        for clients, patterns in groups:
            sums[clients] += _block_sums(patterns, weights, low)
    return positive


def _block_sums(patterns: np.ndarray, weights: np.ndarray, low: int) -> np.ndarray:
    """Each pattern's sum of weights[i - low, j] over its rounds i of the block and all its j, [m].

    Args:
      patterns: rounds of the patterns, [m, k].
      weights: block of rows, [rows, rounds], zero left of the diagonal.
      low: round of the first row.
    """
    total = np.zeros(len(patterns))
    rows, rounds = weights.shape
    count = patterns.shape[1]
    # Looking up one pair costs about as much as 32 multiplications in a matrix product.
    by_pairs = count**2 < 32 * rounds
    step = max(1, _ENTRIES // (count**2 if by_pairs else rounds))
    for first in range(0, len(patterns), step):
        part = patterns[first : first + step]
        if by_pairs:
            client, place = np.nonzero((part >= low) & (part < low + rows))
            pairs = weights[part[client, place, None] - low, part[client]].sum(axis=1)
            total[first : first + step] += np.bincount(client, pairs, minlength=len(part))
        else:
            listed = np.zeros((len(part), rounds))
            np.add.at(listed, (np.arange(len(part))[:, None], part), 1.0)
            product = listed[:, low : low + rows] @ weights
            total[first : first + step] += np.einsum('mj,mj->m', product, listed)
    return total


def _gram_blocks(mechanism: Mechanism, rounds: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yields blocks of rows of the upper triangle of G = M^T M, for the first `rounds` rounds.

    Each item is the round of the first row, and the rows, float64 [rows, rounds], zero left of the
    diagonal.
    """
    step = max(1, _GRAM_ENTRIES // rounds)
    coefficients = mechanism.toeplitz_column(rounds)
    if coefficients is not None:
        # Along each diagonal, G[i, j] = G[i + 1, j + 1] + c_{n-1-i} c_{n-1-j}. Starting from the
        # last row, every entry takes one addition.
        mirrored = coefficients[::-1]
        row = np.zeros(rounds + 1)
        for end in range(rounds, 0, -step):
            low = max(end - step, 0)
            gram = np.zeros((end - low, rounds))
            for i in range(end - 1, low - 1, -1):
                gram[i - low, i:] = row[i + 1 :] + mirrored[i] * mirrored[i:]
                row[i:rounds] = gram[i - low, i:]
            yield low, gram
        return
    matrix = mechanism.released_until(rounds)
    for low in range(0, rounds, step):
        # A lower-triangular matrix is zero above row `low` in these columns.
        top = 0 if matrix[:low, low:].any() else low
        left, right = matrix[top:, low : low + step], matrix[top:, low:]
        gram = np.zeros((left.shape[1], rounds))
        gram[:, low:] = left.T @ right
        yield low, np.triu(gram, low)


def _columns(mechanism: Mechanism, rounds: int, pattern: np.ndarray) -> np.ndarray:
    """Columns of what is released in the rounds of the pattern, float64 [any, k]."""
    lag = np.arange(rounds)[:, None] - pattern
    bands = _bands(mechanism)
    if bands is not None:
        row = np.arange(len(bands))[:, None]  # A Toeplitz matrix has one row of entries.
        inside = (lag >= 0) & (lag < bands.shape[1])
        return np.where(inside, bands[row, np.where(inside, lag, 0)], 0.0)
    coefficients = mechanism.toeplitz_column(rounds)
    if coefficients is None:
        return mechanism.released_until(rounds)[:, pattern]
    return np.where(lag >= 0, coefficients[np.maximum(lag, 0)], 0.0)


def _signs_agree(columns: np.ndarray) -> bool:
    """Whether some updates +-v in the rounds of a pattern make every pair contribute |G_ij|.

    Rounds with G_ij != 0 are linked. In each set of linked rounds one sign can be chosen freely,
    and the signs of G_ij determine the others. Either these agree with all pairs, or no signs do.

    Args:
      columns: columns of the released matrix in the rounds of the pattern, [any, k].
    """
    gram = columns.T @ columns
    norms = np.sqrt(np.diag(gram))
    links = np.where(np.abs(gram) > _ROUNDING * np.outer(norms, norms), np.sign(gram), 0.0)
    signs = np.zeros(len(links))
    for start in range(len(links)):
        if signs[start]:
            continue
        signs[start], reached = 1.0, [start]
        while reached:
            i = reached.pop()
            new = np.flatnonzero((links[i] != 0) & (signs == 0))
            signs[new] = signs[i] * links[i, new]
            reached.extend(new.tolist())
    return bool((links * np.outer(signs, signs) >= 0).all())
