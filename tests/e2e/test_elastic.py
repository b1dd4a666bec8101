"""Elastic jobs over hosts of the lab: what is lost is done without, and the others go on."""

import os
import re
import signal
import sys
import time

import pytest

from hvdrun import HVDRUN, ROOT, hvdrun, read_until
from patience import PATIENCE

SCRIPT = str(ROOT / "tests/support/elastic_steps.py")
HOSTS = "node1:2,node2:1,node3:1"


def train(lab, wanted, *flags):
    """A job of four ranks, all of which train, and that ends when it has `wanted` of them."""
    job = lab.popen(HVDRUN, "-np", "4", "-H", HOSTS, *flags, sys.executable, SCRIPT, str(wanted))
    read_until(job.stdout, "trains", 4)
    return job


def check_end(job, size, what, began):
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0, err
    pauses = [float(pause) for pause in re.findall(rf"rank \d of {size}, longest pause (.*) s", out)]
    assert len(pauses) == size, out + err
    print(f"{what}: paused for {max(pauses):.2f} s; ended {time.monotonic() - began:.2f} s after it")
    return err


@pytest.mark.parametrize("node, left", [("node3", 3), ("node1", 2)])
def test_a_host_that_is_cut_off_is_done_without(lab3, node, left):
    job = train(lab3, left, "--min-np", "2", "--heartbeat", "1", "--reconnect-timeout", "5")
    began = time.monotonic()
    lab3.cut(node)
    err = check_end(job, left, f"{node} cut off", began)
    lab3.heal()
    assert re.search(rf"node {node} was lost.*; the others go on without it", err), err
    assert f"generation 2: {left} ranks train together" in err
    assert lab3.wait_for_no_processes() == []


def test_a_host_whose_agent_is_killed_is_done_without(lab3):
    job = train(lab3, 3, "--min-np", "2")
    agents = {process.pid: process for process in lab3.ps("node2") if process.args.endswith(" serve")}
    guarded = [process for process in agents.values() if process.ppid in agents]
    os.kill(guarded[0].pid, signal.SIGKILL)
    err = check_end(job, 3, "agent killed", time.monotonic())
    assert "the others go on without it" in err
    assert lab3.wait_for_no_processes() == []


def test_an_error_of_the_script_that_comes_again_on_every_rank_ends_the_job():
    script = ("import horovod.torch as hvd\nhvd.init()\nstate = hvd.elastic.TorchState(step=0)\n"
              "@hvd.elastic.run\ndef train(state):\n    raise ValueError('as always')\ntrain(state)")  # fmt: skip
    done = hvdrun("-np", "2", "--min-np", "1", "--elastic-restarts", "1000", sys.executable, "-c", script)
    assert done.returncode == 1, done.stderr
    assert "(ValueError: as always, <string>:6 in train); every rank has failed twice with the same error" in done.stderr
    assert done.stderr.count("is started again") == 3


def test_a_host_too_many_ends_the_job_with_its_cause(lab3):
    job = train(lab3, 1, "--min-np", "3", "--heartbeat", "1", "--reconnect-timeout", "4")
    lab3.cut("node1")
    _, err = job.communicate(timeout=PATIENCE)
    lab3.heal()
    assert job.returncode != 0 and "node node1 was lost" in err, err
    assert lab3.wait_for_no_processes() == []
