"""Tells when the strategy that was given is worse than one made for the schema."""

from dpfl import accounting, mechanisms
from dpfl.simulation.training.privacy_config import MechanismConfig

# Less is not worth a line.
_WORTH = 0.05
# Optimising for more rounds is not done in passing.
_MOST_ROUNDS = 10_000


def hint(config: MechanismConfig, plan: accounting.PrivacyPlan) -> str | None:
    """A sentence about a BLT whose `strategy` was made for other rounds; None if there is nothing.

    Args:
      config: of the mechanism.
      plan: the plan that was made of it.
    """
    own, schema = plan.mechanism, plan.participation
    if config.strategy is None or not isinstance(own, mechanisms.Blt) or not own.decay.size:
        return None
    if plan.sampling != 'none' or schema.rounds > _MOST_ROUNDS:
        return None
    best = mechanisms.optimize_blt(schema, len(own.decay))
    saved = 1 - best.max_loss(schema) / own.max_loss(schema)
    if saved < _WORTH:
        return None
    return (
        f'strategy={config.strategy} was made for another schema: a BLT with as many buffers, '
        f'optimised for this one, has {saved:.0%} less noise in the worst model at the same '
        'guarantee (leave out strategy)'
    )
