"""--elastic restart: all ranks start anew when one of them is lost, as with torchrun; scripts continue from their own files."""

import json
import pathlib
import re
import signal
import sys

import pytest

from hvdrun import HVDRUN, ROOT, hvdrun, read_until, replace_hosts, start
from patience import PATIENCE

DDP = str(ROOT / "tests/support/ddp_steps.py")


def test_a_script_of_ddp_continues_from_its_checkpoint(tmp_path):
    job = start("-np", 3, "--elastic", "restart", "--elastic-restarts", 2, "--output-filename", tmp_path / "out",
                sys.executable, DDP, tmp_path / "checkpoint", 1)  # fmt: skip
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0, err
    assert re.search(r"\[0\]<stdout>:start 0 of 2: 3 ranks go on at step 0", out), out
    assert re.search(r"\[0\]<stdout>:start 1 of 2: 3 ranks go on at step 5", out), out
    assert len(re.findall("ended at step 9, all ranks with the same weights", out)) == 3, out
    assert "all ranks are started again (restart 1 of 2): rank 1 on localhost" in err and "SIGKILL" in err
    assert "succeeded in" in err and "after 1 restart of all ranks" in err
    kept = (tmp_path / "out/rank.0/stdout").read_text().splitlines()
    assert kept.count("hvdrun: all ranks were started again here (restart 1 of 2)") == 1
    assert "go on at step 0" in kept[0] and "ended at step 9" in kept[-1]


def test_one_that_always_fails_ends_with_its_code_after_the_last_restart():
    done = hvdrun("-np", 2, "--elastic", "restart", "--elastic-restarts", 2, "sh", "-c",
                  "echo start $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS at $MASTER_PORT;"
                  "test $RANK = 0 || exit 3; sleep 600")  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert re.findall(r"\[1\]<stdout>:start (\d) of 2", done.stdout) == ["0", "1", "2"]
    assert len(set(re.findall(r"at (\d+)", done.stdout))) == 3, "each start has a port of its own"
    assert re.search(r"job failed after .*: rank 1 on localhost \(pid \d+\) exited with code 3, "
                     r"after 2 restarts of all ranks; 1 other rank was stopped; exit code 3", done.stderr), done.stderr


def test_what_cannot_get_better_is_not_started_again():
    done = hvdrun("-np", 2, "--elastic", "restart", "/no/such/program")
    assert done.returncode == 127 and "again" not in done.stderr, done.stderr


def test_ctrl_c_while_the_ranks_are_stopped_ends_the_job(tmp_path):
    # Rank 1 does not fail before rank 0 has its trap.
    fails = f"until test -e {tmp_path}/ready; do sleep 0.05; done; exit 3"
    job = start("-np", 2, "--elastic", "restart", "--grace", 600, "sh", "-c", f"test $RANK = 1 && {{ {fails}; }}; "
                f"trap 'echo holds on' TERM; touch {tmp_path}/ready; while :; do sleep 0.1; done")  # fmt: skip
    said = "".join(read_until(job.stdout, "holds on", 1))
    for signo in (signal.SIGINT, signal.SIGTERM):  # two of a kind may arrive as one
        job.send_signal(signo)
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 3 and "started again" not in err, said + out + err


def test_events_tell_of_each_start():
    done = hvdrun("-np", 2, "--json", "--elastic", "restart", "--elastic-restarts", 1, "sh", "-c",
                  "test $TORCHELASTIC_RESTART_COUNT = 1 || exit 3")  # fmt: skip
    events = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    kinds = [event["event"] for event in events]
    assert done.returncode == 0 and kinds.count("job_started") == 2 and kinds.count("job_ended") == 1
    restarted = next(event for event in events if event["event"] == "job_restarted")
    assert (restarted["restart"], restarted["limit"]) == (1, 1) and "exited with code 3" in restarted["message"]
    assert events[-1]["restarts"] == 1


SAYS = "echo start $TORCHELASTIC_RESTART_COUNT rank $RANK of $WORLD_SIZE on $HOROVOD_HOSTNAME; "


