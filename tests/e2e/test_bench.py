"""hvdrun bench: ranks that measure, on this machine and on hosts that have nothing of ours."""

import json
import os
import re
import xml.dom.minidom

import pytest

from hvdrun import hvdrun, start
from patience import PATIENCE

MEASURES = ["allreduce", "allgather", "broadcast", "alltoall", "reducescatter"]


def rows(text):
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("size", [1, 3])
def test_each_collective_has_a_row_for_each_size_and_no_wrong_element(measure, size):
    done = hvdrun("bench", measure, "-np", size, "--min", 16, "--max", "64K", "--factor", 16, "--iters", 3, "-q")
    assert (done.returncode, done.stderr) == (0, "")
    found = rows(done.stdout)
    assert len(found) == 4 and int(found[-1][0]) in (65535 // (4 * size) * 4 * size, 65536)
    assert all(row[2] == "float32" and row[8] == "0" for row in found)
    in_place = {row[12] for row in found}
    assert in_place == ({"0"} if measure in ("allreduce", "broadcast") else {"-"})
    assert "# Out of bounds values : 0 OK\n" in done.stdout


@pytest.mark.parametrize("arguments", [["--type", "bfloat16", "--op", "avg"], ["--type", "bool", "--op", "min"],
                                       ["--type", "uint8", "--op", "prod"], ["--type", "float64", "--op", "max"]])
def test_types_and_operators_are_measured_and_checked(arguments):
    done = hvdrun("bench", "-np", 3, *arguments, "allreduce", "--min", "4K", "--max", "4K", "--iters", 2)
    assert done.returncode == 0
    assert [row[2:4] for row in rows(done.stdout)] == [arguments[1::2]]


def test_latency_and_gradients_have_their_own_tables():
    done = hvdrun("bench", "latency", "-np", 2, "--iters", 20)
    assert done.returncode == 0
    assert [row[:2] for row in rows(done.stdout)] == [["barrier", "0"], *(["allreduce", str(4**i)] for i in range(1, 6))]
    done = hvdrun("bench", "gradients", "-np", 2, "--iters", 1, "--warmup", 0)
    assert done.returncode == 0
    assert [row[:3] for row in rows(done.stdout)] == [["each", "102228128", "161"], ["group", "102228128", "161"],
                                                      ["flat", "102228128", "1"]]


@pytest.mark.parametrize("size", [2, 4])
def test_each_pair_of_ranks_has_its_latency_and_its_bandwidth(size):
    done = hvdrun("bench", "pairs", "-np", size, "--max", "1M", "--iters", 5, "-q")
    assert (done.returncode, done.stderr) == (0, "")
    pairs = [f"{a}-{b}" for a in range(size) for b in range(a + 1, size)]
    assert [row[:2] for row in rows(done.stdout)] == [[pair, bytes] for pair in pairs for bytes in ("4", "1048576")]
    assert all(row[-1] == "0" and float(row[3]) > 0 for row in rows(done.stdout))
    assert "# Out of bounds values : 0 OK\n" in done.stdout


def test_one_rank_has_no_pairs_and_pairs_have_no_chart(tmp_path):
    alone = hvdrun("bench", "pairs", "-np", 1)
    assert alone.returncode == 240 and "one rank has no pair" in alone.stderr
    assert hvdrun("bench", "pairs", "-np", 2, "--plot", tmp_path / "x.svg").returncode == 240


def test_json_has_an_object_for_each_row():
    done = hvdrun("bench", "allreduce", "-np", 2, "--max", 64, "--iters", 3, "--json")
    assert done.returncode == 0
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["bytes"] for row in found] == [4, 16, 64]
    for row in found:
        assert row["event"] == "measured" and row["ranks"] == 2
        for place in ("out_of_place", "in_place"):
            assert row[place]["wrong"] == 0 and row[place]["seconds"] > 0
    events = [json.loads(line)["event"] for line in done.stderr.splitlines()]
    assert events[0] == "job_started" and events[-1] == "job_ended"


def test_a_picture_is_drawn(tmp_path):
    picture = tmp_path / "a.svg"
    done = hvdrun("bench", "allreduce", "-np", 2, "--max", "1K", "--iters", 3, "--plot", picture)
    assert done.returncode == 0
    svg = xml.dom.minidom.parse(str(picture))
    assert len(svg.getElementsByTagName("polyline")) == 4
    assert len(svg.getElementsByTagName("circle")) == 4 * 5
    assert list(tmp_path.iterdir()) == [picture]


@pytest.mark.parametrize(("arguments", "said"), [
    ([], "say what to measure: allreduce"),
    (["gather"], "measure 'gather': expected allreduce"),
    (["allreduce", "true"], "'true' is one word too many"),
    (["allreduce", "--min", "8", "--max", "4"], "the first not above the second"),
    (["allreduce", "--min", "8X"], "size '8X'"),
    (["allreduce", "--factor", "1"], "expected 2 or more"),
    (["allreduce", "--op", "avg", "--type", "int8"], "needs a floating --type"),
    (["allreduce", "--op", "median"], "median"),
    (["allreduce", "--plot", "a.png"], "expected a name that ends in .svg"),
    (["allreduce", "--plot", "/nowhere/a.svg"], "cannot write into /nowhere/"),
])
def test_what_cannot_be_measured_is_refused_before_anything_starts(arguments, said):
    done = hvdrun("bench", *arguments)
    assert done.returncode == 240 and said in done.stderr and done.stderr.count("\n") == 1 and done.stdout == ""


def test_flags_of_bench_are_none_of_a_job():
    done = hvdrun("--iters", 3, "true")
    assert done.returncode == 240 and "--iters" in done.stderr


def test_a_rank_that_measures_and_is_killed_fails_the_job():
    job = start("bench", "allreduce", "-np", 2, "--iters", 1_000_000_000, "--max", 4, "--json")
    for line in job.stderr:
        event = json.loads(line)
        if event["event"] == "rank_started" and event["rank"] == 1:
            os.kill(event["pid"], 9)
            break
    job.communicate(timeout=PATIENCE)
    assert job.returncode == 137


def test_hosts_that_have_nothing_are_measured(lab2):
    done = lab2.run("build/bin/hvdrun", "bench", "allreduce", "-np", 4, "-H", "node1:2,node2:2", "--min", "1K", "--max",
                    "1M", "--factor", 32, "--iters", 3)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^# hvdrun bench allreduce: 4 ranks on 2 nodes", done.stdout)
    assert [row[0] for row in rows(done.stdout)] == ["1024", "32768", "1048576"]
