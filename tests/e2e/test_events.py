"""hvdrun --json: a job told as events, one JSON object a line on standard error, for programs that start jobs."""

import json
import os
import re
import subprocess
import uuid

import pytest

from hvdrun import HVDRUN, PYTHON, hvdrun, kill, processes_with, read_until, start, without_copies
from patience import PATIENCE


def parsed(stderr):
    """(events, the ranks' own lines) of hvdrun's standard error, as bytes."""
    events, own = [], []
    for line in stderr.split(b"\n")[:-1]:
        if line.startswith(b"{"):
            events.append(json.loads(line.decode("utf-8", errors="strict")))
        else:
            own.append(line)
    assert stderr.endswith(b"\n")
    return events, own


def run(*arguments, **options):
    done = hvdrun("--json", *arguments, text=False, **options)
    return (done, *parsed(done.stderr))


def named(events, name):
    return [event for event in events if event["event"] == name]


def test_a_good_job_is_told_as_events():
    done, events, own = run("-np", 2, "sh", "-c", "echo out; echo err >&2")
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == [b"[0]<stdout>:out", b"[1]<stdout>:out"]
    assert sorted(own) == [b"[0]<stderr>:err", b"[1]<stderr>:err"]
    begin, end = events[0], events[-1]
    assert begin["event"] == "job_started" and begin["size"] == 2 and begin["argv"][0] == "sh"
    assert begin["nodes"] == [{"node": 0, "host": "localhost", "transport": "local", "ranks": [0, 1]}]
    assert end["event"] == "job_ended" and end["exit_code"] == 0 and end["seconds"] > 0
    assert end["ranks"] == {"succeeded": 2, "failed": 0, "lost": 0, "not_started": 0, "released": 0}
    assert len(named(events, "node_ready")) == 1
    started, ended = named(events, "rank_started"), named(events, "rank_ended")
    assert sorted(e["rank"] for e in started) == sorted(e["rank"] for e in ended) == [0, 1]
    assert all(e["pid"] > 0 and e["host"] == "localhost" for e in started)
    assert all(e["exit_code"] == 0 and e["signal"] is None for e in ended)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", e["time"]) for e in events)


def test_a_failure_is_told_with_the_last_lines_whatever_bytes_they_are():
    script = r"[ $HVD_RANK = 1 ] && { printf '\377\376 why\nthen 50%%\r' >&2; exit 3; }; sleep 1000"
    done, events, own = run("-np", 2, "--no-tags", "sh", "-c", script)
    assert done.returncode == 3
    failure = named(events, "failure")[0]
    assert (failure["rank"], failure["host"], failure["exit_code"]) == (1, "localhost", 3)
    assert failure["last_errors"][0] == "�� why"
    assert own[0] == b"[1]<stderr>:\xff\xfe why"  # also without tags: a line that begins with { is hvdrun's
    assert [e["exit_code"] for e in named(events, "rank_ended") if e["rank"] == 1] == [3]
    assert events[-1]["ranks"]["failed"] == 2


def test_a_line_that_looks_like_an_event_is_told_from_one_also_in_the_same_place():
    done = subprocess.run([HVDRUN, "--json", "--no-tags", "-np", "1", "echo", '{"event":"end"}'], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=True, timeout=PATIENCE)
    events, own = parsed(done.stdout)
    assert own == [b'[0]<stdout>:{"event":"end"}'] and "end" not in [e["event"] for e in events]


def test_a_signal_has_its_number_and_name():
    done, events, _ = run("-np", 1, "sh", "-c", "kill -SEGV $$")
    assert done.returncode == 139
    ended = named(events, "rank_ended")[0]
    assert (ended["exit_code"], ended["signal"], ended["signal_name"]) == (139, 11, "SIGSEGV")


@pytest.mark.parametrize("arguments, code", [
    (["--no-such-flag", "true"], 240), (["-np", "2", "-H", "a:x", "true"], 240), (["--jsrun", "true"], 240),
    (["no-such-program"], 127), (["-np", "3", "-H", "a:1", "true"], 240), (["--output-filename", "/dev/null", "true"], 244),
])
def test_what_is_refused_ends_with_an_event_that_has_the_code(arguments, code):
    done, events, own = run(*arguments)
    assert (done.returncode, own) == (code, [])
    assert events[-1]["event"] == "job_ended" and events[-1]["exit_code"] == code
    assert len(named(events, "failure")) == 1 and named(events, "failure")[0]["causes"]


def test_diagnostics_are_events_as_well():
    done, events, own = run("-np", 1, "--verbose", "true")
    assert done.returncode == 0 and own == []
    assert any("is ready" in e["message"] for e in named(events, "log"))


def test_an_argument_that_is_no_text_is_replaced():
    done, events, _ = run("-np", 1, "true", b"\xff".decode(errors="surrogateescape"))
    assert done.returncode == 0
    assert events[0]["argv"] == ["true", "�"]


def test_what_an_agent_complains_of_is_an_event():
    greet = "import socket, os; s = socket.socket(socket.AF_UNIX); s.connect(os.environ['HVD_AGENT']); s.send(b'x' * 64); s.recv(9)"
    name = next(n for n in hvdrun("-q", "--no-tags", "-np", 1, "env").stdout.splitlines() if n.endswith("/agent")).split("=")[0]
    done, events, own = run("-np", 1, *PYTHON, "-c", greet.replace("HVD_AGENT", name))
    assert done.returncode == 0 and own == []
    assert any("dropped the connection" in e["message"] and e["level"] == "warning" for e in named(events, "log"))


def test_over_hosts_each_node_is_told(lab2):
    done = lab2.run(HVDRUN, "--json", "-np", "4", "-H", "node1:2,node2:2", "sh", "-c", "exit $((HVD_RANK == 3))")
    events, _ = parsed(done.stderr.encode())
    assert done.returncode == 1
    assert sorted(e["host"] for e in named(events, "node_ready")) == ["node1", "node2"]
    assert {e["rank"]: e["host"] for e in named(events, "rank_started")} == {0: "node1", 1: "node1", 2: "node2", 3: "node2"}
    assert named(events, "failure")[0]["host"] == "node2"


def test_a_node_that_is_away_and_back_is_told(tmp_path):
    marker = f"HVD_TEST_MARKER={uuid.uuid4()}"
    job = start("--json", "--rsh", "sh -c 'shift; eval \"$*\"' -", "--reconnect-timeout", PATIENCE, "-np", 1, "-H", "a:1",
                "sh", "-c", f"echo up; until [ -e {tmp_path}/go ]; do sleep 0.05; done",
                env={**os.environ, **dict([marker.split("=")])})
    read_until(job.stdout, "up")
    looks = {pid: args for pid, args in processes_with(marker).items() if args.startswith("sh -c shift; eval")}
    (command,) = without_copies(looks)
    kill(command)
    told = read_until(job.stderr, '"node_back"')
    (tmp_path / "go").touch()  # the rank does not end before
    events, own = parsed(("".join(told) + job.stderr.read()).encode())
    assert job.wait(PATIENCE) == 0 and own == []
    away, back = named(events, "node_away")[0], named(events, "node_back")[0]
    assert (away["host"], away["patience_seconds"], back["host"]) == ("a", PATIENCE, "a")
