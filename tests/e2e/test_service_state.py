"""What the job service keeps, and what becomes of it: dead supervisors, a machine that restarts, full and read-only disks."""

import contextlib
import json
import re
import stat
import subprocess
import sys

import pytest

from hvdrun import HVDRUN, LIBHVD, processes_with
from job_files import raises_with_token
from patience import PATIENCE
from service import GATE, HOSTS


def test_a_submission_to_slurm_that_got_no_number_ends_also_where_slurm_cannot_be_asked(service):
    tools = service.path / "tools"
    tools.mkdir()
    for name, text in (("sbatch", f"cat {service.path}/number"), *((name, "exit 1") for name in ("squeue", "scontrol", "sacct"))):
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    service.env["PATH"] = f"{tools}:{service.env['PATH']}"
    for name, number in (("numbered", "12\n"), ("lost", "")):
        (service.path / "number").write_text(number)
        assert (service("submit", "--engine", "slurm", "--name", name, "true").returncode == 0) == bool(number)
    assert service.show("lost")["executionState"] == "queued"  # its sbatch may still be under way
    with service.records() as records:
        records.execute("UPDATE engine_job SET created_ms = created_ms - 200000")
    states = {job["name"]: job["executionState"] for job in json.loads(service.ok("ps", "--all", "--json"))}
    assert states == {"numbered": "queued", "lost": "failed"}
    assert "whether it has run is not known here" in service.ok("show", "lost", "--json")


@pytest.mark.parametrize("phase", ["waiting", "preparing", "started"])
def test_a_dead_supervisor_is_found_whatever_it_was_doing(service, phase):
    service.cluster(hosts=HOSTS[:1])
    if phase == "waiting":
        service.submit(f"command: {GATE}\n", "--name", "ahead")
        service.wait_for(lambda: service.counts() == {"running": 1}, "it runs")
    prepare = f"prepare: echo x >> prepared; {GATE}\n" if phase == "preparing" else ""
    begun = "" if phase != "started" else "; sleep 1000"
    number = service.submit(f"{prepare}command: echo ran >> {service.path}/ran{begun}\n", "--name", "victim")["id"]
    if phase == "preparing":
        service.wait_for(lambda: service.counts() == {"preparing": 1} and service.state_of("victim") == "running", "it is prepared")
    if phase == "started":
        service.wait_for((service.path / "ran").exists, "it runs")
    service.kill_supervisors(number)
    service.wait_for(lambda: number not in service.supervisors(), "it is dead") if phase == "started" else None
    if phase == "started":
        assert service("wait", "victim").returncode == 246
        assert service.show("victim", "executionInfo.errors.0.code") == "SupervisorLost"
        service.wait_for(lambda: service.counts() == {"idle": 1}, "the node is idle again")
    else:
        (service.path / "gate").touch()
        assert service("wait", "victim").returncode == 0
    assert (service.path / "ran").read_text() == "ran\n"


def test_a_waiting_job_whose_supervisor_dies_goes_on_though_nobody_looks(service):
    service.cluster(hosts=HOSTS[:1])
    service.submit(f"command: {GATE}\n", "--name", "ahead")
    service.wait_for(lambda: service.counts() == {"running": 1}, "it runs")
    numbers = [service.submit(f"command: touch {service.path}/ran{i}\n")["id"] for i in range(3)]
    service.kill_supervisors(numbers[1])
    # No command from here on: the others look after it.
    service.wait_for(lambda: numbers[1] in service.supervisors(), "another one was started")
    (service.path / "gate").touch()
    service.wait_for(lambda: all((service.path / f"ran{i}").exists() for i in range(3)), "all ran")


