"""hvdrun timeline: what took the time in a timeline that libhvd has written."""

import json
import signal
import sys
import textwrap

import pytest

from hvdrun import hvdrun, start
from lab import wait_until
from patience import PATIENCE

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

# Rank 1 does not ask for what rank 0 waits for, until there is a file.
RANK_1_IS_MISSING = textwrap.dedent("""
    import pathlib, sys, time, torch, horovod.torch as hvd
    hvd.init()
    hvd.allreduce(torch.ones(1 << 22), name="first")  # so large that the ranks ask for it, by which the file knows them
    while hvd.rank() == 1 and not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.01)
    hvd.allreduce(torch.ones(1000), name="second")
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


def events_of(path):
    """Nothing while its writer is at it."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return []


@pytest.fixture
def waiting(tmp_path):
    """A job whose rank 0 waits, and whose timeline says so; `go` in its folder ends that."""
    (tmp_path / "train.py").write_text(RANK_1_IS_MISSING)
    job = start("-np", 2, "--grace", 1, "--timeline-filename", tmp_path / "trace.json", sys.executable,
                tmp_path / "train.py", tmp_path / "go")  # fmt: skip

    def is_told():
        assert job.poll() is None, job.communicate()
        events = events_of(tmp_path / "trace.json")
        return events and events[-1]["name"] == "TIMELINE_END" and "allreduce.second" in str(events)

    wait_until(is_told, "the timeline does not say that an operation waits")
    yield job
    (tmp_path / "go").touch()
    job.communicate(timeout=PATIENCE)


def test_a_job_that_is_killed_while_it_waits_tells_for_which_rank(waiting, tmp_path):
    waiting.send_signal(signal.SIGINT)
    waiting.communicate(timeout=PATIENCE)
    done = hvdrun("timeline", tmp_path / "trace.json")
    assert done.returncode == 0, done.stderr
    assert "When the file ends, 1 operation has not ended:" in done.stdout
    assert "waits for rank 1" in done.stdout
    (left,) = json.loads(hvdrun("timeline", "--json", tmp_path / "trace.json").stdout)["unfinished"]
    assert (left["name"], left["is_waiting"], left["missing_ranks"]) == ("allreduce.second", True, [1])


def test_a_second_job_with_the_same_file_leaves_it_to_the_first(waiting, tmp_path):
    other = hvdrun("bench", "allreduce", "-np", 2, "--max", 4, "--iters", 1, "--timeline-filename", tmp_path / "trace.json")
    assert other.returncode == 0
    assert "trace.json': another process writes its own there; give each job a file; the job goes on without" in other.stderr
    (tmp_path / "go").touch()
    waiting.communicate(timeout=PATIENCE)
    assert waiting.returncode == 0
    names = [event["args"]["name"] for event in events_of(tmp_path / "trace.json") if event["name"] == "process_name"]
    assert names == ["allreduce.first", "allreduce.second"]


def test_a_job_that_begins_anew_keeps_the_timeline_of_its_first_start(tmp_path):
    # Rank 0, whose timeline it is, fails: if the other rank failed, rank 0 could be ended before its timeline is written.
    script = ("import os, torch, horovod.torch as hvd; hvd.init(); restart = os.environ['TORCHELASTIC_RESTART_COUNT'];"
              "hvd.allreduce(torch.ones(9000), name='of start ' + restart); fails = hvd.rank() == 0 and restart == '0';"
              "hvd.shutdown(); os._exit(3 if fails else 0)")  # fmt: skip
    done = hvdrun("-np", 2, "--elastic", "restart", "--elastic-restarts", 1, "--timeline-filename", tmp_path / "t.json",
                  sys.executable, "-c", script)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"the timeline goes on in '{tmp_path}/t.2.json', since the job has begun anew" in done.stderr
    assert "allreduce.of start 0" in (tmp_path / "t.json").read_text()
    assert "allreduce.of start 1" in (tmp_path / "t.2.json").read_text()


def test_of_a_job_without_operations_it_says_that(tmp_path):
    path = tmp_path / "trace.json"
    done = hvdrun("-q", "-np", 2, "--timeline-filename", path, sys.executable, "-c", "import horovod.torch as hvd; hvd.init()")
    assert done.returncode == 0, done.stderr
    assert hvdrun("timeline", path).stdout == f"{path}: no operation; it ended before the first one\n"


def test_a_trace_may_have_any_layout_and_an_endless_file_is_no_trace(trace, tmp_path):
    told = hvdrun("timeline", "--json", trace).stdout
    for options in ({"indent": 2}, {}):
        (tmp_path / "other.json").write_text(json.dumps({"traceEvents": json.loads(trace.read_text()), "more": []}, **options))
        assert hvdrun("timeline", "--json", tmp_path / "other.json").stdout == told
    done = hvdrun("timeline", "/dev/zero")
    assert done.returncode == 240 and "line 1 is not an event of a timeline" in done.stderr


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
