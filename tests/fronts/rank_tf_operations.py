"""The operations of horovod.tensorflow; runs as a rank (test_tensorflow.py), on any number of ranks."""

import os
import random
import sys
import threading
from unittest import mock

import lean_imports  # noqa: F401  (first)
import numpy as np
import tensorflow as tf
from rank_side import raises, run_cases

import horovod.tensorflow as hvd
from horovod.common.exceptions import HorovodInternalError
from horovod.common.util import is_version_greater_equal_than
from horovod.tensorflow import mpi_ops

if "HVD_TEST_ONE_THREAD" in os.environ:  # for operations of a graph: what blocked one would block all
    tf.config.threading.set_inter_op_parallelism_threads(1)
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
WHOLE = [tf.uint8, tf.int8, tf.uint16, tf.int16, tf.int32, tf.int64]
FLOATS = [tf.float16, tf.bfloat16, tf.float32, tf.float64]


def mine(dtype=tf.float32, rank=RANK, shape=(3, 2)):
    """Small whole numbers, different on each rank."""
    return tf.cast(tf.reshape((tf.range(int(np.prod(shape))) % 7) + rank + 1, shape), dtype)


def all_of(dtype=tf.float32, shape=(3, 2)):
    return np.stack([mine(tf.float64, rank, shape).numpy() for rank in range(SIZE)])


def ways(function):
    """Executed at once, and in a function."""
    return [function, tf.function(function)]


def in_session(build, *feeds):
    """What a graph of TensorFlow 1 gives: `build` gets placeholders for the feeds."""
    with tf.Graph().as_default():
        places = [tf.compat.v1.placeholder(feed.dtype, [None] * feed.ndim) for feed in map(np.asarray, feeds)]
        results = build(*places)
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            return session.run(results, dict(zip(places, feeds)))


def same(found, expected, tolerance=0.0):
    found = np.asarray(tf.cast(found, tf.float64))
    np.testing.assert_allclose(found, np.asarray(expected, np.float64), rtol=tolerance, atol=tolerance)


def case_allreduce_every_type_operator_and_way():
    for dtype in WHOLE + FLOATS:
        stacked = all_of(dtype)
        expected = {hvd.Sum: stacked.sum(0), hvd.Min: stacked.min(0), hvd.Max: stacked.max(0), hvd.Product: stacked.prod(0)}
        if dtype in FLOATS:
            expected[hvd.Average] = stacked.mean(0)
        for op, value in expected.items():
            if op == hvd.Product and dtype in (tf.uint8, tf.int8) and SIZE > 2:
                continue
            for way in ways(lambda x, op=op: hvd.allreduce(x, op=op)):
                result = way(mine(dtype))
                assert result.dtype == dtype and result.shape == (3, 2)
                same(result, value, 2e-2 if dtype in FLOATS[:2] else 1e-6)


def case_allreduce_scales_to_the_last_digit_of_float64():
    third = 1.0 / 3.0  # has no equal among floats of 32 bits
    for way in ways(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=third, postscale_factor=3.0)):
        result = way(tf.constant([3.0, 6.0], tf.float64)).numpy()
        same(result, [3.0 * SIZE, 6.0 * SIZE], 1e-15)


def case_allreduce_of_a_scalar_and_of_nothing():
    for way in ways(lambda x: hvd.allreduce(x, op=hvd.Sum)):
        assert way(tf.constant(2)).numpy() == 2 * SIZE
        assert way(tf.zeros([0, 3])).shape == (0, 3)


def case_allreduce_takes_numbers_lists_arrays_and_variables():
    assert hvd.allreduce(1.5).numpy() == 1.5
    same(hvd.allreduce([1.0, 2.0]), [1.0, 2.0])
    same(hvd.allreduce(np.ones(2, np.float32), op=hvd.Sum), [SIZE, SIZE])
    same(hvd.allreduce(tf.Variable([1.0])), [1.0])


