"""Machines and terminals as they may be: a clock that is set, few descriptors, a narrow terminal, a job that is stopped and
continued, GPUs of several makers, programs that start ranks of their own."""

import fcntl
import hashlib
import json
import os
import pathlib
import pty
import re
import resource
import shutil
import signal
import subprocess
import sys
import termios
import time

import pytest

from hvdrun import BIN, HVDRUN, LIBHVD, PYTHON, ROOT, env_with, hvdrun, old_kernel, processes_with, program, read_until, start, wait_until_gone
from lab import wait_until
from patience import PATIENCE
from screen import Terminal

# --rsh words of a node that is this machine.
EXECUTES = "sh -c 'shift; exec \"$@\"' exec"


def plain_env(**more):
    return {**{name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "CLICOLOR_FORCE")}, **more}


@pytest.fixture(scope="module")
def jumping_clock(tmp_path_factory):
    """LD_PRELOAD for a time of day that jumps by days."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("clock") / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, program("jumping_clock.c"), "-ldl"], check=True)
    days = {subprocess.run(["date", "+%j"], env={**os.environ, "LD_PRELOAD": str(library)}, capture_output=True, text=True,
                           check=True).stdout for _ in range(2)} | {time.strftime("%j\n")}
    assert len(days) > 1
    return {"LD_PRELOAD": str(library)}


def test_no_wait_ends_early_or_late_where_the_time_of_day_jumps(jumping_clock, marker):
    env = env_with(marker, **jumping_clock)
    done = hvdrun("--timeout", PATIENCE, "--start-timeout", PATIENCE, "--rsh", EXECUTES, "-H", "a:1,b:1", *PYTHON,
                  program("idle.py"), LIBHVD, "1", env=env)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"rank \d of 2 joined", done.stdout)) == 2
    done = hvdrun("--timeout", 1, "-np", 1, "sleep", 10 * PATIENCE, env=env)
    assert done.returncode == 124, done.stderr
    assert wait_until_gone(marker) == {}


# Linux 4.18, and a container whose rules are older than the call.
@pytest.mark.parametrize("missing", [(424, 1000, "ENOSYS"), (434, 434, "EPERM")])
def test_all_is_as_elsewhere_where_the_kernel_has_no_pidfds(missing, marker, tmp_path):
    def run(*arguments):
        return subprocess.run([*old_kernel(*missing), *map(str, (HVDRUN, *arguments))], env=env_with(marker), cwd=tmp_path,
                              capture_output=True, text=True, timeout=PATIENCE)

    done = run("-np", 2, *PYTHON, program("idle.py"), LIBHVD, "1")
    assert done.returncode == 0 and len(re.findall(r"rank \d of 2 joined", done.stdout)) == 2, done.stderr
    done = run("-np", 2, "sh", "-c", "[ $HVD_RANK = 0 ] || exit 3; sleep 1000")
    assert done.returncode == 3 and re.search(r"rank 1 on localhost .* exited with code 3", done.stderr), done.stderr
    # One ends when it is asked to, the other must be killed, and its child too.
    done = run("--timeout", 1, "--grace", 0.5, "-np", 2, "sh", "-c",
               "[ $HVD_RANK = 0 ] && exec sleep 1000; trap '' TERM; sleep 1000 & while :; do wait; done")
    assert done.returncode == 124, done.stderr
    assert wait_until_gone(marker) == {}
    (tmp_path / "job.yaml").write_text("nodeCount: 2\nprepare: mkdir -p $AZ_BATCHAI_JOB_TEMP/made\ncommand: ls $AZ_BATCHAI_JOB_TEMP\n")
    done = run("-f", "job.yaml", "-H", "127.0.0.1,127.0.0.2", "--no-tags")
    assert done.returncode == 0 and "made\nmade\n" in done.stdout, (done.stdout, done.stderr)


@pytest.mark.parametrize("signo", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_was_inherited_as_ignored_stays_so_as_under_nohup(marker, tmp_path, signo):
    job = start("--no-tags", "-np", 1, "sh", "-c", f"echo up; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; kill -{signo} $$",
                env=env_with(marker), preexec_fn=lambda: signal.signal(signo, signal.SIG_IGN))
    read_until(job.stdout, "up")
    job.send_signal(signo)
    (tmp_path / "go").touch()
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 128 + signo and "rank 0 on localhost" in err, "the rank is no hvdrun, and does not ignore it"
    assert wait_until_gone(marker) == {}


def test_children_are_waited_for_though_their_signal_was_inherited_as_ignored(marker, tmp_path):
    ignoring = {"env": env_with(marker), "preexec_fn": lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)}
    done = hvdrun("-np", 1, "sh", "-c", "exit 3", **ignoring)
    assert done.returncode == 3, done.stderr
    config = tmp_path / "config"
    config.write_text("Host far\n HostName 127.0.0.1\n Port 1\n")
    done = hvdrun("--ssh-config", config, "-np", 1, "-H", "far:1", "true", **ignoring)
    assert done.returncode == 241 and "refused" in done.stderr, done.stderr


def test_a_broken_pipe_ends_ranks_though_the_signal_was_inherited_as_ignored(marker):
    ignoring = {"env": env_with(marker), "preexec_fn": lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN)}
    done = hvdrun("--no-tags", "-np", 1, "bash", "-c", "yes | head -n 1; echo ${PIPESTATUS[0]}", **ignoring)
    assert (done.returncode, done.stdout) == (0, "y\n141\n"), done.stderr
    job = start("-np", 2, "yes", **ignoring)
    read_until(job.stdout, "y")
    job.stdout.close()
    assert job.wait(PATIENCE) == 141, "as where it is not ignored"
    assert "cannot write to standard output: Broken pipe" in job.stderr.read()
    assert wait_until_gone(marker) == {}


@pytest.mark.parametrize("with_, code", [("setsid", 0), ("nohup", 0), ("", 129)])
def test_a_terminal_that_closes_takes_a_job_along_that_is_not_detached_and_a_file_has_the_last_words(with_, code, marker, tmp_path):
    if with_ and not shutil.which(with_):
        pytest.skip(f"no {with_}")
    said, go = tmp_path / "said", tmp_path / "go"
    script = f"echo up; while [ ! -e {go} ]; do sleep 0.05; done; echo went on"
    ours, terminal = pty.openpty()

    def take_terminal():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    shell = subprocess.Popen(["bash", "--norc", "-i"], stdin=terminal, stdout=terminal, stderr=terminal, cwd=ROOT,
                             env=env_with(marker), preexec_fn=take_terminal)
    os.close(terminal)
    os.write(ours, f"{with_} sh -c '{HVDRUN} -np 1 sh -c \"{script}\"; echo code $?' >{said} 2>&1 </dev/null &\n".encode())
    try:
        wait_until(lambda: said.exists() and "up" in said.read_text(), "no rank")
    finally:
        os.close(ours)  # the terminal is gone: the kernel tells its session, and bash its jobs
        shell.wait(PATIENCE)
    if code == 0:
        go.touch()
        wait_until(lambda: "code " in said.read_text(), "no end")
        assert "[0]<stdout>:went on\n" in said.read_text() and said.read_text().endswith("code 0\n"), said.read_text()
    assert wait_until_gone(marker) == {}
    if code == 129:
        last = r"hvdrun: job failed after .*: hvdrun got SIGHUP; 1 rank was stopped; exit code 129\n"
        assert re.search(last, said.read_text()), said.read_text()


def test_a_reader_of_both_streams_that_takes_nothing_does_not_hold_the_job_and_files_have_it_all(marker, tmp_path):
    expected = {"stdout": "".join(f"{number + 1}\n" for number in range(50000)), "stderr": "last words\n"}

    def kept():
        files = [tmp_path / f"rank.{rank}" / stream for rank in range(2) for stream in expected]
        return [file.read_text() if file.exists() else "" for file in files] == [*expected.values()] * 2

    reader, writer = os.pipe()
    try:
        job = subprocess.Popen([HVDRUN, "--grace", "1", "--no-tags", "-np", "2", "--output-filename", tmp_path, "sh", "-c",
                                "seq 50000; echo last words >&2; exec sleep 1000"], stdin=subprocess.DEVNULL, stdout=writer,
                               stderr=writer, cwd=ROOT, env=env_with(marker))
        os.close(writer)
        wait_until(kept, "the files do not have it all")
        job.send_signal(signal.SIGTERM)
        assert job.wait(PATIENCE) == 143
    finally:
        os.close(reader)
    assert wait_until_gone(marker) == {}


def test_who_leaves_a_job_is_told_which_node_has_not_said_that_its_ranks_ended(marker):
    job = start("--grace", PATIENCE, "--reconnect-timeout", 1, "--rsh", EXECUTES, "-np", 1, "-H", "far:1", "sh", "-c",
                "echo up; exec sleep 1000", env=env_with(marker))
    read_until(job.stdout, "up")
    (rank,) = wait_until(lambda: [pid for pid, args in processes_with(marker).items() if args == "sleep 1000"], "no rank")
    agent = int(re.search(r"PPid:\s+(\d+)", pathlib.Path(f"/proc/{rank}/status").read_text())[1])
    os.kill(agent, signal.SIGSTOP)
    job.send_signal(signal.SIGINT)
    said = read_until(job.stderr, "once more")
    for signo in (signal.SIGTERM, signal.SIGINT):  # two of a kind may arrive as one
        job.send_signal(signo)
    said += read_until(job.stderr, "job failed after")
    os.kill(agent, signal.SIGCONT)
    assert job.wait(PATIENCE) == 130
    assert "hvdrun: far: it has not said that its ranks have ended; its agent ends them when it finds hvdrun gone, at the latest " \
           "after 36 s without a sign of life from here\n" in said, said
    assert wait_until_gone(marker) == {}


def few_files(count):
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


def test_a_node_that_may_not_open_enough_files_says_so_before_its_first_rank(marker):
    done = hvdrun("-np", 40, "echo", "ran", env=env_with(marker), preexec_fn=few_files(64))
    assert (done.returncode, done.stdout) == (242, "")
    assert re.search(r"^hvdrun: cannot start rank 0 on localhost: for 40 ranks about \d+ open files are needed, and the limit "
                     r"is 64 \(ulimit -Hn\); raise nofile in ", done.stderr), done.stderr
    assert wait_until_gone(marker) == {}


def test_ranks_that_are_not_refused_for_want_of_open_files_all_join():
    # 34 ranks with 3 descriptors each, and the agent's own. With a fourth for each they would be too many.
    done = hvdrun("-np", 34, *PYTHON, program("idle.py"), LIBHVD, "0", preexec_fn=few_files(137))
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"rank \d+ of 34 joined", done.stdout)) == 34


def most_ranks(limit, env):
    """How many ranks so many open files are enough for, as hvdrun says it; one more is refused."""

    def refused(ranks):
        done = hvdrun("-np", ranks, "echo", "ran", env=env, preexec_fn=few_files(limit))
        assert (done.returncode, done.stdout) == (242, ""), done.stderr
        return int(re.search(rf"for {ranks} ranks about (\d+) open files are needed, and the limit is {limit} ", done.stderr)[1])

    needed = refused(limit)
    per_rank = refused(limit + 1) - needed
    most = (limit - (needed - per_rank * limit)) // per_rank
    refused(most + 1)
    return most


@pytest.mark.parametrize("limit", [256, 1024, 4096])
def test_the_most_ranks_that_open_files_are_enough_for_start_and_one_more_is_refused(limit, marker):
    env = env_with(marker)
    most = most_ranks(limit, env)
    # Where there are few they also meet, for which a rank needs most.
    program_of_rank = [*PYTHON, program("idle.py"), LIBHVD, "0"] if limit == 256 else ["echo", "joined"]
    done = hvdrun("-np", most, *program_of_rank, env=env, preexec_fn=few_files(limit))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("joined") == most
    assert wait_until_gone(marker) == {}


def test_thousands_of_ranks_are_refused_for_want_of_open_files_or_not_at_all(marker):
    # To start them all takes a minute. So their program is one that is not there: the files are counted before that is seen.
    env, limit = env_with(marker), 20000
    done = hvdrun("-np", most_ranks(limit, env), "no-such-program", env=env, preexec_fn=few_files(limit))
    assert (done.returncode, done.stdout) == (127, ""), done.stderr
    assert wait_until_gone(marker) == {}


def test_a_node_raises_its_own_limit_on_open_files_and_not_that_of_its_ranks():
    done = hvdrun("-q", "--no-tags", "-np", 40, "sh", "-c", "ulimit -Sn",
                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 1000)))
    assert (done.returncode, done.stdout) == (0, "64\n" * 40), done.stderr


def test_a_terminal_of_20_columns_keeps_one_row_for_what_is_under_way():
    job = Terminal([HVDRUN, "check"], columns=20, lines=60, env=plain_env(), cwd=ROOT)
    assert job.finish() == 0
    assert not any(row.startswith("hvdrun:") for row in job.screen.all()), job.screen.all()[:5]
    job = Terminal([HVDRUN, "-np", 2, "sh", "-c", "echo a line that is longer than the terminal is wide"], columns=20,
                   env=plain_env(), cwd=ROOT)
    assert job.finish() == 0
    assert "".join(job.screen.all()).count("a line that is longer than the terminal is wide") == 2


class Tmux:
    """A shell with job control on a terminal."""

    def __init__(self, name, env):
        self.words = ["tmux", "-L", name]
        subprocess.run([*self.words, "-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "50", "bash --norc"], check=True,
                       env=env, cwd=ROOT)

    def type(self, *keys):
        subprocess.run([*self.words, "send-keys", *keys], check=True)

    def wait_for(self, pattern):
        deadline = time.monotonic() + PATIENCE
        while True:
            shown = subprocess.run([*self.words, "capture-pane", "-p", "-S", "-500"], check=True, capture_output=True, text=True).stdout
            if re.search(pattern, shown, re.M):
                return shown
            assert time.monotonic() < deadline, shown
            time.sleep(0.05)

    def end(self):
        subprocess.run([*self.words, "kill-server"], check=False)


def test_a_job_that_is_stopped_at_the_terminal_goes_on_in_the_foreground(marker, tmp_path):
    if not shutil.which("tmux"):
        pytest.skip("no tmux")
    script = tmp_path / "rank"
    script.write_text(f"echo up; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo went on; sleep {PATIENCE}\n")
    terminal = Tmux(f"hvd-test-{os.getpid()}", env_with(marker))
    try:
        terminal.type(f"{HVDRUN} -np 2 --rsh \"{EXECUTES.replace(chr(34), chr(92) + chr(34)).replace('$', chr(92) + '$')}\" "
                      f"-H localhost:1,a:1 sh {script}", "Enter")
        terminal.wait_for(r"^\[0\]<stdout>:up(.|\n)*^\[1\]<stdout>:up|^\[1\]<stdout>:up(.|\n)*^\[0\]<stdout>:up")
        terminal.type("C-z")
        terminal.wait_for("Stopped")
        (tmp_path / "go").touch()
        terminal.type("fg", "Enter")
        shown = terminal.wait_for(r"^\[0\]<stdout>:went on(.|\n)*^\[1\]<stdout>:went on|"
                                  r"^\[1\]<stdout>:went on(.|\n)*^\[0\]<stdout>:went on")
        assert "sign of life" not in shown
        terminal.type("C-c")
        terminal.wait_for(r"job failed after .*: hvdrun got SIGINT; 2 ranks were stopped; exit")
    finally:
        terminal.end()
    assert {pid: args for pid, args in wait_until_gone(marker).items() if "tmux" not in args} == {}


def test_an_intel_mask_of_the_node_is_handed_out(tmp_path):
    if os.path.isdir("/proc/driver/nvidia/gpus") or os.path.isdir("/sys/class/kfd/kfd/topology/nodes"):
        pytest.skip("this machine has GPUs of its own")
    env = {**os.environ, "ZE_AFFINITY_MASK": "0.0,0.1,1.0", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    env.pop("CUDA_VISIBLE_DEVICES", None)
    shown = ["sh", "-c", "echo $HVD_LOCAL_RANK $ZE_AFFINITY_MASK"]
    done = hvdrun("-q", "--no-tags", "-np", 2, "--gpus", "one", *shown, env=env)
    assert sorted(done.stdout.splitlines()) == ["0 0.0", "1 0.1"], done.stderr
    done = hvdrun("-q", "--no-tags", "-H", "localhost:2@2,0", *shown, env=env)
    assert sorted(done.stdout.splitlines()) == ["0 1.0,0.0", "1 1.0,0.0"], done.stderr
    done = hvdrun("-q", "--no-tags", "-np", 2, "--gpus", "none", *shown, env=env)
    assert sorted(done.stdout.splitlines()) == ["0 0.0,0.1,1.0", "1 0.0,0.1,1.0"], done.stderr


def test_a_host_file_is_there_for_scripts_that_call_mpirun(marker):
    script = "test -r $HVDRUN_HOSTFILE && cat $HVDRUN_HOSTFILE; echo at $HVDRUN_HOSTFILE"
    done = hvdrun("-q", "--no-tags", "--rsh", EXECUTES, "-H", "a:2,b:1", "sh", "-c", f"[ $RANK != 2 ] || {{ {script}; }}",
                  env=env_with(marker))
    hosts, path = done.stdout.split("at ")
    assert hosts == "a slots=2\nb slots=1\n", done.stderr
    assert wait_until_gone(marker) == {} and not os.path.exists(path.strip())


def test_torchrun_on_each_node_forms_one_job_without_flags_for_it():
    torchrun = pathlib.Path(sys.executable).with_name("torchrun")
    if not torchrun.exists():
        pytest.skip("no torchrun")
    done = hvdrun("-q", "--no-tags", "--rsh", EXECUTES, "-H", "a:1,b:1", torchrun, "--nproc-per-node", "1",
                  program("torch_sum.py"))
    assert sorted(done.stdout.splitlines()) == ["rank 0 of 2: 2.0", "rank 1 of 2: 2.0"], done.stderr


def test_a_check_of_more_hosts_than_the_fanout_reaches_them_all(marker):

    hosts = ",".join(f"n{i}" for i in range(20))
    done = hvdrun("check", "--json", "--fanout", 2, "--start-timeout", PATIENCE, "--rsh", EXECUTES, "-H", hosts,
                  env=env_with(marker))
    found = json.loads(done.stdout)
    assert done.returncode == found["exit_code"] == 0
    assert [host["reached"] for host in found["hosts"]] == [True] * 20
    # Of more than 16, each with the next.
    assert len(found["links"]) == 40 and all(link["error"] is None for link in found["links"])
    assert wait_until_gone(marker) == {}


@pytest.mark.parametrize("fanout", [64, 1], ids=["direct", "relayed"])
def test_a_node_with_another_processor_gets_its_own_agent(tmp_path, fanout):
    # What an installed wheel has. The other agent runs here too, and only differs from this one; only uname is told a lie.
    install = tmp_path / "install"
    install.mkdir()
    shutil.copy(HVDRUN, install / "hvdrun")
    own = shutil.copy(BIN / "hvdrun-agent", install / "hvdrun-agent")
    machine = os.uname().machine
    other = install / f"hvdrun-agent-{'x86_64' if machine == 'aarch64' else 'aarch64'}"
    other.write_bytes(pathlib.Path(own).read_bytes() + b"\0")
    lie = tmp_path / "lie"
    lie.mkdir()
    (lie / "uname").write_text(f"#!/bin/sh\necho {other.name.removeprefix('hvdrun-agent-')}\n")
    remote = tmp_path / "remote"
    remote.write_text(f'#!/bin/sh\nhost=$1; shift; export HOME={tmp_path}/$host\n[ $host = a ] || PATH={lie}:$PATH; exec "$@"\n')
    for program_file in (lie / "uname", remote):
        program_file.chmod(0o755)
    images = [hashlib.sha256(file.read_bytes()).hexdigest() for file in (pathlib.Path(own), other)]
    for pushed in (True, False):  # then from the nodes' caches
        done = subprocess.run(
            [install / "hvdrun", "--verbose", "--no-tags", "--fanout", str(fanout), "--start-timeout", str(PATIENCE), "--rsh",
             f"{remote} {{host}}", "-H", "a:1,b:1,c:1", "sh", "-c", "echo $RANK $(readlink /proc/$PPID/exe)"],
            capture_output=True, text=True, timeout=3 * PATIENCE, check=False)
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == [
            f"{rank} {tmp_path}/{host}/.cache/hvdrun/agent-{images[rank > 0]}" for rank, host in enumerate("abc")]
        assert ("pushing the agent" in done.stderr) == pushed, done.stderr


@pytest.mark.parametrize("wrapper, culprit", [
    (["env", "-i"], "a program in its command, as env -i,"),
    (["sh", "-c", '"$@" & wait $!', "sh", "env", "-i"], r"sh \(process \d+\)"),
])
def test_ranks_whose_variables_are_dropped_on_the_way_say_so(wrapper, culprit, marker):
    done = hvdrun("-np", 2, *wrapper, *PYTHON, program("idle.py"), LIBHVD, "0", env=env_with(marker))
    assert done.returncode == 0, done.stderr
    assert len(re.findall("rank 0 of 1 joined", done.stdout)) == 2
    words = rf"<stderr>:hvd rank 0: warning: hvdrun has started 2 ranks, and this one runs alone: {culprit} has not passed on"
    assert len(re.findall(words, done.stderr)) == 2, done.stderr


def test_programs_that_are_no_ranks_hear_nothing_of_it(marker):
    for command in (["-np", 2, "env", "-i", "true"], ["-np", 1, "env", "-i", *PYTHON, program("idle.py"), LIBHVD, "0"]):
        done = hvdrun(*command, env=env_with(marker))
        assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
