"""hvdrun --launcher mpi, with the real Open MPI: all that holds over SSH holds here, and the ranks are ranks of MPI."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest

from hvdrun import (
    BIN,
    LIBHVD,
    PYTHON,
    ROOT,
    env_with,
    hvdrun,
    kill,
    processes_with,
    program,
    read_until,
    start,
    wait_until_gone,
)
from patience import PATIENCE

pytestmark = pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun on this machine")
needs_mpi4py = pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="no mpi4py in this Python")
MPIRUN = "^(mpirun|prterun) "  # Open MPI 5's goes over into prterun
MPI_RANK = [sys.executable, program("mpi_rank.py")]


def mpi(*arguments, **options):
    return hvdrun("--launcher", "mpi", *arguments, **options)


def is_open_mpi_4():
    return "(Open MPI) 4." in subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout


def own_words(done):
    return [line for line in done.stderr.splitlines() if line.startswith("hvdrun: ")]


def test_ranks_print_whole_tagged_lines_and_mpirun_prints_none():
    done = mpi("-np", 2, "sh", "-c", "echo out $HVD_RANK of $HVD_SIZE; echo err >&2")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0]<stdout>:out 0 of 2", "[1]<stdout>:out 1 of 2"]
    lines = sorted(done.stderr.splitlines())
    assert lines[:2] == ["[0]<stderr>:err", "[1]<stderr>:err"]
    assert len(lines) == 3 and lines[2].startswith("hvdrun: 2 ranks on 1 node succeeded in")


def test_the_rank_environment_is_ours_and_open_mpis():
    # What an mpirun around hvdrun would have left is not what the ranks get.
    outer = {"WORLD_SIZE": "99", "OMPI_COMM_WORLD_RANK": "7", "PMIX_RANK": "7", "OMPI_MCA_ess": "env", "KEPT": "yes",
             "OMPI_MCA_btl_tcp_if_include": "lo"}
    done = mpi("-q", "--no-tags", "-np", 2, "-x", "ADDED=a=b c", "sh", "-c", "if [ $RANK = 1 ]; then env; fi",
               env={**os.environ, **outer})
    assert done.returncode == 0, done.stderr
    env = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    expected = {"HVD_RANK": "1", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "HOROVOD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_RANK": "1",
                "KEPT": "yes", "ADDED": "a=b c", "OMPI_MCA_btl_tcp_if_include": "lo", "PYTHONUNBUFFERED": "1"}
    assert {name: env.get(name) for name in expected} == expected
    # The real one, by which ranks of MPI find their mpirun; Open MPI 5 says it to PMIx alone.
    uri = env.get("OMPI_MCA_orte_hnp_uri") or env["PMIX_SERVER_URI4"]
    assert re.fullmatch(r"[^;]+\.0;tcp.*", uri) and "PMIX_NAMESPACE" in env
    assert not any("SECRET" in name for name in env)


@pytest.mark.parametrize("words", [["--mpi-args=--oversubscribe"], ["--binding-args", "--bind-to none"]])
def test_words_for_mpirun_alone_mean_mpirun(words):
    """Many scripts for horovodrun, NVIDIA's recipes among them, give them without --mpi."""
    done = hvdrun("-q", "--no-tags", "-np", 2, "-H", "localhost:2", *words, "nice", "-n", 1, "--", "sh", "-c",
                  "echo ${PMIX_NAMESPACE+rank of MPI}")  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "rank of MPI\n" * 2), done.stderr


def test_settings_of_pmix_reach_the_ranks():
    done = mpi("-q", "--no-tags", "-np", 1, "sh", "-c", "echo $PMIX_MCA_gds", env={**os.environ, "PMIX_MCA_gds": "hash"})
    assert (done.returncode, done.stdout) == (0, "hash\n"), done.stderr


def test_no_command_line_holds_the_secret_and_no_agent_keeps_it(marker):
    with start("--launcher", "mpi", "-np", 2, "sh", "-c", "echo up; sleep 1000", env=env_with(marker)) as job:
        read_until(job.stdout, "up", 2)
        mpirun = pids_of(marker, MPIRUN)[0]
        environ = pathlib.Path(f"/proc/{mpirun}/environ").read_bytes()
        secret = re.search(rb"HVD_CALL_SECRET=([0-9a-f]{64})", environ)[1]
        for pid, args in processes_with(marker).items():
            assert secret.decode() not in args
            if not re.match(MPIRUN, args):
                assert secret not in pathlib.Path(f"/proc/{pid}/environ").read_bytes(), args
        job.send_signal(signal.SIGTERM)
    assert wait_until_gone(marker) == {}


