"""hvdrun -f: job files of all forms, planned and really run, with a stub in the interpreter's place that records what it got."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest

from hvdrun import ROOT, hvdrun, processes_with, read_until, start, wait_until_gone
from patience import PATIENCE

JOBS = ROOT / "configs/jobs"
GOLDEN = ROOT / "tests/golden/jobs"
ACCOUNT = ["--storage-account-name", "account"]
NODES = "localhost,127.0.0.1,127.0.0.2,127.0.0.3"  # each a node of its own, and all this machine

STUB = """#!{python} -S
import json, os, sys, time
names = ("RANK", "WORLD_SIZE", "TF_CONFIG", "CHECKPOINTS", "GREETING", "API_TOKEN", "NCCL_DEBUG")
env = {{k: v for k, v in os.environ.items() if k.startswith("AZ_") or k in names}}
record = {{"argv": [os.path.basename(sys.argv[0])] + sys.argv[1:], "cwd": os.getcwd(), "env": env}}
name = os.environ.get("RANK", "0")
with open(os.path.join(os.environ["STUB_RECORDS"], name + ".json"), "w") as file:
    json.dump(record, file)
# A parameter server is ended with the workers, and they are to give it the time to record.
late = time.monotonic() + {patience}
while "TF_CONFIG" in env and len(os.listdir(os.environ["STUB_RECORDS"])) < int(env["WORLD_SIZE"]):
    if time.monotonic() > late:
        sys.exit("not all ranks have recorded")
    time.sleep(0.01)
print("stdout of", name)
print("stderr of", name, file=sys.stderr)
"""


class Place:
    """Mounts, a home, a PATH with stubs, and what these record."""

    def __init__(self, path):
        self.path = path
        self.records = path / "records"
        self.bin = path / "bin"
        for folder in (self.records, self.bin, path / "home", *(path / "data" / n for n in ("work", "data", "external"))):
            folder.mkdir(parents=True)
        for name in ("python", "python3", "caffe", "mpirun"):
            self.program(name, STUB.format(python=sys.executable, patience=PATIENCE))
        self.program("pip", "#!/bin/sh\necho pip \"$@\"\necho pip err >&2\n")

    def program(self, name, text):
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    @property
    def env(self):
        return {**os.environ, "HOME": str(self.path / "home"), "PATH": f"{self.bin}:/usr/bin:/bin",
                "STUB_RECORDS": str(self.records)}

    def arguments(self, file, *more, hosts=NODES, mounts=True):
        where = ["--mount-root", self.path / "data"] if mounts else []
        return ["-f", file, "-H", hosts, *where, "--container", "none", "--launcher", "ssh", *ACCOUNT, *more]

    def run(self, file, *more, **options):
        return hvdrun(*self.arguments(file, *more, **options), env=self.env)

    def write(self, text, name="job.yaml"):
        (self.path / name).write_text(text)
        return self.path / name

    def kept(self):
        """{name: text} of the files of the one run that there was."""
        folders = list((self.path / "data").rglob("stdouterr")) + list((self.path / "home").rglob("hvdrun/jobs/*/*"))
        folders = [f for f in folders if list(f.glob("*"))]
        assert len(folders) == 1, folders
        return {f.name: f.read_text() for f in folders[0].iterdir()}

    def recorded(self):
        """What each rank got, without what differs from run to run."""
        def plain(text):
            text = text.replace(str(self.path), "TEST").replace(str(ROOT), "CHECKOUT")
            text = re.sub(r"hvdrun-job-[0-9a-f]{16}", "hvdrun-job-ID", text)
            text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}", "UUID", text)
            return re.sub(r"(?<![\d.])(\d+\.){3}\d+(:\d+)?", lambda m: "ADDRESS" + (":PORT" if m[2] else ""), text)

        return json.loads(plain(json.dumps([json.loads(f.read_text()) for f in sorted(self.records.iterdir())])))


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def left_folders():
    return set(pathlib.Path("/tmp").glob("hvdrun-job-*"))


SAMPLES = sorted(p.name for p in JOBS.iterdir() if p.name != "local.yaml")


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
    assert left_folders() <= before
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
    assert place.kept()["stdout.txt"] == "first\n"
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
    assert left_folders() <= before
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


def test_the_bashrc_that_preparation_wrote_is_read_by_the_ranks(place):
    file = place.write("prepare: echo 'export FROM_RC=yes' >> ~/.bashrc\ncommand: echo it is $FROM_RC\n")
    done = place.run(file, "--no-tags", hosts="localhost")
    assert "it is yes" in done.stdout.splitlines()


def test_secrets_are_masked_in_all_that_is_shown_and_kept(place):
    file = place.write("command: echo token $TOKEN; echo token $TOKEN >&2; exit 5\nsecrets: {TOKEN: }\noutput: %s\n"
                       % (place.path / "data"))
    done = hvdrun(*place.arguments(file, hosts="localhost"), env={**place.env, "TOKEN": "s3cr3t-word"})
    assert done.returncode == 5
    assert "token ***" in done.stdout and "token ***" in done.stderr
    shown = done.stdout + done.stderr + "".join(place.kept().values())
    assert "s3cr3t-word" not in shown
    refused = place.run(file, hosts="localhost")
    assert refused.returncode == 240 and "the value of this secret is not in the file" in refused.stderr


def test_a_secret_stands_on_no_command_line(place):
    file = place.write("command: touch ready; while [ ! -e go ]; do sleep 0.05; done\nsecrets: {TOKEN: unlikely-token-in-ps}\n")
    job = start(*place.arguments(file, hosts="localhost"), env=place.env, cwd=place.path)
    while not (place.path / "ready").exists():
        assert job.poll() is None
    shown = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    (place.path / "go").touch()
    assert job.wait(PATIENCE) == 0
    assert "unlikely-token-in-ps" not in shown


def test_a_job_that_needs_mpi_is_refused_where_there_is_none(place):
    (place.bin / "mpirun").unlink()
    arguments = [a for a in place.arguments(JOBS / "custom-mpi.json", hosts="localhost,127.0.0.1") if a not in ("--launcher", "ssh")]
    for name in ("bash", "sh", "mkdir", "ln", "hostname", "rm", "mv"):
        os.symlink(shutil.which(name, path="/usr/bin:/bin"), place.bin / name)
    before = left_folders()
    done = hvdrun(*arguments, env={**place.env, "PATH": str(place.bin)})
    assert done.returncode == 240 and "mpi job: " in done.stderr and "mpirun" in done.stderr
    assert left_folders() <= before


def test_x_wins_over_the_file(place):
    file = place.write("command: echo $COLOUR\nenv: {COLOUR: red}\n")
    assert "blue" in place.run(file, "-x", "COLOUR=blue", hosts="localhost").stdout


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
    assert left_folders() <= before


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


def engine(place, name, log):
    """A container engine that records its command line and runs the program on the host."""
    place.program(name, f"""#!/bin/bash
