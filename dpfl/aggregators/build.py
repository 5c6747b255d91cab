"""Builds the query and the TFF aggregator of a privacy plan: the order of composition."""

import collections
import os
from typing import Any, NamedTuple

import dp_accounting
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from dpfl import _validate, accounting, errors
from dpfl.aggregators import (
    adaptive_clip,
    audited_query,
    clipping,
    discretized,
    estimators,
    exact_sum,
    precision,
    query,
)
from dpfl.aggregators.noise import correlated, hardened_query, hardened_ring, noise_ring


def build_query(
    plan: accounting.PrivacyPlan,
    seed: int | None = None,
    *,
    record_specs: Any = None,
    clip: clipping.Clip = clipping.clip_flat,
    supplied_noise: bool = False,
    canaries: audited_query.Canaries | None = None,
) -> tfp.DPQuery:
    """The mean of a round under a privacy plan, as a `tfp.DPQuery`.

    Clients: clip -> multiply by the weight -> round to multiples of a unit (or to the integers of
    a discretization) -> (add the bit for adaptive clipping) -> exact sum.
    Server: add noise -> divide by the planned denominator.

    Args:
      plan: determines clip norm, noise, denominator, discretization, adaptive clipping, weights.
      seed: None takes noise keys from the operating system. An integer >= 0 makes the noise
        repeatable: a simulation, with no guarantee against those who know the seed.
      record_specs: structure of `tf.TensorSpec` of one client's record. The record is its update,
        in float32, float64 or 16-bit floats; or a `WeightedRecord` if the plan's estimator has an
        `example_cap`. With specs the type of the state is fixed from the first round on, as TFF
        and `tf.function` loops need. Without them the noise buffers are made in the first round,
        and results are float64. Required with a discretization and for 16-bit floats.
      clip: `clip_flat` or a `PerLayer`: how an update is clipped.
      supplied_noise: whether a ring (`build_noise_ring`) keeps the noise of past rounds outside of
        the state. Every state must then pass through it before its round. Needs `record_specs`. A
        plan with hardened noise always needs it.
      canaries: clients with known updates that are added to the sums, for an audit, which
        also keeps what it needs of the sums (`audited_query`); needs
        `record_specs`, flat clipping, a fixed denominator, and noise that is not hardened.

    Raises:
      ValueError: if the seed is not an integer >= 0; if `clip` is anything else, since the plan
        could not account for it; if specs are missing or contradict the plan; if the state would
        be too large for TFF (use `build_noise_ring`); later, if a record has another shape than
        the sum.

    Example:
      >>> plan = accounting.PrivacyPlan(
      ...     mechanism=mechanisms.Identity(4), participation=Participation(4, min_separation=4),
      ...     clip_norm=1.0, noise_multiplier=0.0, clients_per_round=2)
      >>> query = build_query(plan)
      >>> params = query.derive_sample_params(query.initial_global_state())
      >>> query.preprocess_record(params, tf.constant([3.0, 4.0])).numpy().round(3)
      array([0.6, 0.8])
    """
    if record_specs is not None and not all(
        isinstance(spec, tf.TensorSpec) and spec.shape.is_fully_defined()
        for spec in tf.nest.flatten(estimators.update_of(record_specs)) or [None]
    ):
        raise errors.ArgumentError(
            'record_specs', record_specs, 'must be tf.TensorSpec of known shapes, at least one'
        )
    clipping.check(clip, estimators.update_of(record_specs))
    if record_specs is not None and precision.has_halves(record_specs):
        wide = build_query(
            plan,
            seed,
            record_specs=precision.widened_specs(record_specs),
            clip=clip,
            supplied_noise=supplied_noise,
            canaries=canaries,
        )
        return precision.HalfPrecisionQuery(wide, record_specs)
    if canaries is not None:
        if record_specs is None:
            raise errors.ArgumentError('record_specs', 'None', 'must be given with canaries')
        refused = {
            'noise': plan.noise == 'hardened',
            'clip': clip is not clipping.clip_flat,
            'estimator': plan.estimator.kind != 'fixed' or plan.estimator.example_cap is not None,
        }
        for name, is_refused in refused.items():
            if is_refused:
                raise errors.ArgumentError(
                    name,
                    errors.NOT_SHOWN,
                    'must be that of plain sums with canaries: no hardened noise, flat clipping, '
                    'a fixed denominator without weights',
                )
    cap, estimator = plan.estimator.example_cap, plan.estimator.kind
    is_weighted = isinstance(record_specs, estimators.WeightedRecord)
    if record_specs is not None and is_weighted != (cap is not None):
        kind = 'plain updates' if cap is None else 'WeightedRecord'
        raise errors.ArgumentError(
            'record_specs', record_specs, f'must be of {kind} with example_cap={cap}'
        )
    if plan.noise == 'hardened':
        if not supplied_noise:
            raise errors.ArgumentError(
                'supplied_noise',
                'False',
                'must be True with noise=hardened, which comes from a ring (build_noise_ring)',
            )
        if record_specs is None:
            raise errors.ArgumentError('record_specs', 'None', 'must be given with noise=hardened')
        total = hardened_query.HardenedQuery(plan, record_specs, seed, clip)
        return _Mean(total, denominator=plan.denominator)
    if supplied_noise and record_specs is None:
        raise errors.ArgumentError('record_specs', 'None', 'must be given with supplied_noise')
    total = query.CorrelatedNoiseQuery(
        plan, estimators.update_of(record_specs), seed, clip, supplied_noise
    )
    if canaries is not None:
        total = tap = audited_query.SumTap(total)
    if cap is not None:
        total = estimators.WeightedQuery(total, cap)
    if plan.discretization is None:
        total = exact_sum.ExactSumQuery(total, plan, estimators.update_of(record_specs))
    if estimator == 'clipped':
        total = estimators.ClippedDenominatorQuery(total, 2 * plan.denominator, cap)
    if plan.discretization is not None:
        more = 0 if canaries is None else canaries.largest_cohort
        total = discretized.DiscretizedQuery(total, plan, record_specs, seed, more)
    if canaries is not None:
        # Inside of the counts for adaptive clipping, which are those of real clients.
        total = added = audited_query.CanaryQuery(total, canaries, record_specs)
    if plan.adaptive_clip is not None:
        total = adaptive_clip.AdaptiveClipQuery(total, plan, seed)
    mean = _Mean(total, denominator=plan.denominator)
    if canaries is not None:
        return audited_query.AuditedQuery(mean, plan, record_specs, tap, added)
    return mean