@needs_mpi4py
def test_ranks_are_ranks_of_mpi():
    done = mpi("-np", 4, *MPI_RANK)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{i}]<stdout>:rank {i} of 4 sums 10" for i in range(4)]


@pytest.mark.skipif(BIN != ROOT / "build/bin" or not (ROOT / "build/venv/bin/python").exists(),
                    reason="not the build that scripts/build makes")
def test_ranks_of_horovod_meet_as_everywhere():
    code = ("import torch, horovod.torch as hvd; hvd.init(); "
            "print(hvd.rank(), hvd.local_rank(), hvd.allreduce(torch.ones(2) * (hvd.rank() + 1), op=hvd.Sum).tolist())")
    done = mpi("-np", 3, ROOT / "build/venv/bin/python", "-c", code, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{i}]<stdout>:{i} {i} [6.0, 6.0]" for i in range(3)]


def test_forty_thousand_lines_of_four_ranks_are_whole_and_apart(tmp_path):
    count = 10_000
    done = mpi("-q", "-np", 4, "--output-filename", tmp_path, *PYTHON, program("print_lines.py"), count)
    assert done.returncode == 0, done.stderr[-2000:]
    for name, text in (("out", done.stdout), ("err", done.stderr)):
        lines = text.splitlines()
        assert len(lines) == 4 * count
        for rank in range(4):
            tag = f"[{rank}]<std{name}>:"
            own = [line.removeprefix(tag) for line in lines if line.startswith(tag)]
            assert own == [f"{name} {rank} {i} {'x' * (i % 90)} end" for i in range(count)]
            assert (tmp_path / f"rank.{rank}/std{name}").read_text().splitlines() == [tag + line for line in own]


def test_the_first_failing_rank_names_itself_and_gives_its_code(marker):
    done = mpi("-np", 4, *PYTHON, program("family.py"), 2, 3, env=env_with(marker))
    assert done.returncode == 3
    assert re.match(r"hvdrun: rank 2 on localhost \(pid \d+\) exited with code 3", own_words(done)[0])
    assert not any(line.startswith("mpirun:") for line in done.stderr.splitlines())
    assert wait_until_gone(marker) == {}


@needs_mpi4py
@pytest.mark.parametrize("how, code, words", [("exit", 5, "exited with code 5"), ("abort", 7, "exited with code 7"),
                                              ("kill", 137, r"was killed by signal 9 \(SIGKILL\)")])
def test_a_rank_that_fails_while_others_wait_in_mpi_is_the_one_that_is_named(marker, how, code, words):
    done = mpi("-np", 4, *MPI_RANK, how, 1, env=env_with(marker))
    assert done.returncode == code, done.stderr
    assert re.match(rf"hvdrun: rank 1 on localhost \(pid \d+\) {words}", own_words(done)[0])
    assert wait_until_gone(marker) == {}


@needs_mpi4py
def test_a_job_of_part_of_mpis_ranks_names_who_left_it_as_hvdrun_numbers_ranks(marker):
    code = ("import array, os, time; from horovod.common import _lib, basics; from mpi4py import MPI\n"
            "me = MPI.COMM_WORLD.Get_rank()\n"
            "basics.init(comm=[0, 1] if me < 2 else [2, 3])\n"
            "given, sums = (array.array('f', [1.0]) * 4 for _ in range(2))\n"
            "plan = _lib.Plan(_lib.ALLREDUCE, _lib.FLOAT32, (4,), 'gradient')\n"
            "while me >= 2:\n"
            "    if plan.execute(given.buffer_info()[0], sums.buffer_info()[0]): os._exit(5)\n"
            "    if me == 3: basics.shutdown(); break\n"
            "time.sleep(1000)\n")
    done = mpi("-np", 4, "--grace", 1, sys.executable, "-c", code,
               env=env_with(marker, HVD_LIBRARY=LIBHVD, PYTHONPATH=str(ROOT / "runtime/python")))
    assert done.returncode == 5, done.stderr
    assert re.match(r"hvdrun: rank 2 on localhost \(pid \d+\) exited with code 5", own_words(done)[0])
    assert "hvdrun: rank 3 on localhost, which it names as the cause, has not failed" in own_words(done), done.stderr
    assert wait_until_gone(marker) == {}


