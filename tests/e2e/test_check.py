"""hvdrun check: what it tells of this machine, and of lab hosts that are each broken in a way of their own."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess

import pytest

from hvdrun import HVDRUN, hvdrun, start, wait_until_gone
from lab import wait_until
from patience import PATIENCE, growing

UNREACHABLE, NO_PROGRAM = 241, 127


def report(done):
    """The one JSON object that --json prints."""
    assert done.stderr == "", done.stderr
    found = json.loads(done.stdout)
    assert found["exit_code"] == done.returncode and found["can_start"] == (done.returncode == 0)
    return found


def host_of(found, name):
    return next(host for host in found["hosts"] if host["host"] == name)


def subjects(found, host=None):
    return {finding["subject"] for finding in found["findings"] if host is None or host in finding["hosts"]}


def words(text):
    """As if no line had been broken."""
    return " ".join(text.split())


def has_this_clock(host):
    """As all hosts of a test have. How well that is known depends on how soon an answer came; a microsecond is for rounding."""
    uncertainty = host["clock_uncertainty_seconds"]
    return uncertainty < PATIENCE and abs(host["clock_offset_seconds"]) <= uncertainty + 1e-6


def checked(lab, *arguments, **options):
    return lab.run(HVDRUN, "check", *arguments, **options)


# ---- this machine ----

def test_this_machine_is_told_without_hosts():
    found = report(hvdrun("check", "--json"))
    host = host_of(found, "localhost")
    assert host["reached"] and host["transport"] == "local" and found["links"] == []
    assert host["processors"] == len(os.sched_getaffinity(0))
    assert host["memory_bytes"] > 0 and host["ports"]["error"] is None
    assert host["kernel"] == f"{os.uname().sysname} {os.uname().release}" and host["machine"] == os.uname().machine
    assert has_this_clock(host)
    assert host["temporary"]["error"] is None and host["cache"]["free_bytes"] > 0


def test_the_text_says_that_a_job_could_start():
    done = hvdrun("check", "-np", "1")
    assert done.returncode == 0 and done.stderr == ""
    assert re.search(r"^localhost +local ", done.stdout, re.M)
    assert re.search(r"^1 host checked in [\d.]+ s: a job could start", done.stdout, re.M)
    assert "\x1b" not in done.stdout


def test_the_python_of_the_jobs_path_is_told(tmp_path):
    package = tmp_path / "lib"
    (package / "torch").mkdir(parents=True)
    (package / "torch/__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "torch/version.py").write_text("__version__ = '9.8.7+cu130'\ncuda: str = '13.0'\n")
    (package / "horovod").mkdir()
    (package / "horovod/__init__.py").write_text("__version__ = '0.28.1'\nraise SystemExit('imported')\n")
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho noise\nexec /usr/bin/python3 \"$@\"\n")
    python.chmod(0o755)
    (package / "Some_Package-1.2.dist-info").mkdir()
    done = hvdrun("check", "--json", "-x", f"PATH={python.parent}:/usr/bin:/bin", "-x", f"PYTHONPATH={package}")
    host = report(done)["hosts"][0]
    assert host["program"] == {"path": str(python), "error": None}
    version = subprocess.run(["/usr/bin/python3", "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
    assert host["python"].pop("packages")["some-package"] == "1.2"
    assert host["python"] == {"version": version, "error": None, "torch": "9.8.7+cu130", "torch_cuda": "13.0",
                              "horovod": "0.28.1 (not hvdrun's)"}
    done = hvdrun("check", "-x", f"PATH={python.parent}:/usr/bin:/bin", "-x", f"PYTHONPATH={package}")
    assert "torch 9.8.7+cu130 for CUDA 13.0" in done.stdout


def test_a_program_that_is_not_there_would_fail_a_job_and_a_missing_python_would_not(tmp_path):
    found = report(hvdrun("check", "--json", "no-such-program"))
    assert found["exit_code"] == NO_PROGRAM and subjects(found) == {"program"}
    found = report(hvdrun("check", "--json", "-x", f"PATH={tmp_path}"))
    assert found["exit_code"] == 0 and subjects(found) == {"program"}
    found = report(hvdrun("check", "--json", "sh"))
    assert found["exit_code"] == 0 and found["hosts"][0]["program"]["path"].endswith("/sh")
    assert found["hosts"][0]["python"]["version"] is None


def test_a_script_that_is_not_there_or_cannot_be_read_would_fail_a_job(tmp_path):
    (tmp_path / "train.py").write_text("")
    found = report(hvdrun("check", "--json", "python3", "-u", "train.py", "--lr", "1", cwd=tmp_path))
    assert found["exit_code"] == 0 and subjects(found) == set()
    assert found["hosts"][0]["script"] == {"path": "train.py", "error": None}
    assert report(hvdrun("check", "--json", "python3", "-m", "train", cwd=tmp_path))["hosts"][0]["script"]["path"] is None
    found = report(hvdrun("check", "--json", "python3", "other.py", cwd=tmp_path))
    assert found["exit_code"] == NO_PROGRAM and subjects(found) == {"script"}
    assert f"no such script: '{tmp_path}/other.py'" in found["hosts"][0]["script"]["error"]
    text = words(hvdrun("check", "python3", "other.py", cwd=tmp_path).stdout)
    assert "script other.py (cannot be read)!" in text and "! script" not in text and "bring your folder with --sync" in text


def test_a_python_that_does_not_run_is_told_with_its_code(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 3\n")
    python.chmod(0o755)
    done = hvdrun("check", "-x", f"PATH={tmp_path}")
    assert done.returncode == 0
    assert "does not run" in words(done.stdout) and "exited with code 3" in words(done.stdout)


def test_a_python_that_hangs_costs_its_share_of_the_time_and_nothing_stays(tmp_path):
    mark = f"CHECK_TEST_{os.getpid()}"
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 1000\n")
    python.chmod(0o755)
    for limit in growing(30):
        done = hvdrun("check", "--start-timeout", limit, "-x", f"PATH={tmp_path}:/usr/bin:/bin", env={**os.environ, mark: "1"})
        if done.returncode == 0:
            break
    assert done.returncode == 0
    assert "has not ended in time" in words(done.stdout)
    assert wait_until_gone(mark) == {}


@pytest.fixture
def fake_gpus(tmp_path):
    if os.path.isdir("/proc/driver/nvidia/gpus"):
        pytest.skip("this machine has GPUs of its own")
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\nfor i in a b; do case $1 in\n-L) echo \"GPU 0: H200 (UUID: GPU-$i)\";;\n"
                   "*) echo 'NVIDIA H200, 143771, 570.1';; esac; done\n")
    smi.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return {**environment, "PATH": f"{tmp_path}:{environment['PATH']}"}


def test_gpus_are_told_and_missing_or_shared_ones_are_found(fake_gpus):
    done = hvdrun("check", "-H", "localhost:2", env=fake_gpus)
    assert done.returncode == 0 and "2 x NVIDIA H200, 140 GiB, driver 570.1" in done.stdout
    host = report(hvdrun("check", "--json", env=fake_gpus))["hosts"][0]
    assert host["gpus"] == ["GPU-a", "GPU-b"] and host["driver"] == "570.1"
    found = report(hvdrun("check", "--json", "-H", "localhost:1@5", env=fake_gpus))
    assert found["exit_code"] == 242 and "gpus" in subjects(found)
    assert "gpus" in subjects(report(hvdrun("check", "--json", "-H", "localhost:3", env=fake_gpus)))


def test_small_limits_are_warned_of():
    def limit():
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, 4096))

    found = report(hvdrun("check", "--json", preexec_fn=limit))
    assert found["exit_code"] == 0 and "limits" in subjects(found)
    assert found["hosts"][0]["limits"]["open_files"] == 512
    done = hvdrun("check", preexec_fn=limit)
    assert "512 open files (4096 if asked for)" in words(done.stdout)
    assert "ulimit -n 4096" in words(done.stdout)


def test_more_ranks_than_processors_are_warned_of():
    slots = len(os.sched_getaffinity(0)) + 1
    assert "processors" in subjects(report(hvdrun("check", "--json", "-H", f"localhost:{slots}")))


@pytest.mark.parametrize("arguments", [("-H", "a:b"), ("--hostfile", "/no/such/file"), ("--no-such-flag",)])
def test_a_wrong_command_line_starts_nothing(arguments):
    done = hvdrun("check", *arguments)
    assert done.returncode == 240 and done.stdout == "" and done.stderr.startswith("hvdrun: ")


def test_a_reader_that_is_gone_and_a_full_disk_are_told():
    process = start("check")
    process.stdout.close()
    assert process.wait(PATIENCE) == 141
    with open("/dev/full", "w") as full:
        done = hvdrun("check", stdout=full, capture_output=False, stderr=subprocess.PIPE)
    assert done.returncode == 244 and "No space left" in done.stderr


def on_terminal(*arguments, env):
    """What hvdrun writes to a terminal of 80 columns."""
    master, slave = pty.openpty()
    subprocess.run(["stty", "cols", "80", "rows", "24"], stdin=slave, check=True)
    process = subprocess.Popen([HVDRUN, *arguments], stdin=slave, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    text = b""
    while True:
        try:
            block = os.read(master, 65536)
        except OSError:
            break
        if not block:
            break
        text += block
    os.close(master)
    return process.wait(PATIENCE), text.decode()


def test_a_terminal_gets_colours_and_no_line_wider_than_itself():
    base = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "CLICOLOR_FORCE")}
    slots = f"localhost:{len(os.sched_getaffinity(0)) + 1}"
    code, text = on_terminal("check", "-H", slots, env={**base, "TERM": "xterm"})
    assert code == 0 and "\x1b[1mhost" in text and "\x1b[33mwarning" in text
    # What was shown meanwhile is gone: the last it did to the row was to clear it.
    lines = text.split("\r\x1b[K")[-1].split("\r\n")
    assert lines[0].startswith("\x1b[1mhost")
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    assert max(map(len, plain)) <= 80
    code, text = on_terminal("check", "-H", slots, env={**base, "TERM": "xterm", "NO_COLOR": "1"})
    assert "\x1b[1m" not in text and "\x1b[33m" not in text and "!" in text


# ---- several hosts ----

def test_healthy_hosts_and_all_links_between_them(lab3):
    first = report(checked(lab3, "--json", "-H", "node1:2,node2,node3"))
    again = report(checked(lab3, "--json", "-H", "node1:2,node2,node3"))
    assert first["exit_code"] == again["exit_code"] == 0
    assert [host["slots"] for host in again["hosts"]] == [2, 1, 1]
    for i in (1, 2, 3):
        host = host_of(again, f"node{i}")
        assert host["reached"] and host["transport"] == "ssh" and host["address"] == lab3.addr(f"node{i}")
        assert host["host_name"] == f"node{i}" and host["agent"]["pushed"] is False
        assert re.search(r"/agent-[0-9a-f]{64}$", host["agent"]["path"])
        assert [interface["mtu"] for interface in host["interfaces"]] == [1500]
        assert has_this_clock(host)
    names = [f"node{i}" for i in (1, 2, 3)]
    assert sorted((link["from"], link["to"]) for link in again["links"]) == \
        sorted((a, b) for a in names for b in names if a != b)
    assert all(link["error"] is None and link["round_trip_seconds"] > 0 and link["bytes_per_second"] > 0
               for link in again["links"])
    assert lab3.wait_for_no_processes() == []


def test_hosts_that_fail_are_all_named_and_do_not_keep_the_others_from_being_checked(lab3):
    """One with a changed key, one that is down, one without a name; one that is well."""
    known = lab3.path("launcher", "/root/.ssh/known_hosts")
    where = known if known.exists() else lab3.path("launcher", "/etc/ssh/ssh_known_hosts")
    lines = where.read_text()
    key1, key2 = (re.search(rf"^node{i}\S* (.*)$", lines, re.M)[1] for i in (1, 2))
    lab3.cut("node3")
    try:
        where.write_text(lines.replace(key2, key1))
        for limit in growing(30):
            done = checked(lab3, "--start-timeout", limit, "--json", "-H", "node1,node2,node3,nowhere")
            found = json.loads(done.stdout)
            if found["hosts"][0]["reached"]:
                break
    finally:
        where.write_text(lines)
        lab3.heal()
    assert done.returncode == UNREACHABLE
    assert [host["reached"] for host in found["hosts"]] == [True, False, False, False]
    assert "changed" in host_of(found, "node2")["error"].lower() or "key" in host_of(found, "node2")["error"].lower()
    assert re.search("(?i)no answer|no route|timed out", host_of(found, "node3")["error"])
    assert "resolve" in host_of(found, "nowhere")["error"]
    assert {finding["hosts"][0] for finding in found["findings"] if finding["severity"] == "problem"} == \
        {"node2", "node3", "nowhere"}
    assert host_of(found, "node1")["kernel"].startswith("Linux ")
    assert lab3.wait_for_no_processes("node1", "node2", "launcher") == []


def test_a_host_that_refuses_our_key_is_named_with_it(lab3):
    keys = lab3.path("node2", "/root/.ssh/authorized_keys")
    text = keys.read_text()
    keys.write_text("")
    try:
        done = checked(lab3, "-H", "node1,node2")
        quiet = checked(lab3, "--quiet", "-H", "node1,node2")
    finally:
        keys.write_text(text)
    assert done.returncode == quiet.returncode == UNREACHABLE
    assert re.search(r"^problem +node2: .*(key|denied|refused)", words(done.stdout).replace("problem", "\nproblem"), re.M)
    assert re.search(r"^node1 +ssh ", done.stdout, re.M)
    assert quiet.stdout.startswith("problem  node2: ")


def test_a_firewall_between_two_hosts_is_found_in_both_directions(lab3):
    lab3.cut("node1", "node2")
    try:
        done = checked(lab3, "--json", "-H", "node1,node2,node3")
        text = words(checked(lab3, "-H", "node1,node2,node3").stdout)
    finally:
        lab3.heal()
    found = report(done)
    assert found["exit_code"] == UNREACHABLE
    failing = {(link["from"], link["to"]) for link in found["links"] if link["error"]}
    assert failing == {("node1", "node2"), ("node2", "node1")}
    assert "node2 and node1 cannot reach each other: connect to" in text and "firewall" in text
    assert text.count("fails!") == 4
    assert lab3.wait_for_no_processes() == []


def test_hosts_that_differ_are_told_apart(make_lab):
    """One with a smaller MTU, one with few file descriptors, one with another Python."""
    lab = make_lab(3)
    home = lab.path("node3", "/root")
    (home / "bin").mkdir()
    (home / "bin/python3").write_text("#!/bin/sh\necho hvdrun.python 3.99.0\necho hvdrun.torch 1.0\n")
    (home / "bin/python3").chmod(0o755)
    sshd = next(p for p in lab.ps("node2", everything=True) if "sshd:" in p.args)
    subprocess.run(["prlimit", "--nofile=256:4096", "--pid", str(sshd.pid)], check=True)
    lab.run("ip", "link", "set", "eth0", "mtu", "1400", host="node1")
    path = ["-x", "PATH=/root/bin:/usr/bin:/bin"]
    found = report(checked(lab, "--json", "-H", "node1,node2,node3", *path))
    text = words(checked(lab, "-H", "node1,node2,node3", *path).stdout)
    assert found["exit_code"] == 0  # warnings do not keep a job from starting
    assert "mtu" in subjects(found, "node1") and "limits" in subjects(found, "node2")
    assert "program" in subjects(found, "node3")
    assert host_of(found, "node2")["limits"]["open_files"] == 256
    assert host_of(found, "node3")["python"]["version"] == "3.99.0"
    assert "PyTorch is not the same on all hosts: 1.0 on node3; none on node1, node2" in text
    assert "1400!" in text


def test_a_directory_that_a_host_lacks_would_fail_a_job(lab3):
    lab3.run("mkdir", "-p", "/tmp/only-here")
    done = lab3.run("sh", "-c", f"cd /tmp/only-here && exec {HVDRUN} check --json -H node1")
    found = report(done)
    assert found["exit_code"] == NO_PROGRAM and "only-here" in found["findings"][0]["message"]


def test_a_script_that_only_some_hosts_have_is_told_and_sync_brings_it(lab2):
    folder = lab2.path("launcher", "/root/project")
    for host in ("launcher", "node1", "node2"):
        (lab2.path(host, "/root/project") / "src").mkdir(parents=True)
    (lab2.path("node1", "/root/project/src") / "train.py").write_text("")
    for name in ("src/train.py", "run.sh", "left-out.py"):
        (folder / name).write_text("")
    (folder / ".hvdignore").write_text("left-out.py\n")
    (folder / "bin").symlink_to("/usr/bin")  # of every host

    def check(*arguments, cwd="/root/project"):
        return report(lab2.run("sh", "-c", f"cd {cwd} && exec {HVDRUN} check --json {' '.join(arguments)}"))

    found = check("-H node1,node2 python3 src/train.py")
    assert found["exit_code"] == NO_PROGRAM and subjects(found, "node2") == {"script"} and subjects(found, "node1") == set()
    assert "no such script: '/root/project/src/train.py'" in host_of(found, "node2")["script"]["error"]
    for command in ("python3 src/train.py", "./run.sh", "python3 /usr/bin/env", "./bin/env"):
        found = check("--sync -H node1,node2", command)
        assert found["exit_code"] == 0, found["findings"]
    assert check("--sync=/root/project -H node1 python3 train.py", cwd="/root/project/src")["exit_code"] == 0
    for command, lacking in (("python3 left-out.py", "left-out.py"), ("./none.sh", "./none.sh"), ("python3 ../run.sh", "../run.sh")):
        found = check("--sync -H node1", command)
        assert found["exit_code"] == NO_PROGRAM
        assert any(f"--sync would not bring '{lacking}'" in finding["message"] for finding in found["findings"])
    assert lab2.wait_for_no_processes() == []


def test_an_agent_that_is_killed_while_links_are_measured_is_named(lab3):
    lab3.cut("node1", "node2")  # the first round lasts, with node1 and node2 waiting for each other
    job = lab3.popen(HVDRUN, "check", "--start-timeout", str(PATIENCE), "-H", "node1,node2,node3")
    try:
        agents = wait_until(lambda: [p for p in lab3.ps("node3") if re.search(r"agent-[0-9a-f]{64}|guardian", p.args)],
                            "no agent on node3")
        for agent in agents:
            with contextlib.suppress(ProcessLookupError):  # it dies of the other
                os.kill(agent.pid, signal.SIGKILL)
        out, _ = job.communicate(timeout=PATIENCE)
    finally:
        lab3.heal()
    assert job.returncode in (UNREACHABLE, 243)  # killed before it had answered, or after
    assert re.search(r"problem +node3", out), out
    assert lab3.wait_for_no_processes() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_check_tells_what_it_knows_and_leaves_nothing(lab3, number):
    lab3.cut("node3")
    # It does not give node3 up before the signal comes, however late that is.
    job = lab3.popen(HVDRUN, "check", "--start-timeout", str(PATIENCE), "-H", "node1,node2,node3")
    try:
        wait_until(lambda: any("agent-" in p.args for p in lab3.ps("node1")), "no agent on node1")
        job.send_signal(number)
        out, _ = job.communicate(timeout=PATIENCE)
    finally:
        lab3.heal()
    assert job.returncode == 128 + number
    assert "interrupted" in out
    assert lab3.wait_for_no_processes() == []


def test_a_check_that_is_killed_leaves_nothing(lab3):
    lab3.cut("launcher", "node3")  # nothing refuses: it does not give node3 up before it is killed, however late that is
    job = lab3.popen(HVDRUN, "check", "--start-timeout", str(PATIENCE), "-H", "node1,node2,node3")
    try:
        pid = lab3.pid_of(job)
        for node in ("node1", "node2"):
            wait_until(lambda: any("agent-" in p.args for p in lab3.ps(node)), f"no agent on {node}")  # noqa: B023
        os.kill(pid, signal.SIGKILL)
        assert job.wait(PATIENCE) in (-signal.SIGKILL, 128 + signal.SIGKILL)
    finally:
        lab3.heal()
    assert lab3.wait_for_no_processes() == []


def test_hosts_are_reached_by_any_command(lab2):
    done = checked(lab2, "--json", "--rsh", "ssh {host}", "-H", "node1,node2")
    found = report(done)
    assert found["exit_code"] == 0 and {host["transport"] for host in found["hosts"]} == {"rsh"}
    assert all(link["error"] is None for link in found["links"])


def test_mpirun_is_asked_for_its_version_where_it_would_run_the_job(lab2):
    found = report(checked(lab2, "--json", "--launcher", "mpi", "-H", "node1,node2"))
    here = lab2.run("mpirun", "--version")
    for host in found["hosts"]:
        assert host["transport"] == "ssh"
        if here.returncode == 0:
            assert host["mpirun"]["version"].startswith("Open MPI ")
        else:
            assert host["mpirun"]["error"]
    assert found["exit_code"] == (0 if here.returncode == 0 else 242)
