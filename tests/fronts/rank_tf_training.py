"""Training with horovod.tensorflow and horovod.tensorflow.keras; runs as a rank (test_tensorflow.py), with Keras 3 or legacy Keras."""

import pathlib
import tempfile
import warnings
from unittest import mock

import lean_imports  # noqa: F401  (first)
import numpy as np
import tensorflow as tf
from rank_side import raises, run_cases
from tf_model import BATCH, CAN_COMPILE, INPUTS, KERAS_3, LABELS, RANK, ROWS, SIZE, check_same_on_ranks, fit, loss_of, make_model, near, own

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import horovod.tensorflow._reduce as hvd_reduce


def by_tape(wrap, model, x, y, rate=0.1, compiled=True):
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(model, x, y)
        gradients = wrap(tape).gradient(loss, model.trainable_variables)
        for variable, gradient in zip(model.trainable_variables, gradients):
            variable.assign_sub(rate * gradient)

    step = tf.function(step) if compiled else step
    size = len(x) // (ROWS // BATCH)
    for i in range(ROWS // BATCH):
        step(tf.constant(x[i * size : (i + 1) * size]), tf.constant(y[i * size : (i + 1) * size]))


def case_tape_trains_as_one_process_with_the_whole_batch():
    expected = make_model()
    by_tape(lambda tape: tape, expected, INPUTS, LABELS)
    for options in (
        {}, {"compression": hvd.Compression.bf16}, {"num_groups": 1}, {"groups": 2}, {"op": hvd.Average, "gradient_predivide_factor": 2.0},
    ):  # fmt: skip
        for compiled in (True, False):
            model = make_model()
            by_tape(lambda tape: hvd.DistributedGradientTape(tape, **options), model, own(INPUTS), own(LABELS), compiled=compiled)
            check_same_on_ranks(model)
            near(model, expected, 2e-2 if "compression" in options else 1e-5)


def case_tape_with_groups_of_variables_and_generic_names():
    a, b, c = tf.Variable(1.0), tf.Variable(2.0), tf.Variable(3.0, name=f"other_on_rank_{RANK}")

    @tf.function
    def gradients():
        with tf.GradientTape() as tape:
            loss = (a + 2 * b + 3 * c) * (RANK + 1.0)
        tape = hvd.DistributedGradientTape(tape, op=hvd.Sum, groups=[[a, c]])
        return tape.gradient(loss, {"a": a, "bc": [b, c]}, use_generic_names=True)

    total = SIZE * (SIZE + 1) / 2
    result = gradients()
    assert [float(result["a"]), float(result["bc"][0]), float(result["bc"][1])] == [total, 2 * total, 3 * total]


def case_tape_leaves_none_and_local_sources():
    a, b, unused = tf.Variable(1.0), tf.Variable(1.0), tf.Variable(1.0)
    for scale in (True, False):
        with tf.GradientTape(persistent=True) as tape:
            loss = (a + b) * (RANK + 1.0)
        tape = hvd.DistributedGradientTape(tape, op=hvd.Sum, scale_local_gradients=scale)
        tape.register_local_source(b)
        first, second, third = tape.gradient(loss, [a, b, unused])
        assert float(first) == SIZE * (SIZE + 1) / 2 and third is None
        assert float(second) == (RANK + 1.0) / (SIZE if scale else 1)
        (local,), (common,) = tape.get_local_and_global_gradients(loss, [a, b])
        assert local[0] is b and float(local[1]) == float(second)
        assert common[0] is a and float(common[1]) == float(first)
        assert isinstance(tape, tf.GradientTape)
        tape.gradient(loss, [a])  # it is persistent, as the one that was given


def case_tape_that_is_wrapped_while_it_records():
    variable = tf.Variable(1.0)

    def step():
        with tf.GradientTape() as tape:
            loss = variable * variable * (RANK + 1.0)
            tape = hvd.DistributedGradientTape(tape, op=hvd.Sum)
        return tape.gradient(loss, variable)

    for gradient in (step, step, tf.function(step)):
        assert float(gradient()) == SIZE * (SIZE + 1)
    with tf.GradientTape() as tape:
        raises(RuntimeError, hvd.DistributedGradientTape(tape).gradient, variable * variable, variable)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as tape:
            cube = variable * variable * variable
            tape = hvd.DistributedGradientTape(tape)
        first = tape.gradient(cube, variable)
    assert (float(first), float(outer.gradient(first, variable))) == (3.0, 6.0)


def case_partial_tape_by_layers():
    model = make_model()
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(v) for v in model.trainable_variables]) * (RANK + 1.0)
    tape = hvd.PartialDistributedGradientTape(tape, op=hvd.Sum, local_layers=model.layers[0])
    gradients = tape.gradient(loss, model.trainable_variables)
    factors = [float(tf.reshape(gradient, [-1])[0]) for gradient in gradients]
    assert factors == [(RANK + 1.0) / SIZE] * 2 + [SIZE * (SIZE + 1) / 2] * 2, factors
    raises(ValueError, hvd.PartialDistributedGradientTape, tf.GradientTape(), local_layers=["no layer"])


