"""Hosts that join and leave a running job: a discovery script, a watched host file, and what is wrong with them."""

import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from hvdrun import HVDRUN, read_until
from lab import wait_until
from offered_jobs import SCRIPT, OfferedJob
from patience import PATIENCE


class Offers(OfferedJob):
    """A file with hosts, and a job that reads it."""

    def train(self, *flags):
        self.job = self.lab.popen(HVDRUN, *flags, sys.executable, SCRIPT, "1", str(self.gate))
        return self.job

    def script(self, *flags):
        return self.train("--host-discovery-script", f"cat {self.hosts}", "--discovery-interval", "0.2", *flags)


@pytest.fixture
def offers(lab3):
    return Offers(lab3)


def test_a_discovered_host_that_cannot_be_reached_is_left_out_at_the_start_and_joins_later(offers):
    offers.set("node1:1 nobody:1")
    offers.script("-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "500", "600")
    assert "rank 0" in offers.await_size(1)
    offers.set("node1:1 nobody:1 node2:1")
    offers.await_size(2)
    err = offers.end()
    assert err.count("cannot resolve the host name 'nobody'") == 1, err
    assert err.count("the job starts without nobody\n") == 1, err
    assert "the new start has 1 rank on 1 host, the last one had 2" in err and "nobody joins" not in err


def test_discovered_hosts_that_leave_too_few_are_told_at_once(lab3):
    done = lab3.run(HVDRUN, "-np", "2", "--host-discovery-script", "echo node1:1; echo nobody:1", "true")
    assert done.returncode == 241 and "nobody: cannot resolve the host name" in done.stderr, done.stderr
    assert lab3.wait_for_no_processes() == []


def test_hosts_that_the_script_prints_join_and_leave(offers):
    offers.set("node1:2")
    offers.script("-np", "2")
    offers.await_size(2)
    offers.set("node1:2 node2:1")
    lines = offers.await_size(3)
    assert re.search(r"\[2\].*size 3 rank 2 local 0 of 1", lines), lines
    offers.set("node1:2 node2:1 node3:1")
    offers.await_size(4)
    offers.set("node2:1 node3:1")  # rank 0 of the job leaves too
    lines = "".join(read_until(offers.job.stdout, "size 2 rank|ends in order", 4))
    assert re.search(r"\[2\].*size 2 rank 0", lines), lines
    assert len(re.findall(r"\[[01]\].*ends in order", lines)) == 2, lines
    assert offers.lab.wait_for_no_processes("node1") == []  # while the others train on
    offers.set("node1:1 node2:1 node3:1")
    offers.await_size(3)
    err = offers.end()
    assert "node2 joins, with rank 2" in err
    assert "generation 2: 3 ranks train together; new among them: rank 2 on node2" in err
    assert "node1 is to be given back" in err
    assert "generation 4: 2 ranks train together; released: rank 0 on node1, rank 1 on node1" in err


def test_a_host_is_replaced_by_another_while_the_job_always_has_as_many_ranks(offers):
    offers.set("node1:1 node2:1")
    offers.script("-np", "2", "--min-np", "2", "--max-np", "2")
    offers.await_size(2)
    offers.set("node1:1 node3:1")
    lines = "".join(read_until(offers.job.stdout, r"\[2\].*size 2 rank|\[1\].*ends in order", 2))
    assert re.search(r"\[2\].*size 2 rank 1", lines), lines
    err = offers.end()
    assert "node2 is to be given back" in err
    assert "generation 2: 2 ranks train together; new among them: rank 2 on node3; released: rank 1 on node2" in err


def test_slots_that_a_host_gets_or_loses_are_ranks_more_or_fewer(offers):
    offers.set("node1:1 node2:1")
    offers.script("-np", "2", "--max-np", "3")
    offers.await_size(2)
    offers.set("node1:3 node2:1")  # the most is 3
    lines = offers.await_size(3)
    assert re.search(r"\[2\].*size 3 rank 1 local 1 of 2", lines), lines
    offers.set("node1:1 node2:1")
    offers.await_size(2)
    err = offers.end()
    assert "released: rank 2 on node1" in err


def test_a_host_file_that_is_watched(offers):
    offers.set("node1:1 node2")
    offers.train("--hostfile", str(offers.hosts), "--watch-hostfile", "--slots", "1", "--discovery-interval", "0.2")
    offers.await_size(2)
    offers.set("node1:1 node2 node3:1")
    offers.await_size(3)
    offers.end()


def test_a_host_that_is_lost_is_left_alone_for_a_while_and_then_joins_again(offers):
    offers.set("node1:1 node2:1 node3:1")
    offers.script("-np", "3", "--min-np", "2", "--heartbeat", "1", "--reconnect-timeout", "4",
                  "--grace", "1", "--blacklist-cooldown-range", "1", "8")  # fmt: skip
    offers.await_size(3)
    offers.lab.cut("node3")
    offers.await_size(2)
    offers.lab.heal()
    offers.await_size(3)
    err = offers.end()
    # Its ranks may live on until its agent, which hears nothing from here, has ended them.
    (seconds,) = re.findall(r"node3 has failed, and gets no new ranks for (\d+) s", err)
    assert 1 < int(seconds) <= 15 and "node3 joins, with rank 3" in err


def end_agent(lab, node):
    """Tells the agent of a node to end, as a machine does that is about to be taken away."""
    agents = {process.pid: process for process in lab.ps(node) if process.args.endswith(" serve")}
    os.kill(next(pid for pid, process in agents.items() if process.ppid in agents), signal.SIGTERM)


def test_a_host_whose_agent_is_told_to_end_leaves_in_order_and_may_join_again(offers):
    offers.set("node1:1 node2:1 node3:1")
    offers.script("-np", "3", "--min-np", "2", "--blacklist-cooldown-range", "3", "3")
    offers.await_size(3)
    end_agent(offers.lab, "node2")
    lines = "".join(read_until(offers.job.stdout, "size 2 rank|ends in order", 3))
    assert re.search(r"\[1\].*ends in order", lines), lines
    offers.await_size(3)
    err = offers.end()
    assert "its agent leaves (it got SIGTERM): its ranks leave at their next commit" in err
    assert "node2 leaves, and gets no new ranks for 3 s" in err and "node2 joins, with rank 3" in err
    assert "released: rank 1 on node2" in err and "lost" not in err


def test_a_host_that_is_told_to_end_stays_until_another_has_taken_its_place(offers):
    offers.set("node1:1 node2:1")
    offers.script("-np", "2", "--min-np", "2", "--max-np", "2")
    offers.await_size(2)
    end_agent(offers.lab, "node2")
    offers.set("node1:1 node2:1 node3:1")
    lines = "".join(read_until(offers.job.stdout, r"\[2\].*size 2 rank|\[1\].*ends in order", 2))
    assert re.search(r"\[2\].*size 2 rank 1", lines), lines
    err = offers.end()
    assert "its agent leaves (it got SIGTERM): its ranks leave at their next commit, if the others are enough" in err
    assert "new among them: rank 2 on node3; released: rank 1 on node2" in err and "lost" not in err


def test_one_of_fixed_hosts_whose_agent_is_told_to_end_leaves_in_order(offers):
    offers.train("-H", "node1:1,node2:1,node3:1", "--min-np", "2")
    offers.await_size(3)
    end_agent(offers.lab, "node1")
    offers.await_size(2)
    assert offers.lab.wait_for_no_processes("node1") == []
    assert "released: rank 0 on node1" in offers.end()


def test_others_wait_for_one_in_place_of_a_lost_rank(offers):
    offers.train("-H", "node1:1,node2:1", "--min-np", "1", "--elastic-wait", "600")
    offers.await_size(2)
    rank = next(process for process in offers.lab.ps("node2") if SCRIPT in process.args)
    os.kill(rank.pid, signal.SIGKILL)
    offers.await_size(2)
    err = offers.end()
    assert "generation 2: 2 ranks train together" in err


def test_a_host_on_which_a_rank_fails_is_left_as_a_whole_and_joins_again_later(offers):
    offers.set("node1:1 node2:2")
    offers.script("-np", "3", "--min-np", "1", "--exclude-failed-hosts", "--blacklist-cooldown-range", "4", "4")
    offers.await_size(3)
    ranks = [process for process in offers.lab.ps("node2") if SCRIPT in process.args]
    os.kill(max(ranks, key=lambda process: process.pid).pid, signal.SIGKILL)
    said = "".join(read_until(offers.job.stderr, "node2 has failed"))
    offers.set("node1:1")  # it does not come again before the one that is left has gone on alone
    offers.await_size(1)
    offers.set("node1:1 node2:2")
    offers.await_size(3)
    err = said + offers.end()
    assert "node2 has failed, and gets no new ranks for 4 s" in err and "node2 joins, with ranks 3-4" in err, err
    assert "is started again" not in err


def test_a_job_whose_ranks_have_changed_often_enough_ends_with_the_next_change(offers):
    offers.set("node1:1 node2:1")
    offers.script("-np", "2", "--reset-limit", "1")
    offers.await_size(2)
    offers.set("node1:1 node2:1 node3:1")
    offers.await_size(3)
    offers.set("node1:1 node2:1")
    _, err = offers.job.communicate(timeout=PATIENCE)
    assert offers.job.returncode == 247, err
    assert "Horovod was shutdown because number of resets during elastic job exceeded limit: 1" in err
    assert offers.lab.wait_for_no_processes() == []


def test_too_few_that_are_left_wait_for_a_host_and_go_on(offers):
    offers.set("node1:1 node2:1")
    offers.script("-np", "2", "--heartbeat", "1", "--reconnect-timeout", "4", "--blacklist-cooldown-range", "60", "60")
    read_until(offers.job.stdout, "the first step is committed", 2)
    offers.lab.cut("node2")
    read_until(offers.job.stderr, "too few are left, and wait for hosts", 1)
    offers.set("node1:1 node2:1 node3:1")
    lines = offers.await_size(2)
    assert re.search(r"\[0\].*size 2 rank 0.*step [1-9]", lines), lines  # it goes on where it was
    offers.lab.heal()
    offers.end()


def test_too_few_for_too_long_end_the_job_with_what_was_lost_as_its_cause(offers):
    offers.set("node1:1 node2:1")
    offers.script("-np", "2", "--heartbeat", "1", "--reconnect-timeout", "4", "--elastic-timeout", "2")
    offers.await_size(2)
    offers.lab.cut("node2")
    _, err = offers.job.communicate(timeout=PATIENCE)
    offers.lab.heal()
    assert offers.job.returncode == 243, err
    assert re.search(r"hvdrun: node node2 was lost, with rank 1", err), err
    assert "fewer than the 2 ranks that the job needs (--min-np) were left" in err
    assert offers.lab.wait_for_no_processes() == []


@pytest.mark.parametrize("trouble, told", [
    ("echo no token >&2; exit 3", "the host discovery script exited with code 3: no token; the hosts stay as they are"),
    ("sleep 60", "the host discovery script has not ended within 10 s, and was killed; the hosts stay as they are"),
    ("echo what is this", "the host discovery script says no slots of what is this"),
    ("echo node1:1; echo node2:1; echo node1:4", "the host discovery script names node1 twice; the first line counts"),
    ("echo node1:1; echo node2:1; echo nowhere:1", "nowhere"),
])  # fmt: skip
def test_what_is_wrong_with_a_script_is_told_once_and_the_job_goes_on(offers, trouble, told):
    flag = pathlib.Path(offers.lab.shared) / "trouble"
    flag.unlink(missing_ok=True)
    offers.set("node1:1 node2:1")
    offers.train("-np", "2", "--discovery-interval", "0.2", "--host-discovery-script",
                 f"if test -e {flag}; then {trouble}; else cat {offers.hosts}; fi")  # fmt: skip
    offers.await_size(2)
    flag.write_text("")
    said = "".join(read_until(offers.job.stderr, told, 1))
    flag.unlink()
    offers.set("node1:1 node2:1 node3:1")
    offers.await_size(3)
    err = said + offers.end()
    assert err.count(told) == 1 or told == "nowhere", err


def test_a_script_that_never_works_starts_nothing(lab3):
    done = lab3.run(HVDRUN, "-np", "2", "--host-discovery-script", "/no/such/program", "true")
    assert done.returncode == 240 and "the host discovery script exited with code 127" in done.stderr, done.stderr
    done = lab3.run(HVDRUN, "-np", "2", "--host-discovery-script", "echo node1:1", "--elastic-timeout", "5", "true")
    assert done.returncode != 0 and "the hosts had 1 slot of the 2" in done.stderr, done.stderr


def test_ctrl_c_while_a_host_joins_leaves_nothing(offers):
    offers.set("node1:1 node2:1")
    offers.script("-np", "2")
    offers.await_size(2)
    offers.set("node1:1 node2:1 node3:1")
    read_until(offers.job.stderr, "node3 joins", 1)
    offers.job.send_signal(signal.SIGINT)
    offers.job.communicate(timeout=PATIENCE)
    assert offers.job.returncode == 130
    assert offers.lab.wait_for_no_processes() == []


def test_a_script_on_a_host_that_has_nothing_to_train_ends_with_its_job(offers):
    """Ranks that end while a host joins do not wait for it."""
    offers.set("node1:1 node2:1")
    offers.script("-np", "2")
    offers.await_size(2)
    offers.set("node1:1 node2:1 node3:1")
    read_until(offers.job.stderr, "node3 joins", 1)
    offers.end()


def test_the_discovery_script_is_ended_with_the_job(lab3):
    mark, slow, hangs = "86399.25", lab3.shared / "slow", lab3.shared / "hangs"
    script = f"if test -e {slow}; then touch {hangs}; sleep {mark}; else touch {slow}; echo node1:1; fi"
    job = lab3.popen(HVDRUN, "-np", "1", "--discovery-interval", "0.2", "--host-discovery-script", script,
                     "sh", "-c", f"until test -e {hangs}; do sleep 0.05; done")  # fmt: skip
    _, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0, err

    def listed():
        return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, timeout=PATIENCE).stdout

    # What the script has started gets SIGKILL with it, and is listed until a processor has time for its end.
    wait_until(lambda: f"sleep {mark}" not in listed(), "the script is left")
