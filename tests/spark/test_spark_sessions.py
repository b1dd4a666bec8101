"""Sessions of other kinds than the one that the other tests share: Spark Connect, executors that come and go, an executor of
several tasks with GPUs. A process of its own has each, since Spark has one session in a process."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from patience import PATIENCE

HEAD = """
import io, json, os, pathlib, signal, sys, threading
import horovod.spark
from spark_deaths import record, records, wait_for_slots
from pyspark.sql import SparkSession

def place():
    from horovod.spark.task import get_available_devices
    names = [f"HOROVOD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")]
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
    return {"place": [int(os.environ[name]) for name in names], "devices": get_available_devices(), "visible": gpus}

def grow():
    import horovod.torch as hvd
    hvd.init()
    @hvd.elastic.run
    def train(state):
        while hvd.size() < 2:
            state.commit()
        return hvd.rank(), hvd.size(), os.environ.get("CUDA_VISIBLE_DEVICES")
    return train(hvd.elastic.TorchState(step=0))

def error_of(**words):
    try:
        return str(horovod.spark.run(place, num_proc=2, stderr=io.StringIO(), **words))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
"""

CONNECT = """
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
from horovod.spark import _session
found = {"kind": type(_session.active()).__name__, "parallelism": _session.active().default_parallelism()}
out = io.StringIO()
found["ranks"] = horovod.spark.run(place, num_proc=2, stdout=out)
found["task0"] = horovod.spark.run(place, num_proc=2, launcher="task0")
found["large"] = [len(part) for part in horovod.spark.run(lambda: os.urandom(3 << 20), num_proc=2, launcher="task0")]
def fails():
    raise ZeroDivisionError("of a rank")
try:
    horovod.spark.run(fails, num_proc=2, stderr=io.StringIO())
except ZeroDivisionError as error:
    found["error"] = str(error)
found["grown"] = horovod.spark.run_elastic(grow, num_proc=1, max_num_proc=2)
def stop():
    records(pathlib.Path(sys.argv[1]), 2)
    spark.interruptAll()
threading.Thread(target=stop).start()
err = io.StringIO()
try:
    horovod.spark.run_elastic(record, args=(sys.argv[1],), num_proc=2, stderr=err)
except RuntimeError as error:
    found["stopped"] = [str(error), err.getvalue().count("started again")]
found["check"] = horovod.spark.check(num_proc=2).problems
found["runner"] = __import__("sparkdl").HorovodRunner(np=2).run(lambda word: word, word="kept")
print("FOUND", json.dumps(found), flush=True)
os._exit(0)  # the server of this session would end slowly
"""

CONNECT_FIT = """
import torch
from horovod.spark.common.backend import SparkBackend
from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.range(64).selectExpr("array(float(id % 2), 1.0f) as x", "float(id % 2) as y")
net = torch.nn.Linear(2, 1)
model = TorchEstimator(
    backend=SparkBackend(num_proc=2), store=Store.create(str(pathlib.Path(sys.argv[1]) / "store")), model=net, batch_size=8,
    optimizer=torch.optim.SGD(net.parameters(), lr=0.1), loss=torch.nn.MSELoss(), input_shapes=[[-1, 2]], feature_cols=["x"],
    label_cols=["y"], epochs=3, verbose=0).fit(frame)
losses = [entry["train"]["loss"] for entry in model.getHistory()]
rows = model.transform(frame).select("y__output").collect()
print("FOUND", json.dumps({"losses": losses, "rows": len(rows)}), flush=True)
os._exit(0)  # the server of this session would end slowly
"""

DYNAMIC = """
spark = (SparkSession.builder.master("local-cluster[2,1,512]").config("spark.ui.enabled", "false")
         .config("spark.executor.memory", "512m").config("spark.driver.memory", "512m")
         .config("spark.dynamicAllocation.enabled", "true").config("spark.dynamicAllocation.shuffleTracking.enabled", "true")
         .config("spark.dynamicAllocation.minExecutors", "0").config("spark.dynamicAllocation.initialExecutors", "0")
         .getOrCreate())
found = {"ranks": horovod.spark.run(place, num_proc=2), "task0": error_of(launcher="task0")}
from spark_deaths import VICTIM_RANK, records, train_elastic, wait_for_sizes
folder = pathlib.Path(sys.argv[1])
def strike():
    wait_for_sizes(folder, [1, 2])  # Spark has asked for another executor
    noted = records(folder, 2)
    os.kill(noted[VICTIM_RANK]["executor"], signal.SIGKILL)
    wait_for_sizes(folder, [1, 2, 1, 2])
found["elastic"] = train_elastic(folder, strike, num_proc=1, max_num_proc=2)
found["check"] = [horovod.spark.check(num_proc=2).problems, horovod.spark.check(num_proc=2).is_dynamic]
print("FOUND", json.dumps(found), flush=True)
os._exit(0)
"""

SEVERAL = """
script = pathlib.Path(sys.argv[1]) / "gpus"
script.write_text("#!/bin/sh\\necho '" + json.dumps({"name": "gpu", "addresses": ["0", "1"]}) + "'\\n")
script.chmod(0o755)
spark = (SparkSession.builder.master("local-cluster[1,2,512]").config("spark.ui.enabled", "false")
         .config("spark.executor.memory", "512m").config("spark.driver.memory", "512m")
         .config("spark.worker.resource.gpu.discoveryScript", str(script)).config("spark.worker.resource.gpu.amount", "2")
         .config("spark.executor.resource.gpu.amount", "2").config("spark.task.resource.gpu.amount", "1")
         .config("spark.executorEnv.CUDA_VISIBLE_DEVICES", "4,5").getOrCreate())