class Outside:
    """A set of two ranks, of which this one is none."""

    process_set_id = 1

    def takes_part(self):
        return False

    def size(self):
        return 2


def case_local_gradients_outside_of_the_process_set_stay_as_they_are():
    optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(1.0), process_set=Outside())
    local = tf.Variable(1.0)
    optimizer.register_local_var(local)
    ((gradient, _),) = optimizer.compute_gradients(lambda: 2.0 * local, [local])
    assert float(gradient) == 2.0
    optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), process_set=Outside())
    optimizer.register_local_var(local)
    optimizer.apply_gradients([(tf.constant(2.0), local)])
    assert float(local) == -1.0


def case_helpers_that_programs_build_optimizers_on():
    """Of horovod.tensorflow.gradient_aggregation and gradient_aggregation_eager."""
    from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper, apply_op_to_not_none_tensors, get_not_none_from_list
    from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager

    assert get_not_none_from_list([None, 1]) == [1] and apply_op_to_not_none_tensors(max, [None, 1], 2) == [None, 2]
    reduce = hvd_reduce._make_allreduce_grads_fn("helper", "", "", hvd.Compression.none, False, op=hvd.Sum)
    for make, divisor in (
        (lambda: LocalGradientAggregationHelper(2, reduce, False, True, RANK, LocalGradientAggregationHelper._OPTIMIZER_TYPE_LEGACY), SIZE),
        (lambda: LocalGradientAggregationHelper(2, reduce, False, True, RANK, None, scale_local_gradients=False), 1),
        (lambda: LocalGradientAggregationHelperEager(2, reduce, False, True, local_gradients_scaling_factor=4.0), 4),
        (lambda: LocalGradientAggregationHelperEager(2, reduce, False, True), 1),
    ):
        common, local, unused, counter = tf.Variable(0.0), tf.Variable(0.0), tf.Variable(0.0), tf.Variable(0, dtype=tf.int64)
        helper, optimizer = make(), mock.Mock(iterations=counter)
        helper.register_local_var(local)

        @tf.function
        def step(gradient):
            reduced = helper.compute_gradients([gradient, gradient, None], [common, local, unused])
            pairs = list(zip(reduced, [common, local]))

            def apply():
                for gradient, variable in pairs:
                    variable.assign_sub(gradient)

            helper.apply_gradients(apply, optimizer, pairs)

        for number in range(4):
            step(tf.constant(RANK + 1.0))
            done = (number + 1) // 2
            assert float(common) == -done * SIZE * (SIZE + 1) / 2 and float(local) == -done * (RANK + 1.0) / divisor
        assert int(counter) == 2  # it counts the passes that step nothing
    raises(ValueError, LocalGradientAggregationHelperEager, 0, reduce, False, False)


def case_embeddings_have_sparse_gradients():
    table = tf.Variable(tf.ones([4, 2]))
    for options in ({}, {"sparse_as_dense": True}):

        def gradient():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.gather(table, [RANK % 4, 3]))
            return hvd.DistributedGradientTape(tape, op=hvd.Sum, **options).gradient(loss, table)

        expected = np.zeros((4, 2))
        for rank in range(SIZE):
            expected[[rank % 4, 3]] += 1
        for way in (gradient, tf.function(gradient)):
            result = way()
            assert isinstance(result, tf.IndexedSlices) == (not options)
            np.testing.assert_array_equal(tf.convert_to_tensor(result), expected)


