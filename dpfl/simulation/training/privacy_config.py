"""Privacy settings: schema, mechanism, noise, clipping. Does not import TensorFlow."""

import dataclasses
from typing import Any

from dpfl import accounting, mechanisms
from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError

AUTO = 'auto'
NONE = 'none'
PREFIX_SUMS = 'prefix_sums'


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParticipationConfig(Settings):
    """The participation schema: how often a client may take part."""

    rounds: int | None = setting(None, 'Number of rounds.', minimum=1)
    min_separation: int = setting(
        1,
        'A client that takes part in round i may take part again in round i + min_separation at '
        'the earliest; 1 allows every round. (MinS of tensorflow-privacy and of the papers is one '
        'less.)',
        minimum=1,
    )
    max_participations: int | None = setting(
        None,
        'Limit on the rounds that a client may take part in; by default as many as --rounds and '
        '--min_separation allow.',
        minimum=1,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MechanismConfig(Settings):
    """How the noise of the rounds is correlated."""

    mechanism: str | mechanisms.Mechanism | None = setting(
        None, 'How the noise of the rounds is correlated.'
    )
    strategy: str | None = setting(
        None,
        'Parameters of the mechanism: a name in dpfl/strategies, or a file written by '
        'dpfl.mechanisms.save. They are used for --rounds rounds.',
    )
    blt_decay: tuple[float, ...] | None = setting(
        None, 'Buffer decays (theta) of a BLT, comma-separated.'
    )
    blt_scale: tuple[float, ...] | None = setting(
        None, 'Output scales (omega) of a BLT, comma-separated.'
    )
    tree_released: str = setting(
        'nodes',
        'What the sensitivity of a tree treats as released: all noised nodes, as the published '
        'accounting does, or only the prefix sums, which is what is actually released.',
        choices=mechanisms.tree.RELEASED,
    )
    tree_completed: bool = setting(
        False,
        'Let a full_honaker_tree use one complete tree instead of the forest of complete subtrees.',
    )
    bands: int | None = setting(
        None, 'Bands of a fichtenberger_toeplitz or square_root_banded_inverse.', minimum=1
    )
    restart_first: int | None = setting(
        None,
        'Restart the noise after this round, counted from 0, and then after every --restart_every '
        'rounds, as adaptive clipping does (128 and 1024 in [Xu23]).',
        minimum=0,
    )
    restart_every: int | None = setting(
        None, 'Rounds between two restarts; needs --restart_first.', minimum=1
    )

    def check(self) -> None:
        """The mechanism is a name or a mechanism; restarts need both of their settings."""
        if not isinstance(self.mechanism, str | mechanisms.Mechanism | None):
            raise ArgumentError('mechanism', self.mechanism, 'must be a name or a mechanism')
        if (self.restart_first is None) != (self.restart_every is None):
            name = 'restart_first' if self.restart_every is None else 'restart_every'
            other = 'restart_every' if self.restart_every is None else 'restart_first'
            raise ArgumentError(name, getattr(self, name), f'needs {other}')

    @classmethod
    def decode(cls, name: str, value: Any) -> Any:
        """Builds a mechanism that is given as a JSON object from its parameters."""
        if name == 'mechanism' and isinstance(value, dict):
            return mechanisms.from_dict(value)
        return super().decode(name, value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoiseConfig(Settings):
    """Amount and kind of noise, and how the guarantee is computed."""

    noise_multiplier: float | None = setting(
        None, 'Standard deviation of the noise z divided by the clip norm.', minimum=0
    )
    delta: float = setting(1e-10, 'Delta at which epsilon is given.')
    accountant: str | None = setting(
        None,
        'How epsilon is computed. The default is pld, and best if the guarantee relies on '
        '--sampling. best is the least epsilon of all accountants that know the plan; the report '
        'names the one it took. For sampling without replacement only rdp and moments apply.',
        choices=accounting.ACCOUNTANTS,
    )
    adjacency: str = setting(
        'zero_out',
        'Neighbouring runs: one client zeroed out, or one client replaced by another. '
        'replace_one_half_shift: for --sampling=without_replacement, counts half of the change '
        'that replacing a client can make, as [Augenstein20] does.',
        choices=accounting.ADJACENCIES,
    )
    noise: str = setting(
        'default',
        'default: Gaussian noise in floating point. hardened: exact discrete Gaussian noise on '
        'sums of integers, from a cryptographic generator (docs/hardened.md); the guarantee '
        'accounts for the rounding.',
        choices=accounting.NOISES,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecureAggregationConfig(Settings):
    """Rounding of updates for secure aggregation."""

    secagg: bool = setting(
        False,
        'Round updates to integers for secure aggregation ([Xu23], algorithm 2); the guarantee '
        'accounts for the inflated norm. Needs --secagg_scale or --secagg_bits, and '
        '--model_dimension if there is no model to take it from.',
    )
    secagg_scale: float | None = setting(
        None, 'Factor s by which updates are scaled before rounding.'
    )
    secagg_bits: int | None = setting(
        None, 'Bits per parameter; the largest scale that fits is used.'
    )
    model_dimension: int | None = setting(None, 'Number of parameters of the model.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClippingConfig(Settings):
    """How updates are clipped and averaged."""

    clip_norm: float = setting(1.0, "L2 bound of one client's update.", above=0)
    clip_schedule: tuple[tuple[int, float], ...] = setting(
        (),
        'Clip norms that take effect in later rounds, as round:norm,... Rounds count from 0, and '
        'the noise must restart in each of them. The noise scales with the clip norm, so the '
        'guarantee does not change ([McMahan18], section 3).',
    )
    clipping: str = setting(
        'flat',
        'flat: the whole update is scaled to the clip norm; per_layer: each tensor is scaled to '
        'its share of the clip norm ([McMahan18]).',
        choices=('flat', 'per_layer'),
    )
    estimator: str = setting(
        'fixed',
        'Estimator of the mean update. fixed: divide by the planned cohort size. clipped: divide '
        'by the actual cohort size, at least the planned one, with twice the noise ([McMahan18], '
        'lemma 1).',
        choices=accounting.estimator.KINDS,
    )
    adaptive_clip: bool = setting(
        False,
        'Adapt the clip norm to a private quantile of the norms, starting from --clip_norm. It '
        'only changes when the noise restarts: see --restart_first and --restart_every, by default '
        '128 and 1024 ([Xu23], algorithm 1).',
    )
    clip_quantile: float = setting(
        0.5, 'Share of the updates that --adaptive_clip keeps within the clip norm.'
    )
    clip_learning_rate: float = setting(
        0.2,
        'Learning rate of the estimate of --adaptive_clip: a round changes the estimate by a '
        'factor of at most about exp(clip_learning_rate). The first estimate is --clip_norm.',
        above=0,
    )
    count_stddev: float | None = setting(
        None,
        'Standard deviation of the noise on the counts of --adaptive_clip, in clients; by default '
        'a twentieth of --clients_per_round.',
    )

    @classmethod
    def decode(cls, name: str, value: Any) -> Any:
        """Converts a clip schedule from JSON, where norms may be integers."""
        if name == 'clip_schedule' and isinstance(value, list):
            try:
                return tuple((int(first), float(norm)) for first, norm in value)
            except (TypeError, ValueError):
                raise ArgumentError(name, value, 'must be pairs of a round and a norm') from None
        return super().decode(name, value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivacyConfig(ClippingConfig, SecureAggregationConfig, NoiseConfig, MechanismConfig):
    """Everything that a privacy plan consists of, except the participation schema.

    `mechanism` is a name, or a mechanism itself. 'auto' optimises the mechanism with the least
    noise that fits `memory_limit`. 'none' clips, but adds no noise and gives no guarantee.
    """

    mechanism: str | mechanisms.Mechanism | None = setting(
        'blt',
        'How the noise of the rounds is correlated. auto: the mechanism with the least noise for '
        'the schema that fits --memory_limit, optimised when the run begins; none: clipping only, '
        'no noise and no guarantee.',
    )
    workload: str = setting(
        PREFIX_SUMS,
        'The sums of updates whose noise --mechanism=auto makes small. prefix_sums: as published, '
        "and as if the server's learning rate were constant and had no momentum; server: the "
        "models of the server's SGD with its momentum and its learning rates (for other "
        'optimizers, with its learning rates alone).',
        choices=(PREFIX_SUMS, 'server'),
    )
    target_epsilon: float | None = setting(
        None, 'Use the noise multiplier that gives this epsilon at --delta.'
    )
    memory_limit: float = setting(
        1.0,
        'Gigabytes of memory that past noise may take. --mechanism=auto chooses a mechanism that '
        'fits. Another mechanism that needs more keeps its noise in an unnamed temporary file in '
        '--output_dir, which disappears with the process.',
        minimum=0,
    )

    def check(self) -> None:
        """Checks that the amount of noise is given in one way only."""
        super().check()
        if self.noise_multiplier is not None and self.target_epsilon is not None:
            raise ArgumentError(
                'target_epsilon', self.target_epsilon, 'cannot be combined with noise_multiplier'
            )
        if self.workload != PREFIX_SUMS and self.mechanism != AUTO:
            raise ArgumentError('workload', self.workload, 'needs mechanism=auto')
