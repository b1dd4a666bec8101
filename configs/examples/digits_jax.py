"""Handwritten digits with JAX and optax on several ranks, each with its share of the training data.

    hvdrun -np 2 python digits_jax.py

It is a usual JAX loop but for the lines with hvd.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import horovod.jax as hvd

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=32, help="of each rank")
parser.add_argument("--lr", type=float, default=2e-3, help="times the number of ranks")
options = parser.parse_args()

hvd.init()
images, labels = load_digits(return_X_y=True)
images, labels = images.astype(np.float32) / 16, labels.astype(np.int32)
order = np.random.default_rng(0).permutation(len(images))
test, rest = order[:360], order[360:]
own = rest[hvd.rank() :: hvd.size()][: len(rest) // hvd.size()]  # as many on every rank


def init(key):
    first, second = jax.random.split(key)
    return {
        "hidden": {"w": jax.random.normal(first, (64, 64)) / 8, "b": jnp.zeros(64)},
        "output": {"w": jax.random.normal(second, (64, 10)) / 8, "b": jnp.zeros(10)},
    }


def apply(params, x):
    x = jax.nn.relu(x @ params["hidden"]["w"] + params["hidden"]["b"])
    return x @ params["output"]["w"] + params["output"]["b"]


def loss(params, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(apply(params, x), y).mean()


optimizer = hvd.DistributedOptimizer(optax.adam(options.lr * hvd.size()))
params = hvd.broadcast_parameters(init(jax.random.key(hvd.rank())), root_rank=0)
state = optimizer.init(params)


@jax.jit
def step(params, state, x, y):
    value, gradients = jax.value_and_grad(loss)(params, x, y)
    updates, state = optimizer.update(gradients, state, params)
    return optax.apply_updates(params, updates), state, hvd.metric_average(value)


shuffle = np.random.default_rng(hvd.rank())
for epoch in range(options.epochs):
    shuffled = shuffle.permutation(own)
    for begin in range(0, len(own) - options.batch_size + 1, options.batch_size):
        batch = shuffled[begin : begin + options.batch_size]
        params, state, value = step(params, state, images[batch], labels[batch])
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}: loss {float(value):.4f}")

accuracy = float((apply(params, images[test]).argmax(-1) == labels[test]).mean())
weights = hvd.allgather_object(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(params)))
if hvd.rank() == 0:
    same = "the same" if len(set(weights)) == 1 else "NOT the same"
    print(f"test accuracy {accuracy:.3f}, parameters {same} on all ranks")
