"""What a rank is told when another one fails within a graph; runs as a rank (test_tensorflow.py)."""

import os
import signal
import threading
import time

import lean_imports  # noqa: F401  (first)
import tensorflow as tf
from rank_side import meet, report

import horovod.tensorflow as hvd
from horovod.common.util import is_version_greater_equal_than

hvd.init()
RANK = hvd.rank()
told = {}


def attempt(what, function):
    begin = time.monotonic()
    try:
        function()
        told[what] = ["no error", "", 0]
    except tf.errors.OpError as error:
        told[what] = [type(error).__name__, str(error), time.monotonic() - begin]


@tf.function
def parts(x):
    """Rank 0 does not come to the other reductions before the first; rank 1 waits for all at once."""
    gate = hvd.allreduce(tf.constant(0.0), name="gate")  # when it is done, rank 1 has begun the later ones
    first = hvd.allreduce(x + gate, op=hvd.Sum, name="first")
    later = [hvd.allreduce(tf.reduce_sum(first) * i if RANK == 0 else tf.constant(1.0 * i), name=f"later_{i}") for i in range(8)]
    return tf.reduce_sum(first) + tf.add_n(later)


warm = tf.function(lambda x: hvd.allreduce(x, name="warm"))
warm(tf.constant(1.0))
attempt("disagrees", lambda: parts(tf.ones([2 + RANK])))

# Rank 1 leaves the job then, as what it waits for would never come; this rank does nothing but wait for it.
attempt("left", lambda: hvd.allreduce(tf.constant(1.0), name="left"))

hvd.shutdown()  # the process goes on
hvd.init()
told["after"] = float(hvd.allreduce(tf.constant(1.0), op=hvd.Sum))

if is_version_greater_equal_than(tf.__version__, "2.19"):
    compiled = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="compiled"), jit_compile=True)
    attempt("disagrees when compiled", lambda: compiled(tf.ones([2 + RANK])))
    if RANK == 1:
        time.sleep(3)  # the other rank waits while a run that failed could still be held against this one
    told["compiled after"] = float(compiled(tf.constant(1.0)))

    # No order of these two is right for both ranks: each needs the one's result for the other.
    os.environ.update(HOROVOD_STALL_CHECK_TIME_SECONDS="1", HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="15")
    hvd.shutdown()
    hvd.init()

    @tf.function(jit_compile=True)
    def crossed(x):
        for name in ("left", "right") if RANK == 0 else ("right", "left"):
            x = hvd.allreduce(x, name=name)
        return x

    attempt("crossed", lambda: crossed(tf.constant(1.0)))
    del os.environ["HOROVOD_STALL_CHECK_TIME_SECONDS"]
    os.environ["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"] = "120"
    hvd.shutdown()
    hvd.init()


@tf.function
def many(x):
    return tf.add_n([hvd.allreduce(x * i, name=f"many_{i}") for i in range(30)])


many(tf.constant(1.0))
meet(hvd.barrier)
if RANK == 1:
    report(told)
    # A moment later, so that rank 0 waits within the graph by then; it need not, for the outcome is the same.
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    threading.Event().wait()
attempt("dies", lambda: many(tf.constant(1.0)))
attempt("dies, then", lambda: hvd.allreduce(tf.constant(1.0)))
report(told)
