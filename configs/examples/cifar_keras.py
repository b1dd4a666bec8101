"""Trains a convolutional network on small colour images with Keras: the steps of the well-known Batch AI tutorial, on Keras 3.

    hvdrun -np 2 python cifar_keras.py --dir /tmp/cifar

Images are generated (ten kinds of stripes, in noise), of CIFAR-10's size, so that nothing is downloaded. What Horovod needs
in a script of one process is marked with HOROVOD.
"""

import argparse
import math
import os

import numpy as np

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
import keras  # noqa: E402
import tensorflow as tf  # noqa: E402
from keras import layers  # noqa: E402

import horovod.keras as hvd  # noqa: E402

CLASSES = 10


def images(count, seed):
    """Stripes whose direction and distance tell the class, as bytes, and the classes."""
    random = np.random.default_rng(seed)
    labels = random.integers(CLASSES, size=count)
    across, down = np.meshgrid(np.arange(32), np.arange(32))
    angle = (labels % 5)[:, None, None] * np.pi / 5
    length = np.where(labels < 5, 5.0, 10.0)[:, None, None]
    phase = random.uniform(0, 2 * np.pi, size=(count, 1, 1))
    stripes = np.sin((across * np.cos(angle) + down * np.sin(angle)) * 2 * np.pi / length + phase)
    colour = random.uniform(0.4, 1.0, size=(count, 1, 1, 3))
    pixels = 128 + 60 * stripes[..., None] * colour + random.normal(scale=20, size=(count, 32, 32, 3))
    return np.clip(pixels, 0, 255).astype(np.uint8), labels[:, None]


def network(shape):
    return keras.Sequential(
        [
            layers.Input(shape),
            # Shifted and mirrored while it trains.
            layers.RandomTranslation(0.1, 0.1, fill_mode="nearest"),
            layers.RandomFlip("horizontal"),
            layers.Conv2D(32, (3, 3), padding="same", activation="relu"),
            layers.Conv2D(32, (3, 3), activation="relu"),
            layers.MaxPooling2D((2, 2)),
            layers.Dropout(0.25),
            layers.Conv2D(64, (3, 3), padding="same", activation="relu"),
            layers.Conv2D(64, (3, 3), activation="relu"),
            layers.MaxPooling2D((2, 2)),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(512, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-d", "--dir", required=True, help="the folder in which the model is saved")
    parser.add_argument("--epochs", type=float, default=100, help="of all ranks together")
    parser.add_argument("--images", type=int, default=2000, help="to train with, on each rank")
    parser.add_argument("--batch-size", type=int, default=32)
    options = parser.parse_args()

    # HOROVOD: join the job.
    hvd.init()

    # HOROVOD: each rank takes the GPU of its number on its node.
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")

    # HOROVOD: the more ranks, the fewer epochs on each.
    epochs = math.ceil(options.epochs / hvd.size())

    x_train, y_train = images(options.images, seed=1 + hvd.rank())
    x_test, y_test = images(500, seed=0)
    print("x_train shape:", x_train.shape)
    print(x_train.shape[0], "train samples")
    print(x_test.shape[0], "test samples")
    y_train = keras.utils.to_categorical(y_train, CLASSES)
    y_test = keras.utils.to_categorical(y_test, CLASSES)
    x_train = x_train.astype("float32") / 255
    x_test = x_test.astype("float32") / 255

    model = network(x_train.shape[1:])

    # HOROVOD: the learning rate is multiplied by the number of ranks.
    rate = keras.optimizers.schedules.InverseTimeDecay(0.0001 * hvd.size(), decay_steps=1, decay_rate=1e-6)
    optimizer = keras.optimizers.RMSprop(learning_rate=rate)

    # HOROVOD: gradients are averaged over the ranks.
    optimizer = hvd.DistributedOptimizer(optimizer)

    model.compile(loss="categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"])

    callbacks = [
        # HOROVOD: all ranks begin with the weights of rank 0, whether random or from a checkpoint.
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        # HOROVOD: metrics are the mean over the ranks.
        hvd.callbacks.MetricAverageCallback(),
    ]

    # HOROVOD: rank 0 alone writes checkpoints, since they would overwrite each other's.
    if hvd.rank() == 0:
        checkpoints = os.path.join(options.dir, "checkpoints")
        os.makedirs(checkpoints, exist_ok=True)
        callbacks.append(keras.callbacks.ModelCheckpoint(os.path.join(checkpoints, "checkpoint-{epoch}.keras")))

    model.fit(
        x_train,
        y_train,
        batch_size=options.batch_size,
        epochs=epochs,
        validation_data=(x_test, y_test),
        callbacks=callbacks,
        verbose=2 if hvd.rank() == 0 else 0,
    )

    if hvd.rank() == 0:
        folder = os.path.join(options.dir, "saved_models")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "keras_cifar10_trained_model.keras")
        model.save(path)
        print(f"Saved trained model at {path}")

    scores = model.evaluate(x_test, y_test, verbose=0)
    print("Test loss:", scores[0])
    print("Test accuracy:", scores[1])


if __name__ == "__main__":
    main()
