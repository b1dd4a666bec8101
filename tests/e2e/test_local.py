"""hvdrun on this machine: environment, GPUs, processors, and the end of a job however it comes."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile

import pytest

from hvdrun import (HVDRUN, PYTHON, env_with, guardian_and_agent, hvdrun, kill, processes_with, program, read_until, start,
                    wait_until_gone, without_progress)
from lab import wait_until
from patience import PATIENCE


def test_the_rank_environment_is_the_union_that_frameworks_read():
    done = hvdrun("-q", "--no-tags", "-np", 2, "-x", "ADDED=a=b c", "sh", "-c", "if [ $RANK = 1 ]; then env; fi",
                  env={**os.environ, "WORLD_SIZE": "99", "OMPI_COMM_WORLD_RANK": "7", "KEPT": "yes",
                       "PYTHONFAULTHANDLER": "0", "JAX_PROCESS_ID": "9"})
    env = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    expected = {"HVD_RANK": "1", "HVD_SIZE": "2", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1",
                "LOCAL_WORLD_SIZE": "2", "HOROVOD_RANK": "1", "HOROVOD_CROSS_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                "JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "2", "PYTHONFAULTHANDLER": "0",
                "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "OMPI_COMM_WORLD_RANK": "1", "KEPT": "yes", "ADDED": "a=b c",
                "PYTHONUNBUFFERED": "1"}
    assert {name: env.get(name) for name in expected} == expected
    assert 0 < int(env["MASTER_PORT"]) < 65536
    assert env["JAX_COORDINATOR_ADDRESS"] == f"127.0.0.1:{env['MASTER_PORT']}"
    assert not any("SECRET" in name for name in env)


MASTER_PORT_OF_A_RANK = """
import os, socket
port = int(os.environ["MASTER_PORT"])
try:
    socket.socket().bind(("", port))
    print("somebody else can take it")
except OSError:
    pass
