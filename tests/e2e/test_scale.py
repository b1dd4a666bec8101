"""Many nodes, much output: what the launcher may need of memory, descriptors and connections."""

import os
import pathlib
import re
import resource
import sys
import time
import uuid

import pytest

from hvdrun import hvdrun, start, wait_until_gone
from patience import PATIENCE

EXECUTES = "sh -c 'shift; exec \"$@\"' exec"


@pytest.fixture
def marker():
    return f"HVD_TEST_MARKER={uuid.uuid4()}"


def env_with(marker, **more):
    name, value = marker.split("=")
    return {**os.environ, name: value, **more}


def hosts(count):
    return ",".join(f"n{i}:1" for i in range(count))


def peak_kb(pid):
    return int(re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())[1])


def with_files(soft, hard):
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_job_of_many_nodes_raises_its_own_limit_on_open_files_and_not_that_of_its_ranks(marker):
    done = hvdrun("-q", "--no-tags", "--rsh", EXECUTES, "--start-timeout", PATIENCE, "-H", f"localhost:1,{hosts(40)}", "sh", "-c",
                  "ulimit -Sn", env=env_with(marker), preexec_fn=with_files(100, 1000))
    assert (done.returncode, done.stdout) == (0, "100\n" * 41), done.stderr
    assert wait_until_gone(marker) == {}


def test_too_low_a_limit_on_open_files_is_told_with_its_number_before_anything_is_started():
    done = hvdrun("--rsh", EXECUTES, "-H", hosts(40), "true", preexec_fn=with_files(100, 100))
    assert done.returncode == 242
    assert re.fullmatch(r"hvdrun: for 40 nodes about \d+ open files are needed, and the limit is 100 \(ulimit -Hn\); raise nofile .*\n",
                        done.stderr), done.stderr


def test_a_reader_that_is_100_times_slower_than_the_writers_costs_no_memory(marker):
    writer = [sys.executable, "-S", "-c", "import os\nblock = (b'x' * 99 + b'\\n') * 625\nwhile True: os.write(1, block)"]
    job = start("-np", 4, "--grace", 1, *writer, env=env_with(marker), text=False)
    # Four such writers make some 500 MB a second together. Until then memory would grow by what is not read.
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        assert os.read(job.stdout.fileno(), 50_000)
        time.sleep(0.01)  # sleeps: what is tested
    assert peak_kb(job.pid) <= 64 << 10
    job.stdout.close()
    assert job.wait(PATIENCE) == 141, job.stderr.read()
    job.stderr.close()
    assert wait_until_gone(marker) == {}
