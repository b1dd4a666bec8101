"""the manual's tables of Horovod's variables, against what the runtime reads and what Horovod has."""

import pathlib
import re

import pytest

from horovod.common._variables import seconds_from

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What Horovod's core reads, and its launcher of those that ranks get too (0.28.1).
HOROVODS = """
CONTROLLER CPU_OPERATIONS RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE HOSTNAME GLOO_RENDEZVOUS_ADDR
GLOO_RENDEZVOUS_PORT GLOO_IFACE GLOO_TIMEOUT_SECONDS FUSION_THRESHOLD CYCLE_TIME CACHE_CAPACITY HIERARCHICAL_ALLREDUCE
HIERARCHICAL_ALLGATHER TORUS_ALLREDUCE BATCH_D2D_MEMCOPIES NUM_NCCL_STREAMS DISABLE_GROUP_FUSION ENABLE_ASYNC_COMPLETION
ENABLE_XLA_OPS DISABLE_NVTX_RANGES DYNAMIC_PROCESS_SETS ELASTIC AUTOTUNE AUTOTUNE_LOG AUTOTUNE_WARMUP_SAMPLES
AUTOTUNE_STEPS_PER_SAMPLE AUTOTUNE_BAYES_OPT_MAX_SAMPLES AUTOTUNE_GAUSSIAN_PROCESS_NOISE TIMELINE TIMELINE_MARK_CYCLES
STALL_CHECK_DISABLE STALL_CHECK_TIME_SECONDS STALL_SHUTDOWN_TIME_SECONDS THREAD_AFFINITY MPI_THREADS_DISABLE
ADASUM_MPI_CHUNK_SIZE CCL_CACHE GPU_OPERATIONS GPU_ALLREDUCE GPU_ALLGATHER GPU_BROADCAST GPU_ALLTOALL
GPU_REDUCESCATTER LOG_LEVEL LOG_HIDE_TIME START_TIMEOUT ELASTIC_TIMEOUT SPARK_START_TIMEOUT
SPARK_USE_LOCAL_RANK_GPU_INDEX
"""


def tables():
    """The names of the manual's two tables: what is read, and what changes nothing."""
    section = (ROOT / "runtime/docs/variables.md").read_text()
    read, ignored = section.split("These change nothing")
    return [re.findall(r"`(HOROVOD_\w+)`", "".join(re.findall(r"^\|([^|]*)\|", part, re.M))) for part in (read, ignored)]


def names_that_the_runtime_reads():
    constants = dict(re.findall(r'(k\w+) =\s*"(HOROVOD_\w+)"', (ROOT / "runtime/base/contract.h").read_text()))
    used = re.findall(r"contract::(k\w+)", (ROOT / "runtime/abi/config.cpp").read_text())
    python = "".join(path.read_text() for path in (ROOT / "runtime/python/horovod").rglob("*.py"))
    assert set(constants) <= set(used), "every one of the contract is read"
    return {constants[name] for name in used if name in constants} | set(re.findall(r'(?:environ\S*|seconds_from\()"(HOROVOD_\w+)"', python))


def test_what_the_readme_calls_read_is_what_is_read():
    read, ignored = tables()
    assert sorted(read) == sorted(names_that_the_runtime_reads())
    assert not set(read) & set(ignored)


def test_each_of_horovods_is_in_one_of_the_tables_once():
    read, ignored = tables()
    assert sorted(read + ignored) == sorted("HOROVOD_" + name for name in HOROVODS.split())


def test_variables_of_hvdruns_own_are_named():
    """Those that are for users: what hvdrun sets for its ranks is not."""
    section = (ROOT / "runtime/docs/variables.md").read_text().split("These change nothing")[0]
    named = set(re.findall(r"`(HVD_\w+)`", "".join(re.findall(r"^\|([^|]*)\|", section, re.M))))
    constants = dict(re.findall(r'(k\w+) = "(HVD_\w+)"', (ROOT / "runtime/base/contract.h").read_text()))
    placement = (ROOT / "launcher/placement/rank_env.cpp").read_text()
    own = {name for constant, name in constants.items() if not re.search(rf"contract::{constant}\b", placement)}
    read_by_hvdrun = set(re.findall(r'"(HVD_(?:RSH|HEARTBEAT))"', (ROOT / "cli/options/job_settings.cpp").read_text()))
    assert named == (own - {"HVD_JOINING"}) | read_by_hvdrun | {"HVD_LIBRARY", "HVD_NODE_ADDRESS"}


@pytest.mark.parametrize("text, seconds", [(None, 60), ("", 60), ("0", 0), ("1.5", 1.5), (" 90 ", 90)])
def test_a_variable_says_seconds(monkeypatch, text, seconds):
    monkeypatch.delenv("HOROVOD_ELASTIC_TIMEOUT", raising=False)
    if text is not None:
        monkeypatch.setenv("HOROVOD_ELASTIC_TIMEOUT", text)
    assert seconds_from("HOROVOD_ELASTIC_TIMEOUT", 60) == seconds


@pytest.mark.parametrize("text", ["soon", "1m", "-1", "nan", "inf", " "])
def test_a_variable_that_says_no_seconds_is_named_with_its_value(monkeypatch, text):
    monkeypatch.setenv("HOROVOD_ELASTIC_TIMEOUT", text)
    with pytest.raises(ValueError, match=f"^HOROVOD_ELASTIC_TIMEOUT is '{text}', expected a number of seconds$"):
        seconds_from("HOROVOD_ELASTIC_TIMEOUT", 60)