class _Mean(tfp.NormalizedQuery):
    """A sum over clients, divided by the denominator."""

    def accumulate_preprocessed_record(self, sample_state: Any, preprocessed_record: Any) -> Any:
        # Without specs nothing else notices a shape that the sum would broadcast.
        parts = zip(*map(tf.nest.flatten, (sample_state, preprocessed_record)), strict=True)
        for total, part in parts:
            part.shape.assert_is_compatible_with(total.shape)
        return super().accumulate_preprocessed_record(sample_state, preprocessed_record)


def build_aggregator(
    plan: accounting.PrivacyPlan,
    seed: int | None = None,
    *,
    clip: clipping.Clip = clipping.clip_flat,
    secure_sum: bool = False,
    record_aggregation_factory: tff.aggregators.UnweightedAggregationFactory | None = None,
    supplied_noise: bool = False,
) -> tff.aggregators.UnweightedAggregationFactory:
    """The mean of a round under a privacy plan, for any TFF pipeline.

    The result of round t is
    `(sum of clipped updates + clip_norm * noise_multiplier * (C^-1 z)_t) / clients_per_round`,
    or what the plan's estimator computes instead of the mean. All of its state, the noise key
    included, is in the state of the aggregation process. Use it wherever TFF takes an unweighted
    aggregator, such as `model_aggregator` of `tff.learning.algorithms.build_unweighted_fed_avg`.

    Args:
      plan, seed, clip, supplied_noise: as in `build_query`.
      secure_sum: whether TFF's secure operators sum the integers of a discretization. Plain sums
        give the same result and run anywhere.
      record_aggregation_factory: sums the clipped updates, as the argument of
        `tff.aggregators.DifferentiallyPrivateFactory` does; by default a plain sum. Updates are in
        their own scale, in float64 and on a grid, so that the sum is exact; they are integers with
        a discretization or hardened noise. The guarantee holds if the factory sums each client at
        most once, and does not round: nothing checks that. With `tff.aggregators.SecureSumFactory`
        of floats, whose 32 bits a coordinate round, use a discretization and `secure_sum`.

    Raises:
      ValueError: if the seed is not an integer >= 0, if `secure_sum` is set without a
        discretization or with a `record_aggregation_factory`, or if the plan has weights (use
        `build_weighted_aggregator`).
      TypeError: if `record_aggregation_factory` is no unweighted factory.

    Example:
      >>> plan = accounting.PrivacyPlan(
      ...     mechanism=mechanisms.Identity(4), participation=Participation(4, min_separation=4),
      ...     clip_norm=1.0, noise_multiplier=0.0, clients_per_round=2)
      >>> process = build_aggregator(plan).create(tff.TensorType(np.float32, [2]))
      >>> out = process.next(process.initialize(), [np.float32([3, 4]), np.float32([0, 0])])
      >>> out.result.round(3)  # Clipped to norm 1, and divided by the planned two clients.
      array([0.3, 0.4], dtype=float32)
    """
    if plan.estimator.example_cap is not None:
        raise errors.ArgumentError(
            'example_cap',
            plan.estimator.example_cap,
            'must be None here; build_weighted_aggregator takes plans with weights',
        )
    return _PrivateMeanFactory(
        plan, seed, clip, secure_sum, record_aggregation_factory, supplied_noise
    )


