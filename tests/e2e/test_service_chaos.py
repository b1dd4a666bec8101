"""Many shells, many jobs, and supervisors and shells that are killed: each job runs once, and no node is given twice."""

import collections
import json
import os
import random
import re
import signal
import time

from hvdrun import processes_with
from patience import PATIENCE
from service import HOSTS, run_shell

SHELLS, EACH = 5, 10


# A rank holds its node's lock for as long as anything of it lives; each start leaves a line.
RANK = ("exec 9>lock-$AZ_BATCH_NODE_ID; flock -n 9 || echo $0 $AZ_BATCH_NODE_ID >> violations; "
        "echo {name} $HVD_RANK >> started; sleep 0.2")


def write_jobs(service):
    for number in range(SHELLS * EACH):
        name = f"job{number}"
        service.file({"name": name, "nodeCount": number % 3 + 1, "command": RANK.format(name=name)}, f"{name}.json")


def shells(service, keep_going=False):
    """Five users' shells, ten submits each. `keep_going`: each submit again, until it is known to have worked."""
    found = []
    for shell in range(SHELLS):
        submits = []
        for number in range(shell * EACH, (shell + 1) * EACH):
            once = f"hvdrun submit -f job{number}.json --name job{number} > out{number} 2> err{number}"
            submits.append(f"until {once} || grep -q already err{number}; do :; done" if keep_going else once)
        found.append(run_shell(service, "; ".join(submits)))
    return found


def wait_for_all(service, each_second=lambda: None):
    deadline = time.monotonic() + PATIENCE
    while True:
        jobs = json.loads(service.ok("ps", "--all", "--json"))
        ended = [job for job in jobs if job["executionState"] in ("succeeded", "failed")]
        if len(ended) == SHELLS * EACH:
            return {job["name"]: job for job in jobs}
        assert time.monotonic() < deadline, [(j["name"], j["executionState"]) for j in jobs if j not in ended]
        each_second()
        time.sleep(1)


def check(service, jobs):
    assert not (service.path / "violations").exists(), (service.path / "violations").read_text()
    started = collections.Counter((service.path / "started").read_text().splitlines())
    assert max(started.values()) == 1, [line for line, times in started.items() if times > 1]
    for name, job in jobs.items():
        ranks = {line for line in started if line.split()[0] == name}
        if job["executionState"] == "succeeded":
            assert len(ranks) == job["nodeCount"], name
        else:
            assert job["executionInfo"]["errors"][0]["code"] == "SupervisorLost", json.dumps(job["executionInfo"])
    service.wait_for(lambda: service.counts() == {"idle": 4}, f"a node is busy for good: {service.counts()}")


def nothing_is_left(service):
    """Of jobs that have ended, and of submits that died before they had one."""
    service.wait_for(lambda: service.supervisors() == {}, "the last one clears up behind its job")
    service.ok("ps")

    def files(folder):
        return {f.name for f in (service.state / "hvdrun/service" / folder).iterdir()}

    # A submit whose shell was killed may still be on its way to hear that there is such a job.
    service.wait_for(lambda: not files("tickets") and files("locks") <= {"wake", "opening"}, "what a job starts with is left")


def test_fifty_submits_of_five_shells_at_once_each_run_once(service):
    service.cluster()
    write_jobs(service)
    for shell in shells(service):
        assert shell.wait(PATIENCE) == 0, shell.communicate()
        shell.communicate()
    jobs = wait_for_all(service)
    assert {job["executionState"] for job in jobs.values()} == {"succeeded"}
    check(service, jobs)
    nothing_is_left(service)


def test_supervisors_and_shells_that_are_killed_lose_no_record_and_keep_no_node(service):
    service.cluster()
    write_jobs(service)
    running = shells(service)
    chance = random.Random(50)
    kills = 0

    def kill_one():
        nonlocal kills
        victims = [(pid, "supervisor") for pid in service.supervisors().values()]
        victims += [(shell.pid, "shell") for shell in running if shell.poll() is None]
        if victims and kills < 40:
            kills += 1
            try:
                os.kill(chance.choice(victims)[0], signal.SIGKILL)
            except ProcessLookupError:
                pass
        for i, shell in enumerate(running):
            if shell.poll() not in (None, 0):  # its user comes back, and submits again what has not been
                shell.communicate()
                running[i] = shells_of(service, i)

    jobs = wait_for_all(service, kill_one)
    for shell in running:
        shell.wait(PATIENCE)
        shell.communicate()
    assert kills > 0
    check(service, jobs)
    nothing_is_left(service)


def shells_of(service, shell):
    missing = [n for n in range(shell * EACH, (shell + 1) * EACH)]
    return run_shell(service, "; ".join(
        f"hvdrun submit -f job{n}.json --name job{n} > out{n} 2> err{n} || grep -q already err{n}" for n in missing))


MEGABYTES = 100
# 100 MB in lines that differ, quickly.
TALK = "seq -f '%%015.0f' 1 %d" % (MEGABYTES * 1000 * 1000 // 16)


def test_two_followers_of_a_job_that_prints_100_MB_see_every_byte_once(service):
    service.cluster(hosts=HOSTS[:1])
    job = service.submit(f"command: {TALK}\n", "--name", "talking")
    outputs = [service.path / "early", service.path / "late"]
    with outputs[0].open("wb") as early, outputs[1].open("wb") as late:
        followers = [service.start("logs", "-f", "talking", stdout=early)]
        service.wait_for(lambda: outputs[0].stat().st_size > 10_000_000, "the first has begun")
        followers.append(service.start("logs", "-f", str(job["id"]), stdout=late))
        assert service("wait", "talking").returncode == 0, service.show("talking", "executionInfo")
        for follower in followers:
            assert follower.wait(PATIENCE) == 0
            follower.communicate()
    size = MEGABYTES * 1000 * 1000 // 16 * 16
    for output in outputs:
        assert output.stat().st_size == size
        with output.open("rb") as file:
            expected = 1
            while chunk := file.read(16 * 65536):
                count = len(chunk) // 16
                assert chunk == b"".join(b"%015d\n" % n for n in range(expected, expected + count)), expected
                expected += count


def test_a_follower_of_a_job_that_is_killed_ends(service):
    service.cluster(hosts=HOSTS[:1])
    number = service.submit("command: echo begun; sleep 1000\n", "--name", "doomed")["id"]
    follower = service.start("logs", "-f", "doomed")
    assert follower.stdout.readline() == "begun\n"
    service.kill_supervisors(number)
    assert follower.wait(PATIENCE) == 0
    follower.communicate()
    assert re.search("SupervisorLost", service.show("doomed", "executionInfo"))
    service.wait_for(lambda: service.counts() == {"idle": 1}, "the node is idle again")
    service.wait_for(lambda: "sleep 1000" not in str(processes_with(service.marker)), "its rank is gone")
