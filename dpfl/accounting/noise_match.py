"""How the noise of a plan was matched to another mechanism, as in [McMahan24], section 5.

There the noise multiplier of BandMF is the one whose root mean square error is that of TreeAgg with
noise multiplier 7, and the noise multiplier of BLT the one whose guarantee is that of BandMF at the
desired round.
"""

import dataclasses
import re

from dpfl import _json, _validate, errors
from dpfl.mechanisms import registry

# What can be matched, and in words.
QUANTITIES = {
    'rmse': 'the root mean square of the noise of the prefix sums',
    'prefix_noise': 'the noise of the prefix sum',
    'rho': 'rho (zCDP)',
}
_DIGEST = re.compile('[0-9a-f]{64}')


@dataclasses.dataclass(frozen=True)
class NoiseMatch(_json.JsonFields):
    """How the noise multiplier of a plan was found. It changes nothing of what is guaranteed.

    Attributes:
      quantity: one of `QUANTITIES`. 'rmse': the root mean square, over the first `rounds` rounds,
        of the standard deviations of the prefix sums ([McMahan24], section 3.2); 'prefix_noise':
        the standard deviation of the prefix sum of the last of these rounds; both in clip norms.
        'rho': rho of a run that stops after these rounds.
      rounds: number of rounds, at least 1.
      value: what the quantity is, for both mechanisms; above 0.
      mechanism: name of the type of the other mechanism; None if only the value was given.
      mechanism_digest: SHA-256 of its parameters; None without it.
      noise_multiplier: its noise multiplier, above 0; None without it.
      momentum: the models of SGD with this momentum count instead of the prefix sums; at least 0
        and below 1.

    Raises:
      ArgumentError: if a field is out of its range.
    """

    quantity: str
    rounds: int
    value: float
    mechanism: str | None = None
    mechanism_digest: str | None = None
    noise_multiplier: float | None = None
    momentum: float = 0.0

    def __post_init__(self):
        _validate.choice('quantity', self.quantity, tuple(QUANTITIES))
        _validate.integer('rounds', self.rounds, minimum=1, maximum=_validate.MOST_ROUNDS)
        _validate.number('value', self.value, above=0)
        _validate.number('momentum', self.momentum, minimum=0, below=1)
        if self.momentum and self.quantity == 'rho':
            raise errors.ArgumentError('momentum', self.momentum, 'must be 0 for rho')
        if self.mechanism is None:
            for name in ('mechanism_digest', 'noise_multiplier'):
                if getattr(self, name) is not None:
                    raise errors.ArgumentError(name, getattr(self, name), 'needs mechanism')
            return
        _validate.choice('mechanism', self.mechanism, tuple(registry.TYPES))
        _validate.number('noise_multiplier', self.noise_multiplier, above=0)
        digest = self.mechanism_digest
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise errors.ArgumentError('mechanism_digest', digest, 'must be a SHA-256')

    def describe(self) -> str:
        """One sentence: what was matched."""
        what = QUANTITIES[self.quantity]
        if self.momentum:
            for word, other in (('prefix sums', 'models'), ('prefix sum', 'model')):
                what = what.replace(word, f'{other} of SGD with momentum {self.momentum:g}')
        where = f'after {self.rounds} rounds'
        if self.quantity == 'rmse':
            where = f'over the first {self.rounds} rounds'
        unit = '' if self.quantity == 'rho' else ' clip norms'
        text = f'It was chosen so that {what} {where} is {self.value:.6g}{unit}'
        if self.mechanism is None:
            return f'{text}.'
        return (
            f'{text}, as with the mechanism {self.mechanism} (SHA-256 {self.mechanism_digest}) and '
            f'noise multiplier {self.noise_multiplier:g}.'
        )
