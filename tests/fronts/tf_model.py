"""What the scripts of training with horovod.tensorflow share: a model, its data, and what is compared. Importing it joins the job."""

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
from horovod.common.util import is_version_greater_equal_than

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
KERAS_3 = hasattr(tf.keras, "ops")
ROWS, BATCH = 64, 8
rng = np.random.default_rng(1)
INPUTS = rng.normal(size=(ROWS * SIZE, 6)).astype(np.float32)
LABELS = (INPUTS.sum(1) > 0).astype(np.int64)
CAN_COMPILE = is_version_greater_equal_than(tf.__version__, "2.19")


def own(array, rank=RANK):
    """This rank's part: of each global batch, its share."""
    return array.reshape(-1, SIZE, BATCH, *array.shape[1:])[:, rank].reshape(-1, *array.shape[1:])


def make_model(seed=0, norm=False):
    tf.keras.utils.set_random_seed(seed)
    layers = [tf.keras.layers.Input((6,)), tf.keras.layers.Dense(8, activation="relu")]
    layers += [hvd.SyncBatchNormalization()] if norm else []
    return tf.keras.Sequential(layers + [tf.keras.layers.Dense(2)])


def loss_of(model, x, y):
    logits = tf.cast(model(x, training=True), tf.float32)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))


def check_same_on_ranks(model):
    for i, weights in enumerate(zip(*hvd.allgather_object(model.get_weights()))):
        for other in weights[1:]:
            assert np.array_equal(weights[0], other), f"weights {i} differ by {np.abs(weights[0] - other).max()}"


def near(model, expected, tolerance=1e-5):
    for found, wanted in zip(model.get_weights(), expected.get_weights()):
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def fit(model, optimizer, x, y, batch, distributed=True, **options):
    epochs = options.pop("epochs", 2)
    callbacks = [hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)] if distributed else []
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"], **options)
    return model.fit(x, y, batch_size=batch, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks)
