"""Handwritten digits with Keras 3 on several ranks, on JAX, PyTorch or TensorFlow.

    KERAS_BACKEND=jax hvdrun -np 2 python digits_keras.py

It is a usual Keras script but for the lines with hvd.
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "jax")
import keras
import numpy as np
from sklearn.datasets import load_digits

import horovod.keras as hvd

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=32, help="of each rank")
parser.add_argument("--lr", type=float, default=1e-3, help="times the number of ranks")
parser.add_argument("--save", help="where rank 0 writes the model")
options = parser.parse_args()

hvd.init()
images, labels = load_digits(return_X_y=True)
images = (images / 16).astype(np.float32).reshape(-1, 8, 8, 1)
order = np.random.default_rng(0).permutation(len(images))
test, rest = order[:360], order[360:]
own = rest[hvd.rank() :: hvd.size()][: len(rest) // hvd.size()]  # as many on every rank

model = keras.Sequential(
    [
        keras.layers.Input((8, 8, 1)),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(10),
    ]
)
rate = options.lr * hvd.size()
model.compile(
    optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(rate)),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
model.fit(
    images[own],
    labels[own],
    batch_size=options.batch_size,
    epochs=options.epochs,
    verbose=2 if hvd.rank() == 0 else 0,
    callbacks=[
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),  # before all that decide by metrics
        hvd.callbacks.LearningRateWarmupCallback(rate, warmup_epochs=3),
    ],
)

accuracy = model.evaluate(images[test], labels[test], verbose=0)[1]
weights = hvd.allgather_object(b"".join(np.asarray(w).tobytes() for w in model.get_weights()))
if hvd.rank() == 0:
    same = "the same" if len(set(weights)) == 1 else "NOT the same"
    print(f"test accuracy {accuracy:.3f}, weights {same} on all ranks")
    if options.save:
        model.save(options.save)