def case_arguments_that_do_not_fit():
    raises(ValueError, hvd.DistributedGradientTape, tf.GradientTape(), op=hvd.Sum, gradient_predivide_factor=2.0)
    raises(ValueError, hvd.DistributedGradientTape, tf.GradientTape(), groups="all")
    raises(ValueError, hvd.DistributedOptimizer, "no optimizer at all")
    raises(ValueError, hvd.DistributedOptimizer, tf.keras.optimizers.SGD(0.1), op=hvd.Adasum)


def case_ranks_of_a_set_that_was_never_added_do_not_train_each_by_itself():
    variable, unknown = tf.Variable(1.0), hvd.ProcessSet([0])
    with tf.GradientTape() as tape:
        loss = variable * 2.0
    said = raises(ValueError, hvd.DistributedGradientTape(tape, process_set=unknown).gradient, loss, variable)
    assert "hvd.init(process_sets=[...])" in said and "hvd.add_process_set()" in said, said
    older = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(1.0), process_set=unknown)
    assert said == raises(ValueError, older.compute_gradients, lambda: variable * 2.0, [variable])
    newer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), process_set=unknown)
    assert said == raises(ValueError, newer.apply_gradients, [(tf.constant(2.0), variable)])
    assert float(variable) == 1.0


def case_optimizer_of_tensorflow_1():
    for passes, average in ((1, False), (2, False), (2, True)):
        with tf.Graph().as_default():
            variable = tf.compat.v1.get_variable("v", initializer=1.0, use_resource=True)
            optimizer = hvd.DistributedOptimizer(
                tf.compat.v1.train.GradientDescentOptimizer(0.5), backward_passes_per_step=passes,
                average_aggregated_gradients=average,
            )  # fmt: skip
            train = optimizer.minimize(variable * (RANK + 1.0))
            with tf.compat.v1.Session() as session:
                session.run(tf.compat.v1.global_variables_initializer())
                values = []
                for _ in range(2 * passes):
                    session.run(train)
                    values.append(session.run(variable))
            step = 0.5 * (SIZE + 1) / 2 * (1 if average else passes)
            steps = [(i + 1) // passes for i in range(2 * passes)]
            np.testing.assert_allclose(values, [1.0 - step * count for count in steps], rtol=1e-6)


def case_what_passes_have_added_up_is_in_no_checkpoint_of_tensorflow_1():
    """So that a checkpoint from before restores, and one rank's sums are not broadcast to all."""
    with tf.Graph().as_default():
        variable = tf.compat.v1.get_variable("v", initializer=1.0, use_resource=True)
        optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.5), backward_passes_per_step=2)
        train = optimizer.minimize(variable * (RANK + 1.0))
        assert [v.name for v in tf.compat.v1.global_variables()] == ["v:0"]
        assert len(tf.compat.v1.local_variables()) == 2
        broadcast = hvd.broadcast_global_variables(0)
        for initializes_local in (True, False):
            with tf.compat.v1.Session() as session:
                session.run(tf.compat.v1.global_variables_initializer())
                if initializes_local:
                    session.run(tf.compat.v1.local_variables_initializer())
                session.run(train)
                session.run(broadcast)  # in the middle of the passes
                session.run(train)
                np.testing.assert_allclose(session.run(variable), 1.0 - 0.5 * (SIZE + 1), rtol=1e-6)


def case_adasum_optimizer_of_tensorflow_1():
    alone = hvd.add_process_set([0]) if SIZE > 1 else hvd.global_process_set
    for options, factor in (({}, 1.0), ({"process_set": alone}, RANK + 1.0)):  # equal steps stay one step; others' do not matter
        with tf.Graph().as_default():
            variable = tf.compat.v1.get_variable("v", initializer=[1.0, 1.0], use_resource=True)
            optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(1.0), op=hvd.Adasum, **options)
            train = optimizer.minimize(tf.reduce_sum(variable * [1.0, 2.0]) * factor)
            with tf.compat.v1.Session() as session:
                session.run(tf.compat.v1.global_variables_initializer())
                session.run(train)
                np.testing.assert_allclose(session.run(variable), [1.0 - factor, 1.0 - 2 * factor], rtol=1e-6)
    if SIZE > 1:
        hvd.remove_process_set(alone)


