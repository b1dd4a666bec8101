"""horovod.tensorflow: each script of cases runs once for each number of ranks, which are forks of a process that has imported TensorFlow."""

import ast
import functools
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

tensorflow = pytest.importorskip("tensorflow")
from hvdrun import HVDRUN, ROOT  # noqa: E402
from patience import PATIENCE  # noqa: E402
from ranks import run_ranks  # noqa: E402

from horovod.common.util import is_version_greater_equal_than  # noqa: E402

HERE = pathlib.Path(__file__).parent
# What hangs ends with the error that names what waits.
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "120"}
RUNS = [
    ("rank_tf_operations.py", 2, {}),
    ("rank_tf_operations.py", 3, {}),
    ("rank_tf_training.py", 2, {}),
    ("rank_tf_training.py", 2, {"TF_USE_LEGACY_KERAS": "1"}),
    ("rank_tf_callbacks.py", 2, {}),
    ("rank_tf_callbacks.py", 2, {"TF_USE_LEGACY_KERAS": "1"}),
]


def cases(script):
    tree = ast.parse((HERE / script).read_text())
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("case_")]


def needs_its_keras(number):
    if "TF_USE_LEGACY_KERAS" in RUNS[number][2] and not importlib.util.find_spec("tf_keras"):
        pytest.skip("needs tf_keras, which TensorFlow has from 2.14 on")


@functools.lru_cache(maxsize=None)
def outcome(number):
    script, size, env = RUNS[number]
    return run_ranks(size, HERE / script, env={**QUIET, **env}, by_agent=True, framework="tensorflow")


@pytest.mark.parametrize(
    "number, case",
    [(i, case) for i, (script, _, _) in enumerate(RUNS) for case in cases(script)],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, RUNS[value][:2])),
)
def test_case(number, case):
    needs_its_keras(number)
    result = outcome(number)
    for rank, report in enumerate(result.reports):
        said = (report or {}).get(case, f"the case did not end\n{result.output[-6000:]}")
        assert said == "ok", f"rank {rank}: {said}"


@pytest.mark.parametrize("number", range(len(RUNS)))
def test_ranks_end_in_order(number):
    needs_its_keras(number)
    outcome(number).check()


@functools.lru_cache(maxsize=None)
def failures():
    return run_ranks(2, HERE / "rank_tf_failure.py", env=QUIET, by_agent=True, framework="tensorflow")


def test_ranks_that_disagree_within_a_graph_are_told_in_time_and_can_meet_again():
    result = failures()
    for told in result.reports:
        assert told, result.output
        kind, text, _ = told["disagrees"]
        assert kind == "FailedPreconditionError" and "Mismatched ALLREDUCE tensor shapes" in text, told
        assert told["left"][0] == "UnknownError", told
        assert told["after"] == 2
    assert "leaves the job" in result.output


def test_ranks_that_disagree_within_a_compiled_function_are_told_and_go_on():
    if not is_version_greater_equal_than(tensorflow.__version__, "2.19"):
        pytest.skip("compiled functions need TensorFlow 2.19")
    for told in failures().reports:
        kind, text, _ = told["disagrees when compiled"]
        assert "Mismatched ALLREDUCE tensor shapes" in text, told
        assert told["compiled after"] == 2


def test_ranks_of_which_each_needs_the_others_next_collective_end_with_both_names():
    if not is_version_greater_equal_than(tensorflow.__version__, "2.19"):
        pytest.skip("compiled functions need TensorFlow 2.19")
    for told in failures().reports:
        kind, text, _ = told["crossed"]
        assert kind != "no error" and "left" in text and "right" in text, told


def test_a_rank_that_dies_is_named_to_those_who_wait_within_a_graph():
    told = failures().reports[0]
    kind, text, _ = told["dies"]
    assert kind == "UnknownError" and "rank 1" in text and "Horovod" in text, told
    assert told["dies, then"][0] == "UnknownError", told


