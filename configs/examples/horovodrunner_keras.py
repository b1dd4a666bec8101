"""The way of a notebook with HorovodRunner, with Keras 3: one process first, then a Spark job of two.

    KERAS_BACKEND=torch python horovodrunner_keras.py --master 'local[2]'

It learns scikit-learn's handwritten digits, in place of data that would have to be downloaded.
"""

import argparse
import os

from sparkdl import HorovodRunner


def train(epochs, learning_rate, backend):
    """Runs on each rank. What it needs it imports itself, as a function that is sent to other machines must."""
    import os

    os.environ["KERAS_BACKEND"] = backend
    import keras
    from sklearn.datasets import load_digits

    import horovod.keras as hvd
    from sparkdl.horovod.tensorflow.keras import LogCallback

    hvd.init()
    keras.utils.set_random_seed(1)
    x, y = load_digits(return_X_y=True)
    mine = slice(hvd.rank(), len(x) // hvd.size() * hvd.size(), hvd.size())
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10, "softmax")])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(learning_rate, momentum=0.9))
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    if hvd.rank() == 0:
        callbacks.append(LogCallback())
    model.fit(x[mine] / 16, y[mine], batch_size=96 // hvd.size(), epochs=epochs, callbacks=callbacks, verbose=0)
    return hvd.size(), float(model.evaluate(x / 16, y, verbose=0)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--master", help="Spark's; default: as spark-submit says")
    parser.add_argument("--epochs", type=int, default=6)
    given = parser.parse_args()
    words = {"epochs": given.epochs, "learning_rate": 0.1, "backend": os.environ.get("KERAS_BACKEND", "torch")}

    size, correct = HorovodRunner(np=-1).run(train, **words)
    print(f"local mode: {size} process, {100 * correct:.1f} % are right", flush=True)

    from pyspark.sql import SparkSession

    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    spark = (builder.master(given.master) if given.master else builder).getOrCreate()
    size, correct = HorovodRunner(np=2).run(train, **words)
    print(f"distributed mode: {size} processes, {100 * correct:.1f} % are right", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