def case_keras_trains_as_one_process_with_the_whole_batch():
    kinds = [({}, {}), ({}, {"run_eagerly": True}), ({"clipnorm": 0.1}, {})]
    if CAN_COMPILE:
        kinds.append(({}, {"jit_compile": True}))
    if KERAS_3:
        kinds.append(({"gradient_accumulation_steps": 2}, {}))
    for settings, options in kinds:
        expected, model = make_model(), make_model()
        fit(expected, tf.keras.optimizers.SGD(0.1, momentum=0.9, **settings), INPUTS, LABELS, BATCH * SIZE, False, **options)
        optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9, **settings)
        fit(model, hvd_keras.DistributedOptimizer(optimizer), own(INPUTS), own(LABELS), BATCH, **options)
        check_same_on_ranks(model)
        near(model, expected)


def case_a_rank_whose_layers_have_other_names_trains_with_the_others():
    """Keras counts layers' names in each process. So they differ where rank 0 has loaded the model that the others make."""
    for options in ({}, {"backward_passes_per_step": 2}, {"groups": 2}):
        for _ in range(RANK):
            make_model()
        model = make_model()
        names = hvd.allgather_object([layer.name for layer in model.layers])
        assert SIZE == 1 or names[0] != names[1]
        fit(model, hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), **options), own(INPUTS), own(LABELS), BATCH, epochs=1)
        check_same_on_ranks(model)
        for _ in range(SIZE - 1 - RANK):
            make_model()  # the cases after this one need equal names


def case_keras_with_adam_from_different_beginnings():
    model = make_model(seed=RANK)
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.01))  # the same by the other module
    fit(model, optimizer, own(INPUTS), own(LABELS), BATCH, epochs=5)
    check_same_on_ranks(model)
    accuracy = np.mean(np.argmax(model.predict(INPUTS, verbose=0), 1) == LABELS)
    assert accuracy > 0.7, accuracy


def case_keras_optimizers_from_a_configuration():
    optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.25, momentum=0.5), op=hvd.Sum)
    for copy in (optimizer.from_config(optimizer.get_config()), optimizer.__class__.from_config(optimizer.get_config())):
        assert copy.get_config() == optimizer.get_config()
        variable = tf.Variable(1.0)
        copy.apply_gradients([(tf.constant(RANK + 1.0), variable)])
        np.testing.assert_allclose(variable.numpy(), 1.0 - 0.25 * SIZE * (SIZE + 1) / 2)


def case_embeddings_in_keras():
    for options in ({}, {"jit_compile": True})[: 1 + CAN_COMPILE]:
        tf.keras.utils.set_random_seed(RANK)
        model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Embedding(10, 4), tf.keras.layers.Flatten(),
                                     tf.keras.layers.Dense(2)])  # fmt: skip
        words = (np.abs(own(INPUTS)[:, :4]) * 3).astype(np.int32) % 10
        fit(model, hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), words, own(LABELS), BATCH, **options)
        check_same_on_ranks(model)


def case_embeddings_in_keras_with_backward_passes_per_step():
    def make():
        tf.keras.utils.set_random_seed(1)
        return tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Embedding(5, 4), tf.keras.layers.Flatten(),
                                    tf.keras.layers.Dense(2)])  # fmt: skip

    words = (np.abs(INPUTS[:, :4]) * 3).astype(np.int32) % 5
    expected = make()
    fit(expected, tf.keras.optimizers.SGD(0.1), words, LABELS, 2 * BATCH * SIZE, False, epochs=1)
    for options in ({"sparse_as_dense": True}, {})[: 1 + KERAS_3]:  # legacy Keras refuses rows, as Horovod does
        for eagerly in (True, False):
            model = make()
            optimizer = hvd_keras.DistributedOptimizer(
                tf.keras.optimizers.SGD(0.1), backward_passes_per_step=2, average_aggregated_gradients=True, **options
            )
            fit(model, optimizer, own(words), own(LABELS), BATCH, epochs=1, run_eagerly=eagerly)
            check_same_on_ranks(model)
            near(model, expected)


