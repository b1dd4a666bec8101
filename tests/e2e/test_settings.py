"""What the user says: command line, host file, settings file; and what hvdrun says of itself."""

import json
import os
import re
import subprocess

import pytest

from hvdrun import BIN, hvdrun, program


def test_plan_starts_nothing_and_prints_the_placement():
    done = hvdrun("plan", "--json", "-np", 5, "-H", "a:2,b:3", "no-such-program")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    rows = [(r["rank"], r["local_rank"], r["cross_rank"], n["host"]) for n in plan["nodes"] for r in n["ranks"]]
    assert rows == [(0, 0, 0, "a"), (1, 1, 0, "a"), (2, 0, 1, "b"), (3, 1, 1, "b"), (4, 2, 0, "b")]
    assert plan["nodes"][1]["ranks"][0]["env"]["HOROVOD_LOCAL_SIZE"] == "3"


def test_a_plan_of_more_ranks_than_there_can_be_is_refused_before_it_grows():
    done = hvdrun("plan", "-np", 2_000_000_000, "true")
    assert done.returncode == 240 and "2000000000 ranks on localhost" in done.stderr


def test_localhost_with_a_user_or_a_port_is_reached_by_ssh():
    done = hvdrun("plan", "--json", "-H", "localhost:1,nobody@localhost:1,localhost:2222:1", "true")
    assert [node["transport"] for node in json.loads(done.stdout)["nodes"]] == ["local", "ssh", "ssh"]


def test_an_agent_that_cannot_be_started_here_is_no_unreachable_host(tmp_path):
    done = hvdrun("-np", 1, "true", env={**os.environ, "TMPDIR": str(tmp_path / "none")})
    assert done.returncode == 242, done.stderr
    (tmp_path / ("x" * 130)).mkdir()
    done = hvdrun("-np", 1, "echo", "ran", env={**os.environ, "TMPDIR": str(tmp_path / ("x" * 130))})
    assert (done.returncode, done.stdout) == (0, "[0]<stdout>:ran\n"), done.stderr


@pytest.mark.parametrize("words, code, said", [
    (["timeline", "."], 240, "Is a directory"),
    (["-np", 5, "--elastic-timeout", 1, "--host-discovery-script", "echo localhost:2", "true"], 241, "had 2 slots of the 5"),
    (["submit", "--engine", "slurm", "--nodes", 1, "true"], 242, "Slurm does not take the job"),
])
def test_what_cannot_be_done_has_the_code_of_its_kind_and_is_no_defect(words, code, said, tmp_path):
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho no such partition >&2\nexit 1\n")
    (tmp_path / "sbatch").chmod(0o755)
    done = hvdrun(*words, env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "XDG_STATE_HOME": str(tmp_path)})
    assert done.returncode == code and said in done.stderr, done


@pytest.mark.parametrize("value, runs", [("0.05", False), ("4000", False), ("nan", False), ("x", False), ("10", True), ("", True)])
def test_the_heartbeat_of_the_environment_has_the_flags_bounds(value, runs):
    done = hvdrun("-np", 1, "true", env={**os.environ, "HVD_HEARTBEAT": value})
    assert (done.returncode == 0) == runs, done.stderr
    assert runs or f"HVD_HEARTBEAT is '{value}', expected 100 ms to 3600 s" in done.stderr
    assert hvdrun("-np", 1, "--heartbeat", 10, "true", env={**os.environ, "HVD_HEARTBEAT": value}).returncode == 0