def case_an_input_keeps_its_value():
    def function(x):
        y = hvd.allreduce(x, op=hvd.Sum)
        return x + 0, y

    for way in ways(function):
        kept, total = way(mine())
        same(kept, mine(tf.float64))
        same(total, all_of().sum(0))


def case_average_and_op_exclude_each_other():
    assert "op parameter supersedes" in raises(ValueError, hvd.allreduce, [1.0], average=True, op=hvd.Sum)
    same(hvd.allreduce([float(RANK)], average=False), [SIZE * (SIZE - 1) / 2])


def case_compression():
    for compression in (hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16):
        for way in ways(lambda x, c=compression: hvd.allreduce(x, op=hvd.Sum, compression=c)):
            result = way(mine())
            assert result.dtype == tf.float32
            same(result, all_of().sum(0))


def case_indexed_slices_are_gathered():
    def function(values, indices):
        result = hvd.allreduce(tf.IndexedSlices(values, indices, dense_shape=tf.constant([4, 2])))
        return tf.convert_to_tensor(result)

    values, indices = tf.ones([2, 2]) * (RANK + 1.0), tf.constant([0, 1 + RANK % 3])
    expected = np.zeros((4, 2))
    for rank in range(SIZE):
        expected[0] += (rank + 1) / SIZE
        expected[1 + rank % 3] += (rank + 1) / SIZE
    for way in ways(function):
        same(way(values, indices), expected, 1e-6)
    slices = tf.IndexedSlices(values, indices)
    assert "Average or Sum" in raises(NotImplementedError, hvd.allreduce, slices, op=hvd.Min)
    again = tf.IndexedSlices(tf.ones([4, 2]), tf.constant([1, 1, 3, 1]), dense_shape=tf.constant([4, 2]))
    result = hvd.allreduce(again, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    same(tf.convert_to_tensor(result), np.array([[0, 0], [3, 3], [0, 0], [1, 1]]) * 2.0 * SIZE)
    assert result.indices.shape == [2 * SIZE], "a rank sends each of its rows once"


def case_grouped_allreduce_of_several_types():
    for way in ways(lambda x: hvd.grouped_allreduce([x, tf.cast(x, tf.int64), tf.cast(x, tf.float16)], op=hvd.Sum)):
        for result, dtype in zip(way(mine()), (tf.float32, tf.int64, tf.float16)):
            assert result.dtype == dtype
            same(result, all_of().sum(0))
    assert hvd.grouped_allreduce([]) == []


def case_grouped_allreduce_with_indexed_slices():
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1]), dense_shape=tf.constant([2, 2]))
    dense, sparse = hvd.grouped_allreduce([mine(), slices], op=hvd.Sum)
    same(dense, all_of().sum(0))
    same(tf.convert_to_tensor(sparse), [[0, 0], [SIZE, SIZE]])


def case_allgather_every_type_with_different_rows():
    for dtype in WHOLE + FLOATS + [tf.bool]:
        for way in ways(hvd.allgather):
            tensor = tf.cast(tf.fill([RANK + 1, 2], RANK), dtype)
            expected = np.concatenate([np.full((rank + 1, 2), rank) for rank in range(SIZE)])
            result = way(tensor)
            assert result.dtype == dtype
            same(result, expected.astype(bool) if dtype == tf.bool else expected)


