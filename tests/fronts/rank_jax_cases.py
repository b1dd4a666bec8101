"""Each case runs on all ranks: horovod.jax in compiled programs and outside, against numpy."""

import sys

sys.modules["tensorflow"] = None  # nothing of it is needed here
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from rank_side import raises, report, run_cases

import horovod.jax as hvd
from horovod.common.elastic import HostUpdateResult

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
RANKS = np.arange(SIZE)
TOTAL = float(RANKS.sum() + SIZE)  # of rank + 1
OWN = float(RANK + 1)


def equal(got, expected):
    np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(expected, np.float64), rtol=1e-6)


def both(function, *arguments):
    """What a function gives outside of jit and inside, which must be the same."""
    outside, inside = function(*arguments), jax.jit(function)(*arguments)
    jax.tree.map(lambda a, b: equal(a, b), outside, inside)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), outside) == jax.tree.map(lambda x: (x.shape, x.dtype), inside)
    return inside


def case_trees_of_all_types_are_reduced_in_a_program_and_outside():
    types = ["float32", "bfloat16", "float16", "int32", "int8", "uint8", "int16", "uint16"]
    tree = {t: jnp.full((2, 3), RANK + 1, t) for t in types} | {"list": [jnp.float32(OWN), jnp.zeros((0, 2))]}
    result = both(lambda t: hvd.allreduce(t, op=hvd.Sum), tree)
    for t in types:
        assert result[t].dtype == t
        equal(result[t].astype("float32"), np.full((2, 3), TOTAL))
    equal(result["list"][0], TOTAL)


def case_operators_and_scales():
    x = jnp.arange(1.0, 5.0) * OWN
    for op, expected in ((hvd.Average, TOTAL / SIZE), (hvd.Sum, TOTAL), (hvd.Min, 1.0), (hvd.Max, float(SIZE))):
        equal(both(lambda v, op=op: hvd.allreduce(v, op=op), x), np.arange(1.0, 5.0) * expected)
    equal(both(lambda v: hvd.allreduce(v, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0), x), np.arange(1.0, 5.0) * 2 * TOTAL)
    equal(both(lambda v: hvd.allreduce(v, compression=hvd.Compression.bf16), x), np.arange(1.0, 5.0) * TOTAL / SIZE)
    assert both(lambda v: hvd.allreduce(v, op=hvd.Max), jnp.array([RANK == 0, False])).tolist() == [True, False]


def case_complex_numbers_and_their_gradients():
    z = jnp.array([1 + 2j, 3 - 1j], jnp.complex64) * OWN
    for op, expected in ((hvd.Sum, TOTAL), (hvd.Average, TOTAL / SIZE)):
        tree = both(lambda v, op=op: hvd.allreduce(v, op=op), {"z": z, "x": jnp.ones(2) * OWN, "none": None})
        assert tree["z"].dtype == jnp.complex64 and tree["none"] is None
        equal(tree["z"].real, np.array([1.0, 3.0]) * expected), equal(tree["z"].imag, np.array([2.0, -1.0]) * expected)
        equal(tree["x"], np.full(2, expected))
        loss = lambda v, op=op: hvd.allreduce(v, op=op).imag.sum()
        gradient = jax.jit(jax.grad(loss, holomorphic=False))(z)
        equal(gradient.imag, np.full(2, -SIZE if op == hvd.Sum else -1)), equal(gradient.real, np.zeros(2))
    assert "complex64 cannot be reduced" in raises(ValueError, hvd.allreduce, z, op=hvd.Max)


def case_numbers_of_64_bits():
    jax.config.update("jax_enable_x64", True)
    try:
        exact = 2.0**40 + OWN
        assert hvd.metric_average({"n": exact, "i": 2**40})["n"] == 2.0**40 + TOTAL / SIZE
        for value in (hvd.allreduce(jnp.array([exact]), op=hvd.Max), jax.jit(lambda v: hvd.allreduce(v, op=hvd.Max))(jnp.array([exact]))):
            assert value.dtype == jnp.float64 and value[0] == 2.0**40 + SIZE
    finally:
        jax.config.update("jax_enable_x64", False)


