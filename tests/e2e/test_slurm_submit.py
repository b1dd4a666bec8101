"""hvdrun submit --engine slurm, and the commands that look after such a job, with a real Slurm of two nodes."""

import json
import shutil
import subprocess
import tempfile

import pytest

import slurm as slurm_support
from hvdrun import HVDRUN, read_until
from patience import PATIENCE

pytestmark = pytest.mark.skipif(slurm_support.missing() is not None, reason=slurm_support.missing() or "")


@pytest.fixture(scope="module")
def slurm():
    with tempfile.TemporaryDirectory(prefix="hvd-slurm-", dir="/tmp") as folder:
        with slurm_support.Slurm(folder, nodes=2) as cluster:
            cluster.environment["XDG_STATE_HOME"] = folder + "/state home"
            yield cluster


@pytest.fixture
def run(slurm, tmp_path):
    def run_here(*words, code=0):
        done = slurm.run(HVDRUN, *words, cwd=tmp_path)
        assert code is None or done.returncode == code, done.stderr + done.stdout
        return done
    yield run_here


def submit(run, *words):
    return json.loads(run("submit", "--json", "--engine", "slurm", *words).stdout)


def test_a_command_runs_on_the_nodes_and_its_record_follows_it(run):
    job = submit(run, "--name", "train", "--nodes", 2, "-np", 4, "sh", "-c", "echo $RANK of $WORLD_SIZE on $HOROVOD_HOSTNAME")
    assert job["id"].startswith("slurm:") and job["name"] == "train" and job["executionState"] == "queued"
    run("wait", "train")
    lines = run("logs", "train").stdout.splitlines()
    assert sorted(line for line in lines if line.startswith("[")) == [f"[{n}]<stdout>:{n} of 4 on n{n // 2 + 1}" for n in range(4)]
    assert any("2 nodes (n1 to n2), 4 ranks" in line for line in lines)
    shown = json.loads(run("show", job["id"], "--json").stdout)
    assert (shown["executionState"], shown["executionInfo"]["exitCode"]) == ("succeeded", 0)
    assert [node["nodeId"] for node in shown["nodes"]] == ["n1", "n2"]
    assert {"batch.sh", "stdout.txt", "status"} <= set(run("files", "train").stdout.split())
    assert job["id"] in run("ps").stdout
    again = run("submit", "--engine", "slurm", "--name", "train", "true", code=240)
    assert "there is a job 'train' already" in again.stderr
    run("rm", "train")
    assert job["id"] not in run("ps", "--all").stdout


def test_submit_tells_a_person_how_to_follow_the_job(run):
    text = run("submit", "--engine", "slurm", "--name", "told", "true").stdout
    assert "job told is slurm:" in text and "hvdrun logs -f told\n" in text and "hvdrun wait told; " in text
    run("wait", "told")


def test_a_rank_s_exit_code_is_that_of_wait(run):
    job = submit(run, "-np", 2, "sh", "-c", "[ $RANK = 1 ] || exec sleep 1000; exit 7")
    run("wait", job["name"], code=7)
    assert run("show", job["name"], "--field", "executionInfo.exitCode").stdout.strip() == "7"
    assert "rank 1 on n1" in run("logs", "-f", job["name"]).stdout


def test_stop_ends_it_and_says_so(slurm, run):
    job = submit(run, "--nodes", 2, "--grace", 1, "sh", "-c", "echo up; exec sleep 1000")
    slurm.wait_for(lambda: run("logs", job["name"], code=None).stdout.count("up") == 2, "its ranks are not up")
    assert run("show", job["name"], "--field", "executionState").stdout.strip() == "running"
    number = job["id"].removeprefix("slurm:")
    assert f"try: srun --overlap --jobid={number} --nodelist=n1 COMMAND" in run("exec", job["name"], "true", code=240).stderr
    run("stop", job["name"])
    assert run("show", job["name"], "--field", "executionState").stdout.strip() == "failed"
    assert "was stopped" in run("wait", job["name"], code=143).stderr
    assert run("show", job["name"], "--field", "executionInfo.errors.0.code").stdout.strip() == "JobTerminated"
    assert " stopped" in run("ps").stdout
    assert slurm.run("squeue", "-h", "-t", "RUNNING").stdout == ""


def test_wait_goes_on_where_slurm_begins_the_job_anew(slurm, run, tmp_path):
    """As after a preemption: the job is in the queue once more."""
    gate = tmp_path / "gate"
    script = f"echo up; until [ -e {gate} ]; do sleep 0.1; done"
    job = submit(run, "--sbatch=--requeue", "--grace", 1, "sh", "-c", script)
    slurm.wait_for(lambda: "up" in run("logs", job["name"], code=None).stdout, "its rank is not up")
    waiting = subprocess.Popen([HVDRUN, "wait", job["name"]], env=slurm.environment, stderr=subprocess.PIPE, text=True)
    read_until(waiting.stderr, "began to run")
    number = job["id"].removeprefix("slurm:")
    slurm.run("scontrol", "requeue", number)
    read_until(waiting.stderr, "was queued")
    gate.touch()
    # Slurm would wait for two minutes. It kills a job that starts in the very second in which it has ended.
    slurm.run("scontrol", "update", f"JobId={number}", "StartTime=now+3")
    _, err = waiting.communicate(timeout=PATIENCE)
    assert waiting.returncode == 0, err
    assert "succeeded" in err


