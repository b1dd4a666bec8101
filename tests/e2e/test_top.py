"""hvdrun top: a running job seen from another terminal."""

import json
import os
import re
import signal
import subprocess

import pytest

from hvdrun import HVDRUN, LIBHVD, PYTHON, ROOT, hvdrun, program, read_until, start
from lab import wait_until
from patience import PATIENCE


@pytest.fixture
def live(tmp_path):
    """An environment whose jobs are seen by nobody else, and see nobody else's."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    return {**os.environ, "XDG_RUNTIME_DIR": str(folder)}


def status(live, *words):
    done = hvdrun("top", "--once", "--json", *words, env=live)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def is_seen(live):
    return hvdrun("top", "--once", env=live).returncode == 0


def test_top_shows_what_ranks_use(live, tmp_path):
    go = tmp_path / "go"
    job = start("-np", 2, "sh", "-c", f"echo hello; while [ ! -e {go} ]; do sleep 0.1; done", env=live)
    wait_until(lambda: is_seen(live), "hvdrun top never saw the job")

    def both_run():
        seen = status(live)
        is_sampled = "memory_total" in seen["nodes"][0] and all("memory_bytes" in rank for rank in seen["ranks"])
        return seen if is_sampled and all((rank["state"], rank["lines"]) == ("running", 1) for rank in seen["ranks"]) else None

    seen = wait_until(both_run, "hvdrun top never saw both ranks and their lines")
    assert len(seen["ranks"]) == 2
    assert all(rank["memory_bytes"] > 0 and "libhvd" not in rank for rank in seen["ranks"])
    assert seen["nodes"][0]["memory_total"] > 0
    assert status(live, seen["job"])["job"] == status(live, str(job.pid))["job"] == seen["job"]
    rows = hvdrun("top", "--once", env=live).stdout
    assert re.search(r"^job [0-9a-f]{8}: 2 ranks on 1 node, for ", rows) and re.search(r"^ *1 +localhost +running", rows, re.M)
    follower = subprocess.Popen([HVDRUN, "top"], env=live, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert follower.stdout.readline().startswith("job ")
    go.touch()
    assert "has ended" in follower.communicate(timeout=PATIENCE)[1] and follower.returncode == 0
    job.communicate(timeout=PATIENCE)
    assert job.returncode == 0


def test_top_says_why_an_ended_job_whose_output_nobody_reads_answers_no_more(live, tmp_path):
    go = tmp_path / "go"
    job = start("-np", 1, "sh", "-c", f"while [ ! -e {go} ]; do sleep 0.1; done; yes $(printf %01000d) | head -n 300", env=live)
    wait_until(lambda: is_seen(live), "hvdrun top never saw the job")
    follower = subprocess.Popen([HVDRUN, "top"], env=live, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert follower.stdout.readline().startswith("job ")
    go.touch()
    read_until(follower.stderr, rf"has not answered for 10 s, and its hvdrun \(pid {job.pid}\) still runs")
    assert len(job.communicate(timeout=PATIENCE)[0]) > 300000 and job.returncode == 0
    assert "has ended" in follower.communicate(timeout=PATIENCE)[1] and follower.returncode == 0


def test_top_follows_a_job_file_from_its_preparation_to_its_end(live, tmp_path):
    prepared, go = tmp_path / "prepared", tmp_path / "go"
    (tmp_path / "job.yaml").write_text(
        f"output: {tmp_path}\nprepare: while [ ! -e {prepared} ]; do sleep 0.1; done\n"
        f"command: echo begun; while [ ! -e {go} ]; do sleep 0.1; done\n")
    job = start("-f", tmp_path / "job.yaml", "-H", "localhost", env=live)
    wait_until(lambda: is_seen(live), "hvdrun top never saw the job")
    follower = subprocess.Popen([HVDRUN, "top", "--json"], env=live, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    pictures = map(json.loads, follower.stdout)
    assert all(rank["lines"] == 0 for rank in next(pictures)["ranks"])
    prepared.touch()
    assert next(picture for picture in pictures if [rank["lines"] for rank in picture["ranks"]] == [1])
    go.touch()
    assert "has ended" in follower.communicate(timeout=PATIENCE)[1] and follower.returncode == 0
    assert job.wait(timeout=PATIENCE) == 0


def test_top_of_no_job_and_of_a_strange_one_is_one_line(live):
    for words in [(), ("nobody",)]:
        done = hvdrun("top", *words, env=live)
        assert done.returncode != 0 and done.stdout == ""
        assert len(done.stderr.splitlines()) == 1 and "runs on this machine" in done.stderr


def test_two_jobs_and_none_named_are_listed(live):
    jobs = [start("-np", 1, "sleep", 1000, env=live) for _ in range(2)]
    wait_until(lambda: "2 jobs run; name one of them" in hvdrun("top", "--once", env=live).stderr,
               "hvdrun top never saw both jobs")
    for job in jobs:
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=PATIENCE)


def test_a_job_says_its_id_in_verbose_words(live):
    done = hvdrun("--verbose", "--no-tags", "-np", 1, "printenv", "HVD_JOB_ID", env=live)
    job = done.stdout.strip()
    assert re.search(rf"this is job {job}, as in: hvdrun top {job}$", done.stderr, re.M), done.stderr


def test_top_shows_in_which_operation_ranks_wait_for_another_one(live, tmp_path):
    job = start("-q", "-np", 3, *PYTHON, program("waits.py"), tmp_path / "go", env={**live, "HVD_LIBRARY": LIBHVD})
    read_until(job.stdout, "here", 3)

    def waits():
        seen = status(live)["ranks"]
        return seen if "the others wait for it" == seen[1]["differs"] else None

    seen = wait_until(waits, "hvdrun top never saw that two ranks wait")
    assert [rank["libhvd"]["operation"] for rank in seen] == ["allreduce", "", "allreduce"]
    assert [rank["libhvd"]["operations"] for rank in seen] == [10, 10, 10]
    assert [rank["libhvd"]["bytes"] for rank in seen] == [40, 40, 40]
    shown = re.compile(r"^ *0 .* allreduce 'layer4.weight' [\d.]+ s", re.M)
    wait_until(lambda: shown.search(hvdrun("top", "--once", env=live).stdout), "hvdrun top never showed it")
    (tmp_path / "go").touch()
    job.communicate(timeout=PATIENCE)
    assert job.returncode == 0
