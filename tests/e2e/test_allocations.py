"""hvdrun within jobs of batch systems that are not here: their variables and files, and starters that do what theirs do, in
the lab. Nothing of a real PBS or LSF runs; a real SGE does in test_sge.py."""

import json
import os
import re
import signal

import pytest

from hvdrun import BIN, HVDRUN, ROOT, hvdrun, read_until
from patience import PATIENCE
from ways import EXECUTES

PAGE = (ROOT / "launcher/docs/allocations.md").read_text()

# `qrsh -inherit` and `blaunch` reach only hosts of the job, with this process's standard input and output.
QRSH = """#!/bin/sh
[ "$1 $2" = "-inherit -V" ] && [ -n "$JOB_ID" ] || { echo "qrsh: $*" >&2; exit 1; }
grep -q "^$3 " "$PE_HOSTFILE" || { echo "qrsh: $3 is not of this job" >&2; exit 1; }
shift 2
exec ssh "$@"
"""
BLAUNCH = """#!/bin/sh
case " $LSB_MCPU_HOSTS" in *" $1 "*) exec ssh "$@";; esac
echo "blaunch: $1 is not of this job" >&2
exit 1
"""
# `jsrun` starts so many programs, each on a compute node that it chooses, and hands the environment on. It ends with the
# first code that is not 0.
JSRUN = """#!/bin/sh
[ "$1 $3 $4 $5 $6 $7 $8 $9" = "--nrs --rs_per_host 1 --tasks_per_rs 1 --cpu_per_rs ALL_CPUS --gpu_per_rs" ] ||
  { echo "jsrun: $*" >&2; exit 1; }
size=$2 rank=0 code=0
shift 12
trap 'kill $pids' TERM INT
for host in node2 node1; do
  [ $rank = $size ] && break
  ssh $host "cd $PWD; JSM_NAMESPACE_RANK=$rank JSM_NAMESPACE_SIZE=$size JSM_NAMESPACE_LOCAL_RANK=0 \\
    JSM_NAMESPACE_LOCAL_SIZE=1 HVD_CALL_SECRET=$HVD_CALL_SECRET exec $*" &
  pids="$pids $!" rank=$((rank + 1))
done
for pid in $pids; do
  wait $pid || code=$?
done
exit $code
"""


def job_of(engine, folder):
    """The environment of a job on launcher and node1, with two slots each; files and starters are put into the folder."""
    def write(name, text):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
        return str(folder / name)

    if engine == "pbs":
        return {"PBS_JOBID": "12.server", "PBS_NODEFILE": write("nodes", "launcher\nlauncher\nnode1\nnode1\n")}
    if engine == "lsf":
        write("blaunch", BLAUNCH)
        return {"LSB_JOBID": "12", "LSB_MCPU_HOSTS": "launcher 2 node1 2", "PATH": f"{folder}:{os.environ['PATH']}"}
    write("qrsh", QRSH)
    return {"JOB_ID": "12", "SGE_TASK_ID": "undefined", "NSLOTS": "4", "NHOSTS": "2",
            "PE_HOSTFILE": write("pe", "launcher 2 all.q@launcher UNDEFINED\nnode1 2 all.q@node1 UNDEFINED\n"),
            "PATH": f"{folder}:{os.environ['PATH']}"}


ENGINES = {"pbs": ("PBS", "PBS_NODEFILE", "ssh"), "lsf": ("LSF", "LSB_MCPU_HOSTS", "rsh"), "sge": ("SGE", "PE_HOSTFILE", "rsh")}


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param


@pytest.fixture
def environment(engine, lab2):
    folder = lab2.shared / engine
    folder.mkdir(exist_ok=True)
    yield {**os.environ, **job_of(engine, folder)}
    assert lab2.wait_for_no_processes() == []