def case_rows_of_embeddings_are_reduced_as_whole_tables_are():
    """In Keras 3's optimizers too, which take each row of a gradient for the only one of its index."""
    gathered = []

    def allgather(*arguments, **words):
        gathered.append(1)
        return hvd.allgather(*arguments, **words)

    def trained(make, scale=1.0, **options):
        variable = tf.Variable(tf.ones([4, 2]))
        optimizer = hvd_keras.DistributedOptimizer(make(), **options)
        for _ in range(2):
            rows = tf.IndexedSlices(tf.ones([3, 2]) * (RANK + 1.0) * scale, tf.constant([RANK % 3, 3, 3]), tf.constant([4, 2]))
            optimizer.apply_gradients([(rows, variable)])
        return variable.numpy()

    kinds = [lambda: tf.keras.optimizers.SGD(0.5), lambda: tf.keras.optimizers.Adam(0.1, epsilon=0.1)]
    kinds += [lambda: tf.keras.optimizers.SGD(0.5, clipnorm=0.1)] if KERAS_3 else []
    with mock.patch.object(hvd_reduce, "allgather", allgather):
        for make in kinds:
            expected = trained(make, sparse_as_dense=True)
            assert not gathered, "the flag is ignored"
            for options in ({}, {"gradient_predivide_factor": 2.0}):
                np.testing.assert_allclose(trained(make, **options), expected, rtol=1e-5)
            assert gathered
            gathered.clear()
    if KERAS_3:
        make = lambda: tf.keras.optimizers.LossScaleOptimizer(tf.keras.optimizers.SGD(0.5), initial_scale=4.0)
        sums = trained(make, scale=4.0, backward_passes_per_step=2)
        np.testing.assert_allclose(sums, trained(lambda: tf.keras.optimizers.SGD(0.5)), rtol=1e-5)


def case_with_a_gpu_keras_does_not_compile_steps_that_we_cannot_compile():
    if not KERAS_3:
        return  # it compiles only when it is asked
    gpu = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
    with mock.patch.object(tf.config, "list_physical_devices", lambda kind=None: [gpu]), \
         mock.patch.object(tf.config, "get_visible_devices", lambda kind=None: [gpu]), \
         tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:  # fmt: skip
        warnings.simplefilter("always")
        model = make_model()
        model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse", None, run_eagerly=False)
        said = [str(w.message) for w in caught if "XLA" in str(w.message)]
        assert not model.jit_compile and len(said) == 1 and "GPUs" in said[0], (model.jit_compile, said)
        model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse", jit_compile=True)
        assert model.jit_compile, "what a script asks for is left to it"
        model.compile(tf.keras.optimizers.SGD(0.1), "mse")
        assert model.jit_compile, "a script without us has what Keras decides"
        kind = type("OwnStep", (tf.keras.Sequential,), {"train_step": lambda self, data: None})  # it may have a tape of ours
        own_step = kind([tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1)])
        own_step.compile("sgd", "mse")
        assert own_step.jit_compile == (SIZE == 1)
        path = str(pathlib.Path(folder, "model.keras"))
        model.save(path)
        assert not hvd_keras.load_model(path).jit_compile


def case_keras_with_mixed_precision():
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = make_model()
        optimizer = tf.keras.optimizers.SGD(0.05)
        if KERAS_3:
            optimizer = hvd_keras.DistributedOptimizer(optimizer)
        else:
            optimizer = tf.keras.mixed_precision.LossScaleOptimizer(hvd_keras.DistributedOptimizer(optimizer))
        fit(model, optimizer, own(INPUTS), own(LABELS), BATCH)
        check_same_on_ranks(model)
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")


def case_keras_with_backward_passes_per_step():
    model = make_model()
    optimizer = hvd_keras.DistributedOptimizer(
        tf.keras.optimizers.SGD(0.1), backward_passes_per_step=2, average_aggregated_gradients=True
    )
    expected = make_model()
    fit(expected, tf.keras.optimizers.SGD(0.1), INPUTS, LABELS, 2 * BATCH * SIZE, False, epochs=1)
    fit(model, optimizer, own(INPUTS), own(LABELS), BATCH, epochs=1)
    check_same_on_ranks(model)
    near(model, expected)


def case_partial_optimizer_of_keras():
    model = make_model()
    optimizer = hvd_keras.PartialDistributedOptimizer(tf.keras.optimizers.SGD(0.1), local_layers=model.layers[0])
    callback = hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=model.layers[0].trainable_variables)
    model.compile(optimizer=optimizer, loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(own(INPUTS), own(LABELS), batch_size=BATCH, epochs=1, shuffle=False, verbose=0, callbacks=[callback])
    first, *_, last = zip(*hvd.allgather_object(model.get_weights()))
    assert not np.array_equal(first[0], first[-1]) or SIZE == 1
    assert np.array_equal(last[0], last[-1])


def case_a_saved_model_goes_on():
    model = make_model()
    fit(model, hvd_keras.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), own(INPUTS), own(LABELS), BATCH)
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder, "model.keras"))
        model.save(path)
        plain = tf.keras.models.load_model(path)  # loads without us
        near(plain, model, 0)
        again = hvd_keras.load_model(path)
    again.fit(own(INPUTS), own(LABELS), batch_size=BATCH, epochs=1, verbose=0, shuffle=False)
    check_same_on_ranks(again)