def case_numbers_of_64_bits_of_numpy_stay_what_they_are():
    """JAX would cut them, as it has 64 bits only with jax_enable_x64."""
    big = 3_000_000_000
    counts = np.array([big + RANK], np.int64)
    results = [
        hvd.broadcast_parameters({"n": np.int64(big)})["n"], hvd.broadcast(np.uint64(big), 0), hvd.allreduce(counts, op=hvd.Min),
        hvd.allgather(counts)[0], hvd.alltoall(np.repeat(counts, SIZE), splits=[1] * SIZE)[0][0],
        hvd.alltoall(np.repeat(counts, SIZE))[0], hvd.allreduce(big, op=hvd.Max), hvd.allreduce(np.float64(big + 1), op=hvd.Max) - 1,
        hvd.allreduce(np.complex128(big + 1j), op=hvd.Average).real,
    ]  # fmt: skip
    assert [int(np.asarray(result).reshape(())) for result in results] == [big] * len(results), results
    for small in np.int32(1), np.float32(1), 1, 1.0:
        assert isinstance(hvd.allreduce(small), jax.Array)


def case_constants_are_reduced_each_time_that_a_program_runs():
    """And not when JAX traces it, once, which some ranks may do more often than others."""
    ours, numbers = jnp.full(2, OWN), np.full((2, 2), RANK, np.float32)

    @jax.jit
    def program(v):
        done = [hvd.allreduce([2.0, ours], op=hvd.Sum), hvd.broadcast(numbers, SIZE - 1), hvd.allgather(ours)]
        done.append(hvd.broadcast_parameters({"n": 3 + RANK, "key": jax.random.key(1)})["n"])
        assert all(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(done)), "done as the program is traced"
        return jax.tree.map(lambda leaf: leaf + v.sum(), done)

    for i in range(2):
        (two, sums), last, rows, number = program(jnp.zeros(1 + i * RANK))  # of another shape JAX traces it anew
        equal(two, 2.0 * SIZE), equal(sums, np.full(2, TOTAL)), equal(last, np.full((2, 2), SIZE - 1))
        equal(rows, np.repeat(RANKS + 1.0, 2)), equal(number, 3)
    rows = []
    jax.grad(lambda v: rows.append(hvd.allgather(np.ones(RANK + 1, np.float32))) or v)(1.0)  # no program: uneven shares are possible
    assert rows[0].shape == (int(TOTAL),)


def case_gathered_scattered_exchanged_and_broadcast():
    x = jnp.arange(2.0 * SIZE).reshape(SIZE * 2, 1) + 100 * RANK
    everything = np.concatenate([np.arange(2.0 * SIZE).reshape(-1, 1) + 100 * r for r in RANKS])
    equal(both(lambda v: hvd.allgather(v), x), everything)
    parts = np.split(sum(np.arange(2.0 * SIZE) + 100 * r for r in RANKS), SIZE)
    equal(both(lambda v: hvd.reducescatter(v, op=hvd.Sum), x)[:, 0], parts[RANK])
    equal(both(lambda v: hvd.alltoall(v), x)[:, 0], np.concatenate([np.arange(2.0) + 2 * RANK + 100 * r for r in RANKS]))
    equal(both(lambda v: hvd.broadcast(v, SIZE - 1), x), np.arange(2.0 * SIZE).reshape(-1, 1) + 100 * (SIZE - 1))
    words = both(lambda v: hvd.broadcast(v, 0), {"u": jnp.arange(3, dtype=jnp.uint32) + RANK, "c": jnp.ones(2, jnp.complex64) * OWN})
    assert words["u"].tolist() == [0, 1, 2] and words["c"].tolist() == [1, 1]
    for value in hvd.grouped_allgather([jnp.ones(1), jnp.ones(2)]), jax.jit(hvd.grouped_allgather)([jnp.ones(1), jnp.ones(2)]):
        assert [v.shape for v in value] == [(SIZE,), (2 * SIZE,)]


