"""How much of the text a generator has learned, by held-out sequences (NumPy).

A generator that has learned nothing writes the same with a fault in the text and without one, so
its output supports no verdict. Its trivial reference is the best distribution of single tokens:
that of the held-out tokens themselves, which no distribution without context beats.
"""

import dataclasses
from typing import Any

import numpy as np

from dpfl import _json
from dpfl.debugging.differences import Mean


@dataclasses.dataclass(frozen=True)
class Learned:
    """How much of its data a generator has learned.

    Attributes:
      loss: cross entropy of held-out tokens under the generator, in nats per token.
      trivial: the same under the frequencies of the held-out tokens, the least loss without
        context.
      is_better: whether the loss is below the trivial one, with 97.5 % confidence over sequences.
      covered: share of its tokens that are as frequent as in held-out text: 1 minus the total
        variation of token frequencies.
    """

    loss: float
    trivial: float
    is_better: bool
    covered: float

    def to_dict(self) -> dict[str, Any]:
        """Attributes and share as JSON values, with None for numbers that are not finite."""
        values = {**dataclasses.asdict(self), 'share': self.share}
        return {name: _json.finite(value) for name, value in values.items()}

    @property
    def share(self) -> float:
        """The effect of a fault on a token's frequency, as a share of that in a perfect generator.

        It is `covered` if the generator is better than the trivial reference, otherwise 0.
        """
        return self.covered if self.is_better else 0.0

    @property
    def reason(self) -> str:
        """The reason for the share, in words."""
        if not self.is_better:
            return (
                f'its held-out loss of {self.loss:.2f} nats per token is not clearly below '
                f'{self.trivial:.2f}, that of the frequencies of single tokens'
            )
        return f'{self.covered:.0%} of its tokens are as frequent as in held-out text'


def measure(
    written: np.ndarray,
    heldout: np.ndarray,
    log_probabilities: np.ndarray,
    *,
    num_tokens: int,
    never: tuple[int, ...],
) -> Learned:
    """Compares a generator with held-out sequences and with the trivial reference.

    Args:
      written: token ids that the generator wrote, integers [N, L].
      heldout: token ids of held-out sequences, integers [M, L], without the begin token.
      log_probabilities: of the held-out sequences under the generator, in nats, float [M].
      num_tokens: number of token ids.
      never: ids that are no draws, such as padding and the begin token.
    """
    is_draw = ~np.isin(np.arange(num_tokens), never)
    counts, own = (
        np.where(is_draw, np.bincount(tokens.ravel(), minlength=num_tokens), 0)
        for tokens in (heldout, written)
    )
    if not min(counts.sum(), own.sum()):
        return Learned(float('nan'), float('nan'), False, 0.0)
    # Tokens that are no draws have the count 0 and get the code length 0.
    shares = np.where(counts > 0, counts / counts.sum(), 1.0)
    sizes = is_draw[heldout].sum(axis=1)
    trivial = -np.log(shares)[heldout].sum(axis=1)
    gained = Mean.ratio(trivial + log_probabilities, sizes)
    return Learned(
        loss=float(-log_probabilities.sum() / sizes.sum()),
        trivial=float(trivial.sum() / sizes.sum()),
        is_better=gained.interval()[0] > 0,
        covered=1 - float(np.abs(own / own.sum() - counts / counts.sum()).sum() / 2),
    )
