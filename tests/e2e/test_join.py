"""Machines that join a running job by themselves: hvdrun --join-file, and hvdrun join on the machine."""

import os
import pathlib
import re
import signal
import sys

import pytest

from hvdrun import HVDRUN, read_until
from lab import wait_until
from offered_jobs import SCRIPT, OfferedJob
from patience import PATIENCE


class Joinable(OfferedJob):
    """A job of two ranks on the launcher's own host, and who joins it."""

    def __init__(self, lab):
        super().__init__(lab)
        self.file = pathlib.Path(lab.shared) / "join"

    def train(self, *flags, hosts="node1:2"):
        self.job = self.lab.popen(HVDRUN, "--join-file", str(self.file), "-H", hosts, "--heartbeat", "1", *flags,
                                  sys.executable, SCRIPT, "1", str(self.gate))  # fmt: skip
        return self.job

    def join(self, host, *flags):
        return self.lab.popen(HVDRUN, "join", str(self.file), *flags, host=host)

    def refused(self, host, *flags):
        done = self.lab.run(HVDRUN, "join", str(self.file), *flags, host=host)
        assert len(done.stderr.splitlines()) == 1, done.stderr
        return done.returncode, done.stderr

    def end(self):
        err = super().end()
        self.clean()
        return err

    def clean(self):
        assert self.lab.wait_for_no_processes() == []
        assert not self.file.exists()


@pytest.fixture
def joinable(lab3):
    return Joinable(lab3)


def code_and_words(process):
    _, err = process.communicate(timeout=PATIENCE)
    return process.returncode, err


def test_a_machine_joins_and_leaves_in_order_and_another_stays_to_the_end(joinable):
    joinable.train("-np", "2")
    joinable.await_size(2)
    assert joinable.file.stat().st_mode & 0o777 == 0o600
    first = joinable.join("node2", "--slots", "2")
    lines = joinable.await_size(4)
    assert re.search(r"\[[23]\].*size 4 rank 3 local 1 of 2", lines), lines
    second = joinable.join("node3")
    joinable.await_size(5)
    first.send_signal(signal.SIGTERM)
    lines = "".join(read_until(joinable.job.stdout, "size 3 rank|ends in order", 5))
    assert len(re.findall(r"\[[23]\].*ends in order", lines)) == 2, lines
    code, err = code_and_words(first)
    assert code == 0, err
    assert "ranks 2-3 of the job start here" in err and "its ranks leave the job at their next commit" in err
    assert "this machine has left job" in err
    err = joinable.end()
    assert "released: rank 2 on node2, rank 3 on node2" in err
    code, err = code_and_words(second)
    assert code == 0 and ("has ended" in err or "have ended in order" in err), err


def test_machines_join_a_job_that_began_on_the_launchers_own_machine(joinable):
    joinable.train("-np", "2", hosts="launcher:2")
    joinable.await_size(2)
    joiner = joinable.join("node2")
    joinable.await_size(3)
    joinable.end()
    assert code_and_words(joiner)[0] == 0


def test_two_that_join_at_once_and_two_agents_of_one_machine(joinable):
    joinable.train("-np", "1", hosts="node1:1")
    joinable.await_size(1)
    joiners = [joinable.join(host) for host in ("node2", "node3", "node2", "node1")]
    lines = joinable.await_size(5)
    # node1 and node2 have two ranks each. Those that came together may have trained before the last one came.
    assert len(re.findall(r"size 5 rank \d local \d of 2", lines)) == 4, lines
    joinable.end()
    assert [code_and_words(joiner)[0] for joiner in joiners] == [0] * 4


def test_a_machine_that_calls_before_the_job_runs_waits(joinable):
    joinable.train("-np", "1", hosts="node1:1")
    wait_until(joinable.file.exists, "the job has written no file")
    joiner = joinable.join("node2")
    joinable.await_size(2)
    joinable.end()
    assert code_and_words(joiner)[0] == 0


def test_a_joiner_that_is_killed_is_a_lost_node(joinable):
    joinable.train("-np", "2")
    joinable.await_size(2)
    joiner = joinable.join("node2")
    joinable.await_size(3)
    os.kill(joinable.lab.pid_of(joiner), signal.SIGKILL)
    joinable.await_size(2)
    assert joinable.lab.wait_for_no_processes("node2") == []
    joinable.join("node2")  # it may come again
    joinable.await_size(3)
    err = joinable.end()
    assert "the agent on node2 ends, with rank 2: its guardian was killed; the others go on without it" in err, err


def test_a_joiner_that_is_cut_off_is_lost_and_knows_it(joinable):
    joinable.train("-np", "2")
    joinable.await_size(2)
    joiner = joinable.join("node2")
    joinable.await_size(3)
    joinable.lab.cut("node2")
    joinable.await_size(2)
    code, err = code_and_words(joiner)
    joinable.lab.heal()
    assert code == 243 and "is gone" in err, err
    joinable.end()