def test_the_job_s_hosts_are_used_and_told_in_one_line(lab2, engine, environment):
    name, variable, transport = ENGINES[engine]
    done = lab2.run(HVDRUN, "sh", "-c", "echo $RANK of $WORLD_SIZE on $(hostname)", env=environment)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{rank}]<stdout>:{rank} of 4 on {host}"
                                                for rank, host in enumerate(["launcher", "launcher", "node1", "node1"])]
    told = f"hvdrun: {name} job 12: 2 nodes (launcher to node1), 4 ranks ({variable})"
    assert done.stderr.splitlines().count(told) == 1
    plan = lab2.run(HVDRUN, "plan", "true", env=environment)
    assert [way for way in re.findall(r"^\d +\d +\S+ +(\S+)", plan.stdout, re.M)] == ["local"] * 2 + [transport] * 2, plan.stdout


def test_a_rank_s_exit_code_is_the_job_s(lab2, environment):
    done = lab2.run(HVDRUN, "sh", "-c", "[ $RANK = 3 ] || exec sleep 1000; exit 7", env=environment)
    assert done.returncode == 7, done.stderr
    assert re.search(r"^hvdrun: rank 3 on node1 .*exited with code 7", done.stderr, re.M)


def test_ctrl_c_leaves_nothing(lab2, environment):
    job = lab2.popen(HVDRUN, "--grace", "1", "sh", "-c", "trap '' INT; echo up $RANK; sleep 1000 & wait", env=environment)
    read_until(job.stdout, "up 3")
    os.kill(lab2.pid_of(job), signal.SIGINT)
    _, errors = job.communicate(timeout=PATIENCE)
    assert job.returncode == 128 + signal.SIGINT, errors


def test_a_host_that_the_starter_does_not_reach_is_named(lab2):
    folder = lab2.shared / "refusing"
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, **job_of("sge", folder)}
    (folder / "qrsh").write_text("#!/bin/sh\necho 'error: executing task of job 12 failed' >&2\nexit 1\n")
    done = lab2.run(HVDRUN, "true", env=environment)
    assert done.returncode == 241
    assert "node1: rsh: qrsh -inherit -V node1 exited with code 1: error: executing task of job 12 failed" in done.stderr


@pytest.fixture
def compute_nodes(lab2):
    """The environment of a job of LSF on two compute nodes with jsrun, whose launch host is this one."""
    folder = lab2.shared / "jsrun"
    folder.mkdir(exist_ok=True)
    (folder / "jsrun").write_text(JSRUN)
    (folder / "jsrun").chmod(0o755)
    yield {**os.environ, "LSB_JOBID": "34", "LSB_MCPU_HOSTS": "launcher 1 node1 42 node2 42",
           "PATH": f"{folder}:{os.environ['PATH']}"}
    assert lab2.wait_for_no_processes() == []


@pytest.mark.parametrize("words, ranks, placed", [
    (["-np", "4"], "4 ranks (-np)", ["node1", "node1", "node2", "node2"]),
    ([], "a rank for each GPU, and one where there is none; -np says how many", ["node1", "node2"]),
])
def test_jsrun_starts_the_agents_on_the_compute_nodes(lab2, compute_nodes, words, ranks, placed):
    done = lab2.run(HVDRUN, "--jsrun", *words, "sh", "-c", "echo $RANK on $(hostname)${JSM_NAMESPACE_RANK-}", env=compute_nodes)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{rank}]<stdout>:{rank} on {host}" for rank, host in enumerate(placed)]
    assert f"hvdrun: LSF's job 34: 2 nodes (node1 to node2), {ranks}" in done.stderr.splitlines()


def test_a_node_that_no_rank_needs_gets_no_agent(lab2, compute_nodes):
    done = lab2.run(HVDRUN, "--launcher", "jsrun", "-np", "1", "hostname", env=compute_nodes)
    assert (done.returncode, done.stdout) == (0, "[0]<stdout>:node2\n"), done.stderr