@pytest.mark.parametrize("arguments, message", [
    (["-np", "0", "true"], "expected 1 or more ranks"),
    (["-np", "5000000", "true"], "at most 65536 can be started on a host, whose start message has 64 MiB"),
    (["-np", "200000", "true"], "at most 65536 can be started on a host"),
    (["-H", "", "true"], "--hosts '': the host list is empty"),
    (["--hostfile", "", "true"], "--hostfile '': the host list is empty"),
    (["--start-timeout", "nan", "true"], "'nan' is no number of seconds from 0.1 to"),
    (["--grace", "nan", "true"], "'nan' is no number of seconds"),
    (["--timeout", "5 m", "true"], "'5 m' is no number of seconds from 0 to"),
    (["--timeout", "2w", "true"], "90s, 5m, 2h and 1d are times too"),
    (["--start-timeout", "20d", "true"], "'20d' is no number of seconds from 0.1 to"),
    (["--timeout", "-nan", "true"], "no number of seconds"),
    (["--reconnect-timeout", "inf", "true"], "'inf' is no number of seconds"),
    (["--elastic-timeout", "nan", "true"], "'nan' is no number of seconds"),
    (["-np", "2", "-H", "a:x", "true"], "host list, column 1: expected a number of slots"),
    (["-np", "3", "-H", "a:1,b:1", "true"], "3 ranks asked for (-np), but the hosts have 2 slots"),
    (["--hostfile", "/no/such/file", "true"], "cannot read the host file /no/such/file"),
    (["--hostfile", "/", "true"], "cannot read the host file /: Is a directory"),
    (["--gpus", "none", "-H", "a:2@0,1", "true"], "the host list names GPUs of a, and --gpus none leaves all alone"),
    (["--output-filename", "d", "--output-rotate", "10X", "true"], "--output-rotate '10X': expected a size"),
    (["--output-rotate", "10M", "true"], "--output-rotate says nothing without --output-filename"),
    (["-np", "2"], "no command given; as in: hvdrun -np 2 python train.py; see hvdrun --help"),
    (["-np", "1", "a", ":", "-np", "1", "b"], "': -np 1' begins a second program; hvdrun starts one program on all ranks"),
    (["--zzz", "true"], "there is no option --zzz; see hvdrun --help, or --help-all"),
    (["-pn", "2", "true"], "there is no option -pn; did you mean -np?"),
    (["-np", "two", "true"], "--np: 'two' is no number"),
    (["-np"], "--np: its value is missing"),
    (["ps", "--al"], "there is no option --al; did you mean --all? As in: hvdrun ps [--all]"),
    (["top", "a", "b"], "'b' is one word too many; as in: hvdrun top"),
    (["hlep"], "did you mean 'hvdrun help'?"),
    (["help", "nosuch"], "the manual has no page 'nosuch'; 'hvdrun help' lists the topics"),
    (["--jsrun", "true"], "LSB_JOBID is not set"),
    (["--jsrun", "-H", "a", "true"], "--jsrun takes the hosts of the job in which hvdrun runs"),
    (["--jsrun", "--gloo", "true"], "--jsrun and another way to start the ranks exclude each other"),
    (["--jsrun", "--engine", "none", "true"], "--engine none leaves out what --launcher jsrun asks for"),
    (["--jsrun", "--mpi", "true"], "--jsrun and another way to start the ranks exclude each other"),
    (["--gloo", "--mpi-args", "--mca btl tcp", "true"], "--mpi-args and --binding-args are for mpirun, and exclude every other way"),
    (["--rsh", "ssh", "--binding-args", "--bind-to core", "true"], "--mpi-args and --binding-args are for mpirun"),
    (["--mpi", "--gloo", "true"], "give one"),
    (["--launcher", "mpi", "--rsh", "ssh", "true"], "mean nothing to mpirun"),
    (["--launcher", "mpi", "-H", "me@a:2:1", "true"], "user and port of a mean nothing to mpirun"),
    (["--launcher", "mpi", "--bind", "core", "--binding-args", "--bind-to core", "true"], "both bind the ranks"),
    (["--launcher", "mpi", "--mpi-args", "'open", "true"], "--mpi-args"),
    (["--launcher", "pbs", "true"], "--launcher"),
    (["--host-discovery-script=x", "true"], "the host discovery script exited with code 127"),
    (["--host-discovery-script=echo no quota; exit 3", "true"],
     "the host discovery script exited with code 3: no quota; so there is no host to begin on"),
    (["-np", "2", "--min-np=3", "true"], "-np 2 is below --min-np 3"),
    (["-np", "2", "--max-np=1", "true"], "-np 2 is above --max-np 1"),
    (["--min-np", "2", "--elastic-restarts", "0", "true"], "an elastic job restarts at least one rank"),
    (["-H", "localhost:1", "--min-np", "2", "true"], "--min-np 2: the job has room for 1 rank only"),
    (["--elastic-restarts", "1", "--mpi", "true"], "mpirun restarts no rank"),
    (["-f", "x.json", "--reset-limit", "1"], "cannot read the job file x.json"),
    (["--fusion-threshold-mb", "-1", "true"], "--fusion-threshold-mb: expected a whole number"),
    (["--log-level", "LOUD", "true"], "--log-level: expected TRACE"),
    (["--config-file", "/no/such/file", "true"], "cannot read the configuration file /no/such/file"),
])
def test_a_wrong_command_line_is_one_line_and_starts_nothing(arguments, message):
    done = hvdrun(*arguments)
    assert done.returncode == 240
    assert message in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["--slots", "2"], ["--blacklist-cooldown-range", "1", "2"], ["--discovery-interval", "5"]])