def case_uneven_shares_outside_of_programs():
    rows = hvd.allgather(jnp.full((RANK + 1, 2), OWN))
    assert rows.shape == (int(TOTAL), 2)
    equal(rows[:, 0], np.repeat(RANKS + 1.0, RANKS + 1))
    output, received = hvd.alltoall(jnp.full(SIZE * (RANK + 1), OWN), splits=[RANK + 1] * SIZE)
    assert received.tolist() == (RANKS + 1).tolist()
    equal(output, np.repeat(RANKS + 1.0, RANKS + 1))


def case_gradients_of_every_operation():
    x = jnp.arange(1.0, 2.0 * SIZE + 1) * OWN
    weights = jnp.arange(1.0, 2.0 * SIZE + 1)

    def gradient(operation):
        equal(*(jax.jit(jax.grad(f))(x) if compiled else jax.grad(f)(x) for compiled in (True, False) for f in [lambda v: operation(v).sum()]))
        return jax.jit(jax.grad(lambda v: operation(v).sum()))(x)

    equal(gradient(lambda v: hvd.allreduce(v) * weights), weights)
    equal(gradient(lambda v: hvd.allreduce(v, op=hvd.Sum) * weights * OWN), weights * TOTAL)
    equal(gradient(lambda v: hvd.broadcast(v, 0) * weights * OWN), weights * (TOTAL / SIZE if RANK == 0 else 0))
    equal(gradient(lambda v: hvd.allgather(v) * OWN), np.full(2 * SIZE, TOTAL / SIZE))
    equal(gradient(lambda v: hvd.reducescatter(v, op=hvd.Sum) * OWN), np.repeat(RANKS + 1.0, 2) * SIZE)
    equal(gradient(lambda v: hvd.alltoall(v) * OWN), np.repeat(RANKS + 1.0, 2))
    # Integers beside, which have none; and what only some ranks' programs may skip is not skipped.
    both_kinds = lambda v: hvd.allreduce({"f": v, "i": jnp.arange(3)}, op=hvd.Sum)["f"].sum()
    equal(jax.jit(jax.grad(both_kinds))(x), np.full(2 * SIZE, SIZE))
    assert "no" not in raises(NotImplementedError, jax.grad(lambda v: hvd.allreduce(v, op=hvd.Max).sum()), x)[:2]


def case_vmap_scan_cond_loops_and_recomputed_programs():
    x = jnp.arange(6.0).reshape(2, 3) * OWN
    equal(jax.vmap(lambda v: hvd.allreduce(v, op=hvd.Sum))(x), np.arange(6.0).reshape(2, 3) * TOTAL)
    equal(jax.jit(jax.vmap(lambda v: hvd.allgather(v), in_axes=1, out_axes=1))(x), np.concatenate([np.arange(6.0).reshape(2, 3) * (r + 1) for r in RANKS]))

    def body(carry, value):
        carry = hvd.allreduce(carry + value)
        return carry, hvd.allreduce(value, op=hvd.Sum)

    def loop(values):
        outside = hvd.allreduce(values[0], op=hvd.Sum)  # beside the loop's own, which has the same shape
        return jax.lax.scan(body, values[0] * 0, values)[1] + outside

    equal(jax.jit(loop)(x), np.arange(6.0).reshape(2, 3) * TOTAL + np.arange(3.0) * TOTAL)
    choose = jax.jit(lambda p, v: jax.lax.cond(p, lambda u: hvd.allreduce(u, op=hvd.Sum), lambda u: u * 0, v))
    equal(choose(True, x), np.arange(6.0).reshape(2, 3) * TOTAL)
    equal(choose(False, x), np.zeros((2, 3)))
    again = jax.checkpoint(lambda v: jnp.sin(hvd.allreduce(v)).sum())
    equal(jax.jit(jax.grad(again))(x), np.cos(np.arange(6.0).reshape(2, 3) * TOTAL / SIZE))