def pids_of(marker, pattern):
    return [pid for pid, args in processes_with(marker).items() if re.search(pattern, args)]


@pytest.mark.parametrize("victim, code, words", [
    (MPIRUN, 243, r"while the ranks ran, mpirun was killed by signal 9 \(SIGKILL\)"),
    ("agent", 243, "node localhost was lost, with rank [012]: "),
    ("guardian", 243, "while the ranks ran, the agent of rank . on localhost was told to end"),
])
def test_whatever_of_it_is_killed_is_named_and_nothing_is_left(marker, victim, code, words):
    with start("--launcher", "mpi", "-np", 3, *PYTHON, program("family.py"), env=env_with(marker)) as job:
        read_until(job.stdout, "up", 3)
        if victim in ("agent", "guardian"):
            agents = pids_of(marker, "hvdrun-agent call mpirun ")
            comm = {pid: pathlib.Path(f"/proc/{pid}/comm").read_text().strip() for pid in agents}
            kill(next(pid for pid, name in comm.items() if (name == "hvdrun-guardian") == (victim == "guardian")
                      and name.startswith("hvdrun-")))
        else:
            kill(pids_of(marker, victim)[0])
        _, err = job.communicate()
        assert job.returncode == code, err
        assert re.search(f"^hvdrun: ({words})", err, re.M), err
    assert wait_until_gone(marker) == {}


def test_a_killed_launcher_leaves_nothing(marker):
    with start("--launcher", "mpi", "-np", 3, *PYTHON, program("family.py"), env=env_with(marker)) as job:
        read_until(job.stdout, "up", 3)
        job.kill()
    assert wait_until_gone(marker) == {}