def test_a_job_whose_folder_is_gone_can_be_stopped_and_removed(slurm, run):
    job = submit(run, "--grace", 1, "sh", "-c", "echo up; exec sleep 1000")
    slurm.wait_for(lambda: "up" in run("logs", job["name"], code=None).stdout, "its rank is not up")
    shutil.rmtree(job["stdOutErrDirectory"])
    run("stop", job["name"])
    assert "was stopped" in run("wait", job["name"], code=143).stderr
    run("rm", job["name"])
    assert job["id"] not in run("ps", "--all").stdout


def test_an_exit_code_of_an_earlier_start_is_forgotten(tmp_path):
    status = tmp_path / "status"
    status.write_text("243\n")
    running = subprocess.Popen([HVDRUN, f"--status-file={status}", "-np", "1", "sh", "-c", "echo up; exec sleep 1000"],
                               stdout=subprocess.PIPE, text=True)
    read_until(running.stdout, "up")
    assert not status.exists()
    running.terminate()
    running.communicate(timeout=PATIENCE)
    assert status.read_text() == "143\n"


def test_a_job_that_waits_is_queued_and_can_be_stopped(run):
    job = submit(run, "--sbatch=--hold", "true")
    assert run("show", job["name"], "--field", "executionState").stdout.strip() == "queued"
    assert "it waits in Slurm's queue: JobHeldUser\n" in run("show", job["name"]).stdout
    run("stop", job["name"])
    assert "CANCELLED" in run("show", job["name"]).stdout


def test_a_job_file_runs_with_its_nodes(run, tmp_path):
    (tmp_path / "job.json").write_text(json.dumps({"properties": {
        "nodeCount": 2, "customToolkitSettings": {"commandLine": "echo ran"},
        "stdOutErrPathPrefix": str(tmp_path / "out")}}))
    job = submit(run, "-f", "job.json")
    assert len(job["nodes"]) == 0
    done = run("wait", job["name"], code=None)
    assert done.returncode == 0, run("logs", job["name"]).stdout
    assert [path.read_text() for path in (tmp_path / "out").rglob("stdout.txt")] == ["ran\n"]


def test_the_plan_is_the_script_and_starts_nothing(run, tmp_path):
    plan = run("plan", "--engine", "slurm", "--nodes", 2, "-np", 4, "--sbatch=--partition=all", "--elastic-restarts", 2, "true").stdout
    assert plan.startswith("#!/bin/sh\n#SBATCH --job-name=hvdrun\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\n")
    for line in ("--signal=B:TERM@70", "--requeue", "--no-kill", "--open-mode=append", "--partition=all"):
        assert f"#SBATCH {line}\n" in plan
    assert plan.splitlines()[-1].startswith("exec ") and plan.splitlines()[-1].endswith("--elastic-restarts=2 true")
    plan = run("plan", "--engine", "slurm", "-np", 2, "-x", "A=1", "B=2 3", "true").stdout
    assert plan.splitlines()[-1].endswith("-x A=1 -x 'B=2 3' true")
    for name, place in ("status", "file/status"), ("job.yaml", "job.yaml"):  # the job has a file "status" of its own
        (tmp_path / name).write_text("command: 'true'\n")
        plan = run("plan", "--engine", "slurm", "-f", name).stdout
        assert f"'--file=<folder-of-the-job>/{place}'" in plan


@pytest.mark.parametrize("words, is_elastic", [
    (["--nodes=2", "--elastic-restarts=0", "true"], False),
    (["--nodes=2", "--elastic=restart", "true"], True),
    (["--nodes=2", "--reset-limit=3", "true"], True),
    (["-f", "fixed.yaml"], False),
    (["-f", "elastic.yaml"], True),
])
def test_an_elastic_job_stays_without_a_node(run, tmp_path, words, is_elastic):
    (tmp_path / "fixed.yaml").write_text("nodeCount: 2\ncommand: 'true'\n")
    (tmp_path / "elastic.yaml").write_text("nodeCount: 2\nminNodes: 1\nmaxNodes: 2\nscript: a.py\n")
    plan = run("plan", "--engine", "slurm", *words).stdout
    assert ("#SBATCH --no-kill\n" in plan, "#SBATCH --requeue\n" in plan) == (is_elastic, is_elastic)


@pytest.mark.parametrize("words, message", [
    (["submit", "--engine", "pbs", "true"], "jobs are submitted to Slurm only"),
    (["submit", "--engine", "slurm", "-H", "a", "true"], "Slurm chooses the hosts"),
    (["submit", "--engine", "slurm"], "give either a command or -f FILE"),
    (["plan", "--sbatch=--hold", "true"], "--sbatch is for submit --engine slurm"),
    (["submit", "--engine", "slurm", "--sbatch=--array=0-3", "true"], "--array=0-3 makes several jobs of one"),
    (["submit", "--engine", "slurm", "--name", "12", "true"], "not digits alone"),
])
def test_what_cannot_be_submitted_is_one_line(run, words, message):
    done = run(*words, code=240)
    assert message in done.stderr and len(done.stderr.splitlines()) == 1


