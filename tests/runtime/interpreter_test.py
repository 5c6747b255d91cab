"""Executing TFF computations in this process gives the same as TFF's own runtime."""

import collections
import threading
import weakref

import attrs
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree

from dpfl.runtime import compilation, graphs, interpreter
from dpfl.runtime.failures import ComputationError
from dpfl.tasks.text.models import recurrent
from tests.runtime import tff_context

pytestmark = pytest.mark.tff

CLIENTS_FLOAT = tff.FederatedType(np.float32, tff.CLIENTS)
SERVER_FLOAT = tff.FederatedType(np.float32, tff.SERVER)
SEQUENCE = tff.SequenceType(np.int64)


@pytest.fixture(name='stock', scope='module')
def _stock():
    """TFF's own context, whose worker starts once for all tests."""
    with tff_context.native_runtime():
        yield tff.framework.get_context_stack().current


@pytest.fixture(name='execute')
def _execute():
    running = interpreter.Interpreter(num_threads=2)
    yield running.execute
    running.close()


@tff.tensorflow.computation(np.float32)
def reciprocal(x):
    with tf.control_dependencies([tf.debugging.assert_positive(x, message='not positive')]):
        return 1 / x


@tff.tensorflow.computation(SEQUENCE)
def total(numbers):
    return numbers.reduce(np.int64(0), tf.add)


@tff.tensorflow.computation(SEQUENCE, np.int64)
def reduced(numbers, factor):
    """Loops over data as in training: their state is in tensors and in a variable."""
    variable = tf.Variable(factor)

    def step(state, number):
        total, seen = state
        variable.assign(2 * variable + number)
        return total + factor * number, tf.concat([seen, [variable.read_value()]], axis=0)

    @tf.function
    def loops():
        variable.assign_add(1)
        state = numbers.reduce((np.int64(1), tf.zeros([0], tf.int64)), step)
        again = numbers.reduce(state[0], lambda total, number: 2 * total - number)
        return *state, again, variable.read_value()

    return loops()


@tff.federated_computation(CLIENTS_FLOAT)
def statistics(values):
    """Sums of everything, in structures with and without names."""
    return collections.OrderedDict(
        sum=tff.federated_sum(tff.federated_map(reciprocal, values)),
        means=(tff.federated_mean(values), tff.federated_mean(values, weight=values)),
        count=tff.federated_sum(tff.federated_value(1, tff.CLIENTS)),
        range=tff.federated_max(values),
        least=tff.federated_min(values),
    )


@tff.federated_computation(SERVER_FLOAT, CLIENTS_FLOAT)
def scaled(factor, values):
    @tff.tensorflow.computation(np.float32, np.float32)
    def multiply(a, b):
        return a * b, tf.stack([a, b])

    pairs = tff.federated_zip((tff.federated_broadcast(factor), values))
    products, stacked = tff.federated_map(multiply, pairs)
    return products, tff.federated_sum(stacked), factor


@tff.tensorflow.computation(SEQUENCE)
def total_of_squares(numbers):
    """Reads data with threads of their own."""
    squares = numbers.interleave(
        lambda n: tf.data.Dataset.from_tensors(n).map(tf.square, num_parallel_calls=3),
        cycle_length=3,
        num_parallel_calls=3,
    ).prefetch(2)
    return squares.reduce(np.int64(0), tf.add)


@tff.federated_computation(tff.FederatedType(SEQUENCE, tff.CLIENTS))
def totals_of_squares(sequences):
    return tff.federated_sum(tff.federated_map(total_of_squares, sequences))


@tff.tensorflow.computation(
    tff.SequenceType(
        collections.OrderedDict(y=tff.TensorType(np.int64, [None]), a=(np.float32, np.str_))
    )
)
def of_rows(rows):
    """Of lists: the last element is shorter, names are not in order, and one is text."""
    return rows.reduce(
        (np.int64(0), tf.constant('')),
        lambda sums, row: (sums[0] + tf.reduce_sum(row['y']), sums[1] + row['a'][1]),
    )


def _row(length, text):
    return collections.OrderedDict(y=np.arange(length), a=(1.0, text))


@tff.tensorflow.computation(np.int64)
def count_up(limit):
    return tf.data.Dataset.range(limit)


@tff.tensorflow.computation((np.float32, [2]), np.str_)
def with_text(numbers, text):
    return collections.OrderedDict(text=tf.strings.join([text, '!']), flipped=numbers[::-1])


