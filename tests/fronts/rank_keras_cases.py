"""Each case runs on all ranks, on the backend that KERAS_BACKEND names: Keras 3 with horovod.keras against one process that has the
whole batch, on scikit-learn's digits."""

import functools
import os
import sys
import tempfile
import warnings
from unittest import mock

from keras_model import (  # first, since it chooses the backend
    BACKEND, BATCH, OPTIMIZERS, RANK, SIZE, STEPS, X, Y, check_training, compile_model, fit, make_model, own, same_on_all,
)  # fmt: skip

import h5py
import keras
import numpy as np
from rank_side import raises, run_cases

import horovod.keras as hvd
from horovod.common.elastic import HostUpdateResult
from horovod.common.exceptions import HostsUpdatedInterrupt
from horovod.common.util import is_version_greater_equal_than


def case_sgd_with_momentum_and_clipping():
    model = check_training(lambda: OPTIMIZERS.SGD(0.1, momentum=0.9, global_clipnorm=0.5, weight_decay=1e-3), {"groups": 2})
    assert type(model.optimizer).__module__ == "keras.optimizers"


def case_adam_with_jit_compile_on_and_off():
    # Adam's first steps are the sign of the gradient: where that is about 0, rounding decides. So epsilon is large.
    check_training(lambda: OPTIMIZERS.Adam(1e-2, epsilon=1e-2), {"gradient_predivide_factor": 2.0})
    for jit_compile in {"tensorflow": (True, False), "jax": (False,), "torch": ()}[BACKEND]:
        train = functools.partial(check_training, lambda: OPTIMIZERS.Adam(1e-2, epsilon=1e-2), jit_compile=jit_compile)
        if jit_compile and not can_compile():
            assert "jit_compile=False" in raises(NotImplementedError, train)
        else:
            train()


def can_compile():
    """Whether compiled functions of TensorFlow can hold our operations: from 2.19 on."""
    import tensorflow

    return is_version_greater_equal_than(tensorflow.__version__, "2.19")


def case_mixed_precision():
    # What is reduced twice would be seen of a sum, and not of an average.
    ours, reference = lambda: OPTIMIZERS.SGD(0.1 / SIZE), lambda: OPTIMIZERS.SGD(0.1)
    model = check_training(ours, {"op": hvd.Sum}, policy="mixed_float16", tolerance=1e-2, reference=reference)
    assert isinstance(model.optimizer, OPTIMIZERS.LossScaleOptimizer)


def case_mixed_precision_where_one_rank_alone_overflows():
    x = own(X).copy()
    if RANK == SIZE - 1:
        x[: 2 * BATCH] = np.nan  # two of the first epoch's steps are skipped by all
    for scaled in (OPTIMIZERS.LossScaleOptimizer, lambda optimizer: optimizer):  # by the script, and by Keras
        model = make_model("mixed_float16")
        compile_model(model, hvd.DistributedOptimizer(scaled(OPTIMIZERS.SGD(0.1, momentum=0.5))))
        fit(model, x, own(Y), BATCH, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)], epochs=1)
        same_on_all(model)
        assert int(keras.ops.convert_to_numpy(model.optimizer.inner_optimizer.iterations)) == STEPS - 2
        assert all(np.isfinite(w).all() for w in model.get_weights())


def case_mixed_precision_in_a_loop_of_ones_own_trains_as_without_us():
    """There nobody scales the loss, unless the script does: Keras does so in compile(), for fit() alone."""
    model = make_model("mixed_float16")
    keras.config.set_dtype_policy("mixed_float16")
    try:
        assert steps_of(hvd.DistributedOptimizer(OPTIMIZERS.SGD(1.0)), 2) == -(SIZE + 1)
        optimizer = hvd.DistributedOptimizer(OPTIMIZERS.SGD(1.0))
        compile_model(model, optimizer)
        assert float(optimizer.scale_loss(2.0)) == 2.0 and float(model.optimizer.scale_loss(2.0)) > 2.0
        before = [keras.ops.convert_to_numpy(variable) for variable in model.trainable_variables]
        gradients = [keras.ops.convert_to_tensor(np.full_like(value, RANK + 1)) for value in before]
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        for variable, value in zip(model.trainable_variables, before):
            np.testing.assert_allclose(keras.ops.convert_to_numpy(variable), value - (SIZE + 1) / 2, rtol=1e-5)
        state = hvd.elastic.KerasState(model, optimizer)
        assert state.optimizer is model.optimizer, "the scales of the ranks would differ"
        scaled = hvd.DistributedOptimizer(OPTIMIZERS.LossScaleOptimizer(OPTIMIZERS.SGD(1.0), initial_scale=2.0))
        assert float(scaled.scale_loss(1.0)) == 2.0
        if BACKEND != "jax":  # where Keras' LossScaleOptimizer has stateless_apply only
            assert steps_of(scaled, 2) == -(SIZE + 1) / 2
    finally:
        keras.config.set_dtype_policy("float32")