def case_many_operations_at_once_and_in_another_order_on_each_rank():
    count = 161
    arrays = [jnp.full((i % 7 + 1,), i * OWN) for i in range(count)]

    def program(values):
        order = range(count) if RANK % 2 == 0 else reversed(range(count))
        done = {i: hvd.allreduce(values[i], op=hvd.Sum, name=f"g{i}") for i in order}
        return [done[i] for i in range(count)]

    compiled = jax.jit(program)
    for _ in range(3):
        for i, value in enumerate(compiled(arrays)):
            equal(value, np.full(i % 7 + 1, i * TOTAL))


def case_a_small_program_whose_results_are_in_another_order_on_each_rank():
    """XLA orders a program from its results back, and runs a small one step by step."""
    for count in (2, 3, 6):
        order = list(range(count))[:: -1 if RANK % 2 else 1]
        program = jax.jit(lambda v, order=order, n=count: [hvd.allreduce(v * i, op=hvd.Sum, name=f"small{n}_{i}") for i in order])
        for i, value in zip(order, program(jnp.ones(3))):
            equal(value, np.full(3, i * SIZE))


def case_programs_that_are_started_without_waiting_for_the_ones_before():
    for name, size in ((None, 4), (None, 300_000), ("same", 4), ("same", 300_000)):
        first = jax.jit(lambda v: hvd.allreduce(v, op=hvd.Sum, name=name))
        second = jax.jit(lambda v: hvd.allreduce(v * 2, op=hvd.Sum, name=name))
        x = jnp.full(size, OWN)
        results = [(first if i % 2 else second)(x + i) for i in range(30)]
        for i, value in enumerate(results):
            equal(value[-1], (TOTAL + i * SIZE) * (1 if i % 2 else 2))


def case_donated_arguments_are_reduced_in_place():
    step = jax.jit(lambda p, g: jax.tree.map(lambda a, b: a - b, p, hvd.allreduce(g)), donate_argnums=(0, 1))
    params = {"w": jnp.zeros(1000), "b": jnp.zeros(3)}
    for _ in range(5):
        params = step(params, {"w": jnp.full(1000, OWN), "b": jnp.full(3, OWN)})
    equal(params["w"], np.full(1000, -5 * TOTAL / SIZE))


def case_process_sets():
    own = hvd.add_process_set([SIZE - 1])
    if RANK == SIZE - 1:
        equal(both(lambda v: hvd.allreduce(v, op=hvd.Sum, process_set=own), jnp.ones(2)), np.ones(2))
        equal(both(lambda v: hvd.allgather(v, process_set=own), jnp.ones(2)), np.ones(2))
    else:
        assert "no member" in raises(ValueError, hvd.allreduce, jnp.ones(2), process_set=own)
    assert hvd.remove_process_set(own)
    assert "add_process_set" in raises(ValueError, jax.jit(lambda v: hvd.allreduce(v, process_set=own)), jnp.ones(2))


def loss(params, x, y):
    return jnp.mean((x @ params["w"] + params["b"] - y) ** 2)


def data():
    draw = np.random.default_rng(1)
    return jnp.asarray(draw.normal(size=(8 * SIZE, 4)), jnp.float32), jnp.asarray(draw.normal(size=8 * SIZE), jnp.float32)


