"""How the membership of clients is attacked. No TensorFlow."""

import dataclasses

from dpfl._settings import Settings, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class MembershipConfig(Settings):
    """Which clients are attacked, and what the attacker knows besides the model."""

    members: int = setting(
        1000, 'Limit on the training clients that are looked at; more are drawn from.', minimum=4
    )
    others: int = setting(1000, 'Limit on the held-out clients that are looked at.', minimum=4)
    reference_model: str | None = setting(
        None,
        'A language model of other text with the same vocabulary, such as that of '
        'dpfl pretrain: the attack then looks at how much the loss is below its loss.',
    )
    reference_runs: tuple[str, ...] = setting(
        (),
        'Directories of runs on the same data in which other clients took part, such as runs with '
        'other seeds; comma-separated. The attack then compares the loss of a client with those of '
        'the models that it did not train.',
    )
    confidence: float = setting(
        0.95, 'Confidence of all intervals of an attack together.', above=0, below=1
    )
    attack_seed: int = setting(
        0, 'Seed of the clients that are looked at, and of the halves.', minimum=0
    )