wait_for_slots(2)
found = {"ranks": horovod.spark.run(place, num_proc=2), "gpus": [t.gpus for t in horovod.spark.check(num_proc=2).tasks]}
found["grown"] = horovod.spark.run_elastic(grow, num_proc=1, max_num_proc=2)
found["both"] = horovod.spark.run(place, num_proc=1, gpus_per_process=2)
found["too few"] = error_of(gpus_per_process=2)
print("FOUND", json.dumps(found), flush=True)
os._exit(0)
"""

ENCRYPTED = """
spark = (SparkSession.builder.master("local-cluster[2,1,512]").config("spark.ui.enabled", "false")
         .config("spark.executor.memory", "512m").config("spark.driver.memory", "512m")
         .config("spark.authenticate", "true").config("spark.authenticate.secret", "of this test")
         .config("spark.network.crypto.enabled", "true").getOrCreate())
from horovod.spark import _session
wait_for_slots(2)
def security():
    return os.environ.get("HVD_LINK_SECURITY")
found = {"setting": _session.active().encrypting_setting, "ranks": horovod.spark.run(security, num_proc=2)}
found["plain"] = horovod.spark.run(security, num_proc=2, env={"HVD_LINK_SECURITY": "plain"})
found["mpi"] = error_of(env={"HOROVOD_CPU_OPERATIONS": "MPI"})
found["notes"] = horovod.spark.check(num_proc=2).notes
print("FOUND", json.dumps(found), flush=True)
os._exit(0)
"""

SUPPORT = str(pathlib.Path(__file__).resolve().parents[1] / "support")


def found_by(program, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(HEAD + program)
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": SUPPORT})  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stdout + done.stderr
    return json.loads(lines[0].removeprefix("FOUND "))


def places(found):
    return [rank["place"] for rank in found]


ALONE = [[0, 2, 0, 2], [1, 2, 1, 2]]


def test_a_session_of_spark_connect(spark_possible, tmp_path):
    pytest.importorskip("grpc_status", reason="pyspark[connect] is not installed here")
    found = found_by(CONNECT, tmp_path)
    assert found["kind"] == "ConnectSession" and found["parallelism"] == 2
    assert places(found["ranks"]) == places(found["task0"]) == ALONE
    assert found["large"] == [3 << 20, 3 << 20]
    assert [place for *place, _ in found["grown"]] == [[0, 2], [1, 2]]
    told, starts = found["stopped"]  # a notebook's stop button
    assert "Spark ended the tasks" in told and "cancel" in told.lower() and starts == 0
    assert found["error"] == "of a rank" and found["check"] == [] and found["runner"] == "kept"


def test_an_estimator_fits_over_spark_connect(spark_possible, tmp_path):
    pytest.importorskip("grpc_status", reason="pyspark[connect] is not installed here")
    found = found_by(CONNECT_FIT, tmp_path)
    assert len(found["losses"]) == 3 and found["losses"][2] < found["losses"][0] and found["rows"] == 64


def test_executors_that_come_and_go_get_a_plain_stage(spark_possible, tmp_path):
    found = found_by(DYNAMIC, tmp_path)
    assert places(found["ranks"]) == ALONE
    assert found["task0"].startswith('ValueError: launcher="task0" needs a barrier stage')
    assert found["check"] == [[], True]
    assert [[rank, sizes] for rank, _, _, sizes in found["elastic"]] == [[0, [1, 2, 1, 2]], [1, [1, 2, 1, 2]]]


def test_several_tasks_of_one_executor_have_their_own_gpus(spark_possible, tmp_path):
    found = found_by(SEVERAL, tmp_path)
    assert places(found["ranks"]) == ALONE
    assert sorted(rank["devices"] for rank in found["ranks"]) == [["0"], ["1"]]
    assert sorted(found["gpus"]) == [["0"], ["1"]]
    # The executor's own list says which GPU Spark's number means.
    assert {rank["visible"].split(",")[0] for rank in found["ranks"]} == {"4", "5"}
    assert sorted(seen for _, _, seen in found["grown"]) == ["4", "5"]
    assert found["both"] == [{"place": [0, 1, 0, 1], "devices": ["0", "1"], "visible": "4,5"}]
    assert "num_proc=2 needs as many task slots at the same time, and the cluster has 1" in found["too few"]


def test_ranks_encrypt_where_spark_does(spark_possible, tmp_path):
    found = found_by(ENCRYPTED, tmp_path)
    assert found["setting"] == "spark.network.crypto.enabled" and found["ranks"] == ["encrypt", "encrypt"]
    assert found["plain"] == ["plain", "plain"]
    assert found["mpi"].startswith("ValueError: spark.network.crypto.enabled is set") and "HVD_LINK_SECURITY=plain" in found["mpi"]
    assert any("spark.network.crypto.enabled is set" in note for note in found["notes"])
