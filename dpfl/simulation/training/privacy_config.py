"""Privacy settings: noise, rounding and clipping. Does not import TensorFlow."""

import dataclasses
from collections.abc import Callable
from typing import Any

from dpfl import Participation, _validate, accounting, mechanisms
from dpfl._settings import Settings, setting
from dpfl.accounting import gaussian
from dpfl.errors import NOT_SHOWN, ArgumentError, renaming
from dpfl.mechanisms import Discretization
from dpfl.simulation.training.mechanism import AUTO, MechanismConfig

_MECHANISM = (
    'How the noise of the rounds is correlated. blt, scaled_blt, block_blt, banded, '
    'banded_toeplitz and banded_inverse are optimised for the schema unless parameters are given, '
    'such as --strategy. none: clipping only, no noise and no guarantee.'
)
# Help of the flags of commands that do not offer --mechanism=auto.
WITHOUT_AUTO = {'mechanism': _MECHANISM}
# (first, every): the restarts of adaptive clipping in [Xu23], algorithm 1.
_ADAPTIVE_RESTARTS = (128, 1024)
# The ways to give the amount of noise.
AMOUNTS = ('noise_multiplier', 'target_epsilon')
_BIASED_MEAN = (
    'The mean of the updates is biased towards zero: it is divided by clients_per_round, as if '
    'every client had at least example_cap examples. cohort_weight takes the expected sum of the '
    'weights of a cohort.'
)
_CHOSEN = 'The mechanism was chosen for the least error of the prefix sums of the noised means.'
# Of a sum for secure aggregation: the most that fit into 32-bit integers.
_BITS = 31


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoiseConfig(Settings):
    """Amount and kind of noise, and how the guarantee is computed."""

    noise_multiplier: float | None = setting(
        None, 'Standard deviation of the noise z divided by the clip norm.', minimum=0
    )
    delta: float = setting(
        1e-10,
        'Delta at which epsilon is given. The default is that of [Xu23] and small enough for a '
        'billion clients. A usual choice is the population to the power of -1.1: 4e-5 for 10,000 '
        'clients, 2.5e-7 for a million.',
        above=0,
        below=1,
    )
    allow_large_delta: bool = setting(
        False,
        f'Accept a --delta above {gaussian.USUAL_MOST_DELTA:g}, which promises little: '
        'publishing the data of each client with probability delta satisfies it.',
        kept=False,
    )
    accountant: str | None = setting(
        None,
        'How epsilon is computed. The default is pld, and best if the guarantee relies on '
        '--sampling. best is the least epsilon of all accountants that know the plan; the report '
        'names the one it took.',
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
        'sums of integers, from a cryptographic generator (docs/reference/hardened.md); the '
        'guarantee '
        'accounts for the rounding.',
        choices=accounting.NOISES,
    )

    def check(self) -> None:
        """Refuses a noise multiplier that is too small or large, and a large delta."""
        super().check()
        if self.noise_multiplier is not None:
            _validate.noise_multiplier('noise_multiplier', self.noise_multiplier)
        if self.delta > gaussian.USUAL_MOST_DELTA and not self.allow_large_delta:
            raise ArgumentError(
                'delta',
                self.delta,
                f'must be <= {gaussian.USUAL_MOST_DELTA:g}; allow_large_delta accepts more',
            )

    def accountant_of(self, plan: accounting.PrivacyPlan) -> str:
        """The accountant of a plan; the default is pld, and best if it relies on sampling."""
        return self.accountant or ('pld' if plan.sampling is None else 'best')


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecureAggregationConfig(Settings):
    """Rounding of updates for secure aggregation."""

    secagg: bool = setting(
        False,
        'Round updates to integers for secure aggregation ([Xu23], algorithm 2); the guarantee '
        'accounts for the inflated norm. Needs --model_dimension if there is no model to take it '
        'from.',
    )
    secagg_bits: int | None = setting(
        None,
        'Bits per parameter of a sum; the largest scale that fits is used. By default 31, the most '
        'that sums of 32-bit integers have.',
        needs='secagg',
    )
    secagg_scale: float | None = setting(
        None,
        'Factor s by which updates are scaled before rounding, in place of --secagg_bits.',
        needs='secagg',
    )
    model_dimension: int | None = setting(None, 'Number of parameters of the model.', minimum=1)

    def discretization(
        self, clip_norm: float, clients_per_round: int, dimension: int | None = None
    ) -> Discretization | None:
        """The discretization of a plan; None without secure aggregation.

        Args:
          clip_norm: clip norm of the plan.
          clients_per_round: cohort size of the plan.
          dimension: number of parameters of the model; by default `model_dimension`.

        Raises:
          ArgumentError: if values are missing or contradict each other.
        """
        if not self.secagg:
            return None
        bits, scale = self.secagg_bits, self.secagg_scale
        if bits is not None and scale is not None:
            raise ArgumentError('secagg_bits', bits, 'cannot be combined with secagg_scale')
        if self.model_dimension is not None and dimension not in (None, self.model_dimension):
            raise ArgumentError(
                'model_dimension', self.model_dimension, f'must be {dimension}, as the model has'
            )
        dimension = self.model_dimension if dimension is None else dimension
        if dimension is None:
            raise ArgumentError('secagg', NOT_SHOWN, 'needs model_dimension')
        with renaming(scale='secagg_scale', bits='secagg_bits', dimension='model_dimension'):
            if scale is not None:
                return Discretization(scale, dimension, clip_norm)
            bits = _BITS if bits is None else bits
            return Discretization.for_bits(bits, clients_per_round, dimension, clip_norm)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClippingConfig(Settings):
    """How updates are clipped and averaged."""

    clip_norm: float = setting(1.0, "L2 bound of one client's update.", above=0)
    clip_schedule: tuple[tuple[int, float], ...] = setting(
        (),
        'Clip norms of later rounds, as round:norm,... A round, counted from 0, is the first one '
        'with its norm, and the noise must start afresh in it: with --restart_first=128 and '
        '--restart_every=1024 these are rounds 129, 1153 and so on. The noise scales with the clip '
        'norm, so the guarantee does not change ([McMahan18], section 3).',
    )
    clipping: str = setting(
        'flat',
        'flat: the whole update is scaled to the clip norm; per_layer: each tensor is scaled to '
        'its share of the clip norm ([McMahan18]).',
        choices=('flat', 'per_layer'),
    )
    estimator: str = setting(
        'fixed',
        'Estimator of the mean update. fixed: divide by --cohort_weight. clipped: divide by the '
        'total weight of the actual cohort, at least --cohort_weight, with twice the noise '
        '([McMahan18], lemma 1).',
        choices=accounting.clipping.ESTIMATORS,
    )
    cohort_weight: float | None = setting(
        None,
        'What --estimator divides by, in clients of full weight: q W, or q W_min for clipped, in '
        '[McMahan18], algorithm 1. By default --clients_per_round. The noise on the mean is in '
        'proportion to its inverse, so the guarantee does not depend on it.',
        above=0,
    )
    example_cap: float | None = setting(
        None,
        "Weight a client's clipped update by min(n / example_cap, 1), where n counts the different "
        'examples (rows of batches) that it trained on in the round ([McMahan18], algorithm 1). '
        'The aggregator limits every weight to 0 .. 1, so the guarantee is the same. Without '
        '--cohort_weight the fixed --estimator then makes the mean too small. By default all '
        'clients have weight 1.',
        above=0,
    )
    adaptive_clip: bool = setting(
        False,
        'Adapt the clip norm to a private quantile of the norms, starting from --clip_norm. It '
        'only changes when the noise restarts: see --restart_first and --restart_every, by default '
        '128 and 1024 ([Xu23], algorithm 1).',
    )
    clip_quantile: float = setting(
        0.5,
        'Share of the updates that --adaptive_clip keeps within the clip norm.',
        needs='adaptive_clip',
    )
    clip_learning_rate: float = setting(
        0.2,
        'Learning rate of the estimate of --adaptive_clip: a round changes the estimate by a '
        'factor of at most about exp(clip_learning_rate). The first estimate is --clip_norm.',
        above=0,
        needs='adaptive_clip',
    )
    count_stddev: float | None = setting(
        None,
        'Standard deviation of the noise on the counts of --adaptive_clip, in clients; by default '
        'a twentieth of --clients_per_round.',
        needs='adaptive_clip',
    )

    @property
    def default_restarts(self) -> tuple[int, int] | None:
        """Those of [Xu23] for an adaptive clip norm, which only changes in a restart."""
        return _ADAPTIVE_RESTARTS if self.adaptive_clip else None

    def clipping_fields(self) -> dict[str, Any]:
        """The fields of a plan that say how updates are clipped and averaged.

        Raises:
          ArgumentError: if a value is not allowed.
        """
        adaptive = None
        with renaming(
            weight='cohort_weight',
            target_quantile='clip_quantile',
            learning_rate='clip_learning_rate',
        ):
            estimator = accounting.Estimator(self.estimator, self.cohort_weight, self.example_cap)
            if self.adaptive_clip:
                adaptive = accounting.AdaptiveClip(
                    self.clip_quantile, self.clip_learning_rate, self.count_stddev
                )
        return dict(
            clip_norm=self.clip_norm,
            clip_schedule=self.clip_schedule,
            estimator=estimator,
            adaptive_clip=adaptive,
        )

    def clip(self) -> Any:
        """How updates are clipped, as `learning.build_dp_fedavg` takes it. Loads TensorFlow."""
        from dpfl import aggregators

        return aggregators.PerLayer() if self.clipping == 'per_layer' else aggregators.clip_flat

    def remarks(self) -> tuple[str, ...]:
        """What the report says of the mean, in sentences."""
        is_biased = self.example_cap is not None and self.cohort_weight is None
        return (_BIASED_MEAN,) if is_biased and self.estimator == 'fixed' else ()

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

    Example:
      >>> PrivacyConfig(clip_norm=0.0)
      Traceback (most recent call last):
      dpfl.errors.ArgumentError: clip_norm=0.0: must be a finite number > 0
    """

    mechanism: str | mechanisms.Mechanism | None = setting(
        'blt',
        f'{_MECHANISM} auto: the mechanism with the least noise for the schema that fits '
        '--memory_limit, optimised when the run begins.',
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
        given = [name for name in AMOUNTS if getattr(self, name) is not None]
        if len(given) > 1:
            raise ArgumentError(
                given[1], getattr(self, given[1]), f'cannot be combined with {given[0]}'
            )

    def remarks(self) -> tuple[str, ...]:
        """What the report says of the mean and of the choice of the mechanism, in sentences."""
        return (*super().remarks(), *([_CHOSEN] if self.mechanism == AUTO else ()))

    def choose_mechanism(
        self, schema: Participation, dimension: int
    ) -> tuple[mechanisms.Mechanism, list[mechanisms.Candidate]]:
        """As `mechanisms.choose`, within the memory and for the noise of the settings.

        Args:
          schema: that of the run.
          dimension: number of parameters of the model.

        Raises:
          ArgumentError: if an argument is out of its range.
        """
        return mechanisms.choose(schema, dimension, self.memory_limit, noise=self.noise)

    def plan_fields(self, clients_per_round: int, dimension: Callable[[], int]) -> dict[str, Any]:
        """The fields of a plan except mechanism, amount of noise, and those of the sampling.

        Args:
          clients_per_round: cohort size of the plan.
          dimension: returns the number of parameters of the model; only called for secure
            aggregation.

        Raises:
          ArgumentError: if a value is not allowed.
        """
        rounding = None
        if self.secagg:
            rounding = self.discretization(self.clip_norm, clients_per_round, dimension())
        elif self.model_dimension is not None:
            raise ArgumentError('model_dimension', self.model_dimension, 'needs secagg')
        return dict(
            clients_per_round=clients_per_round,
            adjacency=self.adjacency,
            noise=self.noise,
            discretization=rounding,
            **self.clipping_fields(),
        )

    def check_plan(self, plan: accounting.PrivacyPlan) -> None:
        """Checks that an adaptive clip norm can change in one round of the plan at least.

        Raises:
          ArgumentError: if not; it names `rounds` and the number that would do.
        """
        if not self.adaptive_clip or plan.fresh_rounds:
            return
        rounds = plan.participation.rounds
        if plan.mechanism.is_identity:
            raise ArgumentError('rounds', rounds, 'must be >= 2 for adaptive_clip')
        first = _ADAPTIVE_RESTARTS[0] if self.restart_first is None else self.restart_first
        raise ArgumentError(
            'rounds',
            rounds,
            f'must be >= {first + 2} for adaptive_clip, whose clip norm first changes after the '
            f'round restart_first={first}, counted from 0; a smaller restart_first needs fewer '
            'rounds',
        )