def train(optimizer, gradient, x, y, steps=6):
    params = {"w": jnp.full(4, 0.1), "b": jnp.zeros(())}
    state = optimizer.init(params)

    @jax.jit
    def step(params, state):
        updates, state = optimizer.update(gradient(params, x, y), state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(steps):
        params, state = step(params, state)
    return params, state


def case_the_optimizer_does_what_one_process_does_with_the_whole_batch():
    x, y = data()
    own = slice(8 * RANK, 8 * RANK + 8)
    chain = lambda: optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(1e-2))
    expected, state = train(chain(), jax.grad(loss), x, y)
    for options in ({}, {"groups": 2}, {"gradient_predivide_factor": 2.0}):
        got, own_state = train(hvd.DistributedOptimizer(chain(), **options), jax.grad(loss), x[own], y[own])
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, expected)
        assert jax.tree.structure(own_state) == jax.tree.structure(state)
        assert len(set(hvd.allgather_object(b"".join(np.asarray(v).tobytes() for v in jax.tree.leaves(got))))) == 1
    got, _ = train(chain(), hvd.grad(loss), x[own], y[own])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, expected)
    value, gradients = jax.jit(hvd.value_and_grad(loss, average_value=True))(expected, x[own], y[own])
    whole = jax.value_and_grad(loss)(expected, x, y)
    np.testing.assert_allclose(value, whole[0], rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), gradients, whole[1])


def case_several_backward_passes_make_one_step():
    x, y = data()
    own = slice(8 * RANK, 8 * RANK + 8)
    expected, _ = train(optax.sgd(0.1), jax.grad(loss), x, y, steps=1)
    halves = hvd.DistributedOptimizer(optax.sgd(0.1), backward_passes_per_step=2, average_aggregated_gradients=True)
    got, state = train(halves, jax.grad(loss), x[own], y[own], steps=2)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), got, expected)
    assert int(state.count) == 0
    summed, _ = train(hvd.DistributedOptimizer(optax.sgd(0.05), backward_passes_per_step=2), jax.grad(loss), x[own], y[own], steps=3)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), summed, expected)


def case_several_backward_passes_outside_of_programs_compile_nothing_anew():
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None)
    optimizer = hvd.DistributedOptimizer(optax.sgd(1.0), op=hvd.Sum, backward_passes_per_step=3)
    state, moved = optimizer.init(jnp.zeros(3)), []
    for i in range(12):
        if i == 6:
            compiled.clear()
        updates, state = optimizer.update(jnp.full(3, OWN), state)
        moved.append(float(updates[0]))
    assert moved == [0.0, 0.0, -3.0 * TOTAL] * 4 and int(state.count) == 0, moved
    assert not compiled, compiled


def case_several_backward_passes_of_updates_that_have_another_type_than_gradients():
    wide = optax.stateless(lambda updates, params: jax.tree.map(lambda u: -u.astype(jnp.float32), updates))
    optimizer = hvd.DistributedOptimizer(wide, op=hvd.Sum, backward_passes_per_step=2)
    for update in optimizer.update, jax.jit(optimizer.update):
        state, moved = optimizer.init(jnp.zeros(3, jnp.bfloat16)), []
        for _ in range(2):
            updates, state = update(jnp.full(3, OWN, jnp.bfloat16), state)
            assert updates.dtype == jnp.float32
            moved.append(float(updates[0]))
        assert moved == [0.0, -2.0 * TOTAL], moved