def build_noise_ring(
    plan: accounting.PrivacyPlan,
    directory: str | os.PathLike[str] | None = None,
    *,
    show_progress: bool = True,
) -> noise_ring.SuppliedRows:
    """The ring that keeps the past noise of a plan outside of TFF, see `noise_ring.SuppliedRows`.

    A context manager; leaving it ends its threads and frees the memory. Whoever reads that memory,
    or the file, can subtract the noise from what is released, as with the key in the state.

    Args:
      plan: of the query or aggregator, which was built with `supplied_noise`.
      directory: where to keep past noise in a file; None for memory. The file has no name, and
        disappears when the process ends, in whatever way.
      show_progress: shows a bar on standard error when many rounds are recomputed.

    Example:
      >>> plan = accounting.PrivacyPlan(
      ...     mechanism=mechanisms.Identity(4), participation=Participation(4, min_separation=4),
      ...     clip_norm=1.0, noise_multiplier=1.0, clients_per_round=2)
      >>> factory = build_aggregator(plan, supplied_noise=True)
      >>> process = factory.create(tff.TensorType(np.float32, [2]))
      >>> state, cohort = process.initialize(), [np.zeros(2, np.float32)] * 2
      >>> with build_noise_ring(plan) as ring:
      ...     for _ in range(3):
      ...         state = process.next(ring.supply(state, cohort), cohort).state
    """
    ring = hardened_ring.HardenedRing if plan.noise == 'hardened' else noise_ring.NoiseRing
    return ring(plan, directory, show_progress=show_progress)


def build_weighted_aggregator(
    plan: accounting.PrivacyPlan,
    seed: int | None = None,
    *,
    clip: clipping.Clip = clipping.clip_flat,
    secure_sum: bool = False,
    record_aggregation_factory: tff.aggregators.UnweightedAggregationFactory | None = None,
    supplied_noise: bool = False,
) -> tff.aggregators.WeightedAggregationFactory:
    """The weighted mean of a round under a privacy plan whose estimator has an `example_cap`.

    TFF weights a client by its number of examples n_k. Here its weight is
    `min(n_k / example_cap, 1)` ([McMahan18], section 2). Otherwise as `build_aggregator`.

    Raises:
      ValueError: as `build_aggregator`, or if the plan has no weights.
      TypeError: as `build_aggregator`.

    Example:
      >>> plan = accounting.PrivacyPlan(
      ...     mechanism=mechanisms.Identity(4), participation=Participation(4, min_separation=4),
      ...     clip_norm=1.0, noise_multiplier=0.0, clients_per_round=2,
      ...     estimator=accounting.Estimator(example_cap=10.0))
      >>> process = build_weighted_aggregator(plan).create(
      ...     tff.TensorType(np.float32, [1]), tff.TensorType(np.float32))
      >>> updates, examples = [np.float32([0.5]), np.float32([1])], [np.float32(5), np.float32(20)]
      >>> process.next(process.initialize(), updates, examples).result.round(3)
      array([0.625], dtype=float32)
    """
    if plan.estimator.example_cap is None:
        raise errors.ArgumentError(
            'example_cap',
            'None',
            'must be a number for a weighted mean: give the plan an Estimator(example_cap=...)',
        )
    return _WeightedMeanFactory(
        _PrivateMeanFactory(
            plan, seed, clip, secure_sum, record_aggregation_factory, supplied_noise
        )
    )


