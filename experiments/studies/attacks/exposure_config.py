"""How exposures are measured. No TensorFlow."""

import dataclasses

from dpfl._settings import Settings, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExposureConfig(Settings):
    """How the rank of a secret among its candidates is found."""

    ranking: str = setting(
        'exact',
        'exact: all candidates are ranked. sampled: --samples random candidates are, which shows '
        'no exposure above log2 of one more than their number. fitted: a skew-normal distribution '
        'is fitted to the scores of the sample, an estimate.',
        choices=('exact', 'sampled', 'fitted'),
    )
    samples: int = setting(
        4096, 'Random candidates for each secret; not with --ranking=exact.', minimum=2
    )
    sample_seed: int = setting(0, 'Seed of the sample.', minimum=0)