def test_settings_of_a_discovery_that_there_is_none_of_are_passed_over_and_said_so(arguments):
    done = hvdrun("-np", "1", "-H", "localhost:1", *arguments, "true")
    assert done.returncode == 0
    assert done.stderr.count("have no effect: the hosts are fixed") == 1


@pytest.mark.parametrize("flag, number, told", [("--max-np", 4, True), ("--max-np", 2, False), ("--min-np", 1, False)])
def test_an_elastic_job_that_would_grow_is_told_that_it_does_not(flag, number, told):
    done = hvdrun(flag, number, "-np", 2, "true")
    assert done.returncode == 0
    assert (f"{flag}: no host can join this job, so it has at most the 2 ranks" in done.stderr) == told, done.stderr
    assert hvdrun("-q", flag, number, "-np", 2, "true").stderr == ""


def test_a_bad_hostfile_is_refused_with_its_place(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("# nodes\n\nnode1 slots=2\nnode2 slots=two\n")
    done = hvdrun("--hostfile", file, "true")
    assert done.returncode == 240
    assert f"{file}:4:7: expected a number" in done.stderr


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
                    "--network-interface", "lo,eth1", "--tcp", "--gloo", "-x", "HOROVOD_LOG_LEVEL=ERROR", env=inherited)
    expected = {"HOROVOD_FUSION_THRESHOLD": "1048576", "HOROVOD_CYCLE_TIME": "2.5", "HOROVOD_CACHE_CAPACITY": "7",
                "HOROVOD_STALL_CHECK_DISABLE": "1", "HOROVOD_LOG_LEVEL": "ERROR", "HOROVOD_LOG_HIDE_TIME": "1",
                "HOROVOD_NUM_NCCL_STREAMS": "2", "NCCL_SOCKET_IFNAME": "lo,eth1", "NCCL_IB_DISABLE": "1"}
    assert {name: env.get(name) for name in expected} == expected
    assert "HOROVOD_AUTOTUNE" not in env


@pytest.mark.parametrize("words", [(), ("--",)])
def test_variables_before_the_command_are_for_the_ranks(words):
    """As a shell has it, to which horovodrun gave the command."""
    done = hvdrun("-q", "--no-tags", "-np", 1, "-x", "A=flag", *words, "A=1", "B_2=x=y z", "sh", "-c", 'echo "$A, $B_2, $0, $1"', "C=3", "D=4")
    assert (done.returncode, done.stdout) == (0, "1, x=y z, C=3, D=4\n"), done.stderr
    only = hvdrun("-np", 1, *words, "A=1")
    assert only.returncode == 240 and "no command given" in only.stderr
    named = hvdrun("-np", 1, *words, "./a=1")
    assert named.returncode == 127 and "/./a=1'" in named.stderr


@pytest.mark.parametrize("word", ["-xADDED=a=b", "-x=ADDED=a=b"])
def test_a_variable_in_the_option_s_own_word_has_its_value(word):
    done = hvdrun("-q", "--no-tags", "-np", 1, word, "sh", "-c", "echo $ADDED", env={**os.environ, "ADDED": "mine"})
    assert (done.returncode, done.stdout) == (0, "a=b\n"), done.stderr


@pytest.mark.parametrize("words", [("-n", 2), ("-n2",), ("-np2",), ("-np", 2), ("-np=2",), ("-np", 2, "-H=localhost:2")])
def test_the_number_of_ranks_is_read_however_it_is_written(words):
    done = hvdrun("-q", "--no-tags", *words, "sh", "-c", "echo $HOROVOD_SIZE")
    assert (done.returncode, done.stdout) == (0, "2\n2\n"), done.stderr


