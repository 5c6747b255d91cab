"""Learning processes that train under a privacy plan."""

import tensorflow_federated as tff

from dpfl import accounting, aggregators


def build_dp_fedavg(
    model: tff.learning.models.FunctionalModel,
    plan: accounting.PrivacyPlan,
    *,
    client_optimizer: tff.learning.optimizers.Optimizer,
    server_optimizer: tff.learning.optimizers.Optimizer,
    noise_seed: int | None = None,
) -> tff.learning.templates.LearningProcess:
    """Federated averaging with correlated noise (document 002, algorithm 1).

    Every client of a round trains from the same model on its own data; its model delta is clipped;
    the noised mean over the *planned* cohort size goes to the server optimizer. With independent
    noise this is DP-FedAvg, with correlated noise DP-FTRL.

    Args:
      model: what is trained.
      plan: determines clipping, noise and denominator; one run has at most its rounds.
      client_optimizer: of the local steps, fresh in every round.
      server_optimizer: takes the noised mean of the deltas as a (negative) gradient.
      noise_seed: None for noise keys from the operating system; an integer for a simulation.

    Returns:
      A process whose state holds the model, the optimizer and the noise.
    """
    return tff.learning.algorithms.build_unweighted_fed_avg(
        model,
        client_optimizer_fn=client_optimizer,
        server_optimizer_fn=server_optimizer,
        model_aggregator=aggregators.build_aggregator(plan, seed=noise_seed),
        # Several times faster than a reduction over the data set.
        loop_implementation=tff.learning.LoopImplementation.DATASET_ITERATOR,
    )
