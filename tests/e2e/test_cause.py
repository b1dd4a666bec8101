"""The first failure is named first, whichever rank ends first. causes.py runs the same many times on a busy machine.

HVD_CAUSE_RUNS: how often each of the first tests is done (default 1).
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess

import pytest

from causes import CODES, busy, run
from hvdrun import HVDRUN, LIBHVD, PYTHON, ROOT, hvdrun, program, read_until, wait_until_gone
from patience import PATIENCE, wait_until
from stopped import state_of

RUNS = int(os.environ.get("HVD_CAUSE_RUNS", "1"))
GRACE = ["--grace", "30"]


@pytest.mark.parametrize("how", ["atexit", "thread", "hook", "sys.exit", "os._exit", "segfault"])
def test_the_rank_that_failed_first_is_named_though_it_ends_last(how):
    for _ in range(RUNS):
        done = run(how, 2, 4, None, *GRACE)
        assert (done.named, done.code) == (2, CODES[how]), done.err
        assert len(done.report) <= 25, done.err


def test_a_rank_of_sixteen_that_raises_is_reported_on_one_screen():
    with busy(2):
        done = run("raise", 11, 16, None, *GRACE)
    assert (done.named, done.code) == (11, 1), done.err
    assert re.fullmatch(r"hvdrun: rank 11 on \S+ \(pid \d+\) failed: ValueError: failed at [\d.]+, \S*fails.py:\d+ in fail\n",
                        done.report[0]), done.err
    assert "hvdrun: ValueError: failed at" in "".join(done.report)
    assert len(done.report) <= 25, done.err


def test_a_rank_that_hangs_after_its_traceback_does_not_hang_the_job(marker):
    done = run("hang", 1, 3, None, "--grace", "1", "-x", marker)
    assert (done.named, done.code) == (1, 1), done.err
    assert "did not end within the time of grace, and was killed" in done.err
    assert wait_until_gone(marker) == {}


def test_a_rank_that_leaves_by_a_finally_and_has_much_to_save_is_named_by_its_exception(marker):
    done = run("leaves", 1, 3, None, "--grace", "1", "-x", marker)
    assert (done.named, done.code) == (1, 1), done.err
    assert "failed: ValueError: failed at" in done.report[0], done.err
    assert wait_until_gone(marker) == {}


def test_an_exception_that_the_program_itself_prints_fails_nothing():
    done = run("caught", 0, 1)
    assert (done.code, done.named) == (0, None) and "succeeded" in done.report[-1], done.err


@pytest.mark.parametrize("how", ["exit", "exit-late"])
def test_ranks_that_give_up_by_an_exit_code_are_not_the_cause_either(how):
    done = run("sys.exit", 1, 3, None, *GRACE, words=[how])
    assert (done.named, done.code) == (1, 3), done.err
    assert "2 other ranks failed because of it" in done.report[-1]


@pytest.mark.parametrize("how", ["atexit", "sys.exit"])
def test_over_two_hosts_the_rank_that_failed_first_is_named(lab2, how):
    done = run(how, 3, 4, lab2, *GRACE)
    assert (done.named, done.code) == (3, CODES[how]), done.err


def test_a_plain_script_whose_traceback_came_first_is_the_cause_though_another_ends_first(tmp_path):
    # Rank 1 raises and saves something; rank 0 sees that, and ends by an exception of its own before rank 1 has ended.
    flag, seen = tmp_path / "raised", tmp_path / "ended"
    script = (
        "import atexit, os, pathlib, time\n"
        f"flag, seen = pathlib.Path({str(flag)!r}), pathlib.Path({str(seen)!r})\n"
        "def wait(path):\n"
        "    while not path.exists(): time.sleep(0.01)\n"
        "if os.environ['HVD_RANK'] == '1':\n"
        # It ends when rank 0 has, as an exit function that lasts would.
        "    atexit.register(lambda: (flag.touch(), wait(seen), time.sleep(1)))\n"
        "    raise ValueError('first')\n"
        "wait(flag)\n"
        "atexit.register(seen.touch)\n"
        "raise RuntimeError('second')\n")
    done = hvdrun("-np", 2, *GRACE, *PYTHON, "-c", script)
    assert done.returncode == 1
    assert re.search(r"^hvdrun: rank (\d)", done.stderr, re.M)[1] == "1", done.stderr
    assert "hvdrun: ValueError: first" in done.stderr
    assert "1 other rank failed because of it" in done.stderr.splitlines()[-1]


def test_of_two_ranks_that_end_before_their_agent_looks_the_first_is_the_cause(tmp_path):
    # The agent sleeps until both have ended, as one that gets no processor does.
    script = f"echo $$ $PPID > {tmp_path}/rank.$HVD_RANK; while [ ! -e {tmp_path}/go.$HVD_RANK ]; do sleep 0.05; done; exit $((HVD_RANK + 3))"
    job = subprocess.Popen([HVDRUN, "-np", "2", *GRACE, "sh", "-c", script], stderr=subprocess.PIPE, text=True)
    agent = None
    try:
        notes = [tmp_path / f"rank.{rank}" for rank in range(2)]
        wait_until(lambda: all(note.exists() and note.read_text().endswith("\n") for note in notes))
        (first, agent), (second, _) = [map(int, note.read_text().split()) for note in notes]
        wait_until(lambda: watches(agent, {first, second}) and state_of(agent) == "S")
        os.kill(agent, signal.SIGSTOP)
        for rank, pid in ((1, second), (0, first)):
            (tmp_path / f"go.{rank}").touch()
            wait_until(lambda: state_of(pid) == "Z")
    finally:
        if agent is not None:
            os.kill(agent, signal.SIGCONT)
        err = job.communicate(timeout=PATIENCE)[1]
    assert job.returncode == 4 and re.search(r"^hvdrun: rank (\d)", err, re.M)[1] == "1", err


def watches(pid, others):
    """Whether it has descriptors of these processes. It gets them a moment after it has started them."""
    texts = []
    for info in pathlib.Path(f"/proc/{pid}/fdinfo").iterdir():
        with contextlib.suppress(OSError):  # it has closed this one meanwhile
            texts.append(info.read_text())
    return others <= {int(found) for text in texts for found in re.findall(r"^Pid:\s*(\d+)$", text, re.M)}


def test_events_tell_of_the_failure_at_once_and_when_the_rank_has_ended():
    done = run("atexit", 1, 2, None, "--json", *GRACE)
    events = [json.loads(line) for line in done.err.splitlines() if line.startswith("{")]
    kinds = [event["event"] for event in events if event["event"] in ("rank_failing", "failure", "job_ended")]
    assert kinds == ["rank_failing", "failure", "job_ended"]
    failing, failure = (next(e for e in events if e["event"] == kind) for kind in kinds[:2])
    assert failing["rank"] == failure["rank"] == 1 and "ValueError: failed at" in failing["message"]
    assert failure["exit_code"] == 1 and failure["exception"].startswith("ValueError: failed at ")
    assert any(e["event"] == "rank_ended" and e["rank"] == 1 for e in events[events.index(failing):events.index(failure)])


def test_a_job_file_names_the_rank_that_failed_first(tmp_path):
    (tmp_path / "job.yaml").write_text(
        f"command: {' '.join(PYTHON)} {program('fails.py')} 1 atexit\nprocessCount: 2\n")
    done = subprocess.run([HVDRUN, *GRACE, "-f", tmp_path / "job.yaml"], cwd=ROOT, capture_output=True, text=True,
                          env={**os.environ, "HVD_LIBRARY": LIBHVD}, stdin=subprocess.DEVNULL)
    assert done.returncode == 1, done.stderr
    assert re.search(r"^hvdrun: rank 1 on .* failed: ValueError: failed at", done.stderr, re.M), done.stderr


@pytest.mark.parametrize("instead, said", [
    ("sys.exit(0)", "rank 1 has not called hvd.init(); it has ended with code 0"),
    ("time.sleep(600)", "rank 1 has not called hvd.init() yet: call it earlier there, or allow more time"),
])  # fmt: skip
def test_a_rank_that_does_not_come_to_init_is_named(instead, said, tmp_path):
    script = (f"import os, pathlib, sys, time; sys.path.insert(0, {str(ROOT / 'runtime/python')!r})\n"
              "os.environ['HOROVOD_START_TIMEOUT'] = '3'  # of the ranks alone\n"
              "from horovod.common import basics\n"
              f"flag, part = pathlib.Path({str(tmp_path / 'flag')!r}), pathlib.Path({str(tmp_path / 'part')!r})\n"
              "if os.environ['HOROVOD_RANK'] == '1':\n"
              "    part.write_text(str(os.getpid()))\n"
              "    part.rename(flag)\n"
              f"    {instead}\n"
              "while not flag.exists(): time.sleep(0.05)\n"
              # Python ends slowly where others compute: rank 0 has no such limit before that.
              f"while {instead.startswith('sys.exit')} and os.path.exists('/proc/' + flag.read_text()): time.sleep(0.05)\n"
              "basics.init()\n")
    done = hvdrun("-np", 2, "--grace", "1", *PYTHON, "-c", script,
                  env={**os.environ, "HVD_LIBRARY": LIBHVD})
    assert done.returncode == 1, done.stderr
    wanted = f"HorovodInternalError: the ranks have not met within 3 s (HOROVOD_START_TIMEOUT): {said}"
    assert re.search(rf"^hvdrun: rank 0 on .* failed: .*{re.escape(wanted)}", done.stderr, re.M), done.stderr


def test_an_elastic_rank_that_raises_is_started_anew_as_before(tmp_path):
    flag = tmp_path / "raised"
    script = (f"import pathlib, sys; sys.path.insert(0, {str(ROOT / 'runtime/python')!r})\n"
              "from horovod.common import basics\n"
              f"flag = pathlib.Path({str(flag)!r})\n"
              "basics.init()\n"
              "if not flag.exists():\n"
              "    flag.touch()\n"
              "    raise ValueError('once')\n"
              "print('ends', flush=True)\n")
    done = hvdrun("-np", 1, "--elastic-restarts", 1, *PYTHON, "-c", script, env={**os.environ, "HVD_LIBRARY": LIBHVD})
    assert done.returncode == 0, done.stderr
    assert "it is started again (restart 1 of 1)" in done.stderr
    assert "ends" in done.stdout


def test_a_host_that_is_cut_off_is_the_cause_though_ranks_elsewhere_fail_before_it_is_given_up(make_lab):
    lab = make_lab(2)
    job = lab.popen("env", f"HVD_LIBRARY={LIBHVD}", HVDRUN, "-np", "2", "--grace", "1", "-H", "node1:1,node2:1", *PYTHON,
                    program("reduces.py"), "1")
    read_until(job.stdout, "up", 2)
    lab.cut("node2")
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 243, err
    assert re.search("^hvdrun: node node2 was lost, with rank 1: no sign of life from its agent for ", err, re.M), err