def test_of_an_option_that_is_given_twice_the_last_one_counts():
    done = hvdrun("--no-tags", "-np", 3, "--cycle-time-ms", 7, "-x", "A=1", "-np", 1, "-x", "B=2", "sh", "-c", "echo $HOROVOD_SIZE $A $B")
    assert (done.returncode, done.stdout) == (0, "1 1 2\n"), done.stderr
    assert "--np is given 2 times; the last one counts: 1\n" in done.stderr


MPIRUN = ["-np", "2", "-bind-to", "none", "-map-by", "slot", "-x", "A_1=one", "-x", "NO_SUCH", "-genv", "B", "two", "-env", "C_3=three", "-mca", "pml", "ob1",
          "-mca", "btl", "^openib", "--allow-run-as-root", "-mca", "btl_tcp_if_include", "lo", "-host", "localhost:2"]


def test_a_line_of_mpirun_runs_and_what_has_no_effect_is_told():
    done = hvdrun("--no-tags", *MPIRUN, "sh", "-c", "echo $HOROVOD_SIZE $A_1 $B $C_3 $NCCL_SOCKET_IFNAME ${NO_SUCH-unset}")
    assert (done.returncode, done.stdout) == (0, "2 one two three lo unset\n" * 2), done.stderr
    assert "-map-by slot, -mca pml ob1, -mca btl ^openib, --allow-run-as-root: options of mpirun, which have no effect here" in done.stderr
    assert "-x NO_SUCH: no such variable here; -x NAME=VALUE gives it a value" in done.stderr


def test_mpiruns_prefix_is_no_abbreviation_and_its_words_hide_no_json():
    done = hvdrun("--no-tags", "--prefix", "/usr/lib/openmpi", "-np", 2, "echo", "x")
    assert (done.returncode, done.stdout) == (0, "x\nx\n") and "--prefix /usr/lib/openmpi: options of mpirun" in done.stderr
    assert re.match(r"\S+ \S+ x|.*\d:\d\d.*x", hvdrun("--prefix", "-np", 1, "echo", "x").stdout)  # --prefix-output-with-timestamp
    refused = hvdrun("-mca", "btl", "tcp", "--json", "-np", "two", "true")
    assert refused.returncode == 240 and all(json.loads(line) for line in refused.stderr.splitlines())
    measured = hvdrun("bench", "-mca", "btl", "tcp", "allreduce", "-np", 1, "--max", 4)
    assert measured.returncode == 0 and "-mca btl tcp: options of mpirun" in measured.stderr, measured.stderr


@pytest.mark.parametrize("words, message", [
    (["-npernode", 4], "-npernode is an option of mpirun; the number of ranks on a host is written behind its name here"),
    (["-ppn", 4], "-ppn is an option of mpirun; the number of ranks"),
    (["-map-by", "ppr:2:node"], "-map-by ppr:2:node is an option of mpirun; the number of ranks"),
    (["--map-by", "socket"], "--map-by socket is an option of mpirun; ranks fill the hosts in the order"),
    (["-bind-to", "socket"], "-bind-to socket is an option of mpirun; hvdrun has --bind none, core and numa"),
    (["-wdir", "/tmp"], "-wdir is an option of mpirun; ranks run in the folder"),
    (["-mca", "pml"], "-mca: its value is missing"),
    (["--env", "A=1"], "there is no option --env"),
])
def test_what_mpirun_would_do_otherwise_is_refused_with_what_to_write(words, message):
    done = hvdrun("plan", "-np", 2, *words, *([] if "-mca" in words else ["true"]))
    assert done.returncode == 240 and message in done.stderr, done.stderr


def test_hosts_in_the_words_of_mpich():
    done = hvdrun("plan", "--json", "-hosts", "a,b:2", "-n", 3, "true")
    assert done.returncode == 0, done.stderr
    assert [(node["host"], len(node["ranks"])) for node in json.loads(done.stdout)["nodes"]] == [("a", 1), ("b", 2)]
    refused = hvdrun("-f", "hosts", "-n", 4, "python", "train.py")
    assert refused.returncode == 240 and refused.stderr.count("\n") == 1
    assert "'python': a job file says what to run" in refused.stderr and "--hostfile FILE" in refused.stderr


