"""Callbacks, schedules, elastic states and saved models with horovod.tensorflow.keras, and what programs ask of its optimizers; runs as
a rank (test_tensorflow.py), with Keras 3 or legacy Keras."""

import pathlib
import tempfile
import warnings

import lean_imports  # noqa: F401  (first)
import numpy as np
import tensorflow as tf
from rank_side import raises, run_cases
from tf_model import BATCH, INPUTS, KERAS_3, LABELS, RANK, ROWS, SIZE, check_same_on_ranks, fit, make_model, near, own

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
from horovod.tensorflow._aggregation import LocalAggregation
from horovod.tensorflow.util import state_of


def case_callbacks_of_keras():
    model = make_model()
    callbacks = [
        hvd_keras.callbacks.MetricAverageCallback(),
        hvd_keras.callbacks.LearningRateWarmupCallback(initial_lr=0.1 * SIZE, warmup_epochs=2),
        hvd_keras.callbacks.LearningRateScheduleCallback(initial_lr=0.1 * SIZE, multiplier=0.1, start_epoch=2),
    ]
    model.compile(
        optimizer=hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1 * SIZE, momentum=0.9)),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"],
    )  # fmt: skip
    history = model.fit(own(INPUTS), own(LABELS), batch_size=BATCH, epochs=4, verbose=0, callbacks=callbacks).history
    np.testing.assert_allclose(history["lr"][1:], [0.1 * SIZE, 0.1 * SIZE, 0.01 * SIZE], rtol=1e-5)
    everyone = hvd.allgather_object(history["accuracy"])
    assert all(other == everyone[0] for other in everyone)


def compiled_model(**options):
    model = make_model()
    optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
    model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), **options)
    return model


def case_a_loss_scale_that_rank_0_has_loaded_and_the_others_have_made():
    if KERAS_3:
        return
    scaling, ours = tf.keras.mixed_precision.LossScaleOptimizer, hvd_keras.DistributedOptimizer
    for kind in (tf.keras.optimizers.SGD, tf.keras.optimizers.legacy.SGD):
        model, expected = make_model(), make_model()
        as_loaded = scaling(ours(kind(0.05)), initial_scale=64)
        fit(model, as_loaded if RANK == 0 else ours(scaling(kind(0.05), initial_scale=64)), own(INPUTS), own(LABELS), BATCH, epochs=1)
        fit(expected, kind(0.05), INPUTS, LABELS, BATCH * SIZE, False, epochs=1)
        check_same_on_ranks(model)
        near(model, expected)
    again = scaling(ours(kind(0.05)))
    assert "already" in raises(ValueError, ours, again)


def case_variables_that_each_rank_keeps_to_itself_are_not_broadcast():
    make = hvd_keras.callbacks.BroadcastGlobalVariablesCallback
    for wrong in ("dense/kernel", [3], 3 * [np.zeros(2)]):
        assert "All local variables must be of tf.Variable type." in raises(ValueError, make, 0, local_variables=wrong)
    ways = [lambda layer: layer.kernel, lambda layer: [layer.kernel, layer.bias], lambda layer: ()]
    for way in [*ways, lambda layer: layer, lambda layer: layer.kernel.value] if KERAS_3 else ways:
        model = make_model(RANK)
        model.compile(tf.keras.optimizers.SGD(0.0), "mse")
        callback = make(0, local_variables=way(model.layers[-1]))
        model.fit(INPUTS[:8], INPUTS[:8, :2], verbose=0, callbacks=[callback])
        kernels = hvd.allgather_object([layer.get_weights()[0].tolist() for layer in (model.layers[0], model.layers[-1])])
        assert kernels[0][0] == kernels[-1][0] and (kernels[0][1] == kernels[-1][1]) == (way is ways[2]), kernels


