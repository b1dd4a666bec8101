"""A Spark cluster over two hosts of a lab, each with a network of its own: where ranks go, and what a cut network does."""

import json
import os
import pathlib
import sys
import threading
import time

import pytest
from lab import wait_until
from patience import PATIENCE

pytest_plugins = ["lab"]

PORT = 7077

DRIVER = """
import io, json, os, pathlib, sys, time
import horovod.spark
from horovod.spark import _job
from horovod.spark.common.backend import SparkBackend
from pyspark.sql import SparkSession
from lab import wait_until
from spark_deaths import record, wait_for_slots
from sparkdl import HorovodRunner

address, folder = sys.argv[1:]
spark = (SparkSession.builder.master(f"spark://{address}:7077").config("spark.ui.enabled", "false")
         .config("spark.driver.host", address).config("spark.driver.bindAddress", address)
         .config("spark.executor.memory", "512m").config("spark.driver.memory", "512m").config("spark.executor.cores", "1")
         .getOrCreate())

def place():
    return [os.uname().nodename, *(int(os.environ[f"HOROVOD_{name}"]) for name in ("RANK", "LOCAL_RANK", "CROSS_RANK"))]

def tell(name, value):
    part = pathlib.Path(folder) / f"{name}.part"
    part.write_text(json.dumps(value))
    part.rename(part.with_suffix(".told"))

# A cut network must not wait for Spark's own error.
_job._SPARKS_WORD_S = 3600.0
wait_for_slots(2)
tell("places", horovod.spark.run(place, num_proc=2))
tell("task0", horovod.spark.run(place, num_proc=2, launcher="task0"))
check = horovod.spark.check(num_proc=2, store=folder)
tell("check", [check.problems, sorted({task.host for task in check.tasks})])

def runner(*args):
    os.environ["HVD_HEARTBEAT"] = "2"
    HorovodRunner(np=2).run(record, folder=args[0])

ways = {
    "run": lambda *args: horovod.spark.run(record, args=args, num_proc=2, stderr=io.StringIO(), heartbeat=2),
    "backend": lambda *args: SparkBackend(2, stderr=io.StringIO(), heartbeat=2).run(record, args=args),
    "runner": runner,
}
for name, way in ways.items():
    noted = pathlib.Path(folder) / name
    wait_until(noted.exists, f"the test has not asked for {name}")
    wait_for_slots(2)
    try:
        way(str(noted))
    except Exception as error:
        tell(name, [f"{type(error).__name__}: {error}", time.monotonic()])
os._exit(0)
"""
WAYS = ("run", "backend", "runner")


@pytest.fixture(scope="module")
def cluster(spark_possible, lab2):
    """A master beside the driver, and a worker on each host."""
    address = lab2.addr("launcher")
    java = ["env", "-u", "SPARK_LOCAL_IP", f"SPARK_HOME={os.environ['SPARK_HOME']}",
            "SPARK_DAEMON_JAVA_OPTS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", f"{os.environ['SPARK_HOME']}/bin/spark-class"]
    deploy = "org.apache.spark.deploy"
    running = [lab2.popen(*java, f"{deploy}.master.Master", "--host", address, "--port", PORT, "--webui-port", 0,
                          stdout=None, stderr=None)]  # fmt: skip
    for node in ("node1", "node2"):
        running.append(lab2.popen(*java, f"{deploy}.worker.Worker", "--host", lab2.addr(node), "--cores", 1, "--memory", "1g",
                                  "--webui-port", 0, "--work-dir", "/tmp/spark-work", f"spark://{address}:{PORT}", host=node,
                                  stdout=None, stderr=None))  # fmt: skip
    yield lab2
    for process in running:
        process.terminate()


