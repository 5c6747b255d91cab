"""What a run costs: sizes, guarantee, memory and time, as numbers. No TensorFlow."""

import dataclasses
from typing import Any

HOW = (
    'Times and memory are estimates. memory_gigabytes is process_gigabytes (largest memory of this '
    'process after rounds with all shards and an evaluation) + cohort_gigabytes (data of two '
    'cohorts, twice) + checkpoint_gigabytes (a copy of the state). round_seconds is slowdown * '
    '(server_seconds + client_seconds for each client of a shard), the latter two measured on one '
    'shard with few and with more clients, the first on all shards; or data_seconds for each '
    'client of a round, if that is longer. hours is that of all rounds and evaluations, without '
    'start and checkpoints.'
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run would cost on this machine, from `dry_run`.

    Times and memory are estimates. What the clients' data were measured as has no noise: it is
    for the person who has the data.

    Attributes:
      parameters: number of trainable parameters of the model.
      rounds, clients_per_round, population: of the run; the cohort size is the planned one.
      clients_sampled: number of clients that the three averages below are of.
      batches_per_client, rows_per_client: average batches and examples that a client trains on in
        a round, all its epochs together.
      tokens_per_client: average predicted tokens, without padding; None if the task has no words.
      mechanism: name of the mechanism.
      noise_multiplier, clip_norm: of the plan.
      noise_stddev: standard deviation of each entry of z, which is added to a sum as `C^-1 z`.
      mean_noise_stddev: the same for the mean, the sum divided by the plan's denominator.
      epsilon, delta, rho: the guarantee of all rounds; epsilon and rho are None if there is none.
      feasible, noise_to_signal, advice: as in `feasibility.Feasibility`.
      noise_place: where the noise of past rounds is kept: 'state', 'regenerated', 'memory', 'file'.
      noise_gigabytes: its size.
      process_gigabytes: largest resident memory of this process so far, after rounds of as many
        shards as the run has at a time, and an evaluation: the model, its optimizer, past noise in
        memory, and the work of the shards are in it.
      cohort_gigabytes: data of two cohorts, the one that is trained on and the next one, each read
        and then copied into shards.
      checkpoint_gigabytes: a copy of the state, while a checkpoint is written.
      memory_gigabytes: the sum of these three: the estimated largest memory of the run.
      shards: number of shards that are trained at a time: no more than this host has cores, unless
        the processes of Ray train them.
      client_seconds: of an average client, on one shard: the seconds of a batch, from rounds of
        few and of more clients, times `batches_per_client`.
      server_seconds: of a round without clients, from the same rounds.
      slowdown: how many times longer a round takes when all shards are trained at the same time.
      data_seconds: to read the data of an average client, which happens beside training.
      evaluation_seconds: of one evaluation on held-out clients.
      round_seconds: of a round without its evaluation: `server_seconds` and the clients of a shard,
        times `slowdown`; or reading the data of a cohort, if that takes longer.
      hours: of all rounds and evaluations, without the start of the program and checkpoints.
      not_measured: what else takes time in this run, a phrase each.
    """

    parameters: int
    rounds: int
    clients_per_round: int
    population: int
    clients_sampled: int
    batches_per_client: float
    rows_per_client: float
    tokens_per_client: float | None
    mechanism: str
    noise_multiplier: float
    clip_norm: float
    noise_stddev: float
    mean_noise_stddev: float
    epsilon: float | None
    delta: float
    rho: float | None
    feasible: str
    noise_to_signal: float | None
    advice: tuple[str, ...]
    noise_place: str
    noise_gigabytes: float
    process_gigabytes: float
    cohort_gigabytes: float
    checkpoint_gigabytes: float
    memory_gigabytes: float
    shards: int
    client_seconds: float
    server_seconds: float
    slowdown: float
    data_seconds: float
    evaluation_seconds: float
    round_seconds: float
    hours: float
    not_measured: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, as JSON values, and under 'how' how the estimates are made."""
        return {
            **dataclasses.asdict(self),
            'advice': list(self.advice),
            'not_measured': list(self.not_measured),
            'how': HOW,
        }