def case_callbacks_that_decide_must_be_on_all_ranks():
    callbacks, model = tf.keras.callbacks, compiled_model()
    stopping, plateau = lambda: callbacks.EarlyStopping("loss"), lambda: callbacks.ReduceLROnPlateau("accuracy")
    schedule = lambda: callbacks.LearningRateScheduler(lambda epoch: 0.1)
    for common in (hvd_keras.callbacks.BroadcastGlobalVariablesCallback, hvd_keras.callbacks.MetricAverageCallback):
        common = common(0) if common is hvd_keras.callbacks.BroadcastGlobalVariablesCallback else common()
        for make, name in ((stopping, "EarlyStopping of loss"), (plateau, "ReduceLROnPlateau of accuracy"), (schedule, "LearningRateScheduler")):
            chosen = [common, *([make()] if RANK == 0 else [])]
            said = raises(ValueError, model.fit, own(INPUTS), own(LABELS), batch_size=BATCH, verbose=0, callbacks=chosen)
            assert f"only rank 0 has {name}." in said, said
    both = [hvd_keras.callbacks.MetricAverageCallback()] * (RANK > 0) + [hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)]
    assert "MetricAverageCallback" in raises(ValueError, model.fit, own(INPUTS), own(LABELS), verbose=0, callbacks=both)


def case_a_backup_of_one_rank():
    """Keras 3 begins on all ranks where it begins on the one that has restored it; legacy Keras cannot, and says so."""
    folder, epochs = hvd.broadcast_object(tempfile.mkdtemp()), []

    class Stop(Exception):
        pass

    def stop_in_third(epoch, _):
        epochs.append(epoch)
        if epoch == 2:
            raise Stop

    def run(model, *others):
        backup = [tf.keras.callbacks.BackupAndRestore(f"{folder}/backup")] if RANK == 0 else []
        chosen = [*backup, hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0), *others]
        return model.fit(own(INPUTS), own(LABELS), batch_size=BATCH, epochs=4, verbose=0, callbacks=chosen)

    ending = tf.keras.callbacks.LambdaCallback(on_epoch_begin=stop_in_third)
    if not KERAS_3:
        assert "only rank 0 has the callback BackupAndRestore" in raises(ValueError, run, compiled_model(), ending)
        return
    raises(Stop, run, compiled_model(), ending)
    model = compiled_model()
    model.set_weights([weight + RANK for weight in model.get_weights()])  # those of the backup count
    history = run(model)
    assert epochs == [0, 1, 2] and history.epoch == [2, 3], (epochs, history.epoch)
    check_same_on_ranks(model)
    expected = compiled_model()
    expected.fit(own(INPUTS), own(LABELS), batch_size=BATCH, epochs=4, verbose=0,
                 callbacks=[hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)])  # fmt: skip
    near(model, expected)
    behind = [tf.keras.callbacks.BackupAndRestore(f"{folder}/backup")] if RANK == 0 else []
    chosen = [hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0), *behind]
    said = raises(ValueError, compiled_model().fit, own(INPUTS), own(LABELS), verbose=0, callbacks=chosen)
    assert "behind hvd.callbacks.BroadcastGlobalVariablesCallback on rank 0" in said, said


def case_arguments_in_the_order_of_older_releases_are_told():
    warmup, schedule = hvd_keras.callbacks.LearningRateWarmupCallback, hvd_keras.callbacks.LearningRateScheduleCallback
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warmup(5)
        warmup(0.1), warmup(1), warmup(), warmup(warmup_epochs=3)
        schedule(1, multiplier=0.1), schedule(0.1, 2), schedule(multiplier=0.1)
    assert [str(w.message) for w in caught if "initial_lr" in str(w.message)] == [
        "LearningRateWarmupCallback(5): since Horovod 0.20 the first argument is initial_lr; write "
        "LearningRateWarmupCallback(warmup_epochs=5), or initial_lr=5.0 if it is the learning rate"
    ]
    assert caught[0].filename == __file__
    assert "write LearningRateScheduleCallback(multiplier=FUNCTION)" in raises(ValueError, schedule, lambda epoch: 0.1)
    assert "write multiplier=..." in raises(ValueError, schedule, 0.1, start_epoch=3)