echo "{name} $*" >> {log}
case $1 in
run) while [ $# -gt 0 ]; do case $1 in -c) shift; exec bash -c "$1";; esac; shift; done;;
exec) while [ $# -gt 0 ]; do case $1 in bash) shift 2; exec bash -c "$1";; esac; shift; done;;
image) exit 1;;
esac
exit 0
""")


@pytest.mark.parametrize("name", ["podman", "docker", "apptainer"])
def test_a_container_engine_that_a_node_has_runs_preparation_and_ranks(place, name):
    log = place.path / "engine.log"
    engine(place, name, log)
    arguments = [a for a in place.arguments(JOBS / "horovod.json") if a not in ("--container", "none")]
    done = hvdrun(*arguments, "--container", name, env=place.env)
    assert done.returncode == 0, done.stderr
    assert len(place.recorded()) == 4
    calls = log.read_text().splitlines()
    started = [c for c in calls if c.startswith(f"{name} {'exec' if name == 'apptainer' else 'run'} ")]
    assert len(started) == 8  # four preparations, four ranks
    assert all(f"{place.path}/data/work:{place.path}/data/work" in c for c in started)
    assert not any("never-to-be-seen" in c for c in calls)
    if name != "apptainer":
        assert sum(" commit " in c for c in calls) == 4 and any(" rmi " in c for c in calls)
        assert all("-e API_TOKEN" in c and "--network host" in c for c in started)


def test_an_engine_that_is_asked_for_and_not_there_is_told(place):
    arguments = [a for a in place.arguments(JOBS / "horovod.json") if a not in ("--container", "none")]
    done = hvdrun(*arguments, "--container", "podman", env=place.env)
    assert done.returncode == 242 and "there is no podman on" in done.stderr


def test_every_host_runs_it_where_no_engine_is(place):
    done = place.run(JOBS / "horovod.json")
    assert done.stderr.count("the job runs on its hosts, and not in python:3.11") == 1


@pytest.mark.parametrize("text, where, words", [
    ('{"properties": {"nodeCount": 1,}}', "1:32", "a comma before '}'"),
    ('{"nodeCount": 1, "nodeCount": 2, "command": "x"}', "1:18", "given twice"),
    ('{"command": "x", "nodeCount": "two"}', "1:31", "expected a whole number"),
    ('{"command": "x", // why\n"nodeCount": 1}', "1:18", "no comments"),
    ('{"command": "\\ud83d"}', "1:20", "surrogate"),
    ('{"name": "../../x", "command": "x"}', "1:10", "cannot be the name of a job"),
    ('{"name": "%s", "command": "x"}' % ("a" * 65), "1:10", "cannot be the name of a job"),
    ('{"command": "x", "mounts": {"../x": "/data"}}', "1:29", "cannot be where something is mounted"),
    ('{"command": "x", "mounts": {"a\\nb": "/data"}}', "1:29", "cannot be where something is mounted"),
    ('{"command": "x", "mounts": {"a": "data"}}', "1:34", "absolute path"),
    ('{"command": "x", "env": {"A B": "1"}}', "1:26", "cannot be the name of a variable"),
    ('{"command": "x", "env": {"A=$(touch x)": "1"}}', "1:26", "cannot be the name of a variable"),
    ('{"command": "x", "output": "/logs/../../etc"}', "1:28", "cannot be a directory to write to"),
    ('{"command": "x", "output": "$NOWHERE/logs"}', "1:28", "nothing here says what $NOWHERE is"),
    ('{"command": "x\\u0000y"}', "1:13", "NUL"),
    ('{"command": "x", "container": "-v /:/host image"}', "1:31", "cannot be the name of an image"),
    ('{"command": "x", "timeout": "soon"}', "1:29", "expected seconds or a duration"),
    ('{"command": "x", "script": "y"}', "1:13", "both given"),
    ('{"nodeCount": 5, "command": "x"}', "1:15", "needs 5 nodes"),
    ('{"horovodSettings": {}}', "1:2", "below 'properties'"),
    ('{"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "/l"}}', "1:16", "no toolkit"),
    ('{"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "/l", "cntkSettings": {"configFilePath": "a.cntk"}}}', "1:62",
     "BrainScript"),
    ('{"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "/l", "customToolkitSettings": {}}}', "1:87", "'commandLine'"),
])
def test_what_is_wrong_is_refused_with_its_place(place, text, where, words):
    done = place.run(place.write(text, "bad.json"))
    assert (done.returncode, done.stdout) == (240, "")
    assert f"bad.json:{where}: " in done.stderr and words in done.stderr


HOSTILE = ["../../x", "$(touch executed)", "`touch executed`", "a\nb", "; touch executed", "'", '"', "日本語", "x" * 70,
           "-rf", "*", "a b", "$", "\\"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_refused_or_passed_on_and_nothing_is_executed(place, text):
    work = place.path / "data/work"
    jobs = {
        "script": {"script": text},
        "args": {"script": "s.py", "args": [text]},
        "env": {"script": "s.py", "env": {"GREETING": text}},
        "mount": {"script": "s.py", "mounts": {text: str(work)}},
        "target": {"script": "s.py", "mounts": {"work": f"{place.path}/{text}"}},
        "output": {"script": "s.py", "output": f"{place.path}/data/{text}"},
        "name": {"script": "s.py", "name": text},
        "image": {"script": "s.py", "container": text},
        "python": {"script": "s.py", "python": text},
        "input": {"properties": {"nodeCount": 1, "stdOutErrPathPrefix": str(work), "inputDirectories": [
            {"id": "A", "path": text}], "horovodSettings": {"pythonScriptFilePath": "s.py", "commandLineArgs": "$AZ_BATCHAI_INPUT_A"}}},
        "suffix": {"properties": {"nodeCount": 1, "stdOutErrPathPrefix": str(work), "outputDirectories": [
            {"id": "A", "pathPrefix": str(work), "pathSuffix": text}], "horovodSettings": {"pythonScriptFilePath": "s.py"}}},
    }
    before, folders = set(place.path.parent.iterdir()), left_folders()
    for what, job in jobs.items():
        file = place.write(json.dumps(job), f"{what}.json")
        done = hvdrun(*place.arguments(file, hosts="localhost"), env=place.env, cwd=place.path)
        assert done.returncode in (0, 242, 126, 127, 240), (what, done.stderr)
        assert not list(place.path.rglob("executed")), what
        got = {f.name: json.loads(f.read_text()) for f in place.records.iterdir()}
        if done.returncode == 0 and what in ("script", "args"):
            assert got["0.json"]["argv"][-1] == text, what
        if done.returncode == 0 and what == "env":
            assert got["0.json"]["env"]["GREETING"] == text
    assert set(place.path.parent.iterdir()) == before
    assert not (place.path.parent / "x").exists() and left_folders() <= folders


def test_unknown_keys_are_told_once_each_with_the_nearest_name(place):
    file = place.write('{"comand": "x", "command": "true", "nodecount": 1, "$comment": "no"}', "job.json")
    done = place.run(file, hosts="localhost")
    assert done.returncode == 0
    assert re.findall(r"job\.json:1:(\d+): the key '(\S+)' means nothing in a job file(?:; did you mean '(\S+)'\?)?", done.stderr) == [
        ("2", "comand", "command"), ("36", "nodecount", "nodeCount"), ("52", "$comment", "")]


def test_the_json_schema_is_the_readers_own():
    assert hvdrun("--document", "schema").stdout == (ROOT / "configs/job.schema.json").read_text()


def test_the_json_schema_agrees_with_the_reader(place):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "configs/job.schema.json").read_text())
    for job, is_good in [({"command": "true"}, True), ({"command": "true", "env": {"A": 1, "B": "x"}}, True),
                         ({"command": 1}, False), ({"command": "true", "nodeCount": 0}, False),
                         ({"command": "true", "mounts": []}, False), ({"command": "true", "gpus": "two"}, False),
                         ({"command": "true", "timeout": 5}, True), ({"script": "x", "args": "a"}, True),
                         ({"script": "x", "args": ["a", 1]}, True), ({"script": "x", "args": [[]]}, False)]:
        read = hvdrun("plan", "-f", place.write(json.dumps(job), "job.json"))
        assert (read.returncode == 0) == is_good, read.stderr
        assert jsonschema.Draft7Validator(schema).is_valid(job) == is_good, job


BATCHAI = pathlib.Path(os.environ.get("HVD_BATCHAI_JOBS", ROOT.parent / "shared/data/batchai-jobs"))
EXPECTED = {  # toolkit, nodes, processes
    "CNTK-GPU-Python": ("cntk", 1, 1), "Caffe2-GPU-Distributed": ("caffe2", 2, 2),
    "Chainer-GPU-Distributed": ("chainer", 2, 2), "Horovod-Infiniband-Benchmark": ("horovod", 2, 8),
    "Horovod-PyTorch": ("horovod", 2, 2), "Horovod-Tensorflow": ("horovod", 2, 2),
    "PyTorch-GPU-Distributed-Gloo": ("pytorch", 2, 2), "TensorFlow-GPU-Distributed": ("tensorflow", 2, 3),
    "hist-Horovod@722df9e": ("custom", 2, 1), "tutorial-cifar": ("horovod", 4, 4),
    "hist-TensorFlow-GPU-Distributed@7cef9df": "25:9: a comma before ']'",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_services_own_samples_are_planned(name):
    file = BATCHAI / f"{name}.json"
    if not file.exists():
        pytest.skip("Azure Batch AI's own sample files are not here (HVD_BATCHAI_JOBS names their folder)")
    done = hvdrun("plan", "--json", "-f", file, "-H", "a,b,c,d", "--mount-root", "/data", *ACCOUNT)
    if isinstance(EXPECTED[name], str):
        assert done.returncode == 240 and f"{file}:{EXPECTED[name]}" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)["job"]
    assert (job["toolType"], job["nodeCount"], job["processCount"]) == EXPECTED[name]
    assert job["notices"] == []