def case_a_loss_scale_around_ours_is_refused():
    optimizer = OPTIMIZERS.LossScaleOptimizer(hvd.DistributedOptimizer(OPTIMIZERS.SGD(0.1)))
    assert "hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(" in raises(ValueError, steps_of, optimizer, 1)


def case_accumulation():
    check_training(lambda: OPTIMIZERS.SGD(0.1, momentum=0.9, gradient_accumulation_steps=2))
    # Keras' own mean of several passes, reduced once; and Horovod's sum of them.
    plain = lambda: OPTIMIZERS.SGD(0.1, momentum=0.9)
    twice = lambda: OPTIMIZERS.SGD(0.1, momentum=0.9, gradient_accumulation_steps=2)
    model = check_training(plain, {"backward_passes_per_step": 2, "average_aggregated_gradients": True}, reference=twice)
    assert model.optimizer.get_config()["gradient_accumulation_steps"] == 2
    sums = lambda: OPTIMIZERS.SGD(0.2, momentum=0.9, gradient_accumulation_steps=2)
    check_training(plain, {"backward_passes_per_step": 2}, reference=sums)


def case_several_optimizers_in_one():
    if not hasattr(OPTIMIZERS, "MultiOptimizer"):
        return

    def make():
        return OPTIMIZERS.MultiOptimizer(OPTIMIZERS.OptimizerMap(OPTIMIZERS.SGD(0.1), {".*bias": OPTIMIZERS.SGD(0.2, momentum=0.5)}))

    check_training(make)


def case_layers_that_each_rank_keeps_to_itself():
    model = make_model()
    last = model.layers[-1]
    compile_model(model, hvd.PartialDistributedOptimizer(OPTIMIZERS.SGD(0.1), local_layers=last))
    fit(model, own(X), own(Y), BATCH, epochs=1)
    kernels = [hvd.allgather_object(np.asarray(keras.ops.convert_to_numpy(layer.kernel)).tobytes()) for layer in (model.layers[0], last)]
    assert len(set(kernels[1])) == SIZE
    assert len(set(kernels[0])) == SIZE or SIZE > 1  # what is behind it gets other gradients on each rank, reduced


def steps_of(optimizer, count):
    """What becomes of a variable 0 after so many gradients of rank + 1."""
    variable = keras.Variable(np.zeros(2, np.float32))
    optimizer.build([variable])
    for _ in range(count):
        optimizer.apply([keras.ops.convert_to_tensor(np.full(2, RANK + 1, np.float32))], [variable])
    return float(keras.ops.convert_to_numpy(variable)[1])


def case_ranks_that_are_not_of_the_process_set_keep_their_own_gradients():
    last = hvd.add_process_set([SIZE - 1]) if SIZE > 1 else hvd.global_process_set
    wrap = lambda **options: hvd.DistributedOptimizer(OPTIMIZERS.SGD(1.0), process_set=last, **options)
    assert steps_of(wrap(), 2) == -2 * (RANK + 1)
    assert steps_of(wrap(backward_passes_per_step=2), 2) == -2 * (RANK + 1)  # their sum
    assert steps_of(wrap(backward_passes_per_step=2, average_aggregated_gradients=True), 2) == -(RANK + 1)
    hvd.remove_process_set(last)
    unknown = hvd.DistributedOptimizer(OPTIMIZERS.SGD(1.0), process_set=hvd.ProcessSet([0]))
    assert "hvd.add_process_set()" in raises(ValueError, steps_of, unknown, 1)


