"""hvdrun on this machine: placement, environment, output, exit codes, and the end of a job however it comes."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from hvdrun import (HVDRUN, PYTHON, ROOT, env_with, hvdrun, kill, processes_with, program, read_until, start,
                            wait_until_gone)
from patience import PATIENCE


def test_ranks_print_whole_tagged_lines():
    done = hvdrun("-np", 2, "sh", "-c", "echo out $HVD_RANK of $HVD_SIZE; echo err >&2")
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == ["[0]<stdout>:out 0 of 2", "[1]<stdout>:out 1 of 2"]
    assert sorted(done.stderr.splitlines())[:2] == ["[0]<stderr>:err", "[1]<stderr>:err"]
    assert "hvdrun: 2 ranks on 1 node succeeded in" in done.stderr


def test_quiet_says_nothing_of_a_good_job():
    done = hvdrun("-q", "-np", 1, "true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_rank_environment_is_the_union_that_frameworks_read():
    done = hvdrun("-q", "--no-tags", "-np", 2, "-x", "ADDED=a=b c", "sh", "-c", "if [ $RANK = 1 ]; then env; fi",
                  env={**os.environ, "WORLD_SIZE": "99", "OMPI_COMM_WORLD_RANK": "7", "KEPT": "yes"})
    env = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    expected = {"HVD_RANK": "1", "HVD_SIZE": "2", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1",
                "LOCAL_WORLD_SIZE": "2", "HOROVOD_RANK": "1", "HOROVOD_CROSS_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                "OMPI_COMM_WORLD_RANK": "1", "KEPT": "yes", "ADDED": "a=b c", "PYTHONUNBUFFERED": "1"}
    assert {name: env.get(name) for name in expected} == expected
    assert 0 < int(env["MASTER_PORT"]) < 65536
    assert not any("SECRET" in name for name in env)


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
    assert lines == ["[0]<stdout>:GPU-a,GPU-b", "[1]<stdout>:GPU-a,GPU-b"] and "GPU" not in err
    assert visible("--gpus", "one", "-H", "localhost:2@2,0", env=fake_gpus)[0] == ["[0]<stdout>:GPU-c",
                                                                                   "[1]<stdout>:GPU-a"]
    assert visible("--gpus", "none", "-np", 1, env=fake_gpus)[0] == ["[0]<stdout>:none"]
    assert visible("-np", 1, env={**fake_gpus, "CUDA_VISIBLE_DEVICES": "2"})[0] == ["[0]<stdout>:2"]
    assert visible("-np", 1, "-x", "CUDA_VISIBLE_DEVICES=7", env=fake_gpus)[0] == ["[0]<stdout>:7"]


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


def test_plan_starts_nothing_and_prints_the_placement():
    done = hvdrun("plan", "--json", "-np", 5, "-H", "a:2,b:3", "no-such-program")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    rows = [(r["rank"], r["local_rank"], r["cross_rank"], n["host"]) for n in plan["nodes"] for r in n["ranks"]]
    assert rows == [(0, 0, 0, "a"), (1, 1, 0, "a"), (2, 0, 1, "b"), (3, 1, 1, "b"), (4, 2, 0, "b")]
    assert plan["nodes"][1]["ranks"][0]["env"]["HOROVOD_LOCAL_SIZE"] == "3"


@pytest.mark.parametrize("arguments, message", [
    (["-np", "0", "true"], "expected 1 or more ranks"),
    (["-np", "2", "-H", "a:x", "true"], "host list, column 1: expected a number of slots"),
    (["-np", "3", "-H", "a:1,b:1", "true"], "3 ranks asked for (-np), but the hosts have 2 slots"),
    (["--hostfile", "/no/such/file", "true"], "cannot read the host file /no/such/file"),
    (["--hostfile", "/", "true"], "cannot read the host file /: Is a directory"),
    (["--gpus", "none", "-H", "a:2@0,1", "true"], "the host list names GPUs of a, and --gpus none leaves all alone"),
    (["--output-filename", "d", "--output-rotate", "10X", "true"], "--output-rotate '10X': expected a size"),
    (["--output-rotate", "10M", "true"], "--output-rotate says nothing without --output-filename"),
    (["-np", "2"], "no command given"),
    (["--no-such-flag", "true"], "--no-such-flag"),
    (["-x", "NO_SUCH_VARIABLE_HERE", "true"], "no such variable"),
    (["--jsrun", "true"], "--jsrun: LSF's jsrun is not supported"),
    (["--mpi-args", "--mca btl tcp", "true"], "--mpi-args and --binding-args are for mpirun"),
    (["--mpi", "--gloo", "true"], "give one"),
    (["--launcher", "mpi", "--rsh", "ssh", "true"], "mean nothing to mpirun"),
    (["--launcher", "mpi", "-H", "me@a:2:1", "true"], "user and port of a mean nothing to mpirun"),
    (["--launcher", "mpi", "--bind", "core", "--binding-args", "--bind-to core", "true"], "both bind the ranks"),
    (["--launcher", "mpi", "--mpi-args", "'open", "true"], "--mpi-args"),
    (["--launcher", "pbs", "true"], "--launcher"),
    (["--min-np=2", "true"], "elastic jobs are not supported yet"),
    (["--fusion-threshold-mb", "-1", "true"], "--fusion-threshold-mb: expected a whole number"),
    (["--log-level", "LOUD", "true"], "--log-level: expected TRACE"),
    (["--config-file", "/no/such/file", "true"], "cannot read the configuration file /no/such/file"),
])
def test_a_wrong_command_line_is_one_line_and_starts_nothing(arguments, message):
    done = hvdrun(*arguments)
    assert done.returncode == 240
    assert message in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_bad_hostfile_is_refused_with_its_place(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("# nodes\n\nnode1 slots=2\nnode2 slots=two\n")
    done = hvdrun("--hostfile", file, "true")
    assert done.returncode == 240
    assert f"{file}:4:7: expected a number" in done.stderr


def test_the_first_failing_rank_names_itself_and_gives_its_code(marker):
    script = "if [ $HVD_RANK = 1 ]; then echo why it failed >&2; exit 3; fi; sleep 1000"
    done = hvdrun("-np", 4, "sh", "-c", script, env=env_with(marker))
    assert done.returncode == 3
    assert re.search(r"^hvdrun: rank 1 on localhost \(pid \d+\) exited with code 3$", done.stderr, re.M)
    assert "hvdrun:   why it failed" in done.stderr
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
    agents = sorted(pid for pid, args in processes_with(marker).items() if "hvdrun-agent" in args)
    assert len(agents) == 2
    kill(agents[1] if which == "agent" else agents[0])
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode == 243, err
    cause = r"node localhost was lost, with ranks 0-1" if which == "agent" else \
        r"the agent on localhost ends, with ranks 0-1: its guardian was killed"
    assert re.match("hvdrun: " + cause, err), err  # before all that died of it
    assert wait_until_gone(marker) == {}


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
    assert "on localhost this tells: dmesg | grep -i 'killed process'" in done.stderr


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


def test_a_gone_reader_stops_the_job_as_it_would_a_filter(marker):
    job = subprocess.Popen(f"'{HVDRUN}' -np 2 yes; echo code $? >&2", shell=True, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, cwd=ROOT, env=env_with(marker))
    read_until(job.stdout, "y", 3)
    job.stdout.close()
    assert "code 141" in job.stderr.read()
    job.wait(PATIENCE)
    assert wait_until_gone(marker) == {}


def test_a_slow_reader_slows_the_ranks_and_memory_stays_bounded(marker):
    job = start("-np", 4, "yes", "0123456789" * 10, env=env_with(marker))
    read_until(job.stdout, "0123", 10)
    # Nobody reads now. When the ranks stand still, nothing more is buffered anywhere.
    ranks = [pid for pid, args in processes_with(marker).items() if args.startswith("yes")]
    assert len(ranks) == 4

    def written():
        return [open(f"/proc/{pid}/io").read().split("wchar: ")[1].split()[0] for pid in ranks]

    before = None
    while before != (before := written()):
        subprocess.run(["sleep", "0.3"], check=True)
    with open(f"/proc/{job.pid}/status", encoding="ascii") as status:
        peak_kb = int(re.search(r"VmHWM:\s+(\d+)", status.read()).group(1))
    job.stdout.close()
    job.stderr.close()
    job.wait(PATIENCE)
    assert peak_kb < 64 * 1024
    assert wait_until_gone(marker) == {}


def check_lines(text, name, ranks, count):
    expected = {f"[{r}]<std{name}>:{name} {r} {i} {'x' * (i % 90)} end" for r in range(ranks) for i in range(count)}
    lines = [line for line in text.splitlines() if not line.startswith("hvdrun: ")]
    assert len(lines) == len(expected)
    assert set(lines) == expected


def test_a_hundred_runs_of_ten_lines_lose_and_tear_nothing():
    for _ in range(100):
        done = hvdrun("-np", 2, *PYTHON, program("print_lines.py"), 10)
        assert done.returncode == 0
        check_lines(done.stdout, "out", 2, 10)
        check_lines(done.stderr, "err", 2, 10)


def test_ten_runs_of_fifty_thousand_lines_lose_and_tear_nothing():
    for _ in range(10):
        done = hvdrun("-np", 4, *PYTHON, program("print_lines.py"), 50000)
        assert done.returncode == 0
        check_lines(done.stdout, "out", 4, 50000)
        check_lines(done.stderr, "err", 4, 50000)


def test_output_is_kept_in_files_as_well(tmp_path):
    done = hvdrun("-np", 11, "--output-filename", tmp_path / "kept", "sh", "-c", "echo out; echo err >&2")
    assert done.returncode == 0 and done.stdout.count("<stdout>:out") == 11
    for rank in range(11):
        folder = tmp_path / f"kept/rank.{rank:02}"
        assert (folder / "stdout").read_text() == f"[{rank}]<stdout>:out\n"
        assert (folder / "stderr").read_text() == f"[{rank}]<stderr>:err\n"


def test_output_that_cannot_be_kept_is_told_and_the_job_goes_on(tmp_path):
    kept = tmp_path / "kept"
    script = f"echo one; rm -r {kept}; sleep 0.2; echo two; sleep 0.2; echo three"
    done = hvdrun("-np", 1, "--output-filename", kept, "sh", "-c", script)
    assert done.stdout == "[0]<stdout>:one\n[0]<stdout>:two\n[0]<stdout>:three\n"
    assert done.returncode == 244
    assert done.stderr.count("cannot write") == 1 and "not all of their output could be kept" in done.stderr
    (tmp_path / "file").write_text("")
    done = hvdrun("-np", 1, "--output-filename", tmp_path / "file", "echo", "ran")
    assert (done.returncode, done.stdout) == (244, "") and done.stderr.count("\n") == 1


def test_files_rotate_by_size_between_lines(tmp_path):
    done = hvdrun("-q", "-np", 2, "--no-tags", "--output-filename", tmp_path, "--output-rotate", "4K:3", "seq", 10000)
    assert done.returncode == 0
    for rank in (0, 1):
        folder = tmp_path / f"rank.{rank}"
        assert sorted(file.name for file in folder.glob("stdout*")) == ["stdout", "stdout.1", "stdout.2", "stdout.3"]
        assert all(3000 < (folder / f"stdout.{n}").stat().st_size <= 4096 for n in (1, 2, 3))
        kept = "".join((folder / name).read_text() for name in ("stdout.3", "stdout.2", "stdout.1", "stdout"))
        numbers = kept.splitlines()
        assert numbers == [str(n) for n in range(10001 - len(numbers), 10001)]


@pytest.mark.parametrize("problem", ["full disk", "rename"])
def test_a_file_that_cannot_be_written_or_renamed_does_not_stop_the_ranks(tmp_path, problem):
    folder = tmp_path / "rank.0"
    folder.mkdir()
    if problem == "full disk":
        (folder / "stdout").symlink_to("/dev/full")
    else:
        (folder / "stdout.1/in the way").mkdir(parents=True)
    done = hvdrun("-np", 2, "--output-filename", tmp_path, "--output-rotate", "100", "seq", 1000)
    assert done.returncode == 244
    assert len(done.stdout.splitlines()) == 2000
    said = "cannot write" if problem == "full disk" else "cannot rename"
    assert done.stderr.count(f"{said} {folder}/stdout") == 1 and done.stderr.count("hvdrun: ") == 2
    assert (tmp_path / "rank.1/stdout").read_text().endswith("[1]<stdout>:1000\n")


def test_a_console_that_is_full_is_told_by_the_exit_code():
    with open("/dev/full", "w") as full:
        done = hvdrun("-np", 1, "echo", "x", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 244
    assert "cannot write to standard output: No space left on device; exit code 244" in done.stderr


def test_lines_may_begin_with_the_time_and_tags_be_coloured():
    done = hvdrun("-np", 1, "--prefix-output-with-timestamp", "--color", "always", "echo", "x")
    assert re.fullmatch(r"\x1b\[36m\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\[0\]<stdout>:\x1b\[0mx\n", done.stdout)
    assert "\x1b" not in hvdrun("-np", 1, "echo", "x").stdout


def test_a_job_that_runs_too_long_is_stopped(marker):
    done = hvdrun("-np", 2, "--timeout", 1, "sleep", 60, env=env_with(marker))
    assert done.returncode == 124 and "--timeout" in done.stderr
    assert wait_until_gone(marker) == {}


def test_a_traceback_is_in_the_report():
    done = hvdrun("-np", 1, "--no-tags", *PYTHON, "-c", "def deep(n): return deep(n - 1) if n else 1 / 0\ndeep(15)")
    assert done.returncode == 1
    report = done.stderr[done.stderr.index("hvdrun: rank 0"):]
    assert "hvdrun:   Traceback (most recent call last):" in report and "hvdrun:   ZeroDivisionError" in report
    assert "\nhvdrun: ZeroDivisionError: division by zero, <string>:1 in deep\n" in report


def test_a_failure_says_where_all_output_is(tmp_path):
    done = hvdrun("-np", 11, "--output-filename", tmp_path, "sh", "-c", "exit $((HVD_RANK == 3))")
    assert f"\nhvdrun: all that it printed is in {tmp_path}/rank.03\n" in done.stderr


SETTINGS = """
params:
  fusion_threshold_mb: 32
  cycle_time_ms: 2.5