for family, address in (socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"):
    server = socket.socket(family)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    server.listen()
    socket.create_connection(("127.0.0.1", port)).close()
    server.accept()[0].close()
    server.close()
print("served")
"""


def test_the_master_port_stays_the_ranks_own_until_one_listens_there():
    # torch listens there seconds after the start; meanwhile a connection of any program could be given the port
    done = hvdrun("-q", "--no-tags", "-np", 1, *PYTHON, "-c", MASTER_PORT_OF_A_RANK)
    assert (done.stdout, done.returncode) == ("served\n", 0)


def test_ranks_inherit_no_descriptors():
    done = hvdrun("-q", "--no-tags", "-np", 1, "sh", "-c", "ls /proc/self/fd")
    # 0, 1, 2 and the one with which ls reads the directory
    assert done.stdout.split() == ["0", "1", "2", "3"]


@pytest.fixture
def fake_gpus(tmp_path):
    """An environment in which nvidia-smi knows three GPUs, as on a machine whose driver has no files in /proc."""
    if os.path.isdir("/proc/driver/nvidia/gpus"):
        pytest.skip("this machine has GPUs of its own")
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\nfor i in a b c; do echo \"GPU 0: NVIDIA H200 (UUID: GPU-$i)\"; done\n")
    smi.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return {**environment, "PATH": f"{tmp_path}:{environment['PATH']}"}


def visible(*arguments, env):
    done = hvdrun(*arguments, "sh", "-c", "echo ${CUDA_VISIBLE_DEVICES-none}", env=env)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines()), done.stderr


def test_ranks_see_the_gpus_of_their_job(fake_gpus):
    lines, err = visible("-np", 2, env=fake_gpus)
    assert lines == ["[0]<stdout>:none", "[1]<stdout>:none"] and "GPU" not in err  # all that the node has
    assert visible("-H", "localhost:2@2,0", env=fake_gpus)[0] == ["[0]<stdout>:GPU-c,GPU-a", "[1]<stdout>:GPU-c,GPU-a"]
    assert visible("--gpus", "one", "-H", "localhost:2@2,0", env=fake_gpus)[0] == ["[0]<stdout>:GPU-c",
                                                                                   "[1]<stdout>:GPU-a"]
    assert visible("--gpus", "none", "-np", 1, env=fake_gpus)[0] == ["[0]<stdout>:none"]
    assert visible("-np", 1, env={**fake_gpus, "CUDA_VISIBLE_DEVICES": "2"})[0] == ["[0]<stdout>:2"]
    assert visible("-np", 1, "-x", "CUDA_VISIBLE_DEVICES=7", env=fake_gpus)[0] == ["[0]<stdout>:7"]
    done = hvdrun("-np", 2, "--gpus", "one", "-x", "CUDA_VISIBLE_DEVICES=0,1", "true", env=fake_gpus)
    assert done.returncode == 240 and "--gpus one only one; name them in the host list" in done.stderr


def test_one_machine_under_two_names_whose_gpus_would_be_given_out_twice_is_told(fake_gpus):
    done = hvdrun("-H", "localhost:1,127.0.0.1:1", "true", env=fake_gpus)
    assert done.returncode == 0, done.stderr
    assert "hvdrun: localhost and 127.0.0.1 are one machine (" in done.stderr
    assert "are one machine" not in hvdrun("-H", "localhost:1,127.0.0.1:1", "--gpus", "none", "true", env=fake_gpus).stderr


def processors_of_ranks(*arguments):
    """The processors that each of two ranks may run on, and its OMP_NUM_THREADS."""
    code = "import os; print(*sorted(os.sched_getaffinity(0)), '/', os.environ['OMP_NUM_THREADS'])"
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = hvdrun("-np", 2, "-q", *arguments, *PYTHON, "-c", code, env=environment)
    assert done.returncode == 0, done.stderr
    found = {}
    for rank, cpus, threads in re.findall(r"\[(\d)\]<stdout>:([\d ]+) / (\d+)", done.stdout):
        found[int(rank)] = ({int(cpu) for cpu in cpus.split()}, int(threads))
    return found[0], found[1]


def test_ranks_are_bound_to_processors():
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("one processor is all there is")
    for cpus, threads in processors_of_ranks():
        assert (cpus, threads) == (allowed, len(allowed) // 2)
    first, second = processors_of_ranks("--bind", "numa")
    assert first[0] | second[0] == allowed
    first, second = processors_of_ranks("--bind", "core")
    assert first[0] <= allowed and second[0] <= allowed and first[0] and second[0]
    cores = {tuple(sorted(allowed & siblings_of(cpu))) for cpu in allowed}
    assert len(cores) == 1 or not first[0] & second[0]
    assert (first[1], second[1]) == (len(first[0]), len(second[0]))


def siblings_of(cpu):
    with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") as file:
        parts = [part.split("-") for part in file.read().strip().split(",")]
    return {number for part in parts for number in range(int(part[0]), int(part[-1]) + 1)}


def test_binding_is_told_in_verbose_words():
    done = hvdrun("-np", 1, "--verbose", "--bind", "core", "true")
    assert re.search(r"localhost: rank 0 is bound to processors [\d,-]+$", done.stderr, re.M)


def test_gpus_that_are_shared_or_not_there_are_told(fake_gpus):
    lines, err = visible("--gpus", "one", "-np", 4, env=fake_gpus)
    assert lines == [f"[{rank}]<stdout>:GPU-{'abca'[rank]}" for rank in range(4)]
    assert "hvdrun: 4 ranks on localhost for 3 GPUs: ranks 0,3 share GPU-a;" in err
    done = hvdrun("-H", "localhost:1@3", "echo", "ran", env=fake_gpus)
    assert (done.returncode, done.stdout) == (242, "")
    assert "localhost has GPUs 0-2, and the host list names GPU 3" in done.stderr


def test_the_first_failing_rank_names_itself_and_gives_its_code(marker):
    script = "if [ $HVD_RANK = 1 ]; then echo why it failed >&2; exit 3; fi; sleep 1000"
    done = hvdrun("-np", 4, "sh", "-c", script, env=env_with(marker))
    assert done.returncode == 3
    assert re.search(r"^hvdrun: rank 1 on localhost \(pid \d+\) exited with code 3$", done.stderr, re.M)
    assert done.stderr.count("why it failed") == 1  # the user has just seen it
    assert "3 other ranks were stopped; exit code 3" in done.stderr.splitlines()[-1]
    assert wait_until_gone(marker) == {}


def test_a_rank_killed_by_a_signal_gives_128_plus_its_number(marker):
    job = start("-np", 3, *PYTHON, program("family.py"), env=env_with(marker))
    read_until(job.stdout, "up", 3)
    victim = next(pid for pid, args in processes_with("HVD_RANK=1\0").items()
                  if "family.py" in args and pid in processes_with(marker))
    kill(victim)
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 137
    assert "hvdrun: rank 1 on localhost" in err and "was killed by signal 9 (SIGKILL)" in err
    assert wait_until_gone(marker) == {}


@pytest.mark.parametrize("which", ["agent", "guardian"])
def test_a_killed_agent_leaves_nothing_and_is_named(marker, which):
    job = start("-np", 2, *PYTHON, program("family.py"), env=env_with(marker))
    read_until(job.stdout, "up", 2)
    guardian, agent = guardian_and_agent(marker)
    kill(agent if which == "agent" else guardian)
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 243, err
    cause = r"node localhost was lost, with ranks 0-1" if which == "agent" else \
        r"the agent on localhost ends, with ranks 0-1: its guardian was killed"
    assert re.match("hvdrun: " + cause, without_progress(err)), err  # before all that died of it
    assert wait_until_gone(marker) == {}


def test_a_folder_whose_agent_and_guardian_were_killed_at_once_is_removed_by_the_next_agent(marker):
    def sleeping(env):
        job = start("-np", 1, "sh", "-c", "echo up; exec sleep 1000", env=env)
        read_until(job.stdout, "up", 1)
        return job

    with tempfile.TemporaryDirectory() as folder:  # not tmp_path, which is too long for the path of a socket
        env = env_with(marker, TMPDIR=folder)
        job = sleeping(env)
        both = guardian_and_agent(marker)
        for signo in (signal.SIGSTOP, signal.SIGKILL):  # so that neither sees the other's death
            for pid in both:
                os.kill(pid, signo)
        job.communicate(timeout=PATIENCE)
        assert job.returncode == 243 and wait_until_gone(marker) == {}
        (left,) = os.listdir(folder)
        others = {"hvdrun-abcdef": None, "hvdrun-ghijkl": "another-host", "hvdrun-job-1": pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()}
        for name, owner in others.items():
            (pathlib.Path(folder) / name).mkdir()
            if owner:
                (pathlib.Path(folder) / name / "owner").write_text(owner)
        job = sleeping(env)
        wait_until(lambda: left not in os.listdir(folder), "the folder stays")
        (own,) = set(os.listdir(folder)) - set(others)
        assert hvdrun("-np", 1, "true", env=env).returncode == 0
        wait_until(lambda: set(os.listdir(folder)) == {own, *others}, "the folder of the running job has gone, or another one stays")
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=PATIENCE)
        wait_until(lambda: set(os.listdir(folder)) == set(others), "a folder stays")


def test_a_killed_launcher_leaves_nothing(marker):
    job = start("-np", 2, *PYTHON, program("family.py"), env=env_with(marker))
    read_until(job.stdout, "up", 2)
    kill(job.pid)
    job.wait(PATIENCE)
    assert wait_until_gone(marker) == {}


@pytest.mark.parametrize("signo, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signalled_launcher_stops_its_ranks(marker, signo, code):
    job = start("-np", 2, *PYTHON, program("family.py"), env=env_with(marker))
    read_until(job.stdout, "up", 2)
    job.send_signal(signo)
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == code
    assert f"hvdrun got {signal.Signals(signo).name}" in err
    assert wait_until_gone(marker) == {}


def test_a_second_signal_kills_at_once(marker):
    stubborn = "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (2, 15)]; print('up', flush=True); time.sleep(1000)"
    job = start("-np", 2, "--grace", 1000, *PYTHON, "-c", stubborn, env=env_with(marker))
    read_until(job.stdout, "up", 2)
    job.send_signal(signal.SIGINT)
    read_until(job.stderr, "hvdrun got SIGINT")
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=PATIENCE)
    assert job.returncode == 130
    assert wait_until_gone(marker) == {}


def test_ranks_that_ignore_sigterm_are_killed_after_the_grace_time(marker):
    stubborn = "import os, signal, time; signal.signal(15, signal.SIG_IGN); os.environ['HVD_RANK'] == '0' and os._exit(5); time.sleep(1000)"
    done = hvdrun("-np", 3, "--grace", 0.5, *PYTHON, "-c", stubborn, env=env_with(marker))
    assert done.returncode == 5
    assert wait_until_gone(marker) == {}


# The program behind a script, which the signal ends at once. A second signal would keep the program from saving what it has.
SAVES = """
import signal, sys, time
def save(*_):
    for signo in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signo, signal.SIG_DFL)
    time.sleep(4)
    print("saved", flush=True)
    sys.exit()