class _PrivateMeanFactory(tff.aggregators.UnweightedAggregationFactory):
    def __init__(self, plan, seed, clip, secure_sum, record_aggregation_factory, supplied_noise):
        if seed is not None:
            _validate.integer('seed', seed, minimum=0)
        if secure_sum and plan.discretization is None:
            raise errors.ArgumentError(
                'secure_sum', 'True', 'must be False without a discretization in the plan'
            )
        clipping.check(clip)
        self._plan, self._seed, self._clip = plan, seed, clip
        self._supplied_noise = supplied_noise
        given = record_aggregation_factory
        if given is None:
            given = (
                discretized.SecureSumFactory(plan) if secure_sum else tff.aggregators.SumFactory()
            )
        elif not isinstance(given, tff.aggregators.UnweightedAggregationFactory):
            raise TypeError(
                'record_aggregation_factory: must be a '
                f'tff.aggregators.UnweightedAggregationFactory, is a {type(given).__name__}'
            )
        elif secure_sum:
            raise errors.ArgumentError(
                'secure_sum', 'True', 'must be False with a record_aggregation_factory'
            )
        self._sum = given

    def create(self, value_type) -> tff.templates.AggregationProcess:
        """Aggregation process for values of `value_type`, tensors of floating-point numbers.

        A structure without tensors is summed as it is: it says nothing about anybody.

        Raises:
          TypeError: if `value_type` is of something else than tensors, or has tensors of another
            type or of unknown shape.
        """
        _check_value_type(value_type)
        if _has_no_tensor(value_type):
            return tff.aggregators.SumFactory().create(value_type)
        specs = tff.types.type_to_tf_tensor_specs(value_type)
        private_mean = build_query(
            self._plan,
            self._seed,
            record_specs=specs,
            clip=self._clip,
            supplied_noise=self._supplied_noise,
        )
        return _aggregation_process(private_mean, self._sum, value_type)


# TFF's message about a factory of the wrong kind has only the name of its class.
_PrivateMeanFactory.__name__ = (
    'the unweighted mean of build_aggregator; build_weighted_aggregator(plan) weights a client by '
    'min(examples / example_cap, 1) with the same guarantee, for a plan with '
    'Estimator(example_cap=...), because weights without a bound would let a client move the mean '
    'by more than the plan counts'
)


class _WeightedMeanFactory(tff.aggregators.WeightedAggregationFactory):
    def __init__(self, inner):
        self._inner = inner

    def create(self, value_type, weight_type) -> tff.templates.AggregationProcess:
        """Aggregation process for updates of `value_type` and numbers of examples.

        Raises:
          TypeError: as that of `build_aggregator`.
        """
        _check_value_type(value_type)
        if _has_no_tensor(value_type):
            sums = tff.aggregators.SumFactory().create(value_type)
            known = sums.next.type_signature.parameter

            @tff.federated_computation(
                known.state, known.value, tff.FederatedType(weight_type, tff.CLIENTS)
            )
            def next_sum(state, value, weight):
                del weight
                return sums.next(state, value)

            return tff.templates.AggregationProcess(sums.initialize, next_sum)
        records = self._inner.create(
            tff.to_type(estimators.WeightedRecord(value_type, weight_type))
        )

        @tff.federated_computation(
            records.initialize.type_signature.result,
            tff.FederatedType(value_type, tff.CLIENTS),
            tff.FederatedType(weight_type, tff.CLIENTS),
        )
        def next_mean(state, value, weight):
            return records.next(state, tff.federated_zip(estimators.WeightedRecord(value, weight)))

        return tff.templates.AggregationProcess(records.initialize, next_mean)


