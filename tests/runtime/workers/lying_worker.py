"""A worker that passes the checks of a run and then gives arbitrary answers."""

import concurrent.futures
import contextlib

import grpc
import numpy as np
from tensorflow_federated.proto.v0 import array_pb2, data_type_pb2, executor_pb2, executor_pb2_grpc


def array(value, dtype, shape=()) -> executor_pb2.Value:
    """A value of numbers as TFF sends them: scalars in lists, others as bytes."""
    made = array_pb2.Array(dtype=dtype, shape=array_pb2.ArrayShape(dim=shape))
    if shape:
        made.content = np.asarray(value).tobytes()
    else:
        made.int32_list.value.append(value)
    return executor_pb2.Value(array=made)


def struct(*members: executor_pb2.Value) -> executor_pb2.Value:
    made = executor_pb2.Value()
    for member in members:
        made.struct.element.add(value=member)
    return made


def federated(*members: executor_pb2.Value) -> executor_pb2.Value:
    made = executor_pb2.Value()
    made.federated.value.extend(members)
    made.federated.type.placement.value.uri = 'clients'
    return made


def probed() -> executor_pb2.Value:
    """The right answer to the check of a run."""
    no_text = array_pb2.Array(
        dtype=data_type_pb2.DataType.Value('DT_STRING'), shape=array_pb2.ArrayShape(dim=[0])
    )
    no_text.string_list.SetInParent()
    return struct(
        array(43, data_type_pb2.DataType.Value('DT_INT32')), executor_pb2.Value(array=no_text)
    )


class _Service(executor_pb2_grpc.ExecutorGroupServicer):
    def __init__(self, answers, heard):
        self._answers = list(answers)
        self._heard = heard

    def GetExecutor(self, request, context):
        return executor_pb2.GetExecutorResponse(executor=executor_pb2.ExecutorId(id='0'))

    def CreateValue(self, request, context):
        self._heard.append(request.SerializeToString())
        return executor_pb2.CreateValueResponse(value_ref=executor_pb2.ValueRef(id='0'))

    def CreateCall(self, request, context):
        return executor_pb2.CreateCallResponse(value_ref=executor_pb2.ValueRef(id='0'))

    def CreateStruct(self, request, context):
        return executor_pb2.CreateStructResponse(value_ref=executor_pb2.ValueRef(id='0'))

    def CreateSelection(self, request, context):
        return executor_pb2.CreateSelectionResponse(value_ref=executor_pb2.ValueRef(id='0'))

    def Compute(self, request, context):
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if callable(answer):
            answer = answer(context)
        return answer

    def Dispose(self, request, context):
        return executor_pb2.DisposeResponse()

    def DisposeExecutor(self, request, context):
        return executor_pb2.DisposeExecutorResponse()


@contextlib.contextmanager
def lying_worker(*answers, heard=None):
    """Yields the address of a worker that gives these answers, and repeats the last one.

    Args:
      answers: `executor_pb2.Value`, or the bytes of a message, or a function of a context.
      heard: a list to which it adds all values that it gets, as bytes.
    """
    pool = concurrent.futures.ThreadPoolExecutor(8)
    server = grpc.server(pool, options=[('grpc.max_send_message_length', -1)])
    service = _Service(answers, [] if heard is None else heard)

    def serialized(answer):
        if isinstance(answer, bytes):
            return answer
        return executor_pb2.ComputeResponse(value=answer).SerializeToString()

    names = [name for name in vars(_Service) if name[0].isupper()]
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            getattr(service, name),
            request_deserializer=getattr(executor_pb2, f'{name}Request').FromString,
            response_serializer=serialized
            if name == 'Compute'
            else getattr(executor_pb2, f'{name}Response').SerializeToString,
        )
        for name in names
    }
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler('tensorflow_federated.v0.ExecutorGroup', handlers)]
    )
    port = server.add_insecure_port('127.0.0.1:0')
    server.start()
    try:
        yield f'127.0.0.1:{port}'
    finally:
        server.stop(0).wait()
        pool.shutdown(wait=False)