def test_after_a_restart_of_the_machine_waiting_jobs_go_on_and_running_ones_are_told_of(service):
    service.cluster(hosts=HOSTS[:1])
    running = service.submit(f"command: touch {service.path}/begun; sleep 1000\n", "--name", "running")["id"]
    service.wait_for((service.path / "begun").exists, "it runs")
    waiting = service.submit(f"command: touch {service.path}/ran\n", "--name", "waiting")["id"]
    service.kill_supervisors(waiting, running)
    with service.records() as records:
        records.execute("UPDATE job SET boot = 'another'")
    assert "waiting" in service.ok("ps")
    assert service.show("running", "executionInfo.errors.0.message").startswith("The machine restarted")
    assert service("wait", "waiting").returncode == 0 and (service.path / "ran").exists()


def test_secrets_are_in_no_record_and_what_a_job_starts_with_is_removed_with_its_end(service):
    service.cluster(hosts=HOSTS[:1])
    service.env["TOKEN"] = "s3cr3t-token"
    service.submit(f"command: echo token $TOKEN; {GATE}\nsecrets: {{TOKEN: , OTHER: 0ther-secret}}\n", "--name", "secretive")
    service.wait_for(lambda: "token" in service("logs", "secretive").stdout, "it runs")

    def found():
        return service.files_with("s3cr3t-token", "0ther-secret")

    assert [stat.S_IMODE(file.stat().st_mode) for file in found()] == [0o600]
    for file in (service.state / "hvdrun/service").rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # SQLite's own come and go
            is_folder, mode = file.is_dir(), stat.S_IMODE(file.stat().st_mode)
            assert mode == (0o700 if is_folder else 0o600) or "rank." in str(file), file
    assert service.ok("logs", "secretive") == "token ***\n"
    assert "s3cr3t" not in service.ok("show", "secretive", "--json") + service.ok("ps", "--json")
    (service.path / "gate").touch()
    assert service("wait", "secretive").returncode == 0
    service.wait_for(lambda: found() == [], "the ticket is removed")


def test_a_secret_in_the_exception_of_a_rank_is_in_nothing_that_is_kept_or_shown_of_its_job(service):
    service.cluster(hosts=HOSTS[:1])
    service.env |= {"TOKEN": "s3cr3t-\"token", "HVD_LIBRARY": LIBHVD}
    service.submit(f"command: {sys.executable} {raises_with_token(service.path)}\nsecrets: {{TOKEN: }}\n", "--name", "failing")
    waited = service("wait", "failing")
    assert waited.returncode == 1, waited.stderr
    service.wait_for(lambda: service.files_with("s3cr3t") == [], "the ticket is removed, and nothing else has it")
    service.ok("report", "failing", "-o", service.path / "page.html")
    page = (service.path / "page.html").read_text()
    assert "401 for token ***" in page
    shown = [service.ok(*words) for words in (("show", "failing", "--json"), ("ps", "--all", "--json"), ("logs", "failing", "--file", "stderr.txt"))]
    assert "s3cr3t" not in "".join(shown) + page + waited.stdout + waited.stderr
    assert "401 for token ***" in shown[0]


def test_records_of_a_newer_hvdrun_are_refused_by_name(service):
    service.cluster()
    with service.records() as records:
        records.execute("PRAGMA user_version = 9")
    done = service("ps")
    assert done.returncode == 240 and "have schema 9, which a newer hvdrun has made; this one knows schema 2" in done.stderr


def test_a_state_folder_that_cannot_be_written_is_told_with_what_to_do(service):
    service.env["XDG_STATE_HOME"] = "/proc/nowhere"
    done = service("ps")
    assert done.returncode == 242 and "cannot make the folder /proc/nowhere" in done.stderr and "XDG_STATE_HOME" in done.stderr
    service.env["XDG_STATE_HOME"] = str(service.path / "file")
    (service.path / "file").write_text("")
    assert "XDG_STATE_HOME" in service("ps").stderr
    broken = service.path / "broken/hvdrun/service"
    broken.mkdir(parents=True)
    (broken / "jobs.db").write_text("this is no database, whatever its name says; " * 50)
    service.env["XDG_STATE_HOME"] = str(service.path / "broken")
    done = service("ps")
    assert done.returncode == 242 and "this is no database that can be read" in done.stderr