def case_parameters_keys_objects_and_metrics():
    tree = {"w": jnp.full(3, OWN), "key": jax.random.key(RANK), "step": RANK, "none": None, "old": jax.random.PRNGKey(RANK)}
    got = hvd.broadcast_parameters(tree, root_rank=0)
    equal(got["w"], np.ones(3))
    assert jax.random.key_data(got["key"]).tolist() == jax.random.key_data(jax.random.key(0)).tolist()
    assert got["step"] == 0 and got["none"] is None and got["old"].tolist() == jax.random.PRNGKey(0).tolist()
    state = optax.adam(0.1).init({"w": jnp.ones(2)})
    jax.tree.map(equal, hvd.broadcast_optimizer_state(state), state)
    for root in (0, SIZE - 1):  # that has restored what the others have made anew: arrays, numbers or keys
        old = {"step": jnp.int32(7), "rate": 0.5, "name": "x", "key": jax.random.key(7), "n": np.float64(0.1)}
        new = {"step": 0, "rate": np.float32(1), "name": jnp.ones(3), "key": 0, "n": 1}
        got = hvd.broadcast_parameters(old if RANK == root else new, root)
        assert isinstance(got["step"], jax.Array) and (int(got["step"]), got["rate"], got["name"], got["n"]) == (7, 0.5, "x", 0.1), got
        assert jax.random.key_data(got["key"]).tolist() == jax.random.key_data(jax.random.key(7)).tolist()
        adam = optax.adam(0.1).init(jnp.ones(2))
        other = (adam[0]._replace(count=5), *adam[1:])
        assert hvd.broadcast_optimizer_state(other if RANK == root else adam, root)[0].count == 5
    if SIZE > 1:
        raises(hvd.HorovodInternalError, hvd.broadcast_parameters, {"a": jnp.ones(2 + RANK)})
        for others in {"a": 1}, {}:
            said = raises(hvd.HorovodInternalError, hvd.broadcast_parameters, others if RANK else {"a": 1, "b": 2})
            assert "different leaves" in said and ("is only on one" in said) == (RANK > 0), said
    assert hvd.broadcast_object({"rank": RANK}, 0) == {"rank": 0}
    assert hvd.allgather_object("x" * RANK) == ["x" * r for r in RANKS]
    metrics = both(lambda m: hvd.metric_average(m), {"loss": jnp.float32(OWN), "accuracy": jnp.float32(RANK)})
    equal(metrics["loss"], TOTAL / SIZE)
    mean, squares, count = jax.jit(hvd.sync_batch_stats)(jnp.full(2, OWN), jnp.full(2, OWN * OWN), 4 * OWN)
    equal(mean, np.full(2, ((RANKS + 1.0) ** 2).sum() / TOTAL))
    equal(count, 4 * TOTAL)
    mean, squares, count = jax.jit(hvd.sync_batch_stats)(jnp.full(2, 3, jnp.float16), jnp.full(2, 9, jnp.float16), 50_000)
    assert mean.dtype == squares.dtype == jnp.float16 and float(count) == 50_000 * SIZE
    equal(mean, [3, 3]), equal(squares, [9, 9])
    hvd.barrier()


def case_wrong_use_says_what_to_do():
    x = jnp.ones(3)
    cases = {
        "convert them first": lambda: jax.jit(hvd.allreduce)(jnp.ones(2, jnp.uint32)),
        "cannot be reduced": lambda: hvd.allreduce(jnp.ones(2, jnp.complex64), op=hvd.Max),
        "is none of": lambda: hvd.allreduce(x, op=9),
        "outside of jit": lambda: jax.jit(lambda v: hvd.alltoall(v, splits=[3] + [0] * (SIZE - 1)))(x),
        "no dimension 0": lambda: jax.jit(hvd.allgather)(jnp.float32(1)),
        "root_rank": lambda: hvd.broadcast(x, SIZE),
        "use broadcast_object": lambda: hvd.allreduce({"a": object()}),
        "takes an optax": lambda: hvd.DistributedOptimizer(3),
        "number of groups": lambda: hvd.DistributedOptimizer(optax.sgd(1.0), groups=[["w"]]),
        "key_data": lambda: hvd.allreduce(jax.random.key(1)),
    }
    for text, call in cases.items():
        said = raises(ValueError, call)
        assert text in said, (text, said)
    if SIZE > 1:
        assert "call it outside of jit" in raises(ValueError, jax.jit(hvd.reducescatter), jnp.ones(2 * SIZE + 1))
    assert "no join" in raises(NotImplementedError, hvd.join)
    for function in hvd.barrier, hvd.broadcast_object, hvd.allgather_object:
        assert "outside of jit" in raises(hvd.HorovodInternalError, jax.jit(lambda v, f=function: f(*([] if f is hvd.barrier else [v])) or v), x)