def test_a_host_that_is_cut_off_is_done_without_or_replaced(lab3):
    gate = pathlib.Path(lab3.shared) / "restart-gate"
    script = SAYS + f"while ! test -e {gate}; do sleep 0.1; done"
    for hosts, flags, size, rest in [("node1:1,node2:2", ["--min-np", "1"], 1, "node1"),
                                     ("node1:1,node2:2,node3:2", ["-np", "3"], 3, "node3")]:  # fmt: skip
        gate.unlink(missing_ok=True)
        job = lab3.popen(HVDRUN, "-H", hosts, *flags, "--elastic", "restart", "--heartbeat", "1",
                         "--reconnect-timeout", "5", "sh", "-c", script)  # fmt: skip
        read_until(job.stdout, "start 0", 3)
        lab3.cut("node2")
        lines = "".join(read_until(job.stdout, rf"start 1 rank \d of {size}", size))
        assert f"on {rest}" in lines, lines
        lab3.heal()
        gate.write_text("")
        _, err = job.communicate(timeout=PATIENCE)
        assert job.returncode == 0, err
        assert re.search(r"all ranks are started again \(restart 1 of 10\): node node2 was lost", err), err
        assert lab3.wait_for_no_processes() == []


def test_hosts_that_came_meanwhile_are_used_by_the_next_start(lab3):
    hosts, gate = pathlib.Path(lab3.shared) / "restart-offers", pathlib.Path(lab3.shared) / "restart-gate"
    gate.unlink(missing_ok=True)
    replace_hosts(hosts, ["node1:1", "node2:1"])
    job = lab3.popen(HVDRUN, "-np", "2", "--elastic", "restart", "--host-discovery-script", f"cat {hosts}", "sh", "-c",
                     SAYS + f"while ! test -e {gate}; do sleep 0.1; done; test $WORLD_SIZE = 3")  # fmt: skip
    read_until(job.stdout, "start 0", 2)
    replace_hosts(hosts, ["node1:1", "node2:1", "node3:1"])
    gate.write_text("")
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0, err
    assert len(re.findall(r"start 1 rank \d of 3", out)) == 3, out
    assert "the new start has 3 ranks on 3 hosts, the last one had 2" in err
    assert lab3.wait_for_no_processes() == []


def test_a_new_start_waits_for_a_host_in_place_of_a_lost_one(lab3):
    hosts, gate = pathlib.Path(lab3.shared) / "restart-offers", pathlib.Path(lab3.shared) / "restart-gate"
    gate.unlink(missing_ok=True)
    replace_hosts(hosts, ["node1:1", "node2:1"])
    job = lab3.popen(HVDRUN, "-np", "2", "--min-np", "1", "--elastic", "restart", "--elastic-wait", "600",
                     "--heartbeat", "1", "--reconnect-timeout", "4", "--host-discovery-script", f"cat {hosts}",
                     "sh", "-c", SAYS + f"while ! test -e {gate}; do sleep 0.1; done")  # fmt: skip
    read_until(job.stdout, "start 0", 2)
    lab3.cut("node2")
    read_until(job.stderr, "all ranks are started again", 1)
    replace_hosts(hosts, ["node1:1", "node3:1"])
    lines = "".join(read_until(job.stdout, r"start 1 rank \d of 2", 2))
    assert "on node3" in lines, lines
    lab3.heal()
    gate.write_text("")
    _, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0, err
    assert lab3.wait_for_no_processes() == []


@pytest.mark.parametrize("flags, told", [
    (["--launcher", "mpi"], "mpirun restarts no rank"),
    (["--elastic", "nonsense"], "nonsense"),
    (["--reset-limit", "3"], "--elastic restart goes by --elastic-restarts"),
])  # fmt: skip
def test_what_it_does_not_go_with_is_refused(flags, told):
    done = hvdrun("-np", 2, "--elastic", "restart", *flags, "true")
    assert done.returncode != 0 and told in done.stderr, done.stderr
