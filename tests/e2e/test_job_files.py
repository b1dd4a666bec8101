"""hvdrun -f: job files of all forms, planned and really run, with a stub in the interpreter's place that records what it got."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from hvdrun import HVDRUN, LIBHVD, ROOT, hvdrun, read_until, start, wait_until_gone
from job_files import ACCOUNT, GOLDEN, JOBS, NODES, Place, SAMPLES, left_folders, raises_with_token
from lab import wait_until
from patience import PATIENCE


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.mark.parametrize("name", SAMPLES)
def test_each_sample_starts_what_the_golden_file_says(place, name):
    before = left_folders()
    done = place.run(JOBS / name, *(["--mount", f"work={place.path}/data/work"] if name == "native.yaml" else []))
    assert done.returncode == 0, done.stderr
    got = place.recorded()
    golden = GOLDEN / (name + ".golden")
    if os.environ.get("HVD_UPDATE_GOLDEN"):
        golden.write_text(json.dumps(got, indent=1, sort_keys=True) + "\n")
    assert got == json.loads(golden.read_text())
    wait_until(lambda: left_folders() <= before, "a folder is left")  # those of other tests come and go
    assert "never-to-be-seen" not in done.stdout + done.stderr
    assert not list(place.path.rglob("executed"))


@pytest.mark.parametrize("name", [*SAMPLES, "local.yaml"])
def test_a_plan_of_each_sample_starts_nothing_and_shows_no_secret(place, name):
    done = hvdrun("plan", "--json", "-f", JOBS / name, "-H", "a,b,c,d", "--mount-root", "/data", *ACCOUNT, env=place.env)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    ranks = [rank for node in plan["nodes"] for rank in node["ranks"]]
    assert len(ranks) == plan["job"]["processCount"] == plan["size"]
    assert all(rank["argv"][:2] == ["bash", "-c"] for rank in ranks)
    assert "never-to-be-seen" not in done.stdout
    assert not list(place.records.iterdir())


def test_what_is_printed_is_kept_in_the_documented_files(place):
    done = place.run(JOBS / "horovod.json")
    assert done.returncode == 0, done.stderr
    ids = NODES.split(",")
    kept = place.kept()
    assert sorted(kept) == sorted(["stdout.txt", "stderr.txt", *(f"execution-{i}.log" for i in ids),
                                   *(f"{s}-job_prep-{i}.txt" for s in ("stdout", "stderr") for i in ids)])
    assert sorted(kept["stdout.txt"].splitlines()) == [f"stdout of {rank}" for rank in range(4)]
    assert sorted(kept["stderr.txt"].splitlines()) == [f"stderr of {rank}" for rank in range(4)]
    assert kept["stdout-job_prep-127.0.0.2.txt"] == "pip install --user keras\nprepared on 127.0.0.2\n"
    assert kept["stderr-job_prep-127.0.0.2.txt"] == "pip err\n"
    lines = [line.split(" ", 2)[2] for line in kept["execution-127.0.0.1.log"].splitlines()]
    assert lines[:3] == ["Executing 'job environment preparation' on 127.0.0.1",
                         "'job environment preparation' succeeded on 127.0.0.1", "Executing 'job' on 127.0.0.1"]
    assert lines[-1] == "'job' succeeded with exit code 0"


def test_toolkits_without_mpi_have_a_file_for_each_process(place):
    assert place.run(JOBS / "tensorflow.json").returncode == 0
    assert {n for n in place.kept() if n.startswith("std")} == {
        f"{s}-{p}.txt" for s in ("stdout", "stderr") for p in ("wk-0", "wk-1", "ps-0")}


def test_files_grow_while_the_job_runs(place):
    gate = place.path / "gate"
    file = place.write("command: echo first; while [ ! -e %s ]; do sleep 0.05; done; echo last\noutput: %s\n"
                       % (gate, place.path / "data"))
    job = start(*place.arguments(file, hosts="localhost"), env=place.env)
    read_until(job.stdout, "first")
    # hvdrun writes to the console and to files in an order of its own.
    wait_until(lambda: [file.read_text() for file in (place.path / "data").rglob("stdout.txt")] == ["first\n"], "it is not kept")
    gate.touch()
    assert job.wait(PATIENCE) == 0
    assert place.kept()["stdout.txt"] == "first\nlast\n"


def test_a_failing_preparation_is_told_as_such_and_nothing_is_started(place):
    place.program("pip", "#!/bin/sh\necho no network >&2\nexit 3\n")
    file = place.write((JOBS / "horovod.json").read_text().replace("; echo prepared on $AZ_BATCH_NODE_ID", ""), "job.json")
    before = left_folders()
    done = place.run(file)
    assert done.returncode == 3
    assert re.search(r"hvdrun: JobPreparationFailed: job environment preparation on \S+ exited with code 3", done.stderr)
    assert "no network" in done.stderr
    assert "hvdrun: job failed before its processes were started; exit code 3" in done.stderr
    assert not list(place.records.iterdir())
    wait_until(lambda: left_folders() <= before, "a folder is left")  # those of other tests come and go
    assert any(">>>   no network" in text for text in place.kept().values())


def test_a_mount_without_a_directory_is_refused_before_anything_starts(place):
    done = place.run(JOBS / "cntk.json", "--mount", f"work={place.path}/data/work", mounts=False)
    assert (done.returncode, done.stdout) == (240, "")
    assert re.search(r"cntk\.json:\d+:\d+: no directory of the nodes is given for 'data'", done.stderr)
    done = place.run(JOBS / "cntk.json", "--mount", "dta=/x", "--mount-root", place.path / "nowhere", mounts=False)
    assert done.returncode == 242
    assert "the mount 'work': there is no directory" in done.stderr and "JobSetUpFailed" in done.stderr
    assert "--mount dta: the job mounts nothing of that name; did you mean 'data'?" in done.stderr


def test_mounts_may_stand_in_the_configuration_file(place):
    config = place.write(f"mounts:\n  work: {place.path}/data/work\n  data: {place.path}/data/data\n  other: /nowhere\n",
                         "config.yaml")
    done = place.run(JOBS / "cntk.json", "--config-file", config, mounts=False)
    assert done.returncode == 0, done.stderr
    assert "mounts nothing of that name" not in done.stderr
    naming = place.write('{"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/work", '
                         '"customToolkitSettings": {"commandLine": "touch $AZ_BATCHAI_JOB_MOUNT_ROOT/data/made"}}}',
                         "naming.json")
    done = place.run(naming, "--config-file", config, hosts="localhost", mounts=False)
    assert done.returncode == 0 and (place.path / "data/data/made").exists(), done.stderr
    bad = place.run(JOBS / "cntk.json", "--config-file", place.write("mounts:\n  work: here\n", "bad.yaml"), mounts=False)
    assert bad.returncode == 240 and "bad.yaml:2:9: mounts.work: expected the absolute path" in bad.stderr


def test_programs_of_mpi_are_started_by_mpirun(place):
    if not shutil.which("mpirun", path="/usr/bin:/bin"):
        pytest.skip("there is no mpirun")
    (place.bin / "mpirun").unlink()
    file = place.write("properties: {nodeCount: 1, stdOutErrPathPrefix: $AZ_BATCHAI_JOB_TEMP, customMpiSettings: {processCount: 2,"
                       " commandLine: 'echo $PMIX_RANK of $OMPI_COMM_WORLD_SIZE at $AZ_BATCHAI_TASK_INDEX'}}")
    arguments = [a for a in place.arguments(file, "--no-tags", hosts="localhost") if a not in ("--launcher", "ssh")]
    done = hvdrun(*arguments, env=place.env)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 of 2 at 0", "1 of 2 at 1"]


def test_a_custom_toolkit_may_start_mpirun_itself(place):
    if not shutil.which("mpirun", path="/usr/bin:/bin"):
        pytest.skip("there is no mpirun")
    (place.bin / "mpirun").unlink()
    ranks = place.write("#!/bin/sh\necho $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE ${HVD_RANK-alone}\n", "ranks.sh")
    file = place.write("properties: {nodeCount: 1, stdOutErrPathPrefix: $AZ_BATCHAI_JOB_TEMP, customToolkitSettings: {commandLine: "
                       f"mpirun --allow-run-as-root --oversubscribe --hostfile $AZ_BATCHAI_MPI_HOST_FILE sh {ranks}}}}}")
    done = place.run(file, "--no-tags", hosts="localhost:3")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{rank} of 3 alone" for rank in range(3)]


def test_output_goes_among_hvdruns_own_files_where_this_machine_lacks_the_mount(place):
    # The node has it (a folder that its set-up makes), and this machine only seems not to: it is no directory there.
    file = place.write("command: echo kept\noutput: $AZ_BATCHAI_JOB_TEMP/logs\n")
    done = place.run(file, hosts="localhost")
    assert done.returncode == 0, done.stderr
    assert place.kept()["stdout.txt"] == "kept\n"
    assert ".local/state/hvdrun/jobs/job/" in done.stderr


def test_a_relative_output_is_in_the_folder_of_the_start_or_among_hvdruns_own_files_for_batch_ais_form(place):
    file = place.write("command: echo kept\noutput: data/logs\n")
    done = hvdrun(*place.arguments(file, hosts="localhost"), env=place.env, cwd=place.path)
    assert done.returncode == 0 and f"is kept in {place.path}/data/logs/" in done.stderr, done.stderr
    assert place.kept()["stdout.txt"] == "kept\n"
    command = f"touch $AZ_BATCHAI_OUTPUT_M/m && ls models{'/*' * 9}/outputs"
    job = {"nodeCount": 1, "stdOutErrPathPrefix": "logs", "outputDirectories": [{"id": "M", "pathPrefix": "models"}],
           "customToolkitSettings": {"commandLine": command}}  # fmt: skip
    file = place.write(json.dumps({"properties": job}), "job.json")
    done = hvdrun(*place.arguments(file, "--no-tags", hosts="localhost"), env=place.env, cwd=place.path)
    assert (done.returncode, done.stdout) == (0, "m\n"), done.stderr
    assert f"is kept in {place.path}/home/.local/state/hvdrun/jobs/job/" in done.stderr and not (place.path / "logs").exists()


def test_the_bashrc_that_preparation_wrote_is_read_by_the_ranks(place):
    file = place.write("prepare: echo 'export FROM_RC=yes' >> ~/.bashrc\ncommand: echo it is $FROM_RC\n")
    done = place.run(file, "--no-tags", hosts="localhost")
    assert "it is yes" in done.stdout.splitlines()


def python_of_ranks(place, rc, *flags, **environment):
    """Which python the ranks find where preparation finds that of an activated environment, and ~/.bashrc has such a line."""
    for name in ("venv", "other"):
        python = place.path / name / "bin/python"
        python.parent.mkdir(parents=True)
        python.write_text("#!/bin/sh\n")
        python.chmod(0o755)
    (pathlib.Path(place.env["HOME"]) / ".bashrc").write_text(rc.format(place.path))
    file = place.write("prepare: type -P python\ncommand: echo; type -P python\n")
    path = f"{place.path}/venv/bin:{place.env['PATH']}"
    done = hvdrun(*place.arguments(file, "--no-tags", *flags, hosts="localhost"),
                  env={**place.env, "PATH": path, "VIRTUAL_ENV": f"{place.path}/venv", **environment})
    assert done.returncode == 0, done.stderr
    return pathlib.Path(done.stdout.splitlines()[-1]).relative_to(place.path).parts[0]


@pytest.mark.parametrize("rc, flags, found", [
    ("export PATH={}/other/bin:$PATH\n", [], "venv"),
    ("export PATH={0}/other/bin:$PATH VIRTUAL_ENV={0}/other\n", [], "other"),  # it activates another one
    ("export PATH={0}/other/bin:$PATH VIRTUAL_ENV={0}/other\n", ["-x", "PATH"], "venv"),
])
def test_an_activated_environment_and_a_path_that_is_given_count_more_than_the_bashrc(place, rc, flags, found):
    assert python_of_ranks(place, rc, *flags) == found


def test_without_an_activated_environment_the_bashrc_says_which_python(place):
    assert python_of_ranks(place, "export PATH={}/other/bin:$PATH\n", VIRTUAL_ENV="") == "other"


def test_a_script_is_run_by_python3_where_there_is_no_python(place):
    tools = place.path / "tools"
    tools.mkdir()
    for program in pathlib.Path("/usr/bin").iterdir():
        if program.name != "python":
            (tools / program.name).symlink_to(program)
    (place.bin / "python").unlink()
    file = place.write("script: t.py\nnodeCount: 1\n")
    done = hvdrun(*place.arguments(file), env={**place.env, "PATH": f"{place.bin}:{tools}"})
    assert done.returncode == 0, done.stderr
    assert place.recorded()[0]["argv"] == ["python3", "t.py"]
    done = hvdrun("python", "-c", "1", env={**place.env, "PATH": f"{place.bin}:{tools}"})
    assert done.returncode == 127 and done.stderr.endswith("; python3 is there\n"), done.stderr


def test_who_forgets_f_is_told_how_a_job_file_is_run(place):
    place.write("command: 'true'\n")
    done = hvdrun("-np", 1, "job.yaml", cwd=place.path)
    assert done.returncode == 127 and done.stderr.endswith("it is a file of the working directory: as a job file, -f job.yaml\n"), done.stderr


def test_secrets_are_masked_in_all_that_is_shown_and_kept(place):
    file = place.write("command: echo token $TOKEN; echo token $TOKEN >&2; exit 5\nsecrets: {TOKEN: }\noutput: %s\n"
                       % (place.path / "data"))
    done = hvdrun(*place.arguments(file, hosts="localhost"), env={**place.env, "TOKEN": "s3cr3t-word"})
    assert done.returncode == 5
    assert "token ***" in done.stdout and "token ***" in done.stderr
    shown = done.stdout + done.stderr + "".join(place.kept().values())
    assert "s3cr3t-word" not in shown
    prepared = place.write("command: echo s3cr3t-word\nprepare: echo s3cr3t-word\nsecrets: {TOKEN: s3cr3t-word}\n", "prepared.yaml")
    for words in ((), ("--json",)):
        planned = hvdrun("plan", *words, *place.arguments(prepared, hosts="localhost"), env=place.env)
        assert planned.returncode == 0 and "echo ***" in planned.stdout and "s3cr3t" not in planned.stdout, planned
    refused = place.run(file, hosts="localhost")
    assert refused.returncode == 240 and "the value of this secret is not in the file" in refused.stderr


@pytest.mark.parametrize("token", ["s3cr3t-word", "s3cr3t \"w\\or'd"])
def test_a_secret_in_the_exception_of_a_rank_is_masked_wherever_that_is_told(place, token):
    file = place.write(f"processCount: 2\ncommand: {sys.executable} {raises_with_token(place.path)}\nsecrets: {{TOKEN: }}\n"
                       f"output: {place.path}/data\n")
    env = {**place.env, "TOKEN": token, "HVD_LIBRARY": LIBHVD}
    for words in ([], ["--json", "--verbose"]):
        done = hvdrun("-f", file, "-H", "localhost", "--report", place.path / "page.html", "--spans", place.path / "spans.json",
                      "--metrics", place.path / "job.prom", *words, env=env)
        assert done.returncode == 1, done.stderr
        page = (place.path / "page.html").read_text()
        assert "401 for token ***" in page and "401 for token ***" in done.stderr
        kept = {path: path.read_text() for path in place.path.rglob("*") if path.is_file()}
        assert [path for path, text in kept.items() if "s3cr3t" in text] == []
        assert "s3cr3t" not in done.stdout + done.stderr
        assert not words or all(json.loads(line) for line in done.stderr.splitlines() if line.startswith("{"))


def test_no_secret_and_no_variable_stands_on_a_command_line(place):
    file = place.write("command: touch ready; while [ ! -e go ]; do sleep 0.05; done\n"
                       "secrets: {TOKEN: unlikely-token-in-ps}\nenv: {APP_PW: unlikely-value-in-ps}\n")
    job = start(*place.arguments(file, hosts="localhost"), env=place.env, cwd=place.path)
    while not (place.path / "ready").exists():
        assert job.poll() is None
        time.sleep(0.02)
    shown = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    (place.path / "go").touch()
    assert job.wait(PATIENCE) == 0
    assert "unlikely-" not in shown


def test_a_job_that_needs_mpi_is_refused_where_there_is_none(place):
    (place.bin / "mpirun").unlink()
    arguments = [a for a in place.arguments(JOBS / "custom-mpi.json", hosts="localhost,127.0.0.1") if a not in ("--launcher", "ssh")]
    for name in ("bash", "sh", "mkdir", "ln", "hostname", "rm", "mv"):
        os.symlink(shutil.which(name, path="/usr/bin:/bin"), place.bin / name)
    before = left_folders()
    done = hvdrun(*arguments, env={**place.env, "PATH": str(place.bin)})
    assert done.returncode == 242 and "mpi job: " in done.stderr and "mpirun" in done.stderr
    wait_until(lambda: left_folders() <= before, "a folder is left")  # those of other tests come and go


def test_x_wins_over_the_file(place):
    file = place.write("command: echo $COLOUR\nenv: {COLOUR: red}\n")
    assert "blue" in place.run(file, "-x", "COLOUR=blue", hosts="localhost").stdout


def test_patterns_in_arguments_become_the_files_that_match(place):
    for name in ("one.csv", "two.csv", "three.txt"):
        (place.path / "data" / "share" / name).parent.mkdir(parents=True, exist_ok=True)
        (place.path / "data" / "share" / name).write_text("")
    place.program("python", "#!/bin/bash\nprintf '<%s>' \"$@\"\n")
    file = place.write("script: train.py\nargs: $DATA/*.csv '$DATA/*.csv' \"*\" none*here [1]\n"
                       f"env: {{DATA: {place.path}/data/share}}\n")
    done = place.run(file, "--no-tags", hosts="localhost")
    folder = f"{place.path}/data/share"
    assert f"<train.py><{folder}/one.csv><{folder}/two.csv><$DATA/*.csv><*><none*here><[1]>" in done.stdout, done.stdout + done.stderr


def test_a_parameter_server_ends_with_the_workers(place):
    place.program("python", "#!/bin/bash\ncase $2 in ps) while :; do sleep 1; done;; esac\necho \"$@\"\n")
    text = (JOBS / "tensorflow.json").read_text()
    file = place.write(text.replace("--role ps", "ps").replace("--role worker", "worker"), "job.json")
    done = place.run(file)
    assert done.returncode == 0, done.stderr
    assert "succeeded" in done.stderr


def test_an_interrupted_job_leaves_no_process_and_no_folder(place):
    before = left_folders()
    file = place.write("nodeCount: 2\nprepare: 'true'\ncommand: echo running; sleep 1000\n")
    marker = f"HVD_TEST_MARKER={os.getpid()}-{place.path.name}"
    job = start(*place.arguments(file), env={**place.env, **dict([marker.split("=")])})
    read_until(job.stdout, "running", 2)
    job.send_signal(signal.SIGINT)
    assert job.wait(PATIENCE) == 130
    assert wait_until_gone(marker) == {}
    wait_until(lambda: left_folders() <= before, "a folder is left")  # those of other tests come and go


def test_an_interrupt_in_the_preparation_ends_it(place):
    file = place.write("nodeCount: 2\nprepare: echo preparing; sleep 1000\ncommand: touch %s\n" % (place.path / "ran"))
    job = start(*place.arguments(file), env=place.env)
    read_until(job.stdout, "preparing", 2)
    job.send_signal(signal.SIGINT)
    assert job.wait(PATIENCE) == 130
    assert not (place.path / "ran").exists()


def test_events_tell_of_the_ranks_alone_or_of_the_preparation_that_failed(place):
    good = place.run(JOBS / "horovod.yaml", "--json")
    events = [json.loads(line) for line in good.stderr.splitlines() if line.startswith("{")]
    assert good.returncode == 0 and [e["event"] for e in events].count("job_started") <= 1
    assert len([e for e in events if "rank" in e and e["event"] == "rank_ended"]) == 4
    file = place.write("prepare: exit 9\ncommand: 'true'\n")
    bad = place.run(file, "--json", hosts="localhost")
    events = [json.loads(line) for line in bad.stderr.splitlines() if line.startswith("{")]
    assert bad.returncode == 9 and any("JobPreparationFailed" in json.dumps(e) for e in events)


def in_own_mounts(*command):
    """The command where what it mounts ends with it."""
    alone = ["unshare", "--mount", "--propagation", "private"]
    if os.geteuid() != 0 or subprocess.run([*alone, "true"], check=False).returncode != 0:
        pytest.skip("mounting needs root, who may make mount namespaces")
    return subprocess.run([*alone, *command], capture_output=True, text=True, check=False, timeout=PATIENCE)


@pytest.mark.parametrize("step", ["prepare", "command"])
def test_what_a_job_has_mounted_is_not_emptied_by_the_clean_up(place, step):
    before = left_folders()
    precious = place.path / "precious"
    precious.mkdir()
    (precious / "keep").write_text("data")
    texts = {"prepare": "cd .", "command": ""}
    texts[step] = f"mkdir $AZ_BATCHAI_JOB_TEMP/share && mount --bind {precious} $AZ_BATCHAI_JOB_TEMP/share;"
    file = place.write(f"prepare: {texts['prepare']}\ncommand: {texts['command']} ls $AZ_BATCHAI_JOB_TEMP/share\n"
                       f"output: {place.path}/data\n")
    done = in_own_mounts(HVDRUN, "-f", file, "-H", "localhost", "--no-tags")
    left = re.search(r"cleaning up on localhost: (/tmp/hvdrun-job-\w+) is left", done.stderr)[1]
    told = f"cleaning up on localhost: {left} is left as it is, since something is mounted there: {left}/temp/share ("
    try:
        assert (done.returncode, done.stdout) == (0, "keep\n"), done.stderr
        assert [p.name for p in precious.iterdir()] == ["keep"]
        # Our own words, the last of the job, and in the node's log.
        assert done.stderr.splitlines()[-1].startswith("hvdrun: " + told)
        assert told in place.kept()["execution.log"]
    finally:
        shutil.rmtree(left)


def test_variables_and_a_command_may_be_longer_than_a_word_of_a_command_line(place):
    variables = {f"V{i}": f"{i}" * 2000 for i in range(10, 80)}
    long = ": " + "y" * 140_000
    command = f"echo $V79 | tail -c 5; {long}; echo $(env | grep -c ^V..=)"
    file = place.write(json.dumps({"command": command, "env": variables, "prepare": long}))
    done = place.run(file, "--no-tags", hosts="localhost")
    assert (done.returncode, done.stdout) == (0, "7979\n70\n"), done.stderr


def test_a_program_that_is_told_to_stop_has_its_time_for_that_whatever_stands_around_it(place):
    trap = place.program_at("slow", "#!/bin/bash\ntrap 'sleep 2.5; echo cleaned up; exit 3' TERM\necho ready\nwhile :; do sleep 0.1; done\n")
    # The time of grace only ends what would hang: it is longer than what a busy machine makes of the program's.
    arguments = place.arguments(place.write(f"command: {trap}; echo never\n"), "--no-tags", "--grace", PATIENCE, hosts="localhost")
    job = start(*arguments, env=place.env)
    read_until(job.stdout, "ready")
    job.send_signal(signal.SIGTERM)
    out = job.communicate(timeout=PATIENCE)[0]
    assert "cleaned up" in out and "never" not in out


# It starts the agent of a job of one node as Slurm's does, and takes its time to end.
SLOW_SRUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
SLURMD_NODENAME=n1 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_LOCALID=0 "$@"
code=$?
touch "$0.ends"
sleep 6
exit $code
"""