def test_a_port_and_a_key_are_handed_to_mpirun(tmp_path):
    said = tmp_path / "said"
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec echo "mpirun (Open MPI) 4.1.4"\nfor word; do echo "$word"; done > {said}\nexit 1\n')
    mpirun.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    # mpirun's words and hvdrun's own are the same setting.
    for words, wanted in ((["-mca", "plm_rsh_args", "-p 2222"], "-p 2222"), (["-p", 2222, "-i", "a key"], "-p 2222 -i 'a key'")):
        failed = hvdrun("--mpi", *words, "--mpi-args=--display-map", "-np", 1, "true", env=environment)
        assert failed.returncode != 0 and f"--mca\nplm_rsh_args\n{wanted}\n--display-map\n" in said.read_text(), failed.stderr
    refused = hvdrun("--mpi", "--rsh", "ssh", "true")
    assert refused.returncode == 240 and "--rsh and --ssh-config mean nothing to mpirun" in refused.stderr, refused.stderr


def test_hosts_are_reached_as_mpiruns_settings_say(tmp_path):
    for name in ("remote", "ssh"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/calls\nwhile [ "$1" != a ]; do shift; done; shift; exec "$@"\n')
        (tmp_path / name).chmod(0o755)
    remote, path = tmp_path / "remote", f"{tmp_path}:{os.environ['PATH']}"

    def reached(*words, **env):
        (tmp_path / "calls").write_text("")
        done = hvdrun("-H", "a:1", *words, "true", env={**os.environ, "PATH": path, **env})
        assert done.returncode == 0, done.stderr
        return (tmp_path / "calls").read_text(), done.stderr

    calls, said = reached(OMPI_MCA_plm_rsh_agent=f"{remote} -q : ssh", OMPI_MCA_plm_rsh_args="-v")
    assert calls == "remote -q -v a sh\n"
    assert f"] other hosts are reached by '{remote} -q -v' (OMPI_MCA_plm_rsh_agent and OMPI_MCA_plm_rsh_args); " \
           "--launcher ssh leaves that aside" in said, said
    calls, said = reached(PRTE_MCA_plm_ssh_args="-o ConnectionAttempts=10")
    assert calls == "ssh -o BatchMode=yes -o ConnectionAttempts=10 a sh\n" and "(PRTE_MCA_plm_ssh_args)" in said
    for host, words in (("me@a:1", "-l me"), ("a:22:1", "-p 22")):
        (tmp_path / "calls").write_text("")
        done = hvdrun("-H", host, "true", env={**os.environ, "PATH": path, "PRTE_MCA_plm_ssh_args": "-v"})
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "calls").read_text() == f"ssh -o BatchMode=yes -v {words} a sh\n"
    assert reached("-mca", "plm_rsh_agent", remote, OMPI_MCA_plm_rsh_agent="ssh")[0] == "remote a sh\n"
    # What the user says of it wins.
    for words, env in ((["--rsh", f"{remote} -z"], {}), ([], {"HVD_RSH": f"{remote} -z"})):
        calls, said = reached(*words, OMPI_MCA_plm_rsh_agent="elsewhere", **env)
        assert calls == "remote -z a sh\n" and "elsewhere" not in said


def test_mpiruns_settings_that_change_nothing_are_not_told(tmp_path):
    for agent in ("ssh", "ssh : rsh", "/usr/bin/ssh", "pbs_tmrsh", str(tmp_path)):
        done = hvdrun("-np", 1, "true", env={**os.environ, "OMPI_MCA_plm_rsh_agent": agent})
        assert done.returncode == 0 and "reached" not in done.stderr, done.stderr
    done = hvdrun("-H", "a:1", "true", env={**os.environ, "OMPI_MCA_plm_rsh_args": "-p 99999"})
    assert done.returncode == 240 and "OMPI_MCA_plm_rsh_args is '-p 99999', expected a port" in done.stderr
    done = hvdrun("-H", "a:1", "true", env={**os.environ, "OMPI_MCA_plm_rsh_agent": "remote 'x"})
    assert done.returncode == 240 and done.stderr.startswith("hvdrun: OMPI_MCA_plm_rsh_agent: "), done.stderr
    done = hvdrun("-np", 1, "--gloo", "-mca", "plm_rsh_agent", "x", "true")
    assert done.returncode == 0 and "-mca plm_rsh_agent and plm_rsh_args have no effect here" in done.stderr