@pytest.mark.parametrize("signo, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signalled_launcher_stops_its_ranks(marker, signo, code):
    with start("--launcher", "mpi", "-np", 2, *PYTHON, program("family.py"), env=env_with(marker)) as job:
        read_until(job.stdout, "up", 2)
        job.send_signal(signo)
        _, err = job.communicate()
        assert job.returncode == code
        assert f"hvdrun got {signo.name}" in err and "mpirun:" not in err
    assert wait_until_gone(marker) == {}


def test_mpirun_that_is_asked_to_end_ends_the_job(marker):
    with start("--launcher", "mpi", "-np", 2, *PYTHON, program("family.py"), env=env_with(marker)) as job:
        read_until(job.stdout, "up", 2)
        os.kill(pids_of(marker, MPIRUN)[0], signal.SIGTERM)
        _, err = job.communicate()
        assert job.returncode not in (0, 245), err
        assert own_words_in(err), err
    assert wait_until_gone(marker) == {}


def own_words_in(err):
    return [line for line in err.splitlines() if line.startswith("hvdrun: ")]


def test_a_missing_program_is_told_as_everywhere():
    done = mpi("-np", 3, "no-such-program-here")
    assert done.returncode == 127
    assert len(own_words(done)) == 1 and "no such program: 'no-such-program-here'" in own_words(done)[0]


@pytest.mark.parametrize("arguments, code, words", [
    (["-np", 2, "--mpi-args", "--no-such-option"], 240,
     r"it said: (mpirun: Error: unknown|An unrecognized) option .*--no-such-option"),
    (["-np", 2, "--mpi-args", "-np 3"], 240, "There are not enough slots available"),
    (["-np", 2, "--mpi-args", "-np 1"], 240, "rank 0 was put elsewhere than planned"),
    (["-H", "no-such-host.invalid:1"], 241, r"it said: ssh: Could not resolve hostname no-such-host\.invalid"),
    (["-np", 2, "--mpi-args", "/no/such/agent"], 242,
     "could not access (or execute )?an executable: Executable: /no/such/agent .*must be at the same path"),
])
def test_what_keeps_mpirun_from_starting_is_quoted_and_nothing_is_left(marker, arguments, code, words):
    if arguments[-1].startswith("-np") and not is_open_mpi_4():
        pytest.skip("Open MPI 5 takes the first -np, which is ours")
    done = mpi(*arguments, "--start-timeout", PATIENCE, "echo", "ran", env=env_with(marker))
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert re.search(words, " ".join(own_words(done))) and len(own_words(done)) == 1, done.stderr
    assert wait_until_gone(marker) == {}


def test_hosts_are_asked_for_by_their_whole_names(tmp_path, marker):
    # In place of ssh, for there are no such hosts. It does not end: else mpirun does, perhaps before it asks for the second.
    agent = tmp_path / "rsh"
    agent.write_text('#!/bin/sh\necho "asked for $1" >&2\nexec sleep 1000\n')
    agent.chmod(0o755)
    hosts = ["node1.alpha.invalid", "node1.beta.invalid"]
    with start("--launcher", "mpi", "-H", ",".join(f"{host}:1" for host in hosts), "--mpi-args",
               f"--mca plm_rsh_agent {agent}", "--start-timeout", PATIENCE, "echo", "ran", env=env_with(marker)) as job:
        asked = [line for line in read_until(job.stderr, "asked for ", 2) if "asked for " in line]
        job.send_signal(signal.SIGTERM)
        job.communicate()
    assert sorted(asked) == [f"mpirun: asked for {host}\n" for host in hosts]
    assert wait_until_gone(marker) == {}


@pytest.mark.parametrize("script, words", [
    (None, "no such program: 'mpirun'"),
    ("echo 'HYDRA build details:'", "the mpirun in PATH is not Open MPI's; it says 'HYDRA build details:'"),
    ("echo 'mpirun (Open MPI) 3.1.6'", "the mpirun in PATH is of Open MPI 3.1.6"),
    ("exit 1", "'mpirun' exited with code 1"),
])
def test_without_open_mpi_it_is_told_what_to_install(tmp_path, script, words):
    if script:
        (tmp_path / "mpirun").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "mpirun").chmod(0o755)
    environment = {**os.environ, "PATH": str(tmp_path)}
    done = mpi("-np", 1, "/bin/true", env=environment)
    assert done.returncode == 242, done.stderr  # as without srun: a program that was to start the ranks is missing
    assert done.stderr.startswith("hvdrun: the ranks could not be started: --launcher mpi: ") and done.stderr.count("\n") == 1
    assert words in done.stderr and "install Open MPI 4 or later (Debian: openmpi-bin)" in done.stderr
    events = [json.loads(line) for line in mpi("--json", "-np", 1, "/bin/true", env=environment).stderr.splitlines()]
    assert [(event["event"], event["exit_code"]) for event in events] == [("failure", 242), ("job_ended", 242)]
    assert words in events[0]["causes"][0]
    built = hvdrun("--check-build", env=environment)
    assert re.search(r"\[ \] mpirun \(Open MPI: --launcher mpi\)  \(.*install Open MPI", built.stdout)


def test_check_build_tells_which_open_mpi_is_there():
    built = hvdrun("--check-build").stdout
    assert re.search(r"\[X\] mpirun \(Open MPI \d+\.\d.*: --launcher mpi\)", built)
    assert re.search(r"\[X\] MPI \(Open MPI v\d+\.\d.*, /.*libmpi.*\): ranks that mpirun or srun started", built)
    assert "[X] MPI: HOROVOD_CPU_OPERATIONS=mpi" in built


def test_plan_tells_that_mpirun_starts_the_ranks():
    done = hvdrun("plan", "--json", "--mpi", "-np", 3, "-H", "a:2,b:2", "x")
    plan = json.loads(done.stdout)
    assert [(node["host"], node["transport"], len(node["ranks"])) for node in plan["nodes"]] == \
        [("a", "mpirun", 2), ("b", "mpirun", 1)]
    env = plan["nodes"][1]["ranks"][0]["env"]
    assert (env["LOCAL_WORLD_SIZE"], env["RANK"], "OMPI_COMM_WORLD_RANK" in env) == ("1", "2", False)


@pytest.mark.parametrize("arguments, shown", [
    ([], "none"), (["--binding-args", "--bind-to core"], "core"), (["--bind", "core"], "core"),
    (["--binding-args", "--bind-to core --map-by core"], "core"), (["--mpi-args", "--bind-to core"], "core"),
    (["--mpi-args", "--map-by core"], "none")])