def test_a_signal_that_comes_while_the_preparation_s_step_of_slurm_ends_is_the_job_s_end(place):
    place.program("srun", SLOW_SRUN)
    file = place.write(f"prepare: 'true'\ncommand: touch {place.path}/started\n")
    job = start("-f", file, "--engine", "slurm",
                env={**place.env, "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_NUM_NODES": "1"})
    wait_until(lambda: (place.bin / "srun.ends").exists(), "no step of the preparation ends")
    time.sleep(1)  # sleeps: until hvdrun waits for srun alone
    job.send_signal(signal.SIGTERM)
    err = job.communicate(timeout=PATIENCE)[1]
    assert job.returncode == 143, err
    assert "hvdrun got SIGTERM before the ranks were started" in err
    assert not (place.path / "started").exists()


def test_a_script_that_is_not_there_is_told_before_the_preparation(place):
    place.program("python", "#!/bin/sh\necho python runs \"$@\"\n")
    there = place.path / "data/work/train.py"

    def words(text, name, *more):
        done = place.run(place.write(text, name), *more, hosts="localhost")
        assert done.returncode == 0, done.stderr
        lines = [line for line in (done.stderr + done.stdout).splitlines() if "no such script" in line or "is over" in line]
        return [line.removeprefix(f"hvdrun: {place.path}/") for line in lines]

    native = "script: $AZ_BATCHAI_JOB_MOUNT_ROOT/work/train.py\nmounts: {work: %s}\nprepare: '%s'\n"
    told = f"job.yaml:1:9: no such script here: '{there}'; the job fails unless its preparation makes it"
    assert words(native % (there.parent, "true"), "job.yaml") == [told]
    assert words(native % (there.parent, f"touch {there.parent}/new; rm {there.parent}/new # not train.py"), "job.yaml") == []
    batchai = ('{"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_TEMP", "horovodSettings": {"pythonScriptFilePath": '
               '"$AZ_BATCHAI_JOB_MOUNT_ROOT/work/train.py"}, "mountVolumes": {"unmanagedFileSystems": [{"mountCommand": "m", '
               '"relativeMountPath": "work"}]}}}')
    (line,) = words(batchai, "job.json")
    assert f"no such script here: '{there}'; nothing in the file makes it" in line
    there.write_text("")
    assert words(native % (there.parent, "true"), "job.yaml") == words(batchai, "job.json") == []
    (line,) = words("script: nowhere.py\n", "job.yaml")
    assert f"no such script here: '{ROOT}/nowhere.py'" in line
    assert words('script: "$HOME/nowhere.py"\n', "job.yaml") == words("command: python nowhere.py\n", "job.yaml") == []


