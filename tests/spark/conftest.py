"""Real Spark, on this machine: two executors of one core each. A session takes seconds to start, so one serves all cases."""

import os
import pathlib
import shutil
import sys

import pytest
from spark_deaths import wait_for_slots

# Executors import what the test modules define by value, not by name.
ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def spark_possible():
    """For tests that start a session of their own in another process."""
    pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed here")
    if not shutil.which("java"):
        pytest.skip("no Java here, which Spark needs")
    os.environ.setdefault("SPARK_HOME", str(pathlib.Path(pyspark.__file__).parent))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_CONF_DIR"] = str(ROOT / "tests/spark/settings")


@pytest.fixture(scope="session")
def spark(spark_possible):
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local-cluster[2,1,512]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.driver.memory", "512m")
        .config("spark.task.maxFailures", "1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    wait_for_slots(2)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def frame(spark):
    from estimator_helpers import frame_of, points

    return frame_of(spark, points(256))


@pytest.fixture
def store(tmp_path):
    from horovod.spark.common.store import Store

    return Store.create(str(tmp_path / "store"))