def test_elastic_ranks_are_not_started_by_mpirun():
    done = hvdrun("-np", 2, "--min-np", 1, "--mpi-args", "--mca orte_keep_fqdn_hostnames t", "true")
    assert done.returncode == 0 and "--mpi-args and --binding-args have no effect: mpirun starts no elastic ranks" in done.stderr, done.stderr


def test_a_plan_runs_no_discovery():
    done = hvdrun("plan", "-np", 2, "--host-discovery-script", "echo a:2", "true")
    assert done.returncode == 240 and "plan runs no discovery of hosts; name those" in done.stderr
    for command, *measure in (["check"], ["bench", "allreduce"]):
        done = hvdrun(command, *measure, "--host-discovery-script", "echo a:2")
        assert done.returncode == 240 and f"{command} runs no discovery of hosts; name those" in done.stderr, done.stderr


def test_former_names_of_the_affinity(tmp_path):
    assert variables("-np", 1, "--ccl-bgt-affinity", 3)["HOROVOD_THREAD_AFFINITY"] == "3"
    file = tmp_path / "settings.yaml"
    file.write_text("library_options:\n  ccl_bgt_affinity: 2\n")
    assert variables("-np", 1, "--config-file", file)["HOROVOD_THREAD_AFFINITY"] == "2"


@pytest.mark.parametrize("text, message", [
    ("params:\n  fusion_threshold: 3\n", "settings.yaml:2:3: unknown setting 'params.fusion_threshold'; did you mean params.fusion_threshold_mb?"),
    ("params:\n  cache_capacity: many\n", "settings.yaml:2:19: params.cache_capacity: expected a whole number"),
    ("parms: 3\n", "settings.yaml:1:1: unknown section 'parms'; did you mean params?"),
    ("params: [1\n", "settings.yaml:2:1:"),
    ("params: {cycle_time_ms: 1, cycle_time_ms: 2}\n", "given twice"),
    ("controller: jsrun\n", "settings.yaml:1:13: expected gloo or mpi"),
    ("- a\n", "settings.yaml:1:1: expected sections"),
])
def test_a_bad_settings_file_is_refused_with_its_place(tmp_path, text, message):
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    done = hvdrun("-np", 1, "--config-file", file, "echo", "ran")
    assert (done.returncode, done.stdout) == (240, "")
    assert message in done.stderr and done.stderr.count("\n") == 1


def test_flags_of_the_command_are_its_own():
    for words in (["-t", ":", "-n", "file"], ["--sep", ":", "-n", "5"]):
        assert hvdrun("-q", "--no-tags", "-np", 1, "echo", *words).stdout == " ".join(words) + "\n"
    done = hvdrun("-q", "--no-tags", "-np", 1, "echo", "-np", "4", "--mpi", "-hostfile", "x")
    assert done.stdout == "-np 4 --mpi -hostfile x\n"


def test_check_build_tells_what_is_there():
    done = hvdrun("--check-build")
    assert done.returncode == 0
    assert "[X] local" in done.stdout and "[X] Gloo" in done.stdout and "[ ] NCCL" in done.stdout


def test_check_build_lists_the_frameworks_of_the_python_in_path(tmp_path):
    python = tmp_path / "python"
    lines = ("python 3.12.1", "torch 2.13.0+cpu", "horovod 0.1.0", "package tensorflow-cpu 2.19.0", "package numpy 2.0")
    python.write_text("#!/bin/sh\n" + "".join(f"echo 'hvdrun.{line}'\n" for line in lines))
    python.chmod(0o755)
    shown = hvdrun("--check-build", env={**os.environ, "PATH": str(tmp_path)}).stdout
    assert f"""
Available Frameworks:
    [X] TensorFlow 2.19.0
    [X] PyTorch 2.13.0+cpu
    [ ] Keras  (pip install keras)
    [ ] JAX  (pip install jax)
  in Python 3.12.1, {python}, which has horovod 0.1.0
""" in shown
    python.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    shown = hvdrun("--check-build", env={**os.environ, "PATH": str(tmp_path)}).stdout
    assert "    [ ] JAX\n" in shown and "broken" in shown
    python.unlink()
    shown = hvdrun("--check-build", env={**os.environ, "PATH": str(tmp_path)}).stdout
    assert "    [ ] JAX\n  no 'python' in PATH\n" in shown