def case_a_variable_of_each_ranks_own_steps_by_the_sum_of_backward_passes():
    for scale in (False, True):
        optimizer = hvd.DistributedOptimizer(OPTIMIZERS.SGD(1.0), backward_passes_per_step=2, scale_local_gradients=scale)
        variable = keras.Variable(np.zeros(2, np.float32))
        optimizer.register_local_var(variable)
        optimizer.build([variable])
        for _ in range(2):
            optimizer.apply([keras.ops.convert_to_tensor(np.full(2, RANK + 1, np.float32))], [variable])
        assert keras.ops.convert_to_numpy(variable)[0] == -2 * (RANK + 1) / (SIZE if scale else 1)


def case_a_compiled_step_scales_a_local_gradient_by_the_ranks_that_there_are():
    optimizer, variable = hvd.DistributedOptimizer(OPTIMIZERS.SGD(1.0)), keras.Variable(np.zeros(2, np.float32))
    optimizer.register_local_var(variable)
    optimizer.build([variable])
    if BACKEND == "tensorflow":
        step = sys.modules["tensorflow"].function(lambda gradient: optimizer.apply([gradient], [variable]))
        graph = step.get_concrete_function(keras.ops.ones(2)).graph
        assert "HorovodSize" in [operation.type for operation in graph.get_operations()], "it is asked when the step runs"
    elif BACKEND == "jax":
        programs = sys.modules["horovod.jax._programs"]
        values = [v.value for v in optimizer.variables]
        with mock.patch.object(programs, "_depends_on_ranks", False):
            step = lambda gradient: optimizer.stateless_apply(values, [gradient], [variable.value])
            sys.modules["jax"].make_jaxpr(step)(np.ones(2, np.float32))
            assert programs.has_any_that_depends_on_ranks(), "the step is traced again for other ranks"


def case_a_state_of_a_loop_that_leaves_the_model_as_it_was():
    """On JAX a loop of one's own has its arrays beside the model, and a commit would keep the first ones."""
    model = make_model()
    optimizer = OPTIMIZERS.SGD(0.1)
    optimizer.build(model.trainable_variables)

    def said(change, **values):
        state = hvd.elastic.KerasState(model, optimizer, **values)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            state.commit()  # before any batch
            change(state)
            state.commit()
            state.commit()
        return [str(w.message) for w in caught if "KerasState" in str(w.message)]

    def train(state):
        model.trainable_variables[0].assign(model.trainable_variables[0] + 1)
        state.batch += 1

    def count(state):
        state.batch += 1

    def become_an_array(state):
        state.batch = np.zeros(2)

    assert said(become_an_array, batch=0) == []
    assert said(train, batch=0) == said(lambda state: None, batch=0) == []
    told = said(count, batch=0, name="x")
    assert len(told) == (BACKEND == "jax") and all("stateless_apply" in text and "JaxState" in text for text in told), told


def case_callbacks():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS.SGD(0.4, momentum=0.9))
    compile_model(model, optimizer)
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))

    folder = tempfile.mkdtemp()
    best = hvd.callbacks.BestModelCheckpoint(monitor="loss")
    assert "filepath" in raises(ValueError, best.on_train_begin)
    best.filepath = f"{folder}/best.keras"
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(0.4, warmup_epochs=1, verbose=RANK == 0),
        hvd.callbacks.LearningRateScheduleCallback(0.4, 0.5, start_epoch=1), Watch(), best,
    ]  # fmt: skip
    history = fit(model, own(X), own(Y), BATCH, callbacks, epochs=3)
    same_on_all(model)
    assert len({str(h) for h in hvd.allgather_object({k: v for k, v in history.items()})}) == 1
    ramp = [0.4 / SIZE * ((i + 1) / STEPS * (SIZE - 1) + 1) for i in range(STEPS)]
    np.testing.assert_allclose(seen, ramp + [0.4] * STEPS + [0.2] * STEPS, rtol=1e-5)
    np.testing.assert_allclose(history["lr"], [0.4, 0.4, 0.2], rtol=1e-5)
    assert os.path.getsize(best.filepath) > 1000
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(model, own(X), own(Y), BATCH, [keras.callbacks.EarlyStopping("loss"), hvd.callbacks.MetricAverageCallback()], epochs=1)
    assert any("EarlyStopping stands before" in str(w.message) for w in caught)
    if SIZE > 1:
        chosen = [hvd.callbacks.MetricAverageCallback(), *([keras.callbacks.ReduceLROnPlateau("loss")] if RANK == 1 else [])]
        assert "only rank 1 has ReduceLROnPlateau of loss" in raises(ValueError, fit, model, own(X), own(Y), BATCH, chosen)


