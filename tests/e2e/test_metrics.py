"""The metrics of a running job, as node_exporter's textfile collector reads them."""

import http.client
import json
import os
import re
import socket
import time

import pytest

from hvdrun import LIBHVD, PYTHON, hvdrun, program, start
from patience import PATIENCE
from ports import free_ports

SAMPLE = re.compile(r'^[a-z_]+(\{[a-z]+="(?:[^"\\\n]|\\.)*"(,[a-z]+="(?:[^"\\\n]|\\.)*")*\})? -?[0-9.e+-]+$')


def value_of(text, name, **labels):
    for line in text.splitlines():
        if line.startswith(name + "{") and all(f'{key}="{value}"' in line for key, value in labels.items()):
            return float(line.rpartition(" ")[2])
    return None


def read_when(path, is_there):
    """The file's text as soon as it has what is wanted. Every text on the way is a whole one."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if path.exists():
            text = path.read_text()
            assert text.endswith("\n") and text.startswith("# HELP ")
            if is_there(text):
                return text
        time.sleep(0.05)
    raise AssertionError("the metrics never had it")


def test_the_last_metrics_have_what_a_rank_did_until_it_ended(tmp_path):
    path = tmp_path / "job.prom"
    done = hvdrun("-np", 1, "--metrics", path, *PYTHON, program("ends_at_once.py"), path,
                  env={**os.environ, "HVD_LIBRARY": LIBHVD})  # fmt: skip
    assert done.returncode == 0, done.stderr
    count = int(re.search(r"did (\d+)", done.stdout).group(1))
    assert value_of(path.read_text(), "hvdrun_rank_collectives_total", rank=0, operation="barrier") == count


def test_metrics_tell_what_ranks_use_while_they_run_and_how_they_ended(tmp_path):
    path, go = tmp_path / "job.prom", tmp_path / "go"
    job = start("--metrics", path, "-np", 2, "sh", "-c", f"echo line; while [ ! -e {go} ]; do sleep 0.1; done")
    text = read_when(path, lambda text: value_of(text, "hvdrun_rank_memory_bytes", rank=1))
    assert value_of(text, "hvdrun_ranks", state="running") == 2
    assert value_of(text, "hvdrun_rank_processes", rank=0) >= 1
    assert value_of(text, "hvdrun_node_memory_bytes") > value_of(text, "hvdrun_node_memory_free_bytes") > 0
    families = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            assert kind in ("gauge", "counter") and (kind == "counter") == name.endswith("_total") and name not in families
            families.add(name)
        elif not line.startswith("# HELP "):
            assert SAMPLE.match(line) and line.partition("{")[0] in families, line
    go.touch()
    job.communicate(timeout=PATIENCE)
    assert job.returncode == 0
    last = path.read_text()
    assert value_of(last, "hvdrun_ranks", state="ended") == 2
    assert value_of(last, "hvdrun_rank_output_lines_total", rank=1) == 1
    assert [entry.name for entry in tmp_path.iterdir() if entry.suffix == ".new"] == []


def test_the_last_metrics_of_a_job_file_are_those_of_its_ranks_and_not_of_cleaning_up(tmp_path):
    path, file = tmp_path / "job.prom", tmp_path / "job.yaml"
    file.write_text(f"processCount: 2\nprepare: 'true'\ncommand: echo line; exit 3\noutput: {tmp_path}\n")
    done = hvdrun("-f", file, "-H", "localhost", "--metrics", path)
    assert done.returncode == 3, done.stderr
    last = path.read_text()
    assert value_of(last, "hvdrun_ranks", state="failed") == 2, last
    assert value_of(last, "hvdrun_ranks", state="ended") == 0, last
    assert value_of(last, "hvdrun_rank_output_lines_total", rank=1) is not None, last


def test_a_host_that_was_never_reached_is_not_connected(tmp_path):
    path = tmp_path / "job.prom"
    done = hvdrun("--metrics", path, "-H", "localhost,gone", "--rsh", "false", "true")
    assert done.returncode == 241, done.stderr
    connected = dict(re.findall(r'^hvdrun_node_connected\{.*node="(\w+)"\} (\d)$', path.read_text(), re.M))
    assert connected["gone"] == "0", path.read_text()


def test_a_job_whose_metrics_cannot_be_written_runs_and_says_so_once(tmp_path):
    done = hvdrun("--metrics", tmp_path / "missing/job.prom", "-np", 2, "sh", "-c", "sleep 1.5; echo done")
    assert done.returncode == 0 and done.stdout.count("done") == 2
    assert done.stderr.count("--metrics: cannot write") == 1 and "the job goes on" in done.stderr


def get(where, path="/metrics", **headers):
    """(status, headers, text) of a request; `where` is a port, or the path of a unix socket."""
    connection = http.client.HTTPConnection("127.0.0.1", where if isinstance(where, int) else 1, timeout=PATIENCE)
    if not isinstance(where, int):
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(where))
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read().decode()


def when_there(ask):
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return ask()
        except OSError:
            assert time.monotonic() < deadline, "nobody listens"
            time.sleep(0.05)


def test_metrics_are_given_at_a_socket_until_the_job_has_ended(tmp_path):
    path, go = tmp_path / "metrics", tmp_path / "go"
    words = ["-np", 2, "sh", "-c", f"while [ ! -e {go} ]; do sleep 0.1; done"]
    job = start("--metrics-listen", f"unix:{path}", *words)
    status, headers, text = when_there(lambda: get(path))
    assert status == 200 and headers["Content-Type"].startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n") and value_of(text, "hvdrun_ranks", state="running") is not None
    assert path.stat().st_mode & 0o777 == 0o600
    assert get(path, "/other")[0] == 404
    # It is taken: a second job says so, and runs all the same.
    go2 = hvdrun("--metrics-listen", f"unix:{path}", "-np", 1, "echo", "ran")
    assert go2.returncode == 0 and "ran" in go2.stdout
    assert go2.stderr.count(f"--metrics-listen: another process listens at {path}; the job goes on") == 1, go2.stderr
    # Callers that ask nothing, or without end, keep nobody from asking.
    idle = [socket.socket(socket.AF_UNIX) for _ in range(40)]
    for one in idle:
        one.connect(str(path))
    idle[-1].sendall(b"x" * 20000)
    assert get(path)[0] == 200
    go.touch()
    job.communicate(timeout=PATIENCE)
    assert job.returncode == 0 and not path.exists()
    # What a killed job leaves does not keep the next one from listening.
    go.unlink()
    job = start("--metrics-listen", f"unix:{path}", *words)
    when_there(lambda: get(path))
    job.kill()
    job.wait()
    go.touch()
    assert path.exists()
    done = hvdrun("--metrics-listen", f"unix:{path}", "-np", 1, "true")
    assert (done.returncode, "metrics" in done.stderr) == (0, False), done.stderr


def test_metrics_at_an_address_are_for_those_with_the_token(tmp_path):
    token = tmp_path / "token"
    token.write_text("a-long-secret\n")
    (port,) = free_ports(1)
    job = start("--metrics-listen", f"127.0.0.1:{port}", "--metrics-token", token, "-np", 1, "sleep", 1000)
    assert when_there(lambda: get(port))[0] == 401
    assert get(port, Authorization="Bearer a-long-secret")[0] == 200
    job.terminate()
    job.communicate(timeout=PATIENCE)


@pytest.mark.parametrize("words, message", [
    (["--metrics-listen", "0.0.0.0:9400"], "--metrics-listen: '0.0.0.0:9400': others can reach that address"),
    (["--metrics-listen", "9400"], "--metrics-listen: '9400': expected unix:PATH or ADDRESS:PORT"),
    (["--metrics-token", "/dev/null"], "--metrics-token says nothing without --metrics-listen PLACE"),
    (["--metrics-listen", "127.0.0.1:1", "--metrics-token", "/dev/null"], "the file holds no token"),
])
def test_a_place_that_cannot_be_meant_is_refused(words, message):
    done = hvdrun(*words, "-np", 1, "true")
    assert done.returncode == 240 and message in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_jobs_spans_are_below_the_one_it_was_started_in(tmp_path):
    path = tmp_path / "spans.json"
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    # Rank 1 fails when the agent has taken note of rank 0's end, which else may be ended because of it.
    script = (f"cd {tmp_path}; if [ $HVD_RANK = 0 ]; then echo $$ >part; mv part pid; exit 0; fi; "
              "until [ -e pid ]; do sleep 0.05; done; while kill -0 $(cat pid); do sleep 0.05; done; exit 1")
    done = hvdrun("-np", 2, "--spans", path, "sh", "-c", script, env={**os.environ, "TRACEPARENT": parent})
    assert done.returncode == 1
    (resource,) = json.loads(path.read_text())["resourceSpans"]
    spans = resource["scopeSpans"][0]["spans"]
    assert [span["name"] for span in spans] == ["job", "start of localhost", "rank 0", "rank 1"]
    assert {span["traceId"] for span in spans} == {"4bf92f3577b34da6a3ce929d0e0e4736"}
    assert spans[0]["parentSpanId"] == "00f067aa0ba902b7"
    assert "exited with code 1" in spans[0]["status"]["message"] and "status" not in spans[2]
    assert all(int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) for span in spans)


@pytest.mark.parametrize("path, words", [("spans.txt", "expected a name that ends in .json"),
                                         ("/nowhere/spans.json", "cannot write into /nowhere/")])  # fmt: skip
def test_spans_that_cannot_be_kept_are_refused_before_the_job(path, words):
    done = hvdrun("-np", 2, "--spans", path, "echo", "ran")
    assert (done.returncode, done.stdout) == (240, "") and words in done.stderr