def test_under_jsrun_a_rank_s_exit_code_is_the_job_s(lab2, compute_nodes):
    done = lab2.run(HVDRUN, "--jsrun", "-np", "4", "sh", "-c", "[ $RANK = 3 ] || exec sleep 1000; exit 7", env=compute_nodes)
    assert done.returncode == 7, done.stderr
    assert re.search(r"^hvdrun: rank 3 on node2 .*exited with code 7", done.stderr, re.M)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_job_of_jsrun_s(lab2, compute_nodes, number):
    job = lab2.popen(HVDRUN, "--jsrun", "-np", "4", "--grace", "1", "--reconnect-timeout", "4", "sh", "-c",
                     "trap '' INT; echo up $RANK; sleep 1000 & wait", env=compute_nodes)
    read_until(job.stdout, "up", 4)
    os.kill(lab2.pid_of(job), number)
    _, errors = job.communicate(timeout=PATIENCE)
    assert job.returncode == 128 + number, errors


def test_a_jsrun_that_fails_is_said(lab2, compute_nodes):
    folder = lab2.shared / "jsrun"
    (folder / "jsrun").write_text("#!/bin/sh\necho 'Error: Resources unavailable' >&2\nexit 1\n")
    done = lab2.run(HVDRUN, "--jsrun", "true", env=compute_nodes)
    assert done.returncode == 242 and "jsrun exited with code 1; it said: Error: Resources unavailable" in done.stderr
    (folder / "jsrun").unlink()
    done = lab2.run(HVDRUN, "--jsrun", "true", env=compute_nodes)
    assert done.returncode != 0 and "jsrun" in done.stderr


def test_the_user_s_words_win(lab2, engine, environment):
    for words in (["-H", "localhost:2"], ["--launcher", "ssh", "-np", "2"], ["--engine", "none", "-np", "2"]):
        done = lab2.run(HVDRUN, *words, "hostname", env=environment)
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == ["[0]<stdout>:launcher", "[1]<stdout>:launcher"]
        assert ENGINES[engine][0] not in done.stderr
    done = lab2.run(HVDRUN, "--engine", engine, "-np", "3", "hostname", env=environment)
    assert done.returncode == 0 and "3 ranks (" in done.stderr, done.stderr


@pytest.mark.parametrize("words", [[], ["--gloo"], ["--mpi"], ["--launcher", "mpi"], ["--mpi-args=-gpu"], ["--min-np", "2"]], ids=" ".join)
def test_a_way_to_start_ranks_of_horovodrun_s_does_not_lose_the_job_s_hosts(words):
    environment = {**os.environ, "LSB_JOBID": "12", "LSB_MCPU_HOSTS": f"{os.uname().nodename} 1 h1 2 h2 2"}
    planned = hvdrun("plan", "--json", *words, "true", env=environment)
    nodes = json.loads(planned.stdout)["nodes"]
    assert [len(node["ranks"]) for node in nodes] == [1, 2, 2] and [node["host"] for node in nodes[1:]] == ["h1", "h2"], planned


@pytest.mark.parametrize("variables, words", [
    ({"PBS_JOBID": "12"}, "this is PBS job 12, but PBS_NODEFILE, which names its nodes, is not set"),
    ({"PBS_JOBID": "12", "PBS_NODEFILE": "/no/such"}, "PBS_NODEFILE /no/such"),
    ({"PBS_JOBID": "12", "PBS_NODEFILE": "/dev/null"}, "PBS_NODEFILE names a file without a line"),
    ({"LSB_JOBID": "12"}, "neither LSB_DJOB_HOSTFILE nor LSB_MCPU_HOSTS"),
    ({"LSB_JOBID": "12", "LSB_MCPU_HOSTS": "elsewhere 4"}, "LSB_MCPU_HOSTS names elsewhere and not this host"),
    ({"JOB_ID": "12", "SGE_TASK_ID": "1", "NSLOTS": "4"}, "PE_HOSTFILE, which names its hosts, is not set"),
    ({"SM_HOSTS": "[]", "SM_CURRENT_HOST": "a"}, "SM_HOSTS has no list of hosts"),
    ({"SKYPILOT_NODE_IPS": "10.9.9.9", "SKYPILOT_NUM_NODES": "2"}, "SKYPILOT_NUM_NODES says 2"),
    ({"SLURM_JOB_ID": "12"}, "this is Slurm job 12, but SLURM_JOB_NODELIST"),
])
def test_a_job_that_is_known_by_half_is_one_line_and_starts_nothing(variables, words):
    done = hvdrun("echo", "started", env={**os.environ, **variables})
    assert done.returncode == 240 and done.stdout == ""
    assert words in done.stderr and "--engine none leaves" in done.stderr and len(done.stderr.splitlines()) == 1
    assert hvdrun("--engine", "none", "true", env={**os.environ, **variables}).returncode == 0