def test_a_second_signal_ends_the_ranks_at_once(joinable):
    """The job cannot do with fewer, so that the first has no effect."""
    joinable.train("-np", "2", "--min-np", "2")
    joinable.await_size(2)
    joiner = joinable.join("node2")
    joinable.await_size(3)
    os.kill(joinable.lab.pid_of(joinable.job), signal.SIGSTOP)  # it does not hear of the first
    joiner.send_signal(signal.SIGINT)
    read_until(joiner.stderr, "once more ends them at once", 1)
    wait_until(lambda: joiner.send_signal(signal.SIGINT) or joiner.poll() is not None, "it has not ended")
    os.kill(joinable.lab.pid_of(joinable.job), signal.SIGCONT)
    assert joiner.returncode == 143
    joinable.await_size(2)
    joinable.end()


def test_a_job_that_began_with_more_ranks_than_it_may_have_takes_a_lost_one_back(joinable):
    joinable.train("--max-np", "2", hosts="node1:3")
    joinable.await_size(3)
    ranks = [process for process in joinable.lab.ps("node1") if SCRIPT in process.args and "--join-file" not in process.args]
    os.kill(max(process.pid for process in ranks), signal.SIGKILL)
    joinable.await_size(3)
    joinable.end()


def test_what_is_refused_is_said_in_one_line(joinable):
    missing = joinable.refused("node2")
    assert missing[0] == 240 and "the job has ended, or has not begun" in missing[1], missing
    joinable.train("-np", "2", "--max-np", "3")
    joinable.await_size(2)
    text = joinable.file.read_text()
    joiner = joinable.join("node2", "--slots", "4")  # there is room for one
    joinable.await_size(3)
    code, err = joinable.refused("node3")
    assert code == 242 and "the job has 3 ranks, the most that it may have (--max-np)" in err, err
    other = joinable.file.with_suffix(".other")
    real, joinable.file = joinable.file, other

    def with_text(changed, mode=0o600):
        other.write_text(changed)
        other.chmod(mode)
        return joinable.refused("node3")

    code, err = with_text(re.sub("key ..", "key 00" if "key 00" not in text else "key 11", text))
    assert code == 241 and "cannot join job" in err, err
    code, err = with_text(re.sub("version .*", "version 0.0.1", text))
    assert code == 240 and "0.0.1" in err, err
    code, err = with_text(text, 0o644)
    assert code == 240 and "chmod 600" in err, err
    code, err = with_text("host a\n")
    assert code == 240 and "it is no file that hvdrun --join-file has written" in err, err
    other.unlink()
    joinable.file = real
    err = joinable.end()
    assert "is refused: the job has 3 ranks" in err
    assert code_and_words(joiner)[0] == 0
    joinable.file = other
    code, err = with_text(text)
    other.unlink()
    assert code == 241 and "has the job ended" in err, err


def test_strangers_at_the_port_are_turned_away(joinable):
    joinable.train("-np", "2")
    joinable.await_size(2)
    address = re.search(r"address (\d+\.\d+\.\d+\.\d+):(\d+)", joinable.file.read_text())
    stranger = joinable.lab.popen(sys.executable, "-c", f"""
import socket, os
silent = [socket.create_connection(("{address[1]}", {address[2]})) for _ in range(20)]
for _ in range(20):
    loud = socket.create_connection(("{address[1]}", {address[2]}))
    loud.sendall(os.urandom(4096))
print("called", flush=True)
input()
""")  # fmt: skip
    read_until(stranger.stdout, "called", 1)
    joiner = joinable.join("node2")
    joinable.await_size(3)
    stranger.kill()
    err = joinable.end()
    assert "is refused" in err
    assert code_and_words(joiner)[0] == 0


@pytest.mark.parametrize("signo, code", [(signal.SIGINT, 130), (signal.SIGKILL, None)])
def test_the_end_of_hvdrun_while_one_joins_leaves_nothing(joinable, signo, code):
    joinable.train("-np", "2")
    joinable.await_size(2)
    joiner = joinable.join("node2")
    read_until(joinable.job.stderr, "node2 joins", 1)
    os.kill(joinable.lab.pid_of(joinable.job), signo)
    joinable.job.communicate(timeout=PATIENCE)
    own, err = code_and_words(joiner)
    assert own == (code or 243), err
    assert joinable.lab.wait_for_no_processes() == []
    assert joinable.file.exists() == (signo == signal.SIGKILL)
    joinable.file.unlink(missing_ok=True)


@pytest.mark.parametrize("flags, told", [
    (["--launcher", "mpi"], "--join-file is not for --launcher mpi"),
    (["--elastic-restarts", "0"], "with --elastic-restarts 0"),
    (["-f", "job.yaml"], "--join-file is for a command"),
    (["--elastic", "restart"], "nobody joins by --join-file"),
])  # fmt: skip
def test_jobs_that_nobody_can_join_are_refused(lab3, flags, told):
    command = [] if "-f" in flags else ["true"]
    done = lab3.run(HVDRUN, "--join-file", f"{lab3.shared}/join", "-np", "1", *flags, *command)
    assert done.returncode == 240 and told in done.stderr, done.stderr


def test_a_file_that_cannot_be_written_starts_nothing(lab3):
    done = lab3.run(HVDRUN, "--join-file", "/no/such/folder/join", "-np", "1", "echo", "started")
    assert done.returncode == 240 and "cannot write /no/such/folder/join" in done.stderr, done.stderr
    assert "started" not in done.stdout