@attrs.define(eq=False)
class State:
    model: object
    step: object


@tff.tensorflow.computation(State(tff.TensorType(np.float32, [None]), np.int32))
def stepped(state):
    return State(state.model * 2, state.step + 1)


@tff.tensorflow.computation(np.uint32)
def unsigned(x):
    return x


@tff.tensorflow.computation
def from_a_variable():
    variable = tf.Variable(3.0)
    with tf.control_dependencies([variable.assign_add(1.0)]):
        return variable.read_value()


_LENGTH = 3


@tff.tensorflow.computation(tff.TensorType(np.float32, [_LENGTH, 2, 12]))
def gradient_of_a_recurrence(inputs):
    @tf.function  # As the functions of a model are.
    def outputs(inputs):
        return recurrent.recurrence(inputs, tf.ones([3, 12]), tf.ones([4, 3]))

    with tf.GradientTape() as tape:
        tape.watch(inputs)
        total = tf.reduce_sum(outputs(inputs))
    return tape.gradient(total, inputs)


def _values(seed, size):
    return np.random.default_rng(seed).uniform(1, 2, size).astype(np.float32).tolist()


def test_a_loop_over_data_is_prepared_with_its_graph(execute, monkeypatch):
    """TensorFlow prepares the function of a `ReduceDataset` in each call anew."""
    built, build = [], graphs.Graph
    monkeypatch.setattr(graphs, 'Graph', lambda proto: built.append(build(proto)) or built[-1])
    argument = tff.structure.Struct.unnamed(tf.data.Dataset.range(3), 5)
    total, seen, again, last = execute(reduced, argument)
    assert (total, seen.tolist(), again, last) == (16, [12, 25, 52], 124, 52)
    executed, waiting = set(), [tensor.op for graph in built for tensor in graph._fetches]
    while waiting:
        operation = waiting.pop()
        if operation not in executed:
            executed.add(operation)
            waiting += [each.op for each in operation.inputs] + list(operation.control_inputs)
    types = [each.type for each in executed]
    assert types.count('While') == 2 and 'ReduceDataset' not in types


@pytest.mark.standard
@pytest.mark.parametrize(
    'computation, arguments',
    [
        (statistics, [_values(0, 5)]),
        (statistics, [_values(1, 1)]),
        (scaled, [3.0, _values(2, 4)]),
        (totals_of_squares, [[]]),
        (totals_of_squares, [[tf.data.Dataset.range(n) for n in (3, 0, 70, 5)]]),
        (totals_of_squares, [[[1, 2], [5]]]),
        (of_rows, [[_row(2, 'a'), _row(2, 'b'), _row(1, 'c')]]),
        (of_rows, [[]]),
        *[(reduced, [tf.data.Dataset.range(n), 3]) for n in (0, 1, 20)],
        (reciprocal, [4.0]),
        (with_text, [[1.0, 2.0], 'text']),
        (stepped, [State(np.float32([1, 2, 3]), 4)]),
        (unsigned, [7]),
        (from_a_variable, []),
        (gradient_of_a_recurrence, [np.float32(_values(3, _LENGTH * 24)).reshape(_LENGTH, 2, 12)]),
    ],
)
def test_results_are_those_of_tff(execute, stock, computation, arguments):
    # TFF packs several arguments before its context sees them.
    packed = arguments[0] if len(arguments) == 1 else tff.structure.Struct.unnamed(*arguments)
    if computation is with_text:
        packed = tff.structure.Struct.named(numbers=arguments[0], text=arguments[1])
    ours = execute(computation, packed if arguments else None)
    with tff.framework.get_context_stack().install(stock):
        theirs = computation(*arguments)
    assert type(ours) is type(theirs)
    tree.map_structure(
        lambda a, b: (
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
            if np.asarray(b).dtype.kind == 'f'
            else np.testing.assert_equal(np.asarray(a), b)
        ),
        attrs.asdict(ours) if attrs.has(type(ours)) else ours,
        attrs.asdict(theirs) if attrs.has(type(theirs)) else theirs,
    )


def test_the_same_computation_may_be_executed_again_with_other_clients(execute):
    for size in (3, 0, 1, 3, 50):
        values = _values(size, size)
        assert execute(statistics, values)['count'] == size
        np.testing.assert_allclose(
            execute(statistics, values)['sum'], sum(1 / x for x in values), rtol=1e-5
        )


