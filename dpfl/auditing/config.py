"""Settings of audits. Does not import TensorFlow."""

import dataclasses

from dpfl._settings import Settings, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class AggregatorAuditConfig(Settings):
    """How an aggregator alone is audited."""

    trials: int = setting(
        16384,
        'Trials, about half of them with the client. Trials are coordinates of a few runs of the '
        'aggregator.',
        minimum=64,
        maximum=2**24,
    )
    seed: int | None = setting(
        None,
        'Seed of the noise and of the choice of the trials with the client: a simulation, which '
        'can be repeated. By default keys come from the operating system, as in a private run.',
        minimum=0,
        maximum=2**40,
    )
    resume_after: int | None = setting(
        None,
        'Number of rounds after which the state is written, to continue from it with an aggregator '
        'that is built anew. By default a run is not interrupted.',
        minimum=1,
    )
