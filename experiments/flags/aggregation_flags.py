"""Flags of how updates are clipped, weighed and summed, and what they mean for the privacy plan."""

from collections.abc import Callable

from absl import flags

from dpfl import accounting
from experiments.command import command_line
from experiments.flags import secagg_flags

flags.adopt_module_key_flags(secagg_flags)
_CLIPPING = flags.DEFINE_enum(
    'clipping',
    'flat',
    ['flat', 'per_layer'],
    'flat: the whole update is scaled to the clip norm; per_layer: each tensor to its share of it, '
    'the whole still keeps the clip norm (document 001).',
)
_ESTIMATOR = flags.DEFINE_enum(
    'estimator',
    'fixed',
    accounting.estimator.KINDS,
    'Of the mean: fixed divides by the planned cohort size; clipped by the size of the cohort that '
    'there is, at least the planned one, with twice the noise (document 001, lemma 1).',
)
_ADAPTIVE_CLIP = flags.DEFINE_bool(
    'adaptive_clip',
    False,
    'The clip norm follows a private quantile of the norms, from --clip_norm on, and changes where '
    'the noise starts afresh: --restart_first and --restart_every, by default 128 and 1024 '
    '(document 000, algorithm 1).',
)
_CLIP_QUANTILE = flags.DEFINE_float(
    'clip_quantile', 0.5, 'Fraction of updates within the clip norm that --adaptive_clip aims at.'
)
_COUNT_STDDEV = flags.DEFINE_float(
    'count_stddev',
    None,
    'Standard deviation of the noise on the counts of --adaptive_clip, in clients; by default a '
    'twentieth of --clients_per_round.',
)
# Document 000, algorithm 1.
_SCHEDULE = (128, 1024)


def is_per_layer() -> bool:
    """Whether --clipping is per_layer."""
    return _CLIPPING.value == 'per_layer'


def restarts() -> tuple[int, int] | None:
    """Schedule of restarts that the flags need: first and every; None if they need none."""
    return _SCHEDULE if _ADAPTIVE_CLIP.value else None


def plan_fields(clip_norm: float, clients_per_round: int, dimension: Callable[[], int]) -> dict:
    """Fields of the plan: estimator, adaptive_clip and discretization.

    Args:
      clip_norm, clients_per_round: of the plan.
      dimension: number of parameters of the model; called if it is needed.

    Raises:
      UsageError: if flags are missing or contradict each other.
    """
    fields = {'estimator': accounting.Estimator(_ESTIMATOR.value)}
    if _ADAPTIVE_CLIP.value:
        with command_line.refusing_bad_values(target_quantile=_CLIP_QUANTILE.name):
            fields['adaptive_clip'] = accounting.AdaptiveClip(
                _CLIP_QUANTILE.value, count_stddev=_COUNT_STDDEV.value
            )
    if secagg_flags.is_used():
        fields['discretization'] = secagg_flags.discretization(
            clip_norm, clients_per_round, dimension()
        )
    return fields