def test_variables_begin_anew_in_every_execution(execute):
    assert [execute(from_a_variable, None) for _ in range(3)] == [4.0] * 3


@tff.tensorflow.computation(np.int64)
def count_to(limit):
    variable = tf.Variable(tf.constant(0, tf.int64))
    counted = tf.while_loop(
        lambda i: i < limit, lambda i: [variable.assign_add(1)], [tf.constant(0, tf.int64)]
    )[0]
    with tf.control_dependencies([counted]):
        return variable.read_value()


@tff.federated_computation(tff.FederatedType(np.int64, tff.CLIENTS))
def counts(limits):
    return tff.federated_map(count_to, limits)


def test_variables_of_clients_side_by_side_are_their_own(execute):
    limits = [300 * (i % 7) for i in range(40)]
    assert execute(counts, limits) == limits


def test_a_data_set_may_be_a_result(execute):
    assert list(execute(count_up, 3).as_numpy_iterator()) == [0, 1, 2]


def test_clients_draw_random_numbers_of_their_own(execute):
    @tff.tensorflow.computation
    def draw():
        return tf.random.uniform([])

    @tff.tensorflow.computation(np.float32)
    def drawn(x):
        return x + tf.random.uniform([])

    @tff.federated_computation(CLIENTS_FLOAT)
    def draws(values):
        zeros = tff.federated_value(np.float32(0), tff.CLIENTS)
        return values, tff.federated_eval(draw, tff.CLIENTS), tff.federated_map(drawn, zeros)

    _, evaluated, mapped = execute(draws, [1.0, 2.0, 3.0])
    assert len(set(map(float, evaluated))) == 3
    assert len(set(map(float, mapped))) == 3


def test_an_error_of_a_client_is_one_line_and_the_next_execution_works(execute):
    with pytest.raises(ComputationError, match='not positive') as caught:
        execute(statistics, [1.0, -1.0])
    assert '\n' not in str(caught.value) and '[[' not in str(caught.value)
    assert execute(statistics, [1.0, 2.0])['sum'] == 1.5


@tff.federated_computation(CLIENTS_FLOAT, CLIENTS_FLOAT)
def both(a, b):
    return tff.federated_sum(a), tff.federated_sum(b)


@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def secure(values):
    return tff.federated_secure_sum_bitwidth(values, np.int32(8))


@tff.tensorflow.computation(tff.SequenceType(collections.OrderedDict(x=np.int64, y=np.int64)))
def first_name(pairs):
    return pairs.reduce(np.int64(0), lambda sum_, pair: sum_ + pair['x'])


def of_names(first, second):
    return tf.data.Dataset.from_tensors({first: np.int64(1), second: np.int64(20)})


def test_names_of_a_data_set_may_be_in_any_order(execute):
    assert execute(first_name, of_names('x', 'y')) == 1
    assert execute(first_name, of_names('y', 'x')) == 20
    # TFF takes a list only if all elements but the last have one shape.
    rows = [_row(1, 'a'), dict(a=(2.0, 'b'), y=[7, 8]), _row(0, 'c')]
    assert execute(of_rows, rows) == (15, b'abc')


@pytest.mark.parametrize(
    'computation, argument, error, message',
    [
        (statistics, 1.0, TypeError, r'\{float32\}@CLIENTS: must be a list, is float'),
        (reciprocal, [1.0, 2.0], TypeError, r'float32: must not be an array of shape \[2\]'),
        (total, (1, 2), TypeError, r'int64\*: must be a tf.data.Dataset, is tuple'),
        (total, [1, 2.5], TypeError, 'int64: must not be an array of float64'),
        (total, tf.data.Dataset.range(3).batch(2), TypeError, r'Dataset of int64\[\?\]'),
        # In their order, these would be taken for x and y.
        (first_name, of_names('a', 'b'), TypeError, 'Dataset of <a=int64,b=int64>'),
        (count_up, np.float32([1.5]), TypeError, 'int64: must not be an array of float32'),
        # TensorFlow would take it for a number that is none.
        (statistics, [1.0, None], TypeError, 'float32: must not be an array of object'),
        (count_up, 1.5, TypeError, 'int64: must not be an array of float64'),
        (stepped, State(np.float32([1]), 2**40), TypeError, 'int32: must be within its range'),
        (unsigned, -1, TypeError, 'uint32: must be within its range'),
        (scaled, (1.0,), TypeError, 'value has 1 elements'),
        (both, ([1.0], [1.0, 2.0]), ValueError, r'equally many in all arguments, are \[1, 2\]'),
        (secure, [1, 2], ComputationError, 'federated_secure_sum_bitwidth: is not supported'),
    ],
)
def test_what_cannot_be_executed_is_named(execute, computation, argument, error, message):
    with pytest.raises(error, match=message):
        execute(computation, argument)


