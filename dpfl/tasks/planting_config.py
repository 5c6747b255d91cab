"""Which secrets are planted in the text of clients, to measure what a model memorises of them."""

import dataclasses

from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError

# Random words of all secrets of a run at most: they are drawn and kept in memory.
_MOST_SECRETS = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlantingConfig(Settings):
    """Secrets: sentences that begin in a known way and end with words drawn at random.

    Each is planted in the text of clients of its own ([Carlini19]).
    """

    secrets: int = setting(
        0,
        'Secrets to plant for each pair of --secret_copies and --secret_holders: sentences that '
        'end with random words. experiments/studies/measure_exposure.py says how far the model '
        'memorises them. They are no text that anyone wrote: plant them in simulations only.',
        minimum=0,
        maximum=_MOST_SECRETS,
    )
    secret_copies: tuple[int, ...] = setting(
        (1,),
        'How often a client that holds a secret has it, before its own sentences; several values '
        'make several kinds of secrets.',
        minimum=1,
    )
    secret_holders: tuple[int, ...] = setting(
        (1,),
        'Clients that hold a secret, random ones that hold no other; several values make several '
        'kinds of secrets. 0: drawn but not planted, to compare with.',
        minimum=0,
    )
    secret_prefix: int = setting(
        3, 'Words with which a secret begins, which an attacker knows.', minimum=0
    )
    secret_words: int = setting(
        2, 'Random words with which a secret ends, which an attacker does not know.', minimum=1
    )
    secret_choices: int = setting(
        64,
        'Words of the vocabulary, other ones for each secret, from which each of its random words '
        'is drawn: --secret_choices to the power of --secret_words candidates.',
        minimum=2,
    )

    def check(self) -> None:
        """Checks that there are kinds, and no setting of secrets without secrets."""
        for name in ('secret_copies', 'secret_holders'):
            values = getattr(self, name)
            if not values or len({*values}) < len(values):
                raise ArgumentError(name, values, 'must be different values, and at least one')
        if self.secrets:
            return
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                raise ArgumentError(field.name, value, 'needs secrets > 0')

    @property
    def kinds(self) -> tuple[tuple[int, int], ...]:
        """Copies and holders of each kind of secret."""
        return tuple(
            (copies, holders) for copies in self.secret_copies for holders in self.secret_holders
        )

    @property
    def num_secrets(self) -> int:
        """Number of secrets of all kinds."""
        return self.secrets * len(self.kinds)

    @property
    def num_holders(self) -> int:
        """Number of clients that hold a secret."""
        return self.secrets * sum(holders for _, holders in self.kinds)

    @property
    def length(self) -> int:
        """Number of words of a secret."""
        return self.secret_prefix + self.secret_words