def test_ranks_are_on_their_hosts_and_a_cut_network_ends_the_job(cluster):
    lab = cluster
    folder = lab.shared / "told"
    folder.mkdir()
    driver = lab.popen(
        "env", "-u", "SPARK_LOCAL_IP", f"PATH={os.environ['PATH']}", f"PYTHONPATH={pathlib.Path('tests/support').resolve()}",
        f"SPARK_HOME={os.environ['SPARK_HOME']}", f"PYSPARK_PYTHON={sys.executable}",
        f"SPARK_CONF_DIR={os.environ['SPARK_CONF_DIR']}", sys.executable, "-c", DRIVER,
        lab.addr("launcher"), folder,
    )  # fmt: skip
    words = []
    reading = threading.Thread(target=lambda: words.append(driver.communicate()), daemon=True)
    reading.start()

    def told(name):
        def read():
            if driver.poll() is not None and not (folder / f"{name}.told").exists():
                reading.join(PATIENCE)
                pytest.fail(f"the driver ended before it told {name}: {words}")
            return (folder / f"{name}.told").exists()

        wait_until(read, f"the driver has not told {name}")
        return json.loads((folder / f"{name}.told").read_text())

    places = told("places")
    assert sorted(place[0] for place in places) == ["node1", "node2"]
    assert [place[1:] for place in places] == [[0, 0, 0], [1, 0, 1]]
    assert sorted(place[0] for place in told("task0")) == ["node1", "node2"]
    assert told("check") == [[], ["node1", "node2"]]

    def ranks():
        running = lab.ps("launcher", "node1", "node2")
        programs = [os.path.basename(process.args.partition(" ")[0]) for process in running]
        return [process for process, program in zip(running, programs) if program.startswith("hvdrun") or "run_task" in process.args]

    for way in WAYS:
        (folder / way).mkdir()
        wait_until(lambda: len(list((folder / way).glob("*.json"))) == 2, f"{way}: the ranks have not started")
        lab.cut("node2")
        cut_at = time.monotonic()  # one clock for all hosts of a lab
        try:
            error, raised_at = told(way)
            wait_until(lambda: not ranks(), f"{way}: something of the job is left")
            print(f"{way}: the exception came {raised_at - cut_at:.2f} s after the cut, nothing was left after "
                  f"{time.monotonic() - cut_at:.2f} s")  # fmt: skip
            assert "RuntimeError" in error and "node2" in error and "no sign of life from its agent" in error
        finally:
            lab.heal()
    driver.wait(PATIENCE)


ELSEWHERE = """
import json, sys, torch
from pyspark.sql import SparkSession
from horovod.spark.common.backend import HostsBackend
from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.range(64).selectExpr("array(float(id % 2), 1.0f) as x", "float(id % 2) as y")
net = torch.nn.Linear(2, 1)

folder = sys.argv[1]
def where(frame):
    import os
    open(f"{folder}/on-{os.uname().nodename}", "w").close()
    return frame

model = TorchEstimator(
    backend=HostsBackend("node1:1,node2:1"), store=Store.create(f"{folder}/store"), model=net, batch_size=8, epochs=3,
    optimizer=torch.optim.SGD(net.parameters(), lr=0.1), loss=torch.nn.MSELoss(), input_shapes=[[-1, 2]], feature_cols=["x"],
    label_cols=["y"], transformation_fn=where, verbose=0).fit(frame)
losses = [entry["train"]["loss"] for entry in model.getHistory()]
print("FOUND", json.dumps({"losses": losses, "rows": model.transform(frame).count()}), flush=True)
"""


def test_data_by_spark_and_training_on_hosts_that_ssh_reaches(spark_possible, lab2):
    folder = lab2.shared / "elsewhere"
    folder.mkdir()
    done = lab2.run("env", f"PATH={os.environ['PATH']}", f"SPARK_HOME={os.environ['SPARK_HOME']}", "SPARK_LOCAL_IP=127.0.0.1",
                    f"PYSPARK_PYTHON={sys.executable}",
                    f"SPARK_CONF_DIR={os.environ['SPARK_CONF_DIR']}", sys.executable, "-c", ELSEWHERE, folder)  # fmt: skip
    found = [json.loads(line.removeprefix("FOUND ")) for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert found, done.stdout + done.stderr
    assert found[0]["losses"][2] < found[0]["losses"][0] and found[0]["rows"] == 64
    assert {"on-node1", "on-node2"} <= {path.name for path in folder.iterdir()}