@pytest.mark.parametrize("arguments, words", [
    (["--engine", "pbs"], "pbs was asked for, but PBS_JOBID is not set"),
    (["--launcher", "slurm"], "slurm was asked for, but SLURM_JOB_ID is not set"),
    (["--engine", "pbs", "-H", "a"], "--engine pbs takes the hosts of the job in which hvdrun runs"),
    (["--engine", "pbs", "--launcher", "mpi"], "exclude each other"),
    (["--engine", "slurm", "--launcher", "ssh"], "exclude each other"),
    (["--engine", "condor"], "--engine"),
])
def test_an_engine_that_cannot_be_had_is_one_line(arguments, words):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PBS_", "SLURM_"))}
    done = hvdrun(*arguments, "true", env=environment)
    assert done.returncode == 240
    assert words in done.stderr and len(done.stderr.splitlines()) == 1


def test_the_page_has_the_words_of_the_flag():
    refused = hvdrun("--engine", "condor", "true").stderr
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.M)) | {"none"} == set(re.search(r"{(.*)}", refused)[1].split(","))


def test_the_page_s_recipe_for_a_list_of_addresses_runs(lab2):
    recipe = re.search(r'^(if \[ "\$SKYPILOT_NODE_RANK".*?fi) ', PAGE, re.M)[1].replace("python train.py", "hostname")
    for rank in range(2):
        environment = {**os.environ, "SKYPILOT_NODE_IPS": f"{lab2.addr('launcher')}\n{lab2.addr('node1')}",
                       "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": str(rank), "SKYPILOT_NUM_GPUS_PER_NODE": "0",
                       "PATH": f"{BIN}:{os.environ['PATH']}"}
        done = lab2.run("sh", "-c", recipe, env=environment)
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.split()) == (["[0]<stdout>:launcher", "[1]<stdout>:node1"] if rank == 0 else [])
    done = lab2.run(HVDRUN, "hostname", env=environment)
    assert done.returncode == 240 and "SKYPILOT_NODE_RANK is 1: run hvdrun on node 0 alone" in done.stderr


@pytest.fixture(params=[("OMPI_MCA_orte_default_hostfile", "a slots=2\nb slots=2\n"), ("HYDRA_HOST_FILE", "a:2\nb:2\n")],
                ids=lambda param: param[0])
def host_file(request, tmp_path):
    """What mpirun's variable is called, the file that it names, and the environment with it, as in the launcher's pod of an MPIJob."""
    variable, text = request.param
    file = tmp_path / "hosts"
    file.write_text(text)
    return variable, file, {**os.environ, variable: str(file)}