def test_the_job_file_of_the_tutorial_trains_and_saves(tmp_path):
    share = tmp_path / "data" / "work" / "cifar"
    share.mkdir(parents=True)
    (share / "cifar_keras.py").write_text((ROOT / "configs/examples/cifar_keras.py").read_text())
    python = tmp_path / "bin"
    python.mkdir()
    (python / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (python / "python").chmod(0o755)
    environment = {**os.environ, **QUIET, "PATH": f"{python}:{os.environ['PATH']}", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [HVDRUN, "-f", ROOT / "configs/jobs/cifar.json", "-H", "localhost,127.0.0.1", "--mount-root", tmp_path / "data",
         "--container", "none", "--launcher", "ssh", "--storage-account-name", "account", "-x", "EPOCHS=2", "-x", "IMAGES=128"],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (share / "saved_models" / "keras_cifar10_trained_model.keras").is_file()
    assert (share / "checkpoints" / "checkpoint-1.keras").is_file()
    kept = "".join(path.read_text() for path in tmp_path.rglob("stdout.txt"))
    assert kept.count("Test accuracy:") == 2, kept


@pytest.mark.parametrize("front", ["tensorflow", "tensorflow.data", "tensorflow.keras"])
def test_the_manual_names_what_is_there(front):
    page = (ROOT / "runtime/docs/fronts.md").read_text()
    rows = dict(re.findall(r"^\| `(horovod\.[\w.]+)` \| [^|]* \| (.*) \|$", page, re.M))
    tree = ast.parse((ROOT / f"runtime/python/horovod/{front.replace('.', '/')}/__init__.py").read_text())
    public = next(ast.literal_eval(n.value) for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "__all__")
    named = set(re.findall(r"`(\w+)`", rows[f"horovod.{front}"]))
    assert named and named <= set(public) | {"SyncBatchNormalization"}, named - set(public)
    basics = (ROOT / "runtime/docs/horovod.md").read_text().split("## Names\n")[1].split("\n## ")[0]
    unnamed = {name for name in public if name not in named and f"`{name}`" not in basics}
    assert not unnamed, unnamed


GRAPH = """
import numpy, tensorflow as tf
tf.compat.v1.disable_eager_execution()
import horovod.tensorflow.keras as hvd
hvd.init()
net = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(4,))])
net.set_weights([numpy.full((4, 2), 1.0 + hvd.rank()), numpy.zeros(2)])
net.compile(hvd.DistributedOptimizer(tf.keras.optimizers.legacy.SGD(0.0)), "mse")
net.fit(numpy.zeros((8, 4)), numpy.zeros((8, 2)), verbose=0,
        callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()])
print("kernel", net.get_weights()[0].max(), "sum", float(hvd.allreduce(numpy.float32(hvd.rank() + 1), op=hvd.Sum)))
"""


def test_legacy_keras_in_a_graph_is_broadcast_when_it_trains():
    pytest.importorskip("tf_keras")
    done = subprocess.run([HVDRUN, "-np", "2", sys.executable, "-c", GRAPH], capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, **QUIET, "TF_USE_LEGACY_KERAS": "1"})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{rank}]<stdout>:kernel 1.0 sum 3.0" for rank in range(2)], done.stdout


REFERENCES = """
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
import horovod.tensorflow as hvd
hvd.init()
variable = tf.get_variable("v", initializer=[[1.0, -1.0]] * 4)
optimizer = hvd.DistributedOptimizer(tf.train.MomentumOptimizer(0.05, 0.5), op=hvd.Adasum)
train = optimizer.minimize(tf.reduce_sum(tf.square(variable - [[1.0 * hvd.rank(), 3.0]])))
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for _ in range(20):
        session.run(train)
        value = session.run(variable)
        assert (value == hvd.broadcast_object(value)).all(), value
print("moved", value[0, 1] > 0)
"""


def test_steps_of_reference_variables_are_reduced_by_adasum_after_they_are_made():
    """Scripts of TensorFlow 1 have such variables: as an operand, one may be read before the step."""
    done = subprocess.run([HVDRUN, "-np", "2", sys.executable, "-c", REFERENCES], capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, **QUIET})  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{rank}]<stdout>:moved True" for rank in range(2)], done.stdout