def test_check_build_lists_the_reader_of_stacks_beside_the_python_in_path(tmp_path):
    (tmp_path / "python").write_text("#!/bin/sh\n")
    (tmp_path / "python").chmod(0o755)
    environment = {**os.environ, "PATH": str(tmp_path), "HOME": str(tmp_path)}
    shown = hvdrun("--check-build", env=environment).stdout
    assert "    [ ] py-spy: hvdrun stacks, and jobs that stall  (pip install py-spy)\n" in shown
    (tmp_path / "py-spy").write_text("#!/bin/sh\n")
    (tmp_path / "py-spy").chmod(0o755)
    shown = hvdrun("--check-build", env=environment).stdout
    assert f"    [X] py-spy ({tmp_path}/py-spy): hvdrun stacks, and jobs that stall\n" in shown


def test_check_build_takes_the_libraries_that_the_variables_name():
    fake = BIN.parent / "lib/fake/libnccl.so.2"
    if not fake.exists():
        pytest.skip("built without the CUDA toolkit's headers, so there is no fake NCCL")
    # It finds its fake driver beside itself.
    done = hvdrun("--check-build", env={**os.environ, "HVD_NCCL_LIBRARY": str(fake), "FAKE_NCCL_VERSION": "22703"})
    assert f"[X] NCCL (2.27.3, {fake.resolve().parent}" in done.stdout, done.stdout


@pytest.mark.parametrize("variable, line", [("HVD_NCCL_LIBRARY", "NCCL"), ("HVD_MPI_LIBRARY", "MPI")])
def test_check_build_looks_at_no_other_library_than_the_named(variable, line):
    done = hvdrun("--check-build", env={**os.environ, variable: "/nowhere/lib.so"})
    assert re.search(rf"^    \[ \] {line}  \({variable}: .*/nowhere/lib\.so", done.stdout, re.M), done.stdout


def test_the_version_is_the_packages():
    assert hvdrun("--version").stdout.startswith("hvdrun 0.")
    assert re.search(r"^usage: hvdrun", hvdrun("--help").stdout)


@pytest.mark.parametrize("name", ["mpi", "MPI"])
def test_the_controller_of_the_settings_file_is_as_the_flag_and_the_flag_wins(tmp_path, name):
    file = tmp_path / "settings.yaml"
    file.write_text(f"controller: {name}\n")
    # What only mpirun would refuse tells who is to start the ranks.
    refused = hvdrun("-np", 1, "--config-file", file, "--ssh-config", "/dev/null", "echo", "ran")
    assert (refused.returncode, refused.stdout) == (240, "") and "mean nothing to mpirun" in refused.stderr
    done = hvdrun("-q", "--no-tags", "-np", 1, "--gloo", "--config-file", file, "--ssh-config", "/dev/null", "echo", "ran")
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr


def test_network_interfaces_choose_the_address_and_one_that_is_not_there_is_refused():
    done = hvdrun("-q", "--no-tags", "-np", 1, "--network-interfaces", "lo", "env")
    env = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert (env["MASTER_ADDR"], env["NCCL_SOCKET_IFNAME"], env["HOROVOD_GLOO_IFACE"]) == ("127.0.0.1", "lo", "lo")
    done = hvdrun("-np", 2, "--network-interface", "none0,none1", "echo", "ran")
    assert (done.returncode, done.stdout) == (242, "")
    assert "localhost has no interface none0 or none1 that is up" in done.stderr


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["plan", "-np", "1", "true"], ["--check-build"]])
def test_a_text_that_cannot_be_written_is_an_error(words):
    with open("/dev/full", "wb") as full:
        done = hvdrun(*words, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 244
    assert re.fullmatch("hvdrun: cannot write to standard output(: No space left on device)?\n", done.stderr)


def test_a_time_may_have_a_unit():
    done = hvdrun("--timeout", "0.005m", "--grace", "1s", "sleep", "60")
    assert done.returncode == 124, done.stderr