def test_ranks_are_bound_when_that_is_asked_for_and_only_then(arguments, shown):
    allowed = len(os.sched_getaffinity(0))
    if allowed < 2:
        pytest.skip("one processor only")
    code = "import os; print(len(os.sched_getaffinity(0)))"
    done = mpi("-q", "--no-tags", "-np", 2, *arguments, *PYTHON, "-c", code)
    assert done.returncode == 0, done.stderr
    assert [int(n) == allowed for n in done.stdout.split()] == [shown == "none"] * 2, done.stdout


# ---- two hosts ----


@needs_mpi4py
def test_ranks_on_two_hosts_are_ranks_of_mpi_where_the_plan_puts_them(lab2):
    done = lab2.run(BIN / "hvdrun", "--mpi", "-np", 4, "-H", "node1:2,node2:2", *MPI_RANK)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{i}]<stdout>:rank {i} of 4 sums 10" for i in range(4)]
    where = lab2.run(BIN / "hvdrun", "--mpi", "-q", "-np", 3, "-H", "node2:1,node1:2", "sh", "-c",
                     "echo $(hostname) $LOCAL_RANK $MASTER_ADDR")
    assert sorted(where.stdout.splitlines()) == [
        f"[{rank}]<stdout>:{host} {local} {lab2.addr('node2')}" for rank, host, local in
        ((0, "node2", 0), (1, "node1", 0), (2, "node1", 1))]
    assert lab2.wait_for_no_processes() == []


def test_this_host_may_be_one_of_several(lab2):
    done = lab2.run(BIN / "hvdrun", "--mpi", "-q", "-np", 2, "-H", "launcher:1,node2:1", "hostname")
    assert sorted(done.stdout.splitlines()) == ["[0]<stdout>:launcher", "[1]<stdout>:node2"], done.stderr


def test_ranks_that_mpirun_puts_elsewhere_are_refused(lab2):
    done = lab2.run(BIN / "hvdrun", "--mpi", "-np", 4, "-H", "node1:2,node2:2", "--mpi-args", "--rank-by node", "echo", "ran")
    assert (done.returncode, done.stdout) == (240, ""), done.stderr
    # Whichever calls first.
    assert re.search("rank 1 was put elsewhere than planned: it is local rank 0 of 2 on node2"
                     "|rank 2 was put elsewhere than planned: it is local rank 1 of 2 on node1", done.stderr), done.stderr
    assert lab2.wait_for_no_processes() == []


def test_a_host_without_the_agent_is_told_so(lab2):
    folder = lab2.run("mktemp", "-d").stdout.strip()  # in the launcher's own /tmp
    lab2.run("cp", BIN / "hvdrun", BIN / "hvdrun-agent", folder)
    done = lab2.run(f"{folder}/hvdrun", "--mpi", "-np", 2, "-H", "node1:1,node2:1", "true")
    assert done.returncode == 242, done.stderr
    assert "must be at the same path on every host" in done.stderr
    assert lab2.wait_for_no_processes() == []


@pytest.mark.parametrize("host", ["launcher", "node1"])
def test_whichever_host_loses_its_processes_the_others_are_left_with_none(lab2, host):
    job = lab2.popen(BIN / "hvdrun", "--mpi", "-np", 4, "-H", "node1:2,node2:2", *PYTHON, program("family.py"))
    read_until(job.stdout, "up", 4)
    for process in lab2.ps(host):
        if "scripts/lab" not in process.args:
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    job.communicate()
    assert job.returncode != 0
    assert lab2.wait_for_no_processes() == []


def test_a_host_that_is_cut_off_is_named_and_what_can_be_reached_is_left_with_nothing(lab2):
    job = lab2.popen(BIN / "hvdrun", "--mpi", "-np", 2, "-H", "node1:1,node2:1", *PYTHON, program("family.py"))
    read_until(job.stdout, "up", 2)
    lab2.cut("node1")
    try:
        _, err = job.communicate()
        assert job.returncode == 243, err
        assert "hvdrun: node node1 was lost, with rank 0: no sign of life from its agent" in err
        assert lab2.wait_for_no_processes("launcher", "node2") == []
    finally:
        lab2.heal()
    assert lab2.wait_for_no_processes() == []
