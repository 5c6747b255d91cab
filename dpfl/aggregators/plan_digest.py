"""The plan in a state: a state goes on only under the plan that it was made with.

Strategy, noise and denominator are constants of the code, not parts of a state. So the state of
each query has a digest of everything that noise and result depend on, one number for each item. A
round compares them with those of its own plan. What only accounting reads, such as the population
or the size of groups, is in no digest.
"""

import hashlib
import json
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl import accounting

_ITEMS = (
    'mechanism',
    'noise_multiplier',
    'noise',
    'clip_norm',
    'discretization',
    'estimator',
    'clients_per_round',
    'clip',
)
_ADVICE = 'a state goes on only under the plan that it was made with'


def of(plan: accounting.PrivacyPlan, clip: Any) -> np.ndarray:
    """The digests of the items of a plan, int64 [items].

    Args:
      plan: the plan.
      clip: how updates are clipped.
    """
    fields = plan.to_dict()
    rounds = plan.participation.rounds
    # In the order of `_ITEMS`.
    items = (
        [rounds, plan.mechanism.with_rounds(rounds).digest()],
        fields['noise_multiplier'],
        [fields['noise'], None],  # As in states of earlier versions, whose digests had two.
        [fields[name] for name in ('clip_norm', 'clip_schedule', 'adaptive_clip')],
        fields['discretization'],
        fields['estimator'],
        fields['clients_per_round'],
        getattr(clip, '__name__', repr(clip)),
    )
    texts = [json.dumps(item, sort_keys=True) for item in items]
    digests = [hashlib.sha256(text.encode()).digest()[:8] for text in texts]
    return np.frombuffer(b''.join(digests), '<i8').astype(np.int64)


def differences(one: Any, other: Any) -> list[str]:
    """Names of the items in which two digests of plans differ, but not of how updates are clipped.

    How updates are clipped is an argument of the query, not part of a plan.
    """
    differs = np.asarray(one) != np.asarray(other)
    return [name for name, is_other in zip(_ITEMS[:-1], differs[:-1], strict=True) if is_other]


def require(digest: Any, plan: accounting.PrivacyPlan, own: np.ndarray) -> list[tf.Operation]:
    """Checks that the digest in a state is that of the query; a graph waits for the operations.

    Args:
      digest: of the plan in the state, int64 [items].
      plan: plan of the query.
      own: its digest.

    Raises:
      tf.errors.InvalidArgumentError: (when executed) if not; the message names the items.
    """
    shown = dict.fromkeys(_ITEMS, '') | {
        'mechanism': f' (here {plan.mechanism.name} for {plan.participation.rounds} rounds)',
        'noise_multiplier': f' (here {plan.noise_multiplier:g})',
        'clip_norm': f' or its rule (here {plan.clip_norm:g})',
        'clients_per_round': f' (here {plan.clients_per_round})',
    }
    names = tf.constant([f'{name}{text}' for name, text in shown.items()])
    differs = tf.not_equal(digest, own)
    message = tf.strings.join(
        [
            'state: was made under a plan with another ',
            tf.strings.reduce_join(tf.boolean_mask(names, differs), separator=', '),
            f'; {_ADVICE}',
        ]
    )
    if tf.executing_eagerly():
        if tf.reduce_any(differs):
            raise tf.errors.InvalidArgumentError(None, None, message.numpy().decode())
        return []
    return [tf.debugging.Assert(~tf.reduce_any(differs), [message])]