stall_check:
  enabled: no
logging:
  level: INFO
  with_timestamp: false
"""


def variables(*arguments, **options):
    done = hvdrun("-q", "--no-tags", *arguments, "env", **options)
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def test_settings_come_from_flags_then_the_file_then_the_environment(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text(SETTINGS)
    inherited = {**os.environ, "HOROVOD_CYCLE_TIME": "9", "HOROVOD_CACHE_CAPACITY": "7"}
    env = variables("-np", 1, "--config-file", file, "--fusion-threshold-mb", 1, "--num-nccl", 2, "--log-hide-timestamp",
                    "--network-interface", "eth0,eth1", "--tcp", "--gloo", "-x", "HOROVOD_LOG_LEVEL=ERROR", env=inherited)
    expected = {"HOROVOD_FUSION_THRESHOLD": "1048576", "HOROVOD_CYCLE_TIME": "2.5", "HOROVOD_CACHE_CAPACITY": "7",
                "HOROVOD_STALL_CHECK_DISABLE": "1", "HOROVOD_LOG_LEVEL": "ERROR", "HOROVOD_LOG_HIDE_TIME": "1",
                "HOROVOD_NUM_NCCL_STREAMS": "2", "NCCL_SOCKET_IFNAME": "eth0,eth1", "NCCL_IB_DISABLE": "1"}
    assert {name: env.get(name) for name in expected} == expected
    assert "HOROVOD_AUTOTUNE" not in env


@pytest.mark.parametrize("text, message", [
    ("params:\n  fusion_threshold: 3\n", "settings.yaml:2:3: unknown setting 'params.fusion_threshold'"),
    ("params:\n  cache_capacity: many\n", "settings.yaml:2:19: params.cache_capacity: expected a whole number"),
    ("parms: 3\n", "settings.yaml:1:1: unknown section 'parms'"),
    ("params: [1\n", "settings.yaml:2:1:"),
    ("params: {cycle_time_ms: 1, cycle_time_ms: 2}\n", "given twice"),
    ("controller: mpi\n", "no MPI controller"),
    ("- a\n", "settings.yaml:1:1: expected sections"),
])
def test_a_bad_settings_file_is_refused_with_its_place(tmp_path, text, message):
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    done = hvdrun("-np", 1, "--config-file", file, "echo", "ran")
    assert (done.returncode, done.stdout) == (240, "")
    assert message in done.stderr and done.stderr.count("\n") == 1


def test_flags_of_the_command_are_its_own():
    done = hvdrun("-q", "--no-tags", "-np", 1, "echo", "-np", "4", "--mpi", "-hostfile", "x")
    assert done.stdout == "-np 4 --mpi -hostfile x\n"


def test_bytes_that_are_no_text_pass_unharmed():
    done = hvdrun("-q", "-np", 1, "printf", r"\377\000bad\nlast without newline", text=False)
    assert done.stdout == b"[0]<stdout>:\xff\x00bad\n[0]<stdout>:last without newline\n"


def test_check_build_tells_what_is_there():
    done = hvdrun("--check-build")
    assert done.returncode == 0
    assert "[X] local" in done.stdout and "[ ] NCCL" in done.stdout


def test_the_version_is_the_packages():
    assert hvdrun("--version").stdout.startswith("hvdrun 0.")
    assert re.search(r"^usage: hvdrun", hvdrun("--help").stdout)