def test_a_full_disk_is_told_as_such(service):
    # A limit on the size of files is as near as one comes without a disk of one's own.
    service.cluster()
    text = "command: 'true'\nenv: {BIG: " + "x" * 100_000 + ", MORE: " + "y" * 100_000 + "}\n"
    done = subprocess.run(["bash", "-c", f"trap '' XFSZ; ulimit -f 100; exec {HVDRUN} submit -f {service.file(text)}"],
                          env=service.env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 242 and re.search(r"cannot write|cannot be written|disk|File too large", done.stderr), done.stderr
    assert service.ok("ps", "--json") == "[]\n"
    assert service.submit("command: 'true'\n")["id"] == 1


def test_a_job_is_ended_though_its_stop_cannot_be_recorded(service):
    service.cluster(hosts=HOSTS[:1])
    service.submit(f"command: touch {service.path}/begun; sleep 1000\n", "--name", "running")
    service.wait_for((service.path / "begun").exists, "it runs")
    # As on a full disk: this process can write no file.
    done = subprocess.run(["bash", "-c", f"trap '' XFSZ; ulimit -f 0; exec {HVDRUN} stop running"],
                          env=service.env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 242 and "job running was told to end, which cannot be recorded" in done.stderr, done.stderr
    assert service("wait", "running").returncode != 0
    assert service.state_of("running") == "failed"


@pytest.fixture
def small_disk(service):
    """A disk of 1 MiB for the state of the service."""
    place = service.path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no file system of our own here: {done.stderr.strip()}")
    service.env["XDG_STATE_HOME"] = str(place)
    service.state = place
    yield place
    with contextlib.suppress(OSError):  # a full disk would keep supervisors waiting for room
        (place / "filler").unlink(missing_ok=True)
    service.end()
    subprocess.run(["umount", "-l", place], check=True)


def fill(disk):
    with (disk / "filler").open("wb", buffering=0) as file:
        for size in (65536, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                pass


def test_state_that_cannot_be_written_any_more_is_told_with_what_to_do(service, small_disk):
    service.cluster(hosts=HOSTS[:1])
    service.submit("command: 'true'\n", "--name", "before")
    assert service("wait", "before").returncode == 0
    service.wait_for(lambda: service.supervisors() == {}, "nobody writes there")
    # Who ends has no memory to be known by any more a moment before its files are closed.
    remount = ["mount", "-o", "remount,ro", small_disk]
    service.wait_for(lambda: subprocess.run(remount, capture_output=True, check=False).returncode == 0, "files stay open")
    for arguments in (("ps",), ("show", "before"), ("submit", "-f", service.path / "job.yaml")):
        done = service(*arguments)
        assert done.returncode == 242 and "cannot be written" in done.stderr and "XDG_STATE_HOME" in done.stderr, done.stderr


def test_on_a_full_disk_a_job_waits_and_its_end_is_not_lost(service, small_disk):
    service.cluster(hosts=HOSTS[:1])
    service.submit(f"command: {GATE}\n", "--name", "running")
    service.submit(f"command: touch {service.path}/ran\n", "--name", "waiting")
    service.wait_for(lambda: service.counts() == {"running": 1}, "it runs")
    fill(small_disk)
    refused = service("submit", "-f", service.file("command: 'true'\nenv: {BIG: " + "x" * 100_000 + "}\n", "more.yaml"))
    assert refused.returncode == 242 and "free some space" in refused.stderr, refused.stderr
    (service.path / "gate").touch()
    service.wait_for(lambda: not [a for a in processes_with(service.marker).values() if "until [ -e gate" in a], "its rank has ended")
    (small_disk / "filler").unlink()
    assert service("wait", "running").returncode in (0, 244)  # 244: the disk was full when its files were written
    assert service("wait", "waiting").returncode == 0 and (service.path / "ran").exists()
    assert {j["name"] for j in json.loads(service.ok("ps", "--all", "--json"))} == {"running", "waiting"}
