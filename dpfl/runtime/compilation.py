"""How TFF computations are compiled before they are executed."""

import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import computation_pb2


def compiled(computation: tff.Computation) -> tff.Computation:
    """The computation as a few optimised TensorFlow graphs and the expression that connects them.

    Does what `tff.backends.native.desugar_and_transform_to_native` does, except for one
    optimisation. That one saves memory by recomputing cheap activations (sigmoids, products,
    differences) when their gradients need them.
    """
    block, _ = tff.tensorflow.replace_intrinsics_with_bodies(computation.to_building_block())
    config = tf.compat.v1.ConfigProto()
    options = config.graph_options.rewrite_options
    options.memory_optimization = options.NO_MEM_OPT
    options.arithmetic_optimization = options.AGGRESSIVE
    options.constant_folding = options.AGGRESSIVE
    options.function_optimization = options.AGGRESSIVE
    options.loop_optimization = options.AGGRESSIVE
    return tff.backends.native.transform_to_native_form(
        tff.framework.ConcreteComputation.from_building_block(block), grappler_config=config
    )


def to_bytes(computation: tff.Computation) -> bytes:
    """A computation in the form that `from_bytes` takes, in another process for instance."""
    return tff.framework.serialize_computation(computation).SerializeToString(deterministic=True)


def from_bytes(data: bytes) -> tff.Computation:
    """The computation that `to_bytes` gave as `data`."""
    return tff.framework.deserialize_computation(computation_pb2.Computation.FromString(data))
