"""Elastic training by each front's state, in which rank 1 is killed while the others wait in a compiled step, and is taken
in again; runs as a rank under `hvdrun --min-np` (test_elastic.py).

Arguments: a key of WAYS, and a folder for the mark of the killed rank.
"""

import os
import pathlib
import signal
import sys
import threading
import time

WAY, MARK = sys.argv[1], pathlib.Path(sys.argv[2]) / "killed"
if WAY.startswith("jax") or os.environ.get("KERAS_BACKEND") in ("jax", "torch"):
    sys.modules["tensorflow"] = None  # it must not be needed
else:
    import lean_imports  # noqa: F401  (before TensorFlow)
os.environ.setdefault("JAX_PLATFORMS", "cpu")
import numpy as np
from rank_side import report

SIZE, KILLED_AT, MORE = 3, 4, 5
begun, told = [], []


def end_once(step):
    """Kills rank 1 in this step, when the others wait for it within theirs."""
    if os.environ["HVD_RANK"] == "1" and step == KILLED_AT and not MARK.exists():
        MARK.touch()
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        threading.Event().wait()


def has_to_train(state, size):
    """Until all ranks have trained together for some steps after the loss. Counts the step that comes."""
    state.since += size == SIZE and state.step > KILLED_AT and MARK.exists()
    return state.since < MORE


class Noted:
    """Notes the error that the training gets, and how long after the beginning of its last step."""

    def __enter__(self):
        self.last = time.monotonic()
        return self

    def __exit__(self, kind, error, _):
        if kind is not None:
            told.append([kind.__name__, str(error), time.monotonic() - self.last])


def train(hvd, state, step):
    """step() trains once."""
    begun.append(state.step)
    with Noted() as noted:
        while has_to_train(state, hvd.size()):
            end_once(state.step)
            noted.last = time.monotonic()
            step()
            state.step += 1
            state.commit()
            time.sleep(0.01)


def problem(count=6):
    draw = np.random.default_rng(1)
    return draw.normal(size=(count, 4)).astype(np.float32), draw.normal(size=(count, 1)).astype(np.float32)


def way_jax():
    import jax
    import optax

    import horovod.jax as hvd

    hvd.init()
    x, y = problem()
    optimizer = hvd.DistributedOptimizer(optax.adam(1e-2))

    @jax.jit
    def update(params, opt_state):
        gradients = jax.grad(lambda p: ((x @ p["w"] + p["b"] - y) ** 2).mean())(params)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    params = {"w": jax.numpy.zeros((4, 1)), "b": jax.numpy.full((), 0.1 * hvd.rank())}
    state = hvd.elastic.JaxState(params=params, opt_state=optimizer.init(params), step=0, since=0, key=jax.random.key(hvd.rank()))

    def step():
        state.params, state.opt_state = jax.block_until_ready(update(state.params, state.opt_state))

    hvd.elastic.run(lambda state: train(hvd, state, step))(state)
    key = np.asarray(jax.random.key_data(state.key))
    return hvd, state, [np.asarray(leaf) for leaf in jax.tree.leaves((state.params, state.opt_state))] + [key]


def tensorflow_step(hvd, variables, apply, jit_compile):
    import tensorflow as tf

    x, y = problem()

    @tf.function(jit_compile=jit_compile)
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.matmul(x, variables[0]) + variables[1] - y) ** 2)
        apply(hvd.DistributedGradientTape(tape).gradient(loss, variables))

    return step


def way_tensorflow(jit_compile=False):
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    variables = [tf.Variable(tf.zeros([4, 1])), tf.Variable(tf.fill([1], 0.1 * hvd.rank()))]
    slots = [tf.Variable(tf.zeros_like(variable)) for variable in variables]

    def apply(gradients):
        for variable, slot, gradient in zip(variables, slots, gradients):
            slot.assign(0.9 * slot + gradient)
            variable.assign_sub(0.01 * slot)

    state = hvd.elastic.TensorFlowState(variables + slots, step=0, since=0)
    step = tensorflow_step(hvd, variables, apply, jit_compile)
    hvd.elastic.run(lambda state: train(hvd, state, step))(state)
    return hvd, state, [variable.numpy() for variable in variables + slots]


def way_tensorflow_keras_loop():
    """A loop of one's own over a Keras model; its optimizer has not stepped when the state is made."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.build((None, 4))
    kind = getattr(tf.keras.optimizers, "legacy", tf.keras.optimizers) if "TF_USE_LEGACY_KERAS" in os.environ else tf.keras.optimizers
    optimizer = kind.Adam(1e-2)
    state = hvd.elastic.TensorFlowKerasState(model, optimizer, step=0, since=0)
    variables = list(model.trainable_variables)
    step = tensorflow_step(hvd, variables, lambda gradients: optimizer.apply_gradients(zip(gradients, variables)), False)
    hvd.elastic.run(lambda state: train(hvd, state, step))(state)
    slots = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    return hvd, state, model.get_weights() + [np.asarray(slot) for slot in slots]


def way_keras_fit():
    """model.fit with the callbacks, by horovod.keras, or horovod.tensorflow.keras for legacy Keras."""
    if "TF_USE_LEGACY_KERAS" in os.environ:
        from tensorflow import keras

        import horovod.tensorflow.keras as hvd
    else:
        import keras

        import horovod.keras as hvd
    hvd.init()
    x, y = problem(24)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.build((None, 4))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(1e-2))
    optimizer.build(model.trainable_variables)
    model.compile(optimizer, "mse")
    state = hvd.elastic.KerasState(model, step=0, since=0, batch=0, epoch=0)

    class Steps(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            end_once(state.step)
            self.noted.last = time.monotonic()

        def on_train_batch_end(self, batch, logs=None):
            state.step += 1
            self.model.stop_training = not has_to_train(state, hvd.size())
            time.sleep(0.01)

    @hvd.elastic.run
    def fit(state):
        begun.append(state.step)
        callbacks = [Steps(), hvd.elastic.UpdateBatchStateCallback(state), hvd.elastic.UpdateEpochStateCallback(state),
                     hvd.elastic.CommitStateCallback(state)]  # fmt: skip
        with Noted() as callbacks[0].noted:
            if state.since < MORE:
                model.fit(x, y, batch_size=6, epochs=100000, initial_epoch=state.epoch, shuffle=False, verbose=0, callbacks=callbacks)

    fit(state)
    return hvd, state, model.get_weights() + [np.asarray(_values(slot)) for slot in model.optimizer.variables]


def _values(variable):
    return variable.numpy() if not hasattr(variable, "value") or callable(variable.value) else sys.modules["keras"].ops.convert_to_numpy(variable)


WAYS = {
    "jax": way_jax,
    "tensorflow": way_tensorflow,
    "tensorflow jit_compile": lambda: way_tensorflow(jit_compile=True),
    "tensorflow keras loop": way_tensorflow_keras_loop,
    "keras fit": way_keras_fit,
}

hvd, state, values = WAYS[WAY]()
from horovod.common import _arrays  # noqa: E402

everyone = _arrays.allgather_object([value.tobytes() for value in values] + [state.step])
report({"begun": begun, "told": told, "step": state.step, "same": all(other == everyone[0] for other in everyone),
        "steps of the optimizer": [int(value) for value in values if value.dtype.kind == "i" and value.ndim == 0]})  # fmt: skip
hvd.shutdown()