def test_a_job_that_has_run_for_too_long_names_the_key_and_its_file(place):
    native = place.write("command: sleep 1000\ntimeout: 1\n")
    batchai = place.write('{"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_TEMP", "constraints": '
                          '{"maxWallClockTime": "PT1S"}, "customToolkitSettings": {"commandLine": "sleep 1000"}}}', "job.json")
    for file, key in ((native, "timeout"), (batchai, "maxWallClockTime")):
        done = place.run(file, hosts="localhost")
        assert done.returncode == 124, done.stderr
        assert f"the job has run for as long as the {key} of {file} allows" in done.stderr, done.stderr
    assert "as long as --timeout allows" in place.run(native, "--timeout", "0.5", hosts="localhost").stderr
    planned = hvdrun("plan", "--json", *place.arguments(native, "--timeout", "0", hosts="localhost"), env=place.env)
    assert json.loads(planned.stdout)["job"]["timeoutSeconds"] == 0, "what a flag says counts, be it its default"


def test_a_single_program_of_a_command_line_is_the_rank_itself(place):
    done = place.run(place.write("command: python3 -c 'import os, signal' && kill -9 $$\n"), hosts="localhost")
    assert done.returncode == 137
    dying = place.program_at("dying", "#!/bin/sh\nkill -SEGV $$\n")
    done = place.run(place.write(f"command: {dying} $HOME\n"), hosts="localhost")
    assert done.returncode == 139 and "SIGSEGV" in done.stderr, done.stderr