def _has_no_tensor(value_type: tff.Type) -> bool:
    """Whether values of a type, a structure of tensors, have no tensor."""
    return isinstance(value_type, tff.StructType) and all(
        map(_has_no_tensor, value_type.children())
    )


def _check_value_type(value_type: tff.Type) -> None:
    """Checks that a type is that of tensors of known shapes.

    Raises:
      TypeError: if it is a type of something else, such as sequences, federated values or
        functions, or has a tensor of unknown shape. The message is one line.
    """
    if not tff.types.is_structure_of_tensors(value_type):
        raise TypeError(f'value_type={value_type}: must be a tensor or a structure of tensors')
    if tff.types.contains(value_type, _has_unknown_shape):
        raise TypeError(
            f'value_type={value_type}: must have tensors of known shapes, since noise is drawn for '
            'every coordinate'
        )


def _has_unknown_shape(part: tff.Type) -> bool:
    return isinstance(part, tff.TensorType) and not tff.types.is_shape_fully_defined(part.shape)


class AggregatorState(NamedTuple):
    """State between two rounds: that of the query and that of the sum.

    TFF's `extract_dp_event_from_state` reads the properties. A round has no event, only the whole
    run has one: `plan.dp_event()`.
    """

    query_state: Any
    sum_state: Any

    @property
    def is_init_state(self) -> bool:
        return False

    @property
    def dp_event(self) -> Any:
        return dp_accounting.UnsupportedDpEvent().to_named_tuple()


def _aggregation_process(
    private_mean: tfp.SumAggregationDPQuery,
    sum_factory: tff.aggregators.UnweightedAggregationFactory,
    value_type: tff.Type,
) -> tff.templates.AggregationProcess:
    """A TFF process that runs the query round by round.

    TFF's own `DifferentiallyPrivateFactory` draws a round's noise in `initialize` too, to get the
    privacy event of a round. Here only whole runs have events.

    Args:
      private_mean: what clients and server compute.
      sum_factory: sums what clients send.
      value_type: type of a client's value.

    Raises:
      TypeError: if the query does not take values of this type.
    """
    initial_state = tff.tensorflow.computation(
        lambda: query.replaced(
            private_mean.initial_global_state(), correlated.NoiseState, correlated.without_buffers
        )
    )
    state_type = initial_state.type_signature.result
    sample_params = tff.tensorflow.computation(private_mean.derive_sample_params, state_type)
    client_work = tff.tensorflow.computation(
        private_mean.preprocess_record, sample_params.type_signature.result, value_type
    )
    sums = sum_factory.create(client_work.type_signature.result)

    @tff.tensorflow.computation(sums.next.type_signature.result.result.member, state_type)
    def server_work(total, state):
        result, state, _ = private_mean.get_noised_result(total, state)
        return result, state, private_mean.derive_metrics(state)

    @tff.federated_computation
    def initialize():
        return tff.federated_zip(
            AggregatorState(tff.federated_eval(initial_state, tff.SERVER), sums.initialize())
        )

    @tff.federated_computation(
        initialize.type_signature.result, tff.FederatedType(value_type, tff.CLIENTS)
    )
    def next_round(state, value):
        params = tff.federated_broadcast(tff.federated_map(sample_params, state.query_state))
        # At the clients.
        samples = tff.federated_map(client_work, (params, value))
        total = sums.next(state.sum_state, samples)
        # At the server.
        result, query_state, metrics = tff.federated_map(
            server_work, (total.result, state.query_state)
        )
        return tff.templates.MeasuredProcessOutput(
            tff.federated_zip(AggregatorState(query_state, total.state)),
            result,
            tff.federated_zip(
                collections.OrderedDict(dp_query_metrics=metrics, dp=total.measurements)
            ),
        )

    return tff.templates.AggregationProcess(initialize, next_round)