def case_metrics_that_one_rank_alone_has_are_the_same_on_all():
    """So that they all stop when one of them does, whose validation data no other rank has."""
    model, saved = compiled_model(metrics=["accuracy"]), []
    chosen = [hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0), hvd_keras.callbacks.MetricAverageCallback(),
              tf.keras.callbacks.EarlyStopping("val_loss", min_delta=100.0)]  # fmt: skip
    if RANK == 0:  # one that decides nothing
        chosen.append(tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: saved.append(epoch)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = {"validation_data": (INPUTS[:8], LABELS[:8])} if RANK == 0 else {}
        history = model.fit(own(INPUTS), own(LABELS), batch_size=BATCH, epochs=4, verbose=0, callbacks=chosen, **data).history
    everyone = hvd.allgather_object(history)
    assert all(other == everyone[0] for other in everyone) and len(history["val_accuracy"]) == 2, everyone
    said = [str(w.message) for w in caught if "only rank 0 has val_accuracy; only rank 0 has val_loss" in str(w.message)]
    assert len(said) == (RANK == 0) and saved == ([0, 1] if RANK == 0 else []), (said, saved)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        early = [tf.keras.callbacks.EarlyStopping("loss"), hvd_keras.callbacks.MetricAverageCallback()]
        model.fit(own(INPUTS)[:BATCH], own(LABELS)[:BATCH], batch_size=BATCH, verbose=0, callbacks=early)
    assert any("EarlyStopping stands before" in str(w.message) for w in caught)


def case_schedules_without_initial_lr_begin_at_the_optimizers():
    """Scripts for older releases of Horovod give none; of legacy Keras too."""
    model = make_model()
    model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    schedule = hvd_keras.callbacks.LearningRateScheduleCallback
    adjusted = []

    class Noted(schedule):
        def _adjust_learning_rate(self, epoch):  # programs override it
            adjusted.append(epoch)
            super()._adjust_learning_rate(epoch)

    callbacks = [
        hvd_keras.callbacks.LearningRateWarmupCallback(warmup_epochs=1), Noted(start_epoch=1, end_epoch=3, multiplier=0.1),
        schedule(start_epoch=3, multiplier=0.01),
    ]  # fmt: skip
    rates = model.fit(own(INPUTS), own(LABELS), batch_size=BATCH, epochs=5, verbose=0, callbacks=callbacks).history["lr"]
    np.testing.assert_allclose(rates, [0.1, 0.01, 0.01, 0.001, 0.001], rtol=1e-5)
    assert adjusted == [1, 2]
    assert "multiplier" in raises(ValueError, schedule, 0.1)


def case_older_optimizers_have_their_momentum_corrected():
    if KERAS_3:
        return
    weights = []
    for kind in (tf.keras.optimizers.SGD, tf.keras.optimizers.legacy.SGD):
        for is_scaled in (False, True):
            model = make_model()
            optimizer = hvd_keras.DistributedOptimizer(kind(0.1, momentum=0.9))
            optimizer = tf.keras.mixed_precision.LossScaleOptimizer(optimizer) if is_scaled else optimizer
            model.compile(optimizer, "mse")
            callbacks = [hvd_keras.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 0.2 if epoch else 1.0)]
            targets = own(INPUTS)[:, :2]
            model.fit(own(INPUTS), targets, batch_size=BATCH, epochs=3, shuffle=False, verbose=0, callbacks=callbacks)
            weights.append(model)
    for model in weights[1:]:
        near(model, weights[0])


def case_keras_in_a_graph_of_tensorflow_1():
    if KERAS_3:
        return
    with tf.Graph().as_default(), tf.compat.v1.Session().as_default():
        model = make_model(RANK)
        optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.legacy.SGD(0.1, momentum=0.9))
        model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        callbacks = [
            hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0), hvd_keras.callbacks.MetricAverageCallback(),
            hvd_keras.callbacks.LearningRateWarmupCallback(warmup_epochs=2),
        ]  # fmt: skip
        rates = model.fit(own(INPUTS), own(LABELS), batch_size=BATCH, epochs=3, verbose=0, callbacks=callbacks).history["lr"]
        np.testing.assert_allclose(rates, [0.1 * (1 + 1 / SIZE) / 2, 0.1, 0.1], rtol=1e-5)
        weights = model.get_weights()
    for mine, others in zip(weights, hvd.broadcast_object(weights)):
        np.testing.assert_array_equal(mine, others)