def test_a_host_file_that_a_variable_of_mpirun_names_is_used_and_told_in_one_line(host_file):
    variable, file, environment = host_file
    done = hvdrun("--rsh", EXECUTES, "sh", "-c", "echo $RANK on $HVD_CROSS_RANK", env=environment)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{rank}]<stdout>:{rank} on {rank // 2}" for rank in range(4)]
    told = f"hvdrun: host file {file}: 2 nodes (a to b), {{}} ({variable})"
    assert done.stderr.splitlines().count(told.format("4 ranks")) == 1
    fewer = hvdrun("--rsh", EXECUTES, "-np", 3, "true", env=environment)
    assert fewer.returncode == 0 and told.format("3 ranks") in fewer.stderr, fewer.stderr
    assert hvdrun("-q", "--rsh", EXECUTES, "true", env=environment).stderr == ""


def test_it_is_read_as_that_of_hostfile_is(host_file):
    _, file, environment = host_file

    def placed(*words, **options):
        done = hvdrun("plan", "--json", *words, "-np", 3, "true", **options)
        assert done.returncode == 0, done.stderr
        return [(node["host"], node["transport"], len(node["ranks"])) for node in json.loads(done.stdout)["nodes"]]

    assert placed(env=environment) == placed("--hostfile", file) == [("a", "ssh", 2), ("b", "ssh", 1)]
    assert placed("--launcher", "mpi", env=environment) == [("a", "mpirun", 2), ("b", "mpirun", 1)]
    refused = hvdrun("-np", 17, "true", env=environment)
    assert refused.returncode == 240 and refused.stderr == hvdrun("--hostfile", file, "-np", 17, "true").stderr


def test_the_pod_in_which_hvdrun_runs_needs_no_ssh_where_the_file_names_it_with_its_domain(tmp_path):
    own = os.uname().nodename
    other_name = own.split(".")[0] if "." in own else f"{own}.job.ns.svc"
    file = tmp_path / "hosts"
    file.write_text(f"{other_name} slots=2\nb.job.ns.svc slots=2\n")
    done = hvdrun("plan", "--json", "true", env={**os.environ, "OMPI_MCA_orte_default_hostfile": str(file)})
    assert done.returncode == 0, done.stderr
    nodes = [(node["host"], node["transport"], len(node["ranks"])) for node in json.loads(done.stdout)["nodes"]]
    assert nodes == [(own, "local", 2), ("b.job.ns.svc", "ssh", 2)]


def test_a_job_file_runs_on_its_hosts_too(host_file, tmp_path):
    variable, file, environment = host_file
    (tmp_path / "job.yaml").write_text("command: hostname\nnodeCount: 2\nprocessCount: 2\n")
    done = hvdrun("plan", "--json", "-f", tmp_path / "job.yaml", env=environment)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert [node["host"] for node in plan["nodes"]] == ["a", "b"]
    assert f"hvdrun: host file {file} names the hosts ({variable})\n" in done.stderr


def test_hosts_that_are_named_and_jobs_that_are_found_come_before_it(host_file, tmp_path):
    _, file, environment = host_file
    for words in (["-H", "localhost:2"], ["--engine", "none", "-np", "2"]):
        done = hvdrun(*words, "echo", "here", env=environment)
        assert (done.returncode, done.stdout.count("here")) == (0, 2), done.stderr
        assert str(file) not in done.stderr
    (tmp_path / "nodes").write_text(f"{os.uname().nodename}\n")
    done = hvdrun("true", env={**environment, "PBS_JOBID": "12", "PBS_NODEFILE": str(tmp_path / "nodes")})
    assert done.returncode == 0 and "hvdrun: PBS job 12" in done.stderr and str(file) not in done.stderr, done.stderr


@pytest.mark.parametrize("text, words", [
    (None, "I_MPI_HYDRA_HOST_FILE names the hosts, but cannot read the host file "),
    ("a slots=x\n", "I_MPI_HYDRA_HOST_FILE names the hosts, but {}:1:3: expected a number"),
    ("", "I_MPI_HYDRA_HOST_FILE names the hosts, but {}: names no host"),
])
def test_a_host_file_that_cannot_be_read_is_an_error_that_names_the_variable(tmp_path, text, words):
    file = tmp_path / "hosts"
    if text is not None:
        file.write_text(text)
    environment = {**os.environ, "I_MPI_HYDRA_HOST_FILE": str(file)}
    done = hvdrun("-np", 2, "echo", "started", env=environment)
    assert (done.returncode, done.stdout) == (240, "")
    assert words.format(file) in done.stderr and "--engine none leaves the variable aside" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert hvdrun("--engine", "none", "-np", 2, "true", env=environment).returncode == 0
