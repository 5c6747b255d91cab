"""Tells when the strategy that was given is worse than one made for the schema."""

from dpfl import accounting, mechanisms
from dpfl.simulation.training.plan import accountant
from dpfl.simulation.training.privacy_config import PrivacyConfig

# Less is not worth a line.
_WORTH = 0.05
# Optimising for more rounds is not done in passing.
_MOST_ROUNDS = 10_000


def hint(config: PrivacyConfig, plan: accounting.PrivacyPlan) -> str | None:
    """A sentence about a BLT whose `strategy` was made for other rounds; None if there is nothing.

    Args:
      config: mechanism and noise.
      plan: the plan that was made of it.
    """
    own, schema = plan.mechanism, plan.participation
    if config.strategy is None or not isinstance(own, mechanisms.Blt) or not own.decay.size:
        return None
    if plan.sampling is not None or schema.rounds > _MOST_ROUNDS:
        return None
    best = mechanisms.optimize_blt(schema)  # What a run without a strategy has.
    saved = 1 - best.max_loss(schema) / own.max_loss(schema)
    if saved < _WORTH:
        return None
    instead = 'leave out strategy'
    if config.target_epsilon is None and plan.noise_multiplier:
        amount = 'noise_multiplier' if config.match is None else 'match'
        epsilon = plan.epsilon(config.delta, accountant(config, plan))
        instead += f', and give target_epsilon={epsilon} in place of {amount}'
    return (
        f'strategy={config.strategy} was made for another schema: a BLT that is optimised for this '
        f'one has {saved:.0%} less noise in the worst model at the same guarantee ({instead})'
    )