def case_keras_in_a_graph_of_tensorflow_1_with_backward_passes_per_step():
    if KERAS_3:
        return
    with tf.Graph().as_default(), tf.compat.v1.Session().as_default():
        model, start = make_model(), make_model().get_weights()
        optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.legacy.SGD(0.1), backward_passes_per_step=2)
        model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(own(INPUTS), own(LABELS), batch_size=BATCH, epochs=2, verbose=0)
        weights = model.get_weights()
    assert all(np.any(a != b) for a, b in zip(weights, start))
    for mine, others in zip(weights, hvd.broadcast_object(weights)):
        np.testing.assert_array_equal(mine, others)


def case_keras_states_in_a_graph_of_tensorflow_1():
    """Made before Keras has initialised the optimizer's variables, shared, and restored after a step."""
    if KERAS_3:
        return
    for kind in (hvd.elastic.TensorFlowKerasState, hvd_keras.elastic.KerasState):
        with tf.Graph().as_default(), tf.compat.v1.Session().as_default():
            model = make_model(RANK)
            model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.legacy.SGD(0.1, momentum=0.9)), "mse")
            values = lambda: model.get_weights() + model.optimizer.get_weights()
            state = kind(model, batch=RANK)
            state.sync()
            kept = values()
            assert state.batch == 0 and len(kept) == 2 * len(model.weights) + 1
            for mine, first in zip(kept, hvd.broadcast_object(kept)):
                np.testing.assert_array_equal(mine, first)
            model.fit(own(INPUTS)[:BATCH], own(INPUTS)[:BATCH, :2], verbose=0)
            assert all(np.any(now != before) for now, before in zip(values(), kept))
            state.restore()
            for now, before in zip(values(), kept):
                np.testing.assert_array_equal(now, before)


def case_rank_0_alone_resumes_a_model_of_mixed_float16_of_legacy_keras():
    """compile() scales the loss around our optimizer on the others, and load_model() must do so too."""
    if KERAS_3:
        return  # rank_keras_cases.py has it
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        for kind in (tf.keras.optimizers.SGD, tf.keras.optimizers.legacy.SGD):
            model = make_model()
            model.compile(hvd_keras.DistributedOptimizer(kind(0.001 * (RANK + 1))), "mse")
            model.fit(own(INPUTS)[:BATCH], own(INPUTS)[:BATCH, :2], verbose=0)  # legacy Keras loads no file of an optimizer without a step
            if RANK == 0:
                with tempfile.TemporaryDirectory() as folder:
                    model.save(f"{folder}/model.keras")
                    model = hvd_keras.load_model(f"{folder}/model.keras")
                model.optimizer._loss_scale.current_loss_scale.assign(64.0)
            callbacks = [hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)]
            model.fit(own(INPUTS), own(INPUTS)[:, :2], batch_size=BATCH, epochs=1, verbose=0, callbacks=callbacks)
            check_same_on_ranks(model)
            told = hvd.allgather_object((float(model.optimizer.learning_rate), float(model.optimizer.loss_scale)))
            assert told == [told[0]] * SIZE and np.isclose(told[0][0], 0.001) and told[0][1] <= 64.0, told
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")