def case_a_loss_that_is_no_number_ends_the_fit_of_all_ranks():
    """The last rank alone has it in its second batch; the others would wait for its gradients."""
    model = make_model()
    compile_model(model, hvd.DistributedOptimizer(OPTIMIZERS.SGD(0.4)))
    x = own(X).copy()
    if RANK == SIZE - 1:
        x[BATCH : 2 * BATCH] = np.nan
    ended = []
    batches = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: ended.append(batch))
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), keras.callbacks.TerminateOnNaN(), batches]
    history = fit(model, x, own(Y), BATCH, callbacks, epochs=3)
    assert len(history["loss"]) == 1 and ended == [0, 1], (history, ended)


def case_schedules_without_initial_lr_begin_at_the_optimizers():
    """Scripts for older releases of Horovod give none. Each fit begins at the learning rate that it finds."""
    model = make_model()
    compile_model(model, hvd.DistributedOptimizer(OPTIMIZERS.SGD(0.4)))
    schedule = hvd.callbacks.LearningRateScheduleCallback
    adjusted = []

    class Noted(schedule):
        def _adjust_learning_rate(self, epoch):  # programs override it
            adjusted.append(epoch)
            super()._adjust_learning_rate(epoch)

    callbacks = [
        hvd.callbacks.LearningRateWarmupCallback(warmup_epochs=1), Noted(start_epoch=1, end_epoch=3, multiplier=0.5),
        schedule(start_epoch=3, multiplier=0.25, staircase=False),
    ]  # fmt: skip
    for begin in (0.4, 0.1):
        rates = fit(model, own(X), own(Y), BATCH, callbacks, epochs=5)["lr"]
        np.testing.assert_allclose(rates, [begin, begin / 2, begin / 2, begin / 4, begin / 4], rtol=1e-5)
    assert adjusted == [1, 2, 1, 2]
    assert "multiplier" in raises(ValueError, schedule, 0.4)


def case_momentum_is_corrected_when_the_learning_rate_changes():
    """A schedule is the same in one process whose momentum slots are scaled by hand; on compiled backends too."""
    weights = []
    for is_ours in (True, False):
        model = make_model()
        if weights:
            model.set_weights(start)
        start = model.get_weights()
        optimizer = OPTIMIZERS.SGD(0.2, momentum=0.9)
        compile_model(model, hvd.DistributedOptimizer(optimizer) if is_ours else optimizer)

        class ByHand(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                if epoch == 1:
                    self.model.optimizer.learning_rate = 0.05
                    for slot in self.model.optimizer.momentums:
                        slot.assign(slot * 0.25)

        callback = hvd.callbacks.LearningRateScheduleCallback(0.2, lambda epoch: 0.25 if epoch else 1.0) if is_ours else ByHand()
        fit(model, own(X) if is_ours else X, own(Y) if is_ours else Y, BATCH if is_ours else BATCH * SIZE, [callback])
        weights.append(model.get_weights())
    for got, expected in zip(*weights):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


def case_saved_models_load_without_us_and_with_us():
    model = make_model()
    compile_model(model, hvd.DistributedOptimizer(OPTIMIZERS.Adam(1e-2)))
    fit(model, own(X), own(Y), BATCH, epochs=1)
    path = f"{tempfile.mkdtemp()}/model.keras"
    model.save(path)
    plain = keras.saving.load_model(path)
    assert not hasattr(plain.optimizer, "register_local_var") and type(plain.optimizer).__name__ == "Adam"
    ours = hvd.load_model(path)
    for loaded in plain, ours:
        for got, expected in zip(loaded.optimizer.variables, model.optimizer.variables):
            np.testing.assert_array_equal(keras.ops.convert_to_numpy(got), keras.ops.convert_to_numpy(expected))
    fit(ours, own(X), own(Y), BATCH, epochs=1)
    same_on_all(ours)


def case_rank_0_alone_resumes_a_model_of_mixed_float16():
    """Its gradients have the names of the others', and their loss is scaled as its is from the first batch on."""
    model, other = make_model("mixed_float16"), make_model("mixed_float16")
    for one in (model, other):
        compile_model(one, hvd.DistributedOptimizer(OPTIMIZERS.SGD(0.1, momentum=0.5)))
    fit(model, own(X), own(Y), BATCH, epochs=1)
    model.optimizer.dynamic_scale.assign(1024.0)
    path = f"{tempfile.mkdtemp()}/model.keras"
    model.save(path)
    keras.config.set_dtype_policy("mixed_float16")  # by which Keras scales the loss of a loaded model
    try:
        resumed = hvd.load_model(path) if RANK == 0 else other
    finally:
        keras.config.set_dtype_policy("float32")
    for one, callbacks in ((model, []), (resumed, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])):
        fit(one, own(X), own(Y), BATCH, callbacks, epochs=1)
    same_on_all(resumed)
    for got, expected in zip(resumed.get_weights(), model.get_weights()):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-3)