for signo in (signal.SIGTERM, signal.SIGINT):
    signal.signal(signo, save)
print("up", file=sys.stderr, flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("holds_pipe", [True, False])
def test_a_program_behind_a_script_has_the_time_of_grace(signo, holds_pipe, marker, tmp_path):
    (tmp_path / "saves.py").write_text(SAVES)
    to = "" if holds_pipe else f">{tmp_path}/$HVD_RANK 2>{tmp_path}/err.$HVD_RANK"
    job = start("-np", 2, "--grace", PATIENCE, "sh", "-c", f"{PYTHON[0]} -S {tmp_path}/saves.py {to}; echo never", env=env_with(marker))
    if holds_pipe:
        read_until(job.stderr, "up", 2)
    else:
        wait_until(lambda: all("up" in file.read_text() for file in tmp_path.glob("err.*")) and len(list(tmp_path.glob("err.*"))) == 2,
                   "the programs do not run")
    job.send_signal(signo)
    out, err = job.communicate(timeout=PATIENCE)
    out += "".join((tmp_path / name).read_text() for name in ("0", "1") if not holds_pipe)
    assert job.returncode == 128 + signo
    assert out.count("saved") == 2 and "never" not in out, err
    assert wait_until_gone(marker) == {}


def test_a_second_signal_kills_at_once_also_what_a_script_has_left(marker):
    stubborn = "import signal, time; [signal.signal(s, lambda *_: print('heard', flush=True)) for s in (2, 15)]; print('up', flush=True)\nwhile True: time.sleep(1)"
    job = start("-np", 2, "--grace", 1000, "sh", "-c", f'{PYTHON[0]} -S -c "{stubborn}"; echo never', env=env_with(marker))
    read_until(job.stdout, "up", 2)
    job.send_signal(signal.SIGTERM)
    read_until(job.stdout, "heard", 2)
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=PATIENCE)
    assert job.returncode == 143
    assert wait_until_gone(marker) == {}