def case_sync_batch_normalization_is_that_of_the_whole_batch():
    rows = [4 + 2 * rank for rank in range(SIZE)]  # ranks' batches have different sizes
    whole = np.random.default_rng(2).normal(size=(sum(rows), 3)).astype(np.float32)
    begin = sum(rows[:RANK])
    mine = tf.constant(whole[begin : begin + rows[RANK]])
    plain, synced = tf.keras.layers.BatchNormalization(), hvd.SyncBatchNormalization()
    plain.build((None, 3))
    synced.build((None, 3))
    for way in (lambda x: synced(x, training=True), tf.function(lambda x: synced(x, training=True))):
        np.testing.assert_allclose(way(mine), plain(whole, training=True)[begin : begin + rows[RANK]], rtol=1e-3, atol=1e-4)
    near(synced, plain, 1e-4)
    assert "fused" in raises(ValueError, hvd.SyncBatchNormalization, fused=True)
    model = make_model(norm=True)
    fit(model, hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), own(INPUTS), own(LABELS), BATCH)
    check_same_on_ranks(model)


def case_words_of_keras_2():
    model = make_model()
    optimizer = tf.keras.optimizers.SGD(0.1)
    model.compile(optimizer, "mse", experimental_run_tf_function=False)
    model.fit(INPUTS[:8], np.zeros((8, 2), np.float32), verbose=0)
    hvd.broadcast_variables(optimizer.variables() if callable(optimizer.variables) else optimizer.variables, root_rank=0)
    assert len(optimizer.variables()) >= 1
    tf.keras.backend.set_value(optimizer.lr, 0.25)
    assert float(tf.keras.backend.get_value(optimizer.learning_rate)) == 0.25
    variable = tf.Variable(1.0)
    tf.keras.backend.set_value(variable, 2)
    assert float(variable) == 2
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "model.keras")
        model.save(path)
        assert tf.keras.models.load_model(path).optimizer is not None


def case_mixed_precision_with_backward_passes_per_step_trains_alike():
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = make_model()
        start = model.get_weights()
        optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.01), backward_passes_per_step=2)
        model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(own(INPUTS), own(LABELS), batch_size=BATCH, epochs=8, verbose=0)
        assert any(np.any(a != b) for a, b in zip(start, model.get_weights())), "no step was made"
        check_same_on_ranks(model)
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")


def own_loop(model, optimizer, is_scaled, compiled, lost=()):
    """Trains with a loop of the script's own; in the steps `lost`, the last rank's loss is too large to be scaled."""

    def step(x, y, factor):
        with tf.GradientTape() as tape:
            loss = loss_of(model, x, y) * factor
            scaled = optimizer.get_scaled_loss(loss) if is_scaled else loss
        gradients = tape.gradient(scaled, model.trainable_variables)
        gradients = optimizer.get_unscaled_gradients(gradients) if is_scaled else gradients
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    step = tf.function(step) if compiled else step
    for i in range(6):
        rows = slice(i * BATCH, (i + 1) * BATCH)
        factor = np.inf if i in lost and RANK == SIZE - 1 else 1.0
        if is_scaled or i not in lost:
            step(tf.constant(own(INPUTS)[rows]), tf.constant(own(LABELS)[rows]), tf.constant(factor, tf.float32))


def check_loss_scale(kind, wraps_scaling, compiled):
    scaling, sum_of = tf.keras.mixed_precision.LossScaleOptimizer, {"op": hvd.Sum}  # twice the sum would be seen, not the average
    options = {"initial_scale": 64, "dynamic_growth_steps": 2}
    model, expected = make_model(), make_model()
    optimizer = (
        hvd_keras.DistributedOptimizer(scaling(kind(0.05), **options), **sum_of)
        if wraps_scaling
        else scaling(hvd_keras.DistributedOptimizer(kind(0.05), **sum_of), **options)
    )
    own_loop(model, optimizer, True, compiled, lost=(1, 3))
    own_loop(expected, hvd_keras.DistributedOptimizer(kind(0.05), **sum_of), False, compiled, lost=(1, 3))
    check_same_on_ranks(model)
    near(model, expected)
    # It is halved in the two steps that are lost, and doubled after the last two, on all ranks.
    assert hvd.allgather_object(float(optimizer.loss_scale)) == [32.0] * SIZE