def test_jobs_that_are_submitted_at_once_have_each_a_record(slurm, run, tmp_path):
    submitting = [subprocess.Popen([HVDRUN, "submit", "--json", "--engine", "slurm", "--sbatch=--hold", "true"], cwd=tmp_path,
                                   env=slurm.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    ends = [each.communicate(timeout=PATIENCE) for each in submitting]
    assert [each.returncode for each in submitting] == [0] * 4, ends
    jobs = [json.loads(out) for out, _ in ends]
    assert len({job["id"] for job in jobs}) == 4 and len({job["name"] for job in jobs}) == 4
    for job in jobs:
        run("rm", job["name"])
    assert slurm.run("squeue", "-h").stdout == ""


def test_a_job_that_slurm_is_about_to_begin_anew_has_not_ended(slurm, run, tmp_path):
    """squeue says how the last start ended; scontrol, that the job is in the queue again."""
    job = submit(run, "--sbatch=--hold", "true")
    number = job["id"].removeprefix("slurm:")
    (tmp_path / "bin").mkdir()
    for name, says in (("squeue", f"echo '{number}|NODE_FAIL|n1'"), ("scontrol", f"echo JobId={number} JobState=PENDING NodeList=")):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{says}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    environment = {**slurm.environment, "PATH": f"{tmp_path}/bin:{slurm.environment['PATH']}"}
    done = subprocess.run([HVDRUN, "show", job["name"], "--field", "executionState"], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "queued", done.stderr
    run("rm", job["name"])


def away(slurm, tmp_path):
    """A mark, while whose file is there Slurm does not answer; and the environment of commands that meet this."""
    mark = tmp_path / "away"
    (tmp_path / "bin").mkdir()
    for name in ("squeue", "scancel", "scontrol"):
        real = shutil.which(name, path=slurm.environment["PATH"])
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n[ ! -e {mark} ] || {{ echo 'Unable to contact slurm controller' >&2; exit 1; }}\n"
                                             f'exec {real} "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    return mark, {**slurm.environment, "PATH": f"{tmp_path}/bin:{slurm.environment['PATH']}"}


def test_a_job_is_known_while_slurm_does_not_answer_and_is_not_removed(slurm, run, tmp_path):
    job = submit(run, "--sbatch=--hold", "true")
    mark, environment = away(slurm, tmp_path)
    mark.touch()

    def tell(*words):
        return subprocess.run([HVDRUN, *words], env=environment, capture_output=True, text=True, timeout=PATIENCE)

    shown = tell("show", job["name"], "--field", "executionState")
    assert (shown.returncode, shown.stdout) == (0, "queued\n"), shown.stderr
    assert f"Unable to contact slurm controller; job {job['name']} is taken as it was known last" in shown.stderr
    assert "batch.sh" in tell("files", job["name"]).stdout
    assert 'The file "stdout.txt" not found for the queued job; with -f it is waited for; hvdrun files' in tell("logs", job["name"]).stderr
    for word in ("stop", "rm"):
        refused = tell(word, job["name"])
        assert refused.returncode != 0 and f"cannot stop job {job['name']}" in refused.stderr
    assert job["id"] in tell("ps").stdout and "batch.sh" in tell("files", job["name"]).stdout
    mark.unlink()
    run("rm", job["name"])
    assert job["id"] not in run("ps", "--all").stdout


@pytest.mark.parametrize("when", ["before", "while"])
def test_wait_goes_on_though_slurm_does_not_answer(slurm, run, tmp_path, when):
    job = submit(run, "--sbatch=--hold", "true")
    mark, environment = away(slurm, tmp_path)
    if when == "before":
        mark.touch()
    waiting = subprocess.Popen([HVDRUN, "wait", job["name"]], env=environment, stderr=subprocess.PIPE, text=True)
    read_until(waiting.stderr, "was submitted at")
    mark.touch()
    read_until(waiting.stderr, "Unable to contact slurm controller.*it is asked again")
    mark.unlink()
    run("stop", job["name"])
    _, err = waiting.communicate(timeout=PATIENCE)
    assert waiting.returncode == 143 and "was stopped" in err


def test_what_sbatch_refuses_is_told_in_its_words_and_leaves_nothing(run):
    done = run("submit", "--engine", "slurm", "--name", "refused", "--sbatch=--partition=none", "true", code=None)
    assert done.returncode != 0
    assert "Slurm does not take the job" in done.stderr and "partition" in done.stderr
    assert "refused" not in run("ps", "--all").stdout


def test_where_sbatch_is_missing_nothing_is_left(slurm, tmp_path):
    environment = {**slurm.environment, "PATH": str(tmp_path)}
    for _ in range(2):  # the name is free again
        done = subprocess.run([HVDRUN, "submit", "--engine", "slurm", "--name", "nowhere", "true"], env=environment, capture_output=True, text=True)
        assert done.returncode != 0 and "Slurm does not take the job" in done.stderr and "sbatch" in done.stderr
