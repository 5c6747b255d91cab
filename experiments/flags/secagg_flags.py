"""Flags of discretised secure aggregation, and the discretisation that they make."""

from absl import flags

from dpfl.mechanisms import Discretization
from experiments.command import command_line

_SECAGG = flags.DEFINE_bool(
    'secagg',
    False,
    'Updates are rounded to integers for secure aggregation (document 000, algorithm 2); the '
    'guarantee counts the inflated norm. Needs --secagg_scale or --secagg_bits, and '
    '--model_dimension.',
)
_SCALE = flags.DEFINE_float('secagg_scale', None, 'Factor s before rounding.')
_BITS = flags.DEFINE_integer(
    'secagg_bits', None, 'Bits per parameter: the largest factor that they have room for.'
)
_DIMENSION = flags.DEFINE_integer('model_dimension', None, 'Number of parameters of the model.')


def is_used() -> bool:
    """Value of --secagg."""
    return _SECAGG.value


def discretization(
    clip_norm: float, clients_per_round: int, dimension: int | None = None
) -> Discretization | None:
    """The discretisation of the flags; None without --secagg.

    Args:
      clip_norm, clients_per_round: of the plan.
      dimension: number of parameters of the model; by default that of --model_dimension.

    Raises:
      UsageError: if flags are missing or contradict each other.
    """
    if not _SECAGG.value:
        return None
    if (_SCALE.value is None) == (_BITS.value is None):
        raise command_line.UsageError(
            '--secagg: needs --secagg_scale or --secagg_bits, one of them'
        )
    if _DIMENSION.value is not None and dimension not in (None, _DIMENSION.value):
        raise command_line.UsageError(
            f'--model_dimension={_DIMENSION.value}: must be {dimension}, that of the model'
        )
    dimension = _DIMENSION.value if dimension is None else dimension
    if dimension is None:
        raise command_line.UsageError('--secagg: needs --model_dimension')
    names = {'scale': _SCALE.name, 'bits': _BITS.name, 'dimension': _DIMENSION.name}
    with command_line.refusing_bad_values(**names):
        if _SCALE.value is not None:
            return Discretization(_SCALE.value, dimension, clip_norm)
        return Discretization.for_bits(_BITS.value, clients_per_round, dimension, clip_norm)
