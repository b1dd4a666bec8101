"""Whose fault it is that a job of the service does not run: its own, a node's, a new installation's, a full disk's."""

import os
import re
import shutil
import signal
import subprocess

import pytest

from hvdrun import BIN, wait_until_gone
from patience import PATIENCE
from service import HOSTS, run_shell
from ways import EXECUTES


def test_a_job_whose_own_way_to_the_nodes_is_wrong_fails_alone(service):
    """Before, it had every node of the cluster out of service in seconds, and again each minute."""
    service.cluster(hosts=["a", "b", "c", "d"], defaults={"rsh": EXECUTES})
    service.submit("nodeCount: 4\ncommand: 'true'\n", "--name", "first")
    assert service("wait", "first").returncode == 0
    service.submit("nodeCount: 2\ncommand: 'true'\n", "--name", "wrong", "--rsh", "false")
    told = service.wait_for(lambda: (text := service.ok("show", "wrong")).count("this job does not get it before") == 4 and text,
                            "it has tried all nodes")
    assert service.counts() == {"idle": 4}
    assert "it does not get those for a while that it could not reach; hvdrun cluster resume lab lets it try them at once" in told
    service.submit("nodeCount: 4\ncommand: echo done\n", "--name", "good")
    assert service("wait", "good").returncode == 0
    assert service.state_of("wrong") == "queued"
    with service.records() as records:  # as if the minute were over
        records.execute("UPDATE avoided_node SET unusable_until_ms = 1")
    (service.state / "hvdrun/service/locks/wake").write_text("")
    done = service("wait", "wrong")
    assert done.returncode == 241
    assert "The job has reached none of its nodes, and the nodes are not at fault" in service.show("wrong", "executionInfo.errors.0.message")
    assert "unusable" not in service.counts()


def test_a_node_that_is_really_broken_is_taken_out_of_service_and_the_job_goes_on_elsewhere(service):
    broken = service.path / "broken"
    service.cluster(hosts=["a", "b"], defaults={"rsh": f"sh -c '[ $0 = a ] && [ -e {broken} ] && exit 1; exec \"$@\"' {{host}}"})
    service.submit("nodeCount: 2\ncommand: 'true'\n", "--name", "first")
    assert service("wait", "first").returncode == 0
    broken.touch()
    service.submit("command: echo done\n", "--name", "goes-on")
    assert service("wait", "goes-on").returncode == 0
    assert service.show("goes-on", "nodes.0.nodeId") == "b"
    assert service.counts() == {"idle": 1, "unusable": 1}
    assert re.search(r"^a: rsh: .*; no job gets it before ", service.ok("cluster", "show", "lab"), re.M)


PROGRAMS = ("hvdrun", "hvdrun-agent")


@pytest.mark.parametrize("gap", [False, True])
def test_a_job_that_waits_while_hvdrun_is_installed_anew_goes_on_as_the_new_one(service, gap):
    """As pip does it: the old files are renamed, the new ones written, the old ones removed."""
    bin_folder = service.path / "env/bin"
    bin_folder.mkdir(parents=True)
    for name in PROGRAMS:
        shutil.copy2(BIN / name, bin_folder / name)
    service.cluster(hosts=HOSTS[:1])
    gate = service.path / "gate"
    service.submit(f"command: until [ -e {gate} ]; do sleep 0.05; done\n", "--name", "ahead")
    service.wait_for(lambda: service.counts() == {"running": 1}, "it runs")
    waiting = service.file("command: echo done\n", "waiting.yaml")
    done = subprocess.run([bin_folder / "hvdrun", "submit", "-f", waiting], env=service.env, cwd=service.path, capture_output=True,
                          text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    number = int(service.show("waiting", "id"))
    supervisor = service.supervisors()[number]
    old = service.path / "env/~old"
    bin_folder.rename(old)
    if gap:
        shutil.rmtree(old)
        gate.touch()
        service.wait_for(lambda: service.files_with("is gone; the job waits for it"), "it waits for the installation")
    bin_folder.mkdir()
    for name in reversed(PROGRAMS):  # the agent first
        shutil.copy2(BIN / name, bin_folder / name)
    shutil.rmtree(old, ignore_errors=True)
    assert os.readlink(f"/proc/{supervisor}/exe").endswith(" (deleted)")
    gate.touch()
    waited = service("wait", "waiting")
    assert waited.returncode == 0, waited.stderr
    assert service.ok("logs", "waiting") == "done\n"
    assert service.files_with("another version was installed meanwhile")


def test_what_ends_everything_starts_no_job_that_waits(service):
    """As at a shutdown: the supervisors get SIGTERM, and one that was started since would be lost with its job."""
    service.cluster(hosts=HOSTS[:1])
    service.submit("command: touch runs; trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done\n", "--name", "running")
    service.wait_for((service.path / "runs").exists, "it runs")
    for name in ("next", "last"):
        service.submit(f"command: touch {service.path}/{name}\n", "--name", name)
    told = service.supervisors()
    for signo in (signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT):  # none of them sees another's end before its own
        for pid in told.values():
            os.kill(pid, signo)
    assert wait_until_gone(service.marker) == {}
    assert not (service.path / "next").exists() and not (service.path / "last").exists()
    for name in ("next", "last"):  # this command finds them
        assert service("wait", name).returncode == 0
    assert service("wait", "running").returncode == 143


def test_a_job_whose_preparation_is_ended_by_a_shutdown_waits_again(service):
    service.cluster(hosts=HOSTS[:1])
    number = service.submit(f"prepare: echo x >> {service.path}/prepares; until [ -e {service.path}/gate ]; do sleep 0.05; done\n"
                            f"command: echo done\n", "--name", "prepared")["id"]
    service.wait_for((service.path / "prepares").exists, "it is prepared")
    os.kill(service.supervisors()[number], signal.SIGTERM)
    assert wait_until_gone(service.marker) == {}
    with service.records() as records:
        assert records.execute("SELECT state FROM job").fetchall() == [("queued",)]
    (service.path / "gate").touch()
    assert service("wait", "prepared").returncode == 0
    assert (service.path / "prepares").read_text() == "x\nx\n"


def test_a_job_that_a_user_stops_while_it_is_prepared_does_not_wait_again(service):
    service.cluster(hosts=HOSTS[:1])
    service.submit(f"prepare: touch {service.path}/prepares; sleep 1000\ncommand: 'true'\n", "--name", "stopped")
    service.wait_for((service.path / "prepares").exists, "it is prepared")
    service.ok("stop", "stopped")
    assert service.show("stopped", "executionInfo.errors.0.code") == "JobTerminated"


def test_a_job_whose_output_could_not_be_kept_says_so(service):
    service.cluster(hosts=HOSTS[:1])
    (service.path / "out").mkdir()
    file = service.file("command: yes | head -c 8000000\n")
    shell = run_shell(service, f"trap '' XFSZ; ulimit -f 4000; hvdrun submit -f {file} --name full --output-filename out")
    _, words = shell.communicate(timeout=PATIENCE)
    assert shell.returncode == 0, words
    assert service("wait", "full").returncode == 244
    assert service.show("full", "executionInfo.errors.0.code") == "OutputNotKept"
    details = service.show("full", "executionInfo.errors.0.details.0.value")
    assert "what its ranks print is not kept there any more" in details and "still comes here" not in details, details