def test_the_end_ends_what_is_in_progress():
    running = interpreter.Interpreter(num_threads=2)
    assert running.execute(counts, [3, 4]) == [3, 4]
    errors = []

    def endless():
        try:
            running.execute(counts, [10**15] * 5)
        except ComputationError as error:
            errors.append(error)

    thread = threading.Thread(target=endless)
    thread.start()
    thread.join(0.5)
    assert thread.is_alive()
    running.close()
    thread.join(30)
    assert not thread.is_alive() and errors
    with pytest.raises(ComputationError, match='the runtime has ended'):
        running.execute(counts, [3, 4])


def _operations(computation) -> collections.Counter:
    """Number of operations of each kind in its graph."""
    graph_def = tf.compat.v1.GraphDef()
    proto = tff.framework.serialize_computation(computation)
    proto.tensorflow.graph_def.Unpack(graph_def)
    nodes = [*graph_def.node, *(n for f in graph_def.library.function for n in f.node_def)]
    return collections.Counter(node.op for node in nodes)


@pytest.mark.parametrize('clients', [3, 12])
def test_a_sum_holds_a_few_updates_at_a_time(clients, execute, monkeypatch):
    """For two threads: two updates, and the sum before and after."""
    vector, live, before = tff.TensorType(np.float32, [50]), set(), []
    usual = graphs.Graph.__call__

    def counted(graph, argument):
        before.append(len(live))
        result = usual(graph, argument)
        live.add(id(result))
        weakref.finalize(result, live.discard, id(result))
        return result

    @tff.tensorflow.computation(vector)
    def doubled(x):
        return 2 * x

    @tff.tensorflow.computation(vector)
    def negative(x):
        return -x

    @tff.federated_computation(tff.FederatedType(vector, tff.CLIENTS))
    def total(values):
        added = tff.federated_sum(tff.federated_map(doubled, values))
        return tff.federated_map(negative, added)

    monkeypatch.setattr(graphs.Graph, '__call__', counted)
    result = execute(total, [np.ones(50, np.float32)] * clients)
    np.testing.assert_array_equal(result, np.full(50, -2.0 * clients))
    assert max(before) <= 4 and before[-1] == 1  # At the end the sum alone.


def test_updates_that_are_read_twice_are_computed_once(execute, monkeypatch):
    calls = []
    usual = graphs.Graph.__call__
    monkeypatch.setattr(
        graphs.Graph, '__call__', lambda *arguments: calls.append(1) or usual(*arguments)
    )

    @tff.federated_computation(CLIENTS_FLOAT)
    def sum_and_values(values):
        inverse = tff.federated_map(reciprocal, values)
        return tff.federated_sum(inverse), inverse

    assert execute(sum_and_values, [1.0, 2.0, 4.0]) == (1.75, [1.0, 0.5, 0.25])
    assert len(calls) == 3 + 1 + 3  # Values, zero, additions.


@pytest.mark.parametrize('dtype, number', [(tf.float64, 0.0), (tf.int32, 7), (tf.bool, True)])
def test_large_constants_of_one_number_are_not_held(dtype, number, execute):
    size = 2 * graphs._MOST_CONSTANTS
    made = tff.tensorflow.computation(lambda: tf.constant(number, dtype, [2, size // 2]))
    graph = graphs.Graph(compilation.compiled(made).to_building_block().proto.tensorflow)
    for operation in graph._graph.get_operations():
        assert operation.type != 'Const' or operation.outputs[0].shape.num_elements() < 9
    result = execute(made, None)
    assert result.dtype == dtype.as_numpy_dtype
    np.testing.assert_array_equal(result, np.full([2, size // 2], number))


def test_activations_are_not_computed_again_for_their_gradients():
    # Two gates of each position.
    assert _operations(compilation.compiled(gradient_of_a_recurrence))['Sigmoid'] == 2 * _LENGTH
    # The reason for not using TFF's compilation as it is.
    stock = tff.backends.native.desugar_and_transform_to_native(gradient_of_a_recurrence)
    assert _operations(stock)['Sigmoid'] > 2 * _LENGTH
