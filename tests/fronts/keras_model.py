"""What the cases of horovod.keras share: a model, scikit-learn's digits, and what is compared. Importing it joins the job."""

import os
import sys

BACKEND = os.environ["KERAS_BACKEND"]
if BACKEND != "tensorflow":
    sys.modules["tensorflow"] = None  # it must not be needed
os.environ.setdefault("JAX_PLATFORMS", "cpu")
import keras
import numpy as np
from sklearn.datasets import load_digits

import horovod.keras as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
BATCH, STEPS = 16, 5
X, Y = load_digits(return_X_y=True)
X = (X[: BATCH * SIZE * STEPS] / 16).astype(np.float32)
Y = Y[: BATCH * SIZE * STEPS]
OPTIMIZERS = keras.optimizers


def make_model(policy="float32"):
    keras.config.set_dtype_policy(policy)
    layers = [
        keras.layers.Input((64,)), keras.layers.Dense(24, activation="tanh"), keras.layers.BatchNormalization(trainable=False),
        keras.layers.Dense(10, dtype="float32"),
    ]  # fmt: skip
    model = keras.Sequential(layers)
    keras.config.set_dtype_policy("float32")
    model.set_weights(hvd.broadcast_object(model.get_weights()))
    return model


def compile_model(model, optimizer, **options):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"], **options)


def fit(model, x, y, batch, callbacks=(), epochs=2):
    return model.fit(x, y, batch_size=batch, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks)).history


def own(values):
    return values[RANK::SIZE]


def same_on_all(model):
    told = hvd.allgather_object(b"".join(np.asarray(w).tobytes() for w in model.get_weights()))
    assert len(set(told)) == 1, "the ranks' weights differ"


def check_training(make, wrap=None, policy="float32", tolerance=1e-5, reference=None, **options):
    """Two epochs on all ranks, and in one process with the whole batch. `wrap`: arguments of DistributedOptimizer."""
    model = make_model(policy)
    start = model.get_weights()
    keras.config.set_dtype_policy(policy)
    optimizer = hvd.DistributedOptimizer(make(), **(wrap or {}))
    compile_model(model, optimizer, **options)
    fit(model, own(X), own(Y), BATCH, [hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    same_on_all(model)
    alone = make_model(policy)
    alone.set_weights(start)
    compile_model(alone, (reference or make)(), **options)
    keras.config.set_dtype_policy("float32")
    fit(alone, X, Y, BATCH * SIZE)
    for got, expected in zip(model.get_weights(), alone.get_weights()):
        np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance)
    return model