def test_what_a_good_rank_left_behind_is_ended(marker):
    done = hvdrun("-np", 1, "sh", "-c", "setsid sleep 1000 & sleep 1001 & exit 0", env=env_with(marker))
    assert done.returncode == 0
    assert wait_until_gone(marker) == {}


@pytest.fixture
def small_memory():
    """A command prefix under which a process may use 64 MiB."""
    folder = pathlib.Path(f"/sys/fs/cgroup/memory/hvd-test-{os.getpid()}")
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no memory limit can be set here: {error}")
    try:
        (folder / "memory.limit_in_bytes").write_text(str(64 << 20))
        yield ["sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "-"]
    finally:
        wait_until(lambda: not (folder / "cgroup.procs").read_text(), "somebody is left in it")
        folder.rmdir()


def test_a_rank_that_the_kernel_killed_for_lack_of_memory_is_told_so(small_memory):
    done = hvdrun("-np", 1, *small_memory, *PYTHON, "-c", "x = bytearray(500 << 20)")
    assert done.returncode == 137
    assert re.search(r"killed by signal 9 \(SIGKILL\)|Killed process", done.stderr) and "out of memory" in done.stderr


def test_the_memory_cgroup_tells_of_the_kernels_kill_where_the_kernels_log_does_not(small_memory):
    # In a namespace of its own the numbers of the kernel's log mean other processes.
    apart = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*apart, "true"], capture_output=True, timeout=PATIENCE).returncode != 0:
        pytest.skip("no process namespace can be made here")
    command = [*small_memory, *apart, HVDRUN, "-np", "1", *PYTHON, "-c", "x = bytearray(500 << 20)"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 137
    assert re.search(r"was killed by signal 9 \(SIGKILL\) by the kernel: out of memory$", done.stderr, re.M)
    assert re.search(r"so counts its memory cgroup, in /sys/fs/cgroup/memory/hvd-test-\d+/memory.oom_control$", done.stderr, re.M)


def test_a_kill_that_nobody_explains_says_how_to_see_whether_it_was_the_kernel():
    done = hvdrun("-np", 1, "sh", "-c", "kill -9 $$")
    assert done.returncode == 137 and "by the kernel: out of memory" not in done.stderr
    assert "on localhost try: dmesg | grep -i 'killed process'" in done.stderr


def test_a_core_dump_is_told_with_its_place(tmp_path):
    pattern = pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip()
    done = hvdrun("-np", 1, "sh", "-c", "ulimit -c unlimited; kill -SEGV $$", cwd=tmp_path)
    assert done.returncode == 139 and "was killed by signal 11 (SIGSEGV)" in done.stderr
    if "core dumped" not in done.stderr or "%" in pattern:
        pytest.skip("no core is dumped here, or not to a plain file")
    place = re.search("hvdrun: its core dump was written on localhost: (in|handed to) (.*)", done.stderr)
    assert place and (place.group(1) == "handed to" or os.path.exists(place.group(2))), done.stderr


def test_a_missing_program_is_told_once():
    done = hvdrun("-np", 4, "no-such-program")
    assert done.returncode == 127
    assert "no such program: 'no-such-program' in PATH" in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_missing_script_is_told_before_any_rank_runs():
    done = hvdrun("-np", 4, *PYTHON, "no_such_script.py")
    assert done.returncode == 127
    assert "no such script: '" in done.stderr and "no_such_script.py'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_job_that_runs_too_long_is_stopped(marker):
    done = hvdrun("-np", 2, "--timeout", 1, "sleep", 60, env=env_with(marker))
    assert done.returncode == 124 and "--timeout" in done.stderr
    assert wait_until_gone(marker) == {}


@pytest.mark.parametrize("flags, is_quoted", [(["-np", 1, "--no-tags"], False), (["-np", 2, "--gather"], True)])
def test_a_traceback_is_in_the_report_unless_it_stands_right_above(flags, is_quoted):
    fails = "def deep(n): return deep(n - 1) if n else 1 / 0\nimport os, time\ndeep(15) if os.environ['RANK'] == '0' else time.sleep(1000)"
    done = hvdrun(*flags, *PYTHON, "-c", fails)
    assert done.returncode == 1
    report = done.stderr[done.stderr.index("hvdrun: rank 0"):]
    assert ("hvdrun:   Traceback (most recent call last):" in report) == is_quoted
    assert ("hvdrun:   ZeroDivisionError" in report) == is_quoted
    assert "\nhvdrun: ZeroDivisionError: division by zero, <string>:1 in deep\n" in report


def test_a_failure_says_where_all_output_is(tmp_path):
    done = hvdrun("-np", 11, "--output-filename", tmp_path, "sh", "-c", "exit $((HVD_RANK == 3))")
    assert f"\nhvdrun: all that it printed is in {tmp_path}/rank.03\n" in done.stderr