def case_a_loaded_model_that_takes_the_mean_of_passes_says_so():
    """The file does not say that passes were added up, and steps are so many times smaller then."""
    path = f"{tempfile.mkdtemp()}/model.keras"
    for policy in ("float32", "mixed_float16"):
        for options, count in (({"backward_passes_per_step": 2}, 1), ({}, 0)):
            model = make_model(policy)
            compile_model(model, hvd.DistributedOptimizer(OPTIMIZERS.SGD(0.1), **options))
            model.optimizer.build(model.trainable_variables)
            model.save(path)
            keras.config.set_dtype_policy(policy)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                loaded = hvd.load_model(path)
            keras.config.set_dtype_policy("float32")
            assert hasattr(loaded.optimizer, "inner_optimizer") == (policy != "float32")
            said = [w for w in caught if "gradient_accumulation_steps=2" in str(w.message)]
            assert len(said) == count and all("backward_passes_per_step=2" in str(w.message) for w in said), said
            assert all(w.filename == __file__ for w in said)


def case_a_model_from_a_h5_file_trains_on():
    """In which Horovod's examples keep checkpoints. Keras itself loses the optimizer's state, and then refuses to train."""
    for policy in ("float32", "mixed_float16"):
        model = make_model(policy)
        keras.config.set_dtype_policy(policy)
        compile_model(model, hvd.DistributedOptimizer(OPTIMIZERS.Adam(1e-2)))
        fit(model, own(X), own(Y), BATCH, epochs=1)
        path = f"{tempfile.mkdtemp()}/checkpoint-1.h5"
        model.save(path)
        with h5py.File(path) as file:
            loaded = hvd.load_model(file if policy == "float32" else path)
        keras.config.set_dtype_policy("float32")
        assert len(loaded.optimizer.variables) == len(model.optimizer.variables) > 4
        for got, expected in zip(loaded.optimizer.variables, model.optimizer.variables):
            np.testing.assert_array_equal(keras.ops.convert_to_numpy(got), keras.ops.convert_to_numpy(expected))
        fit(loaded, own(X), own(Y), BATCH, epochs=1)
        same_on_all(loaded)


def case_old_names():
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS.SGD(0.5))
    optimizer.lr = 0.25
    assert float(keras.ops.convert_to_numpy(optimizer.learning_rate)) == 0.25
    optimizer.lr.assign(optimizer.lr * 2)  # as in Horovod's elastic examples
    assert float(keras.ops.convert_to_numpy(optimizer.learning_rate)) == 0.5
    assert len(optimizer.variables()) == len(optimizer.variables) > 0
    assert "already" in raises(ValueError, hvd.DistributedOptimizer, optimizer)
    assert "only hvd.Average and hvd.Sum" in raises(ValueError, hvd.DistributedOptimizer, OPTIMIZERS.SGD(0.5), op=hvd.Max)
    assert "optimizer" in raises(ValueError, hvd.DistributedOptimizer, 3)
    assert "BroadcastGlobalVariablesCallback" in raises(RuntimeError, hvd.broadcast_global_variables, 0)
    assert float(keras.ops.convert_to_numpy(hvd.allreduce(np.float32(RANK), op=hvd.Sum))) == sum(range(SIZE))
    assert hvd.allgather(np.full(RANK + 1, 1.0)).shape[0] == SIZE * (SIZE + 1) // 2
    assert float(keras.ops.convert_to_numpy(hvd.broadcast(np.float32(RANK), SIZE - 1))) == SIZE - 1
    assert hvd.reducescatter(np.ones((SIZE, 2), np.float32)).shape == (1, 2)
    assert hvd.steps_for_all(10 + RANK) == 10
    if BACKEND != "tensorflow":
        assert sys.modules["tensorflow"] is None
    if BACKEND == "jax":  # which waits for programs that a loop of one's own has started
        assert (hvd.init, hvd.shutdown) == (sys.modules["horovod.jax"].init, sys.modules["horovod.jax"].shutdown)