def case_allgather_where_a_rank_has_nothing():
    for way in ways(hvd.allgather):
        same(way(tf.ones([RANK, 2])), np.ones((SIZE * (SIZE - 1) // 2, 2)))


def case_grouped_allgather():
    for way in ways(lambda x, y: hvd.grouped_allgather([x, y])):
        first, second = way(tf.fill([RANK + 1], RANK), tf.ones([2, 2]))
        same(first, np.concatenate([np.full(rank + 1, rank) for rank in range(SIZE)]))
        same(second, np.ones((2 * SIZE, 2)))


def case_broadcast_every_type_and_root():
    for dtype in WHOLE + FLOATS + [tf.bool]:
        for root in range(SIZE):
            for way in ways(lambda x, root=root: hvd.broadcast(x, root)):
                result = way(tf.cast(mine(tf.int32) % 3, dtype))
                same(result, tf.cast(tf.cast(mine(tf.int32, root) % 3, dtype), tf.float64))


def case_alltoall_with_and_without_splits():
    for way in ways(lambda x: hvd.alltoall(x)):
        rows = tf.range(SIZE * 2) + 100 * RANK
        expected = np.concatenate([[2 * RANK + 100 * rank, 2 * RANK + 1 + 100 * rank] for rank in range(SIZE)])
        same(way(rows), expected)
    for way in ways(lambda x, splits: hvd.alltoall(x, splits)):
        splits = [rank + 1 for rank in range(SIZE)]  # rank + 1 rows for each
        result, received = way(tf.fill([sum(splits), 1], RANK), tf.constant(splits))
        same(result[:, 0], np.concatenate([[rank] * (RANK + 1) for rank in range(SIZE)]))
        same(received, [RANK + 1] * SIZE)
    raises((ValueError, TypeError), hvd.alltoall, tf.zeros([SIZE]), tf.ones([SIZE], tf.int64))


def case_reducescatter_uneven_rows():
    rows = 2 * SIZE + 1  # the lowest rank has one more
    whole = all_of(shape=(rows, 2)).sum(0)
    begin, end = (0, 3) if RANK == 0 else (2 * RANK + 1, 2 * RANK + 3)
    for op, expected in ((hvd.Sum, whole), (hvd.Average, whole / SIZE)):
        for way in ways(lambda x, op=op: hvd.reducescatter(x, op=op)):
            same(way(mine(shape=(rows, 2))), expected[begin:end], 1e-6)
    for way in ways(lambda x: hvd.grouped_reducescatter([x, 2 * x], op=hvd.Sum)):
        first, second = way(mine(shape=(rows, 2)))
        same(first, whole[begin:end])
        same(second, 2 * whole[begin:end])
    raises(NotImplementedError, hvd.reducescatter, mine(), op=hvd.Max)


def gradient(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return tape.gradient(y, x)


def case_gradients_at_once_in_functions_and_in_sessions():
    weights = RANK + 1.0
    total = SIZE * (SIZE + 1) / 2  # of the ranks' weights

    def check(function, expected, x=None):
        x = mine() if x is None else x
        for way in ways(lambda x: gradient(function, x)):
            same(way(x), expected, 1e-5)
        same(in_session(lambda p: tf.gradients(function(p), p)[0], x.numpy()), expected, 1e-5)

    ones = np.ones((3, 2))
    check(lambda x: hvd.allreduce(x, op=hvd.Sum) * weights, ones * total)
    check(lambda x: hvd.allreduce(x) * weights, ones * total / SIZE)
    check(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0) * weights, ones * 2 * total)
    check(lambda x: hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum)[1] * weights, ones * 2 * total)
    check(lambda x: hvd.allgather(x) * weights, ones * total / SIZE)
    check(lambda x: hvd.grouped_allgather([x, x])[0] * weights, ones * total / SIZE)
    check(lambda x: hvd.broadcast(x, 0) * weights, ones * total / SIZE if RANK == 0 else 0 * ones)
    check(lambda x: hvd.alltoall(x) * weights, np.repeat(np.arange(SIZE) + 1.0, 2)[:, None] * np.ones((1, 2)),
          mine(shape=(2 * SIZE, 2)))  # fmt: skip
    shares = np.ones((2 * SIZE, 2)) * np.repeat(np.arange(SIZE) + 1.0, 2)[:, None]
    check(lambda x: hvd.reducescatter(x, op=hvd.Average) * weights, shares, mine(shape=(2 * SIZE, 2)))
    check(lambda x: hvd.reducescatter(x, op=hvd.Sum) * weights, SIZE * shares, mine(shape=(2 * SIZE, 2)))
    check(lambda x: hvd.grouped_reducescatter([x, x], op=hvd.Sum)[0] * weights, SIZE * shares, mine(shape=(2 * SIZE, 2)))


def case_gradients_in_functions_are_those_of_the_rank_that_calls():
    """After ranks have met anew, one may have another number than when its functions were traced."""
    others = hvd.add_process_set(range(1, SIZE)) if SIZE > 1 else hvd.global_process_set
    for chosen in (hvd.global_process_set, others):
        if not chosen.included():
            continue
        ranks = chosen.ranks if chosen is others else range(SIZE)
        begin, last = sum(rank + 1 for rank in ranks if rank < RANK), max(ranks)
        rows = (begin + np.arange(RANK + 1))[:, None] * np.ones((1, 2))

        def by_row(gathered):
            return gathered * tf.cast(tf.range(tf.shape(gathered)[0]), tf.float32)[:, tf.newaxis]

        for function, expected in (
            (lambda x: by_row(hvd.allgather(x, process_set=chosen)), rows),
            (lambda x: by_row(hvd.grouped_allgather([x[:, 0], x], process_set=chosen)[1]), rows),
            (lambda x: hvd.broadcast(x[:1], last, process_set=chosen), np.eye(RANK + 1)[:, :1] * np.full((1, 2), float(RANK == last))),
        ):
            traced = tf.function(lambda x: gradient(function, x))
            with mock.patch.object(mpi_ops, "rank", lambda: (RANK + 1) % SIZE):
                traced(mine(shape=(RANK + 1, 2)))
            same(traced(mine(shape=(RANK + 1, 2))), expected, 1e-6)
            same(gradient(function, mine(shape=(RANK + 1, 2))), expected, 1e-6)
    hvd.barrier()
    if SIZE > 1:
        hvd.remove_process_set(others)


def case_gradient_of_alltoall_with_splits_has_zeros_for_what_was_sent_to_nobody():
    splits = tf.ones([SIZE], tf.int32)
    x = mine(shape=(SIZE + 2, 1))
    for way in ways(lambda x: gradient(lambda x: hvd.alltoall(x, splits)[0] * (RANK + 1.0), x)):
        same(way(x)[:, 0], [rank + 1 for rank in range(SIZE)] + [0, 0])


def case_sessions_of_tensorflow_1():
    same(in_session(lambda p: hvd.allreduce(p, op=hvd.Sum), mine().numpy()), all_of().sum(0))
    gathered, size = in_session(lambda p: [hvd.allgather(p), hvd.size_op()], mine().numpy())
    assert gathered.shape == (3 * SIZE, 2) and size == SIZE


def case_numbers_when_a_graph_is_executed():
    for way in ways(lambda: [hvd.size_op(), hvd.rank_op(), hvd.local_size_op(), hvd.local_rank_op(), hvd.process_set_included_op()]):
        assert [int(value) for value in way()] == [SIZE, RANK, SIZE, RANK, 1]
    assert "no process set" in raises(tf.errors.InvalidArgumentError, hvd.size_op, 99)


def case_161_at_once_in_opposite_order():
    """Each rank's TensorFlow begins them as it likes; names decide."""
    order = list(range(161))
    if RANK % 2:
        order.reverse()

    @tf.function
    def function(x):
        results = {i: hvd.allreduce(x * i, op=hvd.Sum, name=f"opposite_{i}") for i in order}
        return tf.stack([results[i] for i in range(161)])

    for _ in range(3):
        same(function(tf.constant(RANK + 1.0)), np.arange(161) * SIZE * (SIZE + 1) / 2)


def case_a_function_that_is_called_twice_in_another_one():
    @tf.function
    def inner(x):
        return hvd.allreduce(x, op=hvd.Sum, name="inner")

    @tf.function
    def outer(x):
        return inner(x) + inner(2 * x) + hvd.allreduce(3 * x, op=hvd.Sum, name="inner")

    same(outer(tf.constant(1.0)), 6.0 * SIZE)


def case_loops_and_conditions():
    @tf.function
    def loop(x):
        total = tf.zeros([])
        for i in tf.range(100):
            total += hvd.allreduce(tf.cast(i, tf.float32) * x, op=hvd.Sum)
            if i % 2 == 0:
                total += hvd.allreduce(x, op=hvd.Sum)
        return total

    same(loop(tf.constant(1.0)), SIZE * (4950 + 50))

    @tf.function
    def independent(x):
        return tf.while_loop(
            lambda i, s: i < 40, lambda i, s: (i + 1, s + hvd.allreduce(tf.cast(i, tf.float32) * x, op=hvd.Sum)),
            (0, 0.0), parallel_iterations=32)[1]  # fmt: skip

    same(independent(tf.constant(1.0)), SIZE * 780)

    def old(p):
        return tf.cond(p[0] > 0, lambda: hvd.allreduce(p, op=hvd.Sum), lambda: p)

    same(in_session(old, np.ones(2, np.float32)), [SIZE, SIZE])


def case_constants_are_reduced_anew_each_time():
    """TensorFlow's optimizer computes what depends on nothing but constants, once; not ours."""

    @tf.function
    def function(x):
        same_twice = [hvd.allreduce(tf.constant(2.0), op=hvd.Sum, name=f"constant_{i}") for i in range(2)]
        if RANK == 0:
            return same_twice[0] + hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name="third")
        return same_twice[1] + hvd.allreduce(x, op=hvd.Sum, name="third")

    for _ in range(3):
        same(function(tf.constant(1.0)), 3 * SIZE)


def case_results_that_one_rank_does_not_use():
    @tf.function
    def function(x):
        unused = hvd.allreduce(x, op=hvd.Sum, name="unused")
        used = hvd.allreduce(2 * x, op=hvd.Sum, name="used")
        return used + (unused if RANK == 0 else 0)

    same(function(tf.constant(1.0)), (3 if RANK == 0 else 2) * SIZE)


def case_threads_with_names():
    results = {}

    def work(i):
        results[i] = hvd.allreduce(tf.constant(float(i)), op=hvd.Sum, name=f"thread_{i}").numpy()

    threads = [threading.Thread(target=work, args=(i,)) for i in (range(4) if RANK == 0 else reversed(range(4)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: float(i) * SIZE for i in range(4)}


def case_process_sets():
    evens = hvd.add_process_set(range(0, SIZE, 2))
    try:
        if evens.included():
            members = len(evens.ranks)
            for way in ways(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=evens)):
                same(way(tf.constant(1.0)), members)
            for way in ways(lambda x: gradient(lambda x: hvd.allgather(x, process_set=evens) * (RANK + 1.0), x)):
                same(way(tf.ones([2])), np.full(2, np.mean([rank + 1 for rank in evens.ranks])))
        for way in ways(lambda: [hvd.size_op(evens.process_set_id), hvd.process_set_included_op(evens.process_set_id)]):
            assert [int(value) for value in way()] == [len(evens.ranks), int(evens.included())]
    finally:
        hvd.barrier()
        if SIZE > 1:
            hvd.remove_process_set(evens)
    assert "not known to the job" in raises(ValueError, hvd.allreduce, 1.0, process_set=evens)


if SIZE <= 1:  # the only set of one rank is the global one
    del case_process_sets


def case_broadcast_variables_and_objects():
    kinds = [tf.Variable, getattr(tf.keras, "Variable", tf.Variable)]  # Keras 3 has its own
    for variables in ([kinds[0](mine()), kinds[0](RANK)], [kinds[1](mine())]):
        hvd.broadcast_variables(variables, SIZE - 1)
        same(variables[0], mine(tf.float64, SIZE - 1))
    variable = tf.Variable(float(RANK))
    tf.function(lambda: hvd.broadcast_([variable], SIZE - 1))()
    assert variable.numpy() == SIZE - 1
    assert hvd.broadcast_object({"rank": RANK}, SIZE - 1) == {"rank": SIZE - 1}
    assert hvd.broadcast_object_fn(0, name="with a name")([RANK]) == [0]
    assert hvd.allgather_object("x" * RANK, name="texts") == ["x" * rank for rank in range(SIZE)]


def case_global_variables_of_sessions():
    assert "broadcast_variables" in raises(RuntimeError, hvd.broadcast_global_variables, 0)
    with tf.Graph().as_default():
        variable = tf.compat.v1.get_variable("v", initializer=float(RANK), use_resource=RANK % 2 == 0)
        hook = hvd.BroadcastGlobalVariablesHook(SIZE - 1)
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            assert session.run(variable) == SIZE - 1


def case_join_brings_zeros():
    if RANK == 0:
        same(hvd.allreduce([2.0], op=hvd.Sum, name="after_join"), [2.0] if SIZE > 1 else [2.0])
    last = hvd.join()
    assert last.dtype == tf.int32 and 0 <= int(last) < SIZE


def case_join_within_graphs():
    """In a session it is one of the things to run; a function runs it after the collectives that are before it."""
    if RANK > 0:
        same(in_session(lambda p: hvd.allreduce(p, op=hvd.Sum), np.ones(2, np.float32)), [SIZE - 1] * 2)
    last = in_session(hvd.join)
    assert last.dtype == np.int32 and last.shape == () and 0 <= last < SIZE
    assert len(set(hvd.allgather_object(int(last)))) == 1 and (last > 0 or SIZE == 1), "rank 0 is not the last"

    @tf.function
    def function(x):
        total = hvd.allreduce(x, op=hvd.Sum)
        last = hvd.join()
        assert last.shape == ()
        return total, last

    for _ in range(2):
        total, last = function(tf.constant(1.0))
        assert total == SIZE and 0 <= last < SIZE

    weight = tf.Variable(0.0)

    @tf.function
    def step(x):
        weight.assign_add(hvd.allreduce(x, op=hvd.Sum, name="step"))

    @tf.function
    def epoch(data):
        for x in data:
            step(x)
        return hvd.join()

    epoch(tf.data.Dataset.from_tensor_slices(tf.ones([3 + 2 * RANK])))
    ranks_in_step = [sum(3 + 2 * rank > i for rank in range(SIZE)) for i in range(3 + 2 * RANK)]
    assert weight == sum(ranks_in_step), weight

    @tf.function
    def within(x):
        return tf.cond(x > 0, hvd.join, lambda: tf.constant(0))

    assert "outside" in raises(RuntimeError, within, tf.constant(1.0))
    assert "jit_compile=False" in raises(NotImplementedError, tf.function(hvd.join, jit_compile=True))


def case_what_is_wrong_is_named():
    text = raises((ValueError, tf.errors.InvalidArgumentError), tf.function(hvd.allgather), tf.constant(1.0))
    assert "at least one dimension" in text or "scalar" in text, text
    raises((ValueError, TypeError, tf.errors.OpError), hvd.allreduce, tf.constant([1j]))
    raises((ValueError, TypeError, tf.errors.OpError), hvd.allreduce, tf.constant(["text"]))
    text = raises(tf.errors.InvalidArgumentError, hvd.broadcast, tf.constant(1.0), SIZE + 5)
    assert "HorovodBroadcast" in text, text
    unknown = hvd.ProcessSet([0])
    assert "not known to the job" in raises(ValueError, hvd.allreduce, 1.0, process_set=unknown)
    unknown.process_set_id = 10  # no number of the job
    assert "not known to the job" in raises(ValueError, hvd.allreduce, 1.0, process_set=unknown)


def case_compiled_functions_that_ranks_trace_in_other_orders():
    if not is_version_greater_equal_than(tf.__version__, "2.19"):
        return
    variable = tf.Variable(tf.zeros([64]))

    @tf.function(jit_compile=True)
    def function(x):
        last_by_name = hvd.allreduce(x, op=hvd.Sum, name="z")
        variable.assign_add(last_by_name)
        parts = {}
        for name in "bac" if RANK % 2 else "cab":
            # What is between them lets XLA use memory again, and so wait.
            parts[name] = tf.reduce_sum(hvd.allreduce(x * ord(name), op=hvd.Sum, name=name))
        after = hvd.allreduce(variable + 1.0, op=hvd.Sum, name="A")  # the first by name, and after "z"
        with tf.control_dependencies([after]):
            hvd.broadcast(x, 0, name="0")  # the same, and unused
        return tf.reduce_sum(after), parts["a"], parts["b"], parts["c"]

    for step in (1, 2):
        after, a, b, c = function(tf.ones([64]))
        same(after, 64.0 * SIZE * (step * SIZE + 1))
        same([b - a, c - b], [64.0 * SIZE] * 2)


def case_gradients_in_a_compiled_function():
    if not is_version_greater_equal_than(tf.__version__, "2.19"):
        return
    compiled = tf.function(lambda x: gradient(lambda x: tf.gather(hvd.allreduce(x, op=hvd.Sum), [2, 0, 2]) * (RANK + 1.0), x), jit_compile=True)
    same(compiled(mine()), np.array([1, 0, 2])[:, None] * np.ones((3, 2)) * SIZE * (SIZE + 1) / 2)
    compiled = tf.function(lambda x: gradient(lambda x: hvd.broadcast(x, SIZE - 1) * (RANK + 1.0), x), jit_compile=True)
    same(compiled(mine()), np.ones((3, 2)) * (SIZE + 1) / 2 * (RANK == SIZE - 1))


def case_autograph_leaves_our_functions_as_they_are():
    variable = tf.Variable(tf.ones([2]))

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable * variable)
        variable.assign_sub(hvd.DistributedGradientTape(tape).gradient(loss, [variable])[0])
        return hvd.allgather(hvd.allreduce(tf.ones([1]) * hvd.rank())), hvd.broadcast(tf.ones([1]), 0)

    def rewritten():
        return sum("__autograph_generated_file" in name for name in sys.modules)

    before = rewritten()
    tf.function(step)()
    assert rewritten() - before == 1, "step, and no function that it calls"


def case_what_xla_cannot_compile_is_named_with_a_way_out():
    unknown = tf.function(lambda x: hvd.allreduce(x), jit_compile=True, input_signature=[tf.TensorSpec([None, 2])])
    text = raises((ValueError, NotImplementedError), unknown, tf.ones([3, 2]))
    assert "jit_compile=False" in text and ("[None, 2]" in text or "(None, 2)" in text or "2.19" in text), text
    text = raises((ValueError, NotImplementedError), tf.function(lambda x: hvd.allreduce(x), jit_compile=True), tf.constant([1j]))
    assert "complex128" in text or "2.19" in text, text
    assert "jit_compile=False" in raises(NotImplementedError, tf.function(hvd.allgather, jit_compile=True), tf.ones(2))


def case_ranks_that_disagree_get_the_error_and_go_on():
    if SIZE == 1:
        return
    for way in ways(lambda x: hvd.allreduce(x, name="disagreement")):
        text = raises(tf.errors.FailedPreconditionError, way, tf.ones([2 + RANK % 2]))
        assert "Mismatched ALLREDUCE tensor shapes" in text and "rank 1" in text and "HorovodAllreduce" in text, text
        same(hvd.allreduce(tf.constant(1.0), op=hvd.Sum), SIZE)
    text = raises(tf.errors.FailedPreconditionError, lambda: hvd.broadcast(tf.constant(1.0), RANK % 2))
    assert "root" in text


def case_joining_anew():
    for _ in range(3):
        hvd.shutdown()
        assert "has not been initialized" in raises(ValueError, hvd.rank)
        raises((tf.errors.UnknownError, HorovodInternalError), hvd.allreduce, 1.0)
        raises((tf.errors.UnknownError, HorovodInternalError), tf.function(lambda: hvd.allreduce(1.0)))
        hvd.init()
        same(hvd.allreduce(tf.constant(1.0), op=hvd.Sum), SIZE)


run_cases(globals(), hvd.barrier)