def case_learning_rates_and_loss_scales_of_legacy_keras_are_in_the_state():
    if KERAS_3:
        return  # whose optimizers have them among their variables
    optimizers, schedules = tf.keras.optimizers, tf.keras.optimizers.schedules
    for kind in (optimizers.SGD, optimizers.legacy.SGD):
        for state_kind in (hvd.elastic.TensorFlowKerasState, hvd_keras.elastic.KerasState):
            model = make_model()
            optimizer = hvd_keras.DistributedOptimizer(kind(0.25 * (RANK + 1)))
            scaled = tf.keras.mixed_precision.LossScaleOptimizer(optimizer, initial_scale=2.0 ** (RANK + 4))
            scaled._loss_scale.counter.assign(RANK + 3)
            model.compile(scaled, "mse")
            state = state_kind(model, batch=0)
            state.sync()
            values = lambda: (float(scaled.learning_rate), float(scaled.loss_scale), int(scaled.dynamic_counter))
            assert values() == (0.25, 16.0, 3), values()
            scaled.learning_rate = 0.5
            scaled._loss_scale.current_loss_scale.assign(2.0)
            state.restore()
            assert values() == (0.25, 16.0, 3), values()
    for optimizer in (optimizers.SGD(schedules.ExponentialDecay(0.5, 10, 0.5)), optimizers.legacy.SGD(lambda: 0.5), None):
        variables = state_of(optimizer)
        assert len({id(variable) for variable in variables}) == len(variables), variables
    fixed = tf.keras.mixed_precision.LossScaleOptimizer(optimizers.SGD(0.25), dynamic=False, initial_scale=4.0)
    assert [float(variable) for variable in state_of(fixed)] == [0.0, 0.25]  # its iterations, and the rate