def case_ranks_that_disagree_in_a_program_get_the_error_and_go_on():
    if SIZE == 1:
        return
    for _ in range(3):
        program = jax.jit(lambda v: hvd.allreduce(v, name="odd"))
        said = raises(jax.errors.JaxRuntimeError, lambda: jax.block_until_ready(program(jnp.ones(3 if RANK else 4))))
        assert "Mismatched" in said and "[hvd 13]" in said, said
        raises(hvd.HorovodInternalError, hvd.allreduce, jnp.ones(3 if RANK else 4), name="odd")
        equal(jax.jit(hvd.allreduce)(jnp.full(2, OWN)), np.full(2, TOTAL / SIZE))
    gather = jax.jit(lambda v: hvd.allgather(v))
    assert "under jit" in raises(jax.errors.JaxRuntimeError, lambda: jax.block_until_ready(gather(jnp.ones(RANK + 1))))


def case_an_elastic_state_keeps_arrays_of_numpy_and_keys_what_they_are():
    key, counts = jax.random.key(RANK), np.arange(3.0) + RANK  # of 64 bits, which JAX has not
    state = hvd.elastic.JaxState(tree={"key": key, "counts": counts, "none": None}, step=RANK)
    state.sync()
    assert jax.random.key_data(state.tree["key"]).tolist() == jax.random.key_data(jax.random.key(0)).tolist()
    assert state.tree["counts"].tolist() == [0, 1, 2] and state.tree["counts"].dtype == np.float64 and state.step == 0
    state.tree["counts"] += 1
    state.tree["key"] = jax.random.split(state.tree["key"])[0]
    for _ in range(2):
        state.restore()
        assert state.tree["counts"].tolist() == [0, 1, 2]
        assert jax.random.normal(state.tree["key"]) == jax.random.normal(jax.random.key(0))
        state.tree["counts"] += 1


def case_programs_hold_for_other_ranks_than_they_were_traced_with():
    from horovod.common import _lib

    first = hvd.add_process_set([0, SIZE - 1]) if SIZE > 2 else hvd.add_process_set([0])
    second = hvd.add_process_set([SIZE - 1])
    program = jax.jit(lambda v: hvd.allreduce(v, op=hvd.Sum, process_set=second))
    if second.included():
        equal(program(jnp.ones(2)), np.ones(2))
    hvd.barrier()
    hvd.elastic.reset()
    second = hvd.add_process_set([SIZE - 1])
    assert _lib.process_sets()[1] == [SIZE - 1] and first.process_set_id is None  # another number than before
    if second.included():
        equal(program(jnp.ones(2)), np.ones(2))
    hvd.remove_process_set(second)


def case_an_elastic_state_goes_back_to_the_last_commit_after_an_error_in_a_program():
    failures = []

    def once(params, fails):
        return jax.jit(lambda p: hvd.allreduce(p, op=hvd.Sum, name="step"))(params if not fails else params[: RANK + 1])

    @hvd.elastic.run
    def run(state):
        while state.step < 4:
            fails = state.step == 2 and not failures and SIZE > 1
            if fails:
                failures.append(state.step)
                state.params = state.params * 0
            state.params = jax.block_until_ready(once(state.params, fails))
            state.step += 1
            state.commit()
        return state.params

    state = hvd.elastic.JaxState(params=jnp.full(SIZE + 1, OWN), opt_state=optax.sgd(1.0).init(None), step=0)
    equal(run(state), np.full(SIZE + 1, float(SIZE) ** 4))
    assert failures == ([2] if SIZE > 1 else [])


def slowly(value, rounds):
    """The value, which a program has later than its caller goes on. Programs that are cheap JAX runs at once."""
    nothing = jax.lax.fori_loop(0, rounds, lambda _, x: x @ x, jnp.zeros((100, 100)))
    return value + nothing[0, 0]