def test_a_discovery_script_is_found_in_the_working_directory_as_long_as_the_job_runs(place):
    # Ranks of Batch AI's form start in another folder.
    file = place.write('{"properties": {"minNodes": 1, "maxNodes": 2, "nodeCount": 1, "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_TEMP", '
                       '"horovodSettings": {"pythonScriptFilePath": "x.py", "processCount": 1}}}', "job.json")
    asked = place.path / "asked"
    (place.path / "offers").write_text(f"#!/bin/sh\necho >>{asked}\necho localhost\n")
    (place.path / "offers").chmod(0o755)
    place.program("python", f"#!/bin/sh\nuntil [ $(wc -l <{asked}) -gt 4 ]; do sleep 0.05; done\n")
    words = ["--host-discovery-script", "./offers", "--discovery-interval", "0.1"]
    done = hvdrun("-f", file, *words, env=place.env, cwd=place.path)
    assert done.returncode == 0 and "offers" not in done.stderr, done.stderr


def test_brain_script_is_run_by_cntk(place):
    place.program("cntk", "#!/bin/sh\necho cntk \"$@\"\n")
    file = place.write('{"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/work", "cntkSettings": '
                       '{"configFilePath": "a.cntk", "commandLineArgs": "rootDir=. DataDir=$AZ_BATCH_NODE_ID"}, "mountVolumes": '
                       '{"unmanagedFileSystems": [{"mountCommand": "m", "relativeMountPath": "work"}]}}}', "job.json")
    done = place.run(file, "--no-tags", hosts="localhost")
    assert (done.returncode, done.stdout) == (0, "cntk configFile=a.cntk rootDir=. DataDir=localhost\n"), done.stderr


def test_output_needs_a_home_where_this_machine_lacks_the_mount(place):
    file = place.write("command: echo kept\noutput: $AZ_BATCHAI_JOB_TEMP/logs\n")
    env = {name: value for name, value in place.env.items() if name not in ("HOME", "XDG_STATE_HOME")}
    done = hvdrun(*place.arguments(file, hosts="localhost"), env=env)
    assert done.returncode == 240 and "neither XDG_STATE_HOME nor HOME" in done.stderr
    assert not pathlib.Path("/.local").exists()