def case_an_active_distribution_is_refused():
    if BACKEND != "jax":
        return
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=["cpu:0"]))
    try:
        assert "keras.distribution is active" in raises(RuntimeError, hvd.DistributedOptimizer, OPTIMIZERS.SGD(0.1))
    finally:
        keras.distribution.set_distribution(None)


def case_ranks_whose_models_differ_get_the_error_in_their_step_and_go_on():
    if SIZE == 1:
        return
    for options in ({}, {"jit_compile": False}) if BACKEND == "jax" else ({},):
        model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(10 + RANK)])
        compile_model(model, hvd.DistributedOptimizer(OPTIMIZERS.SGD(0.1)), **options)
        # JAX tells of an error in a step where what came of it is read.
        said = raises(Exception, lambda: float(fit(model, own(X), own(Y), BATCH)["loss"][-1]))
        assert "Mismatched ALLREDUCE tensor shapes" in said and "rank 1" in said, said
        model = make_model()
        compile_model(model, hvd.DistributedOptimizer(OPTIMIZERS.SGD(0.1)), **options)
        fit(model, own(X), own(Y), BATCH, epochs=1)
        same_on_all(model)


def case_an_elastic_state_goes_on_after_a_failed_step():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS.SGD(0.1))
    compile_model(model, optimizer)
    optimizer.build(model.trainable_variables)
    state = hvd.elastic.KerasState(model, epoch=0, batch=0)
    failures = []

    class Fail(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if state.epoch == 1 and batch == 2 and not failures and SIZE > 1:
                failures.append(batch)
                self.model.set_weights([w * 0 for w in self.model.get_weights()])
                if RANK == SIZE - 1:  # the others get an error in their next step, compiled as it may be
                    hvd.shutdown()
                    raise hvd.HorovodInternalError("left")

    @hvd.elastic.run
    def train(state):
        callbacks = [Fail(), hvd.elastic.UpdateBatchStateCallback(state), hvd.elastic.UpdateEpochStateCallback(state),
                     hvd.elastic.CommitStateCallback(state, batches_per_commit=100)]  # fmt: skip
        model.fit(own(X), own(Y), batch_size=BATCH, epochs=3, initial_epoch=state.epoch, shuffle=False, verbose=0, callbacks=callbacks)

    start = model.get_weights()
    train(state)
    assert state.epoch == 3 and failures == ([2] if SIZE > 1 else [])
    same_on_all(model)
    alone = make_model()
    alone.set_weights(start)
    compile_model(alone, OPTIMIZERS.SGD(0.1))
    fit(alone, X, Y, BATCH * SIZE, epochs=3)
    for got, expected in zip(model.get_weights(), alone.get_weights()):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


def case_training_goes_on_with_the_weights_and_not_their_averages_when_hosts_change():
    model = make_model()
    compile_model(model, hvd.DistributedOptimizer(OPTIMIZERS.SGD(0.1, use_ema=True)))
    state = hvd.elastic.KerasState(model, epoch=0)
    state.on_hosts_updated(1, HostUpdateResult.added)
    raises(HostsUpdatedInterrupt, fit, model, own(X), own(Y), BATCH, [hvd.elastic.CommitStateCallback(state, batches_per_commit=3)])
    state.on_reset()
    for weight, saved in zip(model.get_weights(), state._saved_values):
        np.testing.assert_array_equal(weight, saved)


def case_an_elastic_state_builds_an_optimizer_that_has_not_stepped():
    """Scripts for Keras 2 make a state of a model that is compiled only."""
    model = make_model()
    compile_model(model, hvd.DistributedOptimizer(OPTIMIZERS.Adam(0.1)))
    assert not model.optimizer.built
    state = hvd.elastic.KerasState(model, batch=20 + RANK)
    state.sync()
    assert state.batch == 20 and len(model.optimizer.variables) > 2 * len(model.trainable_variables)
    fit(model, own(X), own(Y), BATCH, epochs=1)
    state.restore()
    assert int(keras.ops.convert_to_numpy(model.optimizer.iterations)) == 0
    fit(model, own(X), own(Y), BATCH, epochs=1)
    same_on_all(model)
    assert "model.build" in raises(ValueError, hvd.elastic.KerasState, keras.Sequential([keras.layers.Dense(2)]))


def case_after_a_failure_the_first_epoch_has_only_the_batches_that_are_left():
    def batches_of(*callbacks):
        """By epoch of one fit() that begins when 3 batches of its first epoch are done."""
        model = make_model()
        compile_model(model, OPTIMIZERS.SGD(0.1))
        model.optimizer.build(model.trainable_variables)
        state = hvd.elastic.KerasState(model, epoch=0, batch=0)
        state.batch = 3
        counts, seen = [], []

        class Count(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                counts.append(0)

            def on_train_batch_end(self, batch, logs=None):
                counts[-1] += 1
                seen.append(state.batch)

        ours = hvd.elastic.UpdateBatchStateCallback(state)
        fit(model, own(X), own(Y), BATCH, [*(ours if one is None else one for one in callbacks), Count()], epochs=3)
        assert seen[:2] == [4, 5] and state.batch == 0, (seen, state.batch)
        return counts

    class Early(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = True

    assert batches_of(None) == [STEPS - 3, STEPS, STEPS]
    assert batches_of(Early(), None) == batches_of(None, Early()) == [STEPS - 3], "what others stop stays stopped"


def case_epochs_are_counted_for_fits_that_are_told_of_those_before_and_of_those_that_are_left():
    for words in ({"epochs": 6, "initial_epoch": 4}, {"epochs": 2}):
        model = make_model()
        compile_model(model, OPTIMIZERS.SGD(0.1))
        model.optimizer.build(model.trainable_variables)
        # So many batches, as Horovod's manual has it, before any was done.
        state = hvd.elastic.KerasState(model, epoch=0, batch=100)
        state.epoch = 4
        steps = []
        count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: steps.append(batch))
        callbacks = [hvd.elastic.UpdateBatchStateCallback(state), hvd.elastic.UpdateEpochStateCallback(state), count]
        model.fit(own(X), own(Y), batch_size=BATCH, verbose=0, callbacks=callbacks, **words)
        assert state.epoch == 6 and len(steps) == 2 * STEPS, (words, state.epoch, steps)


def case_a_commit_of_a_programs_own_is_called():
    model = make_model()
    compile_model(model, OPTIMIZERS.SGD(0.1))
    model.optimizer.build(model.trainable_variables)
    commits = []

    class Mine(hvd.elastic.CommitStateCallback):
        def commit(self):
            commits.append(1)
            super().commit()

    fit(model, own(X), own(Y), BATCH, [Mine(hvd.elastic.KerasState(model, batch=0, epoch=0), batches_per_commit=2)], epochs=1)
    assert len(commits) == STEPS // 2 + 1


def case_what_an_elastic_state_does_not_cover_is_named():
    class OddModel(keras.Sequential):
        pass

    class OddSGD(OPTIMIZERS.SGD):
        pass

    class OddDense(keras.layers.Dense):
        pass

    def lines(state):
        return [line for line in hvd.elastic.check(state) if "Odd" in line]

    model, other = (OddModel([keras.layers.Input((3,)), OddDense(2)]) for _ in range(2))
    optimizer = hvd.DistributedOptimizer(OddSGD(0.1, momentum=0.9))
    optimizer.build(model.trainable_variables)
    state = hvd.elastic.KerasState(model, optimizer)
    other_line = "OddModel: a model, of which 8 trained numbers are not in the state"
    assert lines(state) == [other_line], lines(state)
    forgotten = OddSGD(0.1)
    layer = OddDense(1)
    layer.build((None, 4))
    other.layers[0].trainable = False
    assert lines(state) == ["OddDense: a model, of which 5 trained numbers are not in the state", "OddSGD: an optimizer"], lines(state)
    del forgotten


if __name__ == "__main__":
    from horovod.common import _arrays

    run_cases(globals(), lambda: _arrays.barrier())
