"""Flag of how noise is made. No TensorFlow."""

from absl import flags

from dpfl import accounting

_NOISE = flags.DEFINE_enum(
    'noise',
    'default',
    accounting.NOISES,
    'default: Gaussian noise in floating point. hardened: exact discrete Gaussian noise on sums of '
    'integers, from a cryptographic generator (docs/hardened.md); its rounding is counted.',
)


def plan_fields() -> dict:
    """Field of the plan: noise."""
    return {'noise': _NOISE.value}
