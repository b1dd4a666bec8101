"""hvdrun timeline: what took the time in a timeline that libhvd has written."""

import json
import sys
import textwrap

import pytest

from hvdrun import hvdrun

# Rank 0 makes a file when it has begun an operation, and rank 1 begins it after that.
RANK_1_IS_LATE = textwrap.dedent("""
    import pathlib, sys, time, torch, horovod.torch as hvd
    hvd.init()
    def operate(name, begin):
        mark = pathlib.Path(sys.argv[1], name)
        while hvd.rank() == 1 and not mark.exists():
            time.sleep(0.01)
        time.sleep(0.2 * hvd.rank())
        handle = begin()
        if hvd.rank() == 0:
            mark.touch()
        hvd.synchronize(handle)
    for step in range(3):
        operate(f"step{step}", lambda: hvd.allreduce_async(torch.ones(1000), name="gradient"))
    operate("end", lambda: hvd.allgather_async(torch.ones(2, 3), name="scores"))
""")


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("timeline")
    (folder / "train.py").write_text(RANK_1_IS_LATE)
    done = hvdrun("-q", "-np", "2", "--timeline-filename", str(folder / "trace.json"), sys.executable, str(folder / "train.py"),
                  str(folder))
    assert done.returncode == 0, done.stderr
    return folder / "trace.json"


def test_the_rank_that_was_waited_for_is_named(trace):
    done = hvdrun("timeline", str(trace))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "2 ranks" in lines[0]
    assert "most of all it was rank 1" in lines[1]
    assert any(line.startswith("allreduce ") and " 3 " in line for line in lines), lines
    assert any(line.startswith("allreduce.gradient") for line in lines), lines


def test_as_json_it_has_all(trace):
    done = hvdrun("timeline", str(trace), "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (allreduces,) = [kind for kind in told["operations"] if kind["name"] == "allreduce"]
    assert (allreduces["count"], allreduces["bytes"]) == (3, 3 * 4000)
    late = told["ranks"][0]
    assert late["rank"] == 1 and late["waited_for_s"] > 0.1, told
    assert told["waited_s"] >= late["waited_for_s"] * 0.99
    assert not told["is_cut"]
    assert "HVD_ALLREDUCE" in [phase["name"] for phase in told["phases"]]


def test_of_a_file_that_was_cut_it_reads_what_is_there(trace, tmp_path):
    (tmp_path / "cut.json").write_bytes(trace.read_bytes()[:-100])
    done = hvdrun("timeline", str(tmp_path / "cut.json"))
    assert done.returncode == 0, done.stderr
    assert "(the file ends early)" in done.stdout.splitlines()[0]


@pytest.mark.parametrize("text, why", [(None, "No such file or directory"), ("", "no event of a timeline"), ("a\nb\n", "line 1 is not")])
def test_what_is_no_timeline_is_one_line(tmp_path, text, why):
    file = tmp_path / "file"
    if text is not None:
        file.write_text(text)
    done = hvdrun("timeline", str(file))
    assert done.returncode == 240
    assert done.stdout == "" and done.stderr.count("\n") == 1
    assert str(file) in done.stderr and why in done.stderr


def test_without_a_file_it_says_how_it_is_called():
    done = hvdrun("timeline")
    assert done.returncode == 240
    assert "timeline FILE" in done.stderr
