"""What a job tells of itself while it runs: stalls, and the timeline."""

import json
import os
import re
import signal
import time

from hvdrun import BIN, LIBHVD, PYTHON, hvdrun, program, read_until, start
from lab import wait_until
from patience import PATIENCE

OURS = ["-x", f"HVD_LIBRARY={LIBHVD}"]


def test_a_rank_that_others_wait_for_is_named_while_the_job_goes_on(tmp_path):
    go = tmp_path / "go"
    job = start("-q", *OURS, "-x", "HOROVOD_STALL_CHECK_TIME_SECONDS=0.2", "-np", 2, *PYTHON, program("late.py"), go)
    read_until(job.stderr, r"stalled: BARRIER 'meeting' waits for rank 1 since ", 2)
    go.touch()
    job.communicate(timeout=PATIENCE)
    assert job.returncode == 0


def test_a_stall_ends_the_job_where_that_is_asked_for():
    done = hvdrun(*OURS, "-x", "HOROVOD_STALL_CHECK_TIME_SECONDS=0.2", "-x", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=0.5", "-np", 2,
                  "--grace", 1, *PYTHON, program("late.py"))
    assert done.returncode == 1
    assert "BARRIER 'meeting' waits for rank 1" in done.stderr and "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS" in done.stderr


def test_a_rank_on_another_host_that_is_stopped_is_named_and_top_shows_who_waits(lab2):
    job = lab2.popen("env", f"HVD_LIBRARY={LIBHVD}", BIN / "hvdrun", "-q", "-x", "HOROVOD_STALL_CHECK_TIME_SECONDS=0.5", "-np", "2",
                     "-H", "node1,node2", *PYTHON, program("waits.py"), lab2.shared / "is_stopped", "stopped")
    read_until(job.stderr, r"stalled: ALLREDUCE 'layer4.weight' waits for rank 1 since ", 2)

    def shown():
        done = lab2.run(BIN / "hvdrun", "top", "--once", "--json")
        return done.returncode == 0 and json.loads(done.stdout)["ranks"][0].get("libhvd", {}).get("operation") == "allreduce"

    wait_until(shown, "hvdrun top never saw that rank 0 waits")
    os.kill(next(each.pid for each in lab2.ps("node2") if re.search(r"python\S* .*waits\.py", each.args)), signal.SIGCONT)
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0, err


def test_a_stopped_rank_on_another_host_ends_the_job_where_that_is_asked_for(lab2):
    done = lab2.run("env", f"HVD_LIBRARY={LIBHVD}", BIN / "hvdrun", "-x", "HOROVOD_STALL_CHECK_TIME_SECONDS=1", "-x",
                    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=10", "--grace", "1", "-np", "2", "-H", "node1,node2", *PYTHON,
                    program("waits.py"), lab2.shared / "is_stopped_for_good", "stopped")
    assert done.returncode == 1
    assert "ALLREDUCE 'layer4.weight' waits for rank 1" in done.stderr and "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS" in done.stderr
    assert lab2.wait_for_no_processes() == []


def test_no_stall_is_told_where_the_check_is_off(tmp_path):
    done = hvdrun("-q", *OURS, "--no-stall-check", "-x", "HOROVOD_STALL_CHECK_TIME_SECONDS=0.001", "-np", 2, "sh", "-c",
                  f"[ $HVD_RANK = 0 ] || sleep 0.3; touch {tmp_path}/go; exec {' '.join(PYTHON)} {program('late.py')} {tmp_path}/go")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_timeline_has_horovods_phases(tmp_path):
    path = tmp_path / "timeline.json"
    done = hvdrun("bench", "allreduce", "-np", 2, "--min", "256K", "--max", "256K", "--iters", 3, "--timeline-filename", path,
                  "--timeline-mark-cycles")
    assert done.returncode == 0, done.stderr
    events = json.loads(path.read_text())
    names = {event["name"] for event in events}
    assert {"NEGOTIATE_ALLREDUCE", "ALLREDUCE", "QUEUE", "HVD_ALLREDUCE", "CYCLE_START"} <= names
    assert "bench.allreduce" in {event["args"]["name"] for event in events if event["name"] == "process_name"}
    begun = sum(event["ph"] == "B" for event in events)
    assert begun > 0 and begun == sum(event["ph"] == "E" for event in events)


def test_the_timeline_of_a_rank_that_is_killed_can_be_read(tmp_path):
    path = tmp_path / "timeline.json"
    job = start("bench", "allreduce", "-np", 2, "--min", "256K", "--max", "256K", "--iters", 1_000_000_000, "--json",
                "--timeline-filename", path)
    pid = None
    while pid is None:
        event = json.loads(job.stderr.readline())
        pid = event["pid"] if event["event"] == "rank_started" and event["rank"] == 0 else None
    while not path.exists() or path.stat().st_size < 100_000:
        assert job.poll() is None
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    job.communicate(timeout=PATIENCE)
    text = path.read_text()
    if not text.endswith("\n]\n"):  # killed in the middle of a write: an array without its end
        text = text[:text.rindex(",\n")] + "\n]"
    assert len(json.loads(text)) > 1000


def test_a_timeline_that_cannot_be_written_does_not_end_the_job():
    done = hvdrun("bench", "allreduce", "-np", 2, "--max", 4, "--iters", 1, "--timeline-filename", "/no/such/folder/t")
    assert done.returncode == 0 and "cannot write the timeline to '/no/such/folder/t'" in done.stderr