def case_a_constant_multiplier_without_staircase_decays_in_each_batch():
    seen = []

    class Look(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(float(self.model.optimizer.learning_rate))

    model = make_model()
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
    callbacks = [hvd_keras.callbacks.LearningRateScheduleCallback(0.1, 0.5, staircase=False), Look()]
    model.fit(INPUTS[:32], np.zeros((32, 2), np.float32), batch_size=8, epochs=2, verbose=0, callbacks=callbacks)
    np.testing.assert_allclose(seen, [0.1 * 0.5 ** (batch / 4) for batch in range(8)], rtol=1e-5)


def case_the_callback_of_notebooks_fits_this_keras():
    from sparkdl.horovod.tensorflow.keras import LogCallback

    model = make_model()
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
    model.fit(INPUTS[:8], np.zeros((8, 2), np.float32), verbose=0, callbacks=[LogCallback(per_batch_log=True)])


def case_after_a_failure_the_first_epoch_has_only_the_batches_that_are_left():
    model = make_model()
    model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.optimizer.build(model.trainable_variables)
    state = hvd_keras.elastic.KerasState(model, epoch=0, batch=0)
    state.batch = 5
    counts, done = [], []

    class Count(tf.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            counts.append(0)

        def on_train_batch_end(self, batch, logs=None):
            counts[-1] += 1
            done.append(state.batch)

    callbacks = [hvd_keras.elastic.UpdateBatchStateCallback(state), Count()]
    model.fit(own(INPUTS), own(LABELS), batch_size=BATCH, epochs=2, verbose=0, callbacks=callbacks)
    assert counts == [ROWS // BATCH - 5, ROWS // BATCH] and done[:3] == [6, 7, 8] and state.batch == 0, (counts, done)


def case_a_program_asks_whether_an_optimizer_is_distributed():
    """As Merlin Models does, which would otherwise distribute it itself."""
    if KERAS_3:
        return
    for kind in (tf.keras.optimizers.SGD, tf.keras.optimizers.legacy.SGD):
        assert not kind(0.1).__module__.startswith("horovod")
        optimizer = hvd_keras.DistributedOptimizer(kind(0.1))
        for made in (optimizer, type(optimizer).from_config(optimizer.get_config())):
            assert made.__module__.startswith("horovod"), made.__module__
            assert "horovod" not in type(made).__module__  # saved models have this one


def case_with_backward_passes_per_step_legacy_keras_counts_batches():
    if KERAS_3:
        return  # which counts steps itself
    optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), backward_passes_per_step=2)
    fit(make_model(), optimizer, own(INPUTS), own(LABELS), BATCH)
    assert optimizer.iterations.numpy() % (ROWS // BATCH) == 0 and optimizer.iterations.numpy() > 0


def case_keras_functions_give_tensors_in_a_function():
    @tf.function
    def total(value):
        return hvd_keras.allreduce(value, op=hvd.Sum) + 1.0

    assert float(total(tf.constant(1.0 + RANK))) == SIZE * (SIZE + 1) / 2 + 1


def case_passes_are_counted_anew_with_a_state_that_is_restored_or_shared():
    variable = tf.Variable(1.0)
    helper = LocalAggregation(2, lambda gradients, _: [hvd.allreduce(one, op=hvd.Sum) for one in gradients], False, False)
    state = hvd.elastic.TensorFlowState([variable])

    def passes(*values):
        return [float(helper.compute_gradients([tf.constant(value)], [variable])[0]) for value in values]

    assert passes(1.0) == [0.0]
    state.restore()
    assert passes(2.0, 4.0) == [0.0, 6.0 * SIZE]
    if RANK == 0:  # which is in the middle of a step when another joins
        passes(8.0)
    state.sync()
    assert passes(1.0, 2.0) == [0.0, 3.0 * SIZE]
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(1.0)
    optimizer = hvd.DistributedOptimizer(optimizer, op=hvd.Adasum, backward_passes_per_step=2)
    if RANK == 0:
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
    state.sync()
    for _ in range(2):
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
    assert int(optimizer.counter) == 0
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("v", initializer=1.0, use_resource=True, trainable=False)
        helper = LocalAggregation(2, lambda gradients, _: gradients, False, False)
        (gradient,) = helper.compute_gradients([tf.constant(2.0)], [variable])
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
        state = hvd.elastic.TensorFlowState(session=session)
        assert session.run(gradient) == 0
        state.restore()
        assert [session.run(gradient) for _ in range(2)] == [0, 4]


def case_a_function_among_custom_objects_makes_the_optimizer_of_a_loaded_model():
    """As in Horovod's own scripts, which load .h5 files so."""

    class Mine(tf.keras.optimizers.SGD):
        pass

    made = []

    def make(**settings):
        made.append(settings["learning_rate"])
        return hvd_keras.DistributedOptimizer(Mine(**settings))

    model = make_model()
    fit(model, hvd_keras.DistributedOptimizer(Mine(0.25, momentum=0.5)), own(INPUTS), own(LABELS), BATCH, epochs=1)
    with tempfile.TemporaryDirectory() as folder:
        for i, name in enumerate(("model.keras", "model.h5")):
            path = str(pathlib.Path(folder, name))
            model.save(path)
            again = hvd_keras.load_model(path, custom_objects={"Mine": make, "other": lambda: None})
            assert type(again.optimizer).__name__ == "Mine" and made == [0.25] * (i + 1), made
            again.fit(own(INPUTS), own(LABELS), batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
            check_same_on_ranks(again)
        schedule = tf.keras.optimizers.schedules.ExponentialDecay(0.5, 10, 0.5)
        model = make_model()
        fit(model, hvd_keras.DistributedOptimizer(Mine(schedule)), own(INPUTS), own(LABELS), BATCH, epochs=1)
        model.save(path := str(pathlib.Path(folder, "schedule.keras")))
        hvd_keras.load_model(path, custom_objects={"Mine": make})
        assert type(made[-1]) is type(schedule) and made[-1].get_config() == schedule.get_config(), made


def case_a_registered_optimizer_is_saved_under_its_name():
    """Else a file of it loads nowhere: Keras looks for classes of others' by their names in its register."""

    @tf.keras.utils.register_keras_serializable("my_package")
    class Mine(tf.keras.optimizers.SGD):
        pass

    made = []

    def make(**settings):
        made.append(settings["learning_rate"])
        return hvd_keras.DistributedOptimizer(Mine(**settings))

    model = make_model()
    fit(model, hvd_keras.DistributedOptimizer(Mine(0.25)), own(INPUTS), own(LABELS), BATCH, epochs=1)
    with tempfile.TemporaryDirectory() as folder:
        for i, name in enumerate(("model.keras", "model.h5")):
            path = str(pathlib.Path(folder, name))
            model.save(path)
            assert type(tf.keras.models.load_model(path).optimizer) is Mine
            ours = hvd_keras.load_model(path).optimizer
            assert isinstance(ours, Mine) and type(ours) is not Mine
            assert isinstance(hvd_keras.load_model(path, custom_objects={"Mine": make}).optimizer, Mine) and made == [0.25] * (i + 1)
    assert tf.keras.utils.get_registered_object("my_package>Mine") is Mine


def case_elastic_states():
    variable = tf.Variable(float(RANK))
    state = hvd.elastic.TensorFlowState([variable], batch=RANK)
    state.sync()
    assert variable.numpy() == 0.0 and state.batch == 0
    variable.assign(5.0)
    state.batch = 7
    state.restore()
    assert variable.numpy() == 0.0 and state.batch == 0
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        plain = hvd.elastic.TensorFlowState(batch=RANK)
    assert "keeps plain objects only, and no weights" in str(told[-1].message)
    plain.sync()
    assert plain.batch == 0

    for kind in (hvd.elastic.TensorFlowKerasState, hvd_keras.elastic.KerasState):
        model = make_model(seed=RANK)
        optimizer = tf.keras.optimizers.Adam(0.1)
        optimizer.build(model.trainable_variables)
        keras_state = kind(model, optimizer, epoch=RANK)
        keras_state.sync()
        check_same_on_ranks(model)
        assert keras_state.epoch == 0
        kept = model.get_weights()
        model.set_weights([weight + 1 for weight in kept])
        keras_state.restore()
        assert all(np.array_equal(a, b) for a, b in zip(model.get_weights(), kept))


def case_elastic_run_goes_on_after_an_error():
    attempts = []

    @hvd.elastic.run
    def train(state):
        attempts.append(state.step)
        if len(attempts) == 1:
            state.step = 5
            tf.function(lambda: hvd.allreduce(tf.ones([2 + RANK]), name="fails"))()
        return state.step

    state = hvd.elastic.TensorFlowState([tf.Variable(1.0)], step=1)
    assert train(state) == (5 if SIZE == 1 else 1)
    assert attempts == ([1] if SIZE == 1 else [1, 1])


def case_what_elastic_states_do_not_cover_is_named():
    class OddModule(tf.Module):
        def __init__(self):
            super().__init__()
            self.weight = tf.Variable(tf.ones([2, 3]), name="odd.weight")
            self.fixed = tf.Variable(tf.ones([2, 3]), name="odd.fixed", trainable=False)

    class OddSGD(tf.keras.optimizers.SGD):
        pass

    class OddDense(tf.keras.layers.Dense):
        pass

    def lines(state):
        return [line for line in hvd.elastic.check(state) if "odd" in line.lower()]

    module, single = OddModule(), tf.Variable(tf.ones(4), name="odd.single")
    single.assign_add(tf.ones(4))
    module_line = "OddModule: a model, of which 6 trained numbers are not in the state"
    single_line = "odd.single:0: a variable of 4 trained numbers"
    assert lines(hvd.elastic.TensorFlowState([])) == [module_line, single_line], lines(hvd.elastic.TensorFlowState([]))
    assert lines(hvd.elastic.TensorFlowState([single])) == [module_line]
    assert lines(hvd.elastic.TensorFlowState([single, *module.variables])) == []

    model = tf.keras.Sequential([tf.keras.layers.Input((3,)), OddDense(2)])
    optimizer = OddSGD(0.1, momentum=0.9)
    optimizer.build(model.trainable_variables)
    dense_line = "OddDense: a model, of which 8 trained numbers are not in the state"
    for kind in (hvd.elastic.TensorFlowKerasState, hvd_keras.elastic.KerasState):
        found = lines(kind(model, optimizer))
        assert found == [module_line, single_line], found
    found = hvd_keras.elastic.check(hvd.elastic.TensorFlowState([]))
    assert "OddSGD: an optimizer" in found, found
    assert "Sequential: a model, of which 8 trained numbers are not in the state" in found and dense_line not in found, found


run_cases(globals(), hvd.barrier)