def case_an_elastic_state_has_what_runs_when_ranks_are_to_join_between_commits():
    rounds = 30 if RANK else 1000  # the others wait for rank 0 in their programs
    step = jax.jit(lambda v: hvd.allreduce(slowly(v, rounds), op=hvd.Sum, name="slow"))
    loss = jax.jit(lambda v: hvd.allreduce(slowly(v, rounds), op=hvd.Sum, name="slow loss"))
    begun, losses = [], []

    @hvd.elastic.run
    def run(state):
        begun.append(state.step)
        if len(begun) == 1:
            state.params, state.step = step(state.params), 1
            losses.append(loss(jnp.full(2, OWN)))
            if RANK == 0:
                state.on_hosts_updated(1, HostUpdateResult.added)
            state.check_host_updates()
        return state.params

    equal(run(hvd.elastic.JaxState(params=jnp.full(4, 1.0), step=0)), np.full(4, float(SIZE)))
    assert begun == [0, 1], begun
    equal(losses[0], np.full(2, TOTAL))


def case_a_state_that_a_failed_program_has_given_is_restored_when_ranks_synchronise():
    if SIZE == 1:
        return
    failing = jax.jit(lambda v: hvd.allreduce(slowly(v, 100), name="failed"))
    begun = []

    @hvd.elastic.run
    def run(state):
        begun.append(state.step)
        if len(begun) == 1:
            state.params, state.step = failing(state.params[: RANK + 1]), 1
            raise hvd.HostsUpdatedInterrupt(False)  # nobody has awaited the program
        return state.params

    equal(run(hvd.elastic.JaxState(params=jnp.full(SIZE, 3.0), step=0)), np.full(SIZE, 3.0))
    assert begun == [0, 0], begun


def case_an_elastic_state_puts_arrays_where_they_were():
    devices = jax.local_devices()
    if len(devices) < 2:
        return
    divided = NamedSharding(Mesh(np.array(devices[:2]), ("own",)), PartitionSpec("own"))
    state = hvd.elastic.JaxState(
        tree={
            "divided": jax.device_put(jnp.arange(4.0) + RANK, divided),
            "keys": jax.device_put(jax.random.split(jax.random.key(RANK), 2), divided),
            "second": jax.device_put(jnp.full(2, OWN), devices[1]),
            "anywhere": jnp.full(2, OWN),
        }
    )

    def places():
        return {name: (leaf.sharding, leaf.committed) for name, leaf in state.tree.items()}

    before = places()
    for bring in state.restore, state.sync, state.restore:
        bring()
        assert places() == before, (bring, places())
    equal(state.tree["divided"], np.arange(4.0))
    equal(state.tree["divided"].addressable_data(1), [2.0, 3.0])
    equal(jax.random.key_data(state.tree["keys"]), jax.random.key_data(jax.random.split(jax.random.key(0), 2)))


def case_what_an_elastic_state_does_not_cover_is_named():
    params = {"odd": jnp.ones((3, 2)), "deep": [{"odder": jnp.zeros(2)}]}
    kept = {"odd": jnp.ones(3)}
    moments = optax.adam(0.1).init(params)
    odd_data = jnp.ones((5, 5))

    def lines(**values):
        found = hvd.elastic.check(hvd.elastic.JaxState(kept=kept, step=0, **values))
        return [line for line in found if "odd" in line or "Adam" in line]

    forgotten = [
        "dict of odd, deep: a pytree, of which 8 numbers are not in the state",
        "tuple of EmptyState, ScaleByAdamState: a pytree, of which 16 numbers are not in the state",
    ]
    assert lines() == forgotten, lines()
    assert lines(params=params) == forgotten[1:] and lines(moments=moments) == forgotten[:1]
    assert lines(params=params, moments=moments) == []
    del odd_data


if jax.default_backend() != "cpu":  # all ranks' programs must have one order there (runtime/docs/fronts.md)
    del case_a_small_program_whose_results_are_in_another_order_on_each_rank

if __name__ == "__main__":
    run_cases(globals(), lambda: hvd.barrier())