def case_a_loss_scale_in_an_own_loop_is_the_same_on_all_ranks():
    if KERAS_3:
        return  # its LossScaleOptimizer has other methods, and is refused around a DistributedOptimizer
    for kind in (tf.keras.optimizers.SGD, tf.keras.optimizers.legacy.SGD):
        for wraps_scaling in (False, True):
            for compiled in (False, True):
                check_loss_scale(kind, wraps_scaling, compiled)


def case_a_loss_scale_in_an_own_loop_with_backward_passes_per_step():
    if KERAS_3:
        return
    for kind in (tf.keras.optimizers.SGD, tf.keras.optimizers.legacy.SGD):
        model = make_model()
        start = model.get_weights()
        optimizer = hvd_keras.DistributedOptimizer(kind(0.05), backward_passes_per_step=2)
        optimizer = tf.keras.mixed_precision.LossScaleOptimizer(optimizer, initial_scale=64)
        own_loop(model, optimizer, True, True, lost=(2,))
        assert any(np.any(a != b) for a, b in zip(start, model.get_weights())), "no step was made"
        check_same_on_ranks(model)
        assert len(set(hvd.allgather_object(float(optimizer.loss_scale)))) == 1


def case_gradients_that_a_script_has_aggregated_are_not_reduced_again():
    if KERAS_3:
        return  # which has no such words
    kinds = [(tf.keras.optimizers.SGD, {"skip_gradients_aggregation": True}, "aggregate_gradients")]
    kinds += [(tf.keras.optimizers.legacy.SGD, {"experimental_aggregate_gradients": False}, "_aggregate_gradients")]
    for kind, words, aggregate in kinds:
        optimizer, variable = hvd_keras.DistributedOptimizer(kind(1.0), op=hvd.Sum), tf.Variable([0.0])
        for before, (more, named) in enumerate([((), words), ((), words), ((None, *words.values()), {})]):
            pairs = getattr(optimizer, aggregate)([(tf.constant([1.0]), variable)])
            optimizer.apply_gradients(pairs, *more, **named)
            assert variable.numpy() == [-SIZE * (before + 1)], variable
        optimizer.apply_gradients([(tf.constant([1.0]), variable)])
        assert variable.numpy() == [-SIZE * 4], variable


def case_a_program_puts_its_own_reduction_into_an_optimizer():
    """As programs with model-parallel layers do (NVIDIA's distributed-embeddings)."""
    if KERAS_3:
        return
    for kind in (tf.keras.optimizers.SGD, tf.keras.optimizers.legacy.SGD):
        for passes in (1, 2):
            optimizer = hvd_keras.DistributedOptimizer(kind(1.0), op=hvd.Sum, backward_passes_per_step=passes)
            assert "horovod._keras" in str(optimizer)
            reduce, lengths = optimizer._allreduce_grads, []

            def own_reduce(gradients, variables=None, use_generic_names=False, reduce=reduce, lengths=lengths):
                lengths.append(len(gradients))
                return [reduce(gradients[:1], variables[:1], use_generic_names)[0], *gradients[1:]]

            optimizer._allreduce_grads = own_reduce
            common, local = tf.Variable([0.0]), tf.Variable([0.0])
            for _ in range(passes):
                optimizer.apply_gradients([(tf.constant([1.0]), common), (tf.constant([1.0]), local)])
            assert (common.numpy(), local.numpy()) == ([-SIZE * passes], [-passes]), (common, local)
            assert lengths == [2]
        optimizer = hvd_keras.DistributedOptimizer(kind(1.0), op=hvd.Sum)
        assert optimizer._allreduce([tf.constant([2.0])])[0].numpy() == [2.0 * SIZE]
        optimizer._allreduce = lambda gradients, variables: gradients
        optimizer.apply_gradients([(tf.constant([1.0]), local)])
        assert local.numpy() == [-passes - 1], local


run_cases(globals(), hvd.barrier)
