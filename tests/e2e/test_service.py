"""The job service on this machine: submit, queue, show, follow, stop, and what survives whom."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from hvdrun import HVDRUN, old_kernel, wait_until_gone
from patience import PATIENCE
from service import GATE, HOSTS, ROOT, run_shell


def test_a_job_is_submitted_waits_runs_and_is_remembered(service):
    table = service.cluster(size="STANDARD_NC6")
    assert table == (
        "Name    Resource Group    Workspace    VM Size       State      Idle    Running    Preparing    Leaving    Unusable\n"
        "------  ----------------  -----------  ------------  -------  ------  ---------  -----------  ---------  ----------\n"
        "lab     hvdrun            default      STANDARD_NC6  steady        4          0            0          0           0\n")
    job = service.submit(f"nodeCount: 3\ncommand: {GATE}; echo done\nprepare: echo ready\n", "--name", "first")
    assert (job["name"], job["executionState"], job["nodeCount"], job["toolType"]) == ("first", "queued", 3, "horovod")
    assert job["cluster"] == {"id": "lab"} and job["creationTime"].endswith("+00:00")
    service.wait_for(lambda: service.counts() == {"idle": 1, "running": 3}, "three nodes run")
    assert service.state_of("first") == "running"
    (service.path / "gate").touch()
    waited = service("wait", "first")
    assert waited.returncode == 0 and " succeeded at " in waited.stderr
    shown = service.show("1")
    assert shown["executionInfo"]["exitCode"] == 0 and shown["executionInfo"]["errors"] is None
    assert shown["executionInfo"]["startTime"] <= shown["executionInfo"]["endTime"]
    assert service.ok("logs", "first") == "done\n" * 3
    assert service.ok("logs", "first", "--rank", 2) == "done\n"
    assert service.ok("logs", "first", "--node", HOSTS[1], "--file", "stdout-job_prep.txt") == "ready\n"
    assert "'job' succeeded with exit code 0" in service.ok("logs", "first", "--node", HOSTS[2])
    assert service.counts() == {"idle": 4}
    nodes = service.ok("nodes", "first").splitlines()
    assert nodes[0] == "ID         IP           SSH Port" or re.fullmatch(r"ID +IP +SSH Port", nodes[0])
    assert [line.split()[0] for line in nodes[2:]] == HOSTS[:3]
    files = service.ok("files", "first").splitlines()
    assert re.fullmatch(r"Name +Type +Size  Modified", files[0])
    assert re.fullmatch(r"stdout\.txt +file +15  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", files[-1])
    assert "first" in service.ok("ps")
    service.ok("rm", "first")
    assert service("show", "first").returncode == 240
    assert list(service.state.rglob("stdout.txt"))  # the files stay


def test_the_output_of_a_rank_is_found_from_everywhere(service):
    service.cluster()
    service.submit("nodeCount: 2\ncommand: echo rank $RANK\n", "--name", "kept", "--output-filename", "out")
    assert service("wait", "kept").returncode == 0
    assert service.ok("logs", "kept", "--rank", 1, cwd="/").endswith("rank 1\n")
    assert "job kept has 2 ranks" in service("logs", "kept", "--rank", 2).stderr


def test_a_job_that_a_rank_submits_outlives_the_rank_s_job(service):
    service.cluster()
    file = service.file(f"nodeCount: 2\ncommand: {GATE}; echo done\n", "next.yaml")
    done = service("-np", 1, HVDRUN, "submit", "-f", file, "--name", "next")
    assert done.returncode == 0, done.stderr
    assert list(service.supervisors()) == [1]
    service.wait_for_state("next", "running")
    (service.path / "gate").touch()
    assert service("wait", "next").returncode == 0
    assert service.ok("logs", "next") == "done\n" * 2


def test_lines_of_az_batchai_do_what_they_did(service):
    """The Horovod tutorial's, and those of the first release, with which they began."""
    service.cluster()
    file = service.file("nodeCount: 2\ncommand: echo done; pwd\n")
    az = ("az", "batchai")
    place = ("-g", "batchai.group", "-w", "work")
    assert service.ok(*az, "workspace", "create", "-n", "work", *place) == ""
    created = json.loads(service.ok(*az, "job", "create", "--cluster", "lab", "--name", "first", "--resource-group", "batchai.group",
                                    "--workspace", "work", "--experiment", "tutorial", "--config-file", file))  # fmt: skip
    assert (created["name"], created["executionState"]) == ("first", "queued")
    assert service(*az, "job", "wait", "-nfirst", "-e", "tutorial", *place, "--interval", "5").returncode == 0
    assert service.ok(*az, "job", "show", "-h").startswith("usage: hvdrun show JOB")
    assert json.loads(service.ok(*az, "job", "show", "-n", "first", *place))["executionState"] == "succeeded"
    assert service.ok(*az, "job", "show", "--name=first", "--query", "executionInfo.exitCode", *place).strip() == "0"
    assert [job["name"] for job in json.loads(service.ok(*az, "job", "list", *place))] == ["first"]
    assert service.ok("batchai", "job", "list", "-otable", *place).splitlines()[0].split()[:2] == ["Id", "Name"]
    files = json.loads(service.ok(*az, "job", "file", "list", "-j", "first", "-d", "stdouterr", *place, "--expiry", "60"))
    assert "stdout.txt" in [entry["name"] for entry in files]
    for line in (("job", "file", "stream", "-j", "first", "-f", "stdout.txt", "-e", "tutorial"),
                 ("job", "stream-file", "--job-name", "first", "--output-directory-id", "stdouterr", "--name", "stdout.txt")):
        assert service.ok(*az, *line, *place).count("done\n") == 2
    assert len(json.loads(service.ok(*az, "job", "node", "list", "-j", "first", *place))) == 2
    assert json.loads(service.ok(*az, "cluster", "show", "-n", "lab", *place))["name"] == "lab"
    assert json.loads(service.ok(*az, "cluster", "list-nodes", "-n", "lab", "-g", "batchai.group"))["name"] == "lab"
    service.ok(*az, "cluster", "resize", "-n", "lab", "-t", "0", *place)
    assert service.counts().get("idle", 0) == 0
    service.ok(*az, "cluster", "resize", "-n", "lab", "-t", "4", *place)
    assert service.counts() == {"idle": 4}
    told = service(*az, "job", "delete", "-n", "first", "-y", *place)
    assert told.returncode == 0 and "az batchai job delete is hvdrun rm first" in told.stderr
    assert service.ok(*az, "job", "list", "-o", "json") == "[]\n"
    # In the first release -r was the cluster, and -c the file.
    older = ("-n", "older", *place[:2])
    service.ok(*az, "job", "create", "-r", "lab", "-c", file, "--cluster-resource-group", "batchai.group", *older)
    assert service(*az, "job", "wait", *older).returncode == 0
    told = service(*az, "job", "delete", "-y", "--no-wait", *older)
    assert told.returncode == 0 and "az batchai job delete is hvdrun rm older\n" in told.stderr
    for option, instead in (("--storage-account-key", "AZURE_BATCHAI_STORAGE_KEY=..."), ("--afs-name", "--mount NAME=DIR"),
                            ("--bfs-name", "--mount NAME=DIR"), ("--nfs", "--mount NAME=DIR")):
        for words in ([option, "value-of-it"], [f"{option}=value-of-it"]):
            told = service(*az, "job", "create", "-c", "lab", "-n", "never", "-f", file, *words, *place)
            assert told.returncode == 240 and f"az batchai job create {option}: " in told.stderr and instead in told.stderr
            assert "value-of-it" not in told.stdout + told.stderr
    assert service.ok(*az, "job", "list", "-o", "json") == "[]\n"


def test_submit_tells_a_person_how_to_follow_the_job_and_a_program_its_record(service):
    service.cluster(hosts=HOSTS[:2])
    file = service.file("nodeCount: 2\ncommand: exit 5\n")
    assert service.ok("submit", "-f", file, "--name", "told") == (
        "job told is number 1, and waits for 2 nodes of cluster lab\n"
        "what it prints: hvdrun logs -f told\n"
        "its end: hvdrun wait told; end it now: hvdrun stop told\n")
    record = json.loads(service.ok("submit", "--json", "-f", file, "--name", "recorded"))
    assert (record["id"], record["name"], record["executionState"]) == (2, "recorded", "queued")
    # What submit prints says nothing of how the job's own messages are kept.
    for name in ("told", "recorded"):
        assert service("wait", name).returncode == 5
        details = service.show(name)["executionInfo"]["errors"][0]["details"]
        assert "hvdrun: " in str(details) and "job_ended" not in str(details)


def test_the_exit_status_of_wait_is_the_jobs_and_its_record_says_why(service):
    service.cluster()
    service.submit("command: echo broken >&2; exit 7\n", "--name", "bad")
    assert service("wait", "bad").returncode == 7
    info = service.show("bad", "executionInfo")
    (error,) = json.loads(info)["errors"]
    assert (json.loads(info)["exitCode"], error["code"], error["message"]) == (7, "JobFailed", "Job failed with non-zero exit code")
    assert "broken" in error["details"][0]["value"]
    service.submit("prepare: exit 3\ncommand: touch ran\n", "--name", "unprepared")
    assert service("wait", "unprepared").returncode == 3
    assert service.show("unprepared", "executionInfo.errors.0.code") == "JobPreparationFailed"
    assert service.show("unprepared", "executionInfo.exitCode") == "3"
    service.submit("command: sleep 100\ntimeout: 1\n", "--name", "long")
    assert service("wait", "long").returncode == 124
    assert service.show("long", "executionInfo.errors.0.code") == "MaxWallClockTimeExpiry"
    assert service.show("long", "executionInfo.exitCode") == ""
    assert [line.split()[5:] for line in service.ok("ps").splitlines() if " long " in line] == [["failed", "124"]]
    assert f"the job has run for as long as the timeout of {service.path}/job.yaml allows" in service.show("long", "executionInfo.errors.0.details.0.value")
    service.submit("command: 'true'\nmounts: {data: /nowhere/at/all}\n", "--name", "unmounted")
    assert service("wait", "unmounted").returncode == 242
    assert service.show("unmounted", "executionInfo.errors.0.code") == "JobSetUpFailed"


def test_a_program_s_own_exit_code_is_not_taken_for_one_of_hvdrun_s(service):
    service.cluster()
    for text, code, why in (("command: exit 245", 245, "JobFailed"), ("prepare: exit 241\ncommand: 'true'", 241, "JobPreparationFailed"),
                            ("command: exit 124\ntimeout: 1000", 124, "JobFailed"), ("command: exit 244", 244, "JobFailed")):
        job = service.submit(text + "\n")
        assert service("wait", job["name"]).returncode == code
        info = service.show(job["name"])["executionInfo"]
        assert (info["exitCode"], info["errors"][0]["code"]) == (code, why), text


def test_a_job_that_waits_says_for_what_and_wait_names_the_first_failure(service):
    service.cluster(hosts=HOSTS[:2])
    service.submit(f"nodeCount: 2\ncommand: {GATE}; [ $RANK = 0 ] || exit 3\n", "--name", "first")
    service.submit("command: 'true'\n", "--name", "second")
    service.wait_for(lambda: service.counts() == {"running": 2}, "it runs")
    assert service.ok("show", "second").endswith("\n\nit waits for 1 node of cluster lab: 0 of 2 are idle\n")
    (service.path / "gate").touch()
    waited = service("wait", "first")
    assert waited.returncode == 3
    assert re.search(r"^hvdrun: job failed after [\d.]+ s: rank 1 on 127\.0\.0\.2 \(pid \d+\) exited with code 3", waited.stderr, re.M)
    assert service("wait", "second").returncode == 0


def test_wait_tells_the_exception_that_ended_the_first_rank(service):
    service.cluster(hosts=HOSTS[:1])
    (service.path / "train.py").write_text("def main():\n    raise ValueError('boom')\n\n\nmain()\n")
    service.submit(f"command: {sys.executable} {service.path}/train.py\n", "--name", "boom")
    waited = service("wait", "boom")
    assert waited.returncode == 1
    assert re.search(r"exited with code 1 \(ValueError: boom, \S*/train\.py:2 in main\); exit code 1$", waited.stderr, re.M), waited.stderr


def test_several_jobs_are_waited_for_together_and_the_first_that_failed_gives_the_code(service):
    service.cluster(hosts=HOSTS[:1])
    for name, code in (("good", 0), ("four", 4), ("three", 3)):
        service.submit(f"command: exit {code}\n", "--name", name)
    waited = service("wait", "good", "three", "four")
    assert waited.returncode == 3, waited.stderr
    assert re.findall(r"job (\w+) (succeeded|failed)", waited.stderr) == [("good", "succeeded"), ("three", "failed"), ("four", "failed")]
    assert service("wait", "good").returncode == 0
    unknown = service("wait", "good", "nobody")
    assert unknown.returncode == 240 and "was submitted" not in unknown.stderr, unknown.stderr


def test_jobs_go_by_priority_then_in_their_order_and_get_all_nodes_at_once(service):
    service.cluster()
    log = service.path / "order"
    service.submit(f"nodeCount: 4\ncommand: {GATE}\n", "--name", "first")
    service.wait_for(lambda: service.counts() == {"running": 4}, "it runs")
    for name, count, priority in (("wide", 4, "normal"), ("narrow", 1, "normal"), ("low", 1, "low"), ("urgent", 4, "high")):
        service.submit(f"nodeCount: {count}\npriority: {priority}\ncommand: '[ $HVD_RANK != 0 ] || echo {name} >> {log}; sleep 0.2'\n",
                       "--name", name)
    assert service.counts() == {"running": 4}
    assert {service.state_of(n) for n in ("wide", "narrow", "low", "urgent")} == {"queued"}
    (service.path / "gate").touch()
    for name in ("wide", "narrow", "low", "urgent"):
        assert service("wait", name).returncode == 0
    assert log.read_text().split()[:2] == ["urgent", "wide"]
    assert sorted(log.read_text().split()[2:]) == ["low", "narrow"]


def test_a_job_that_needs_more_nodes_than_the_cluster_has_is_refused(service):
    service.cluster(hosts=HOSTS[:2])
    done = service("submit", "-f", service.file("nodeCount: 3\ncommand: 'true'\n"))
    assert done.returncode == 240 and "the job needs 3 nodes, and there are 2 hosts" in done.stderr
    assert service.ok("ps", "--json") == "[]\n"
    assert not list((service.state / "hvdrun/service/tickets").iterdir())


def test_a_drained_node_is_given_to_nobody_until_it_is_resumed(service):
    service.cluster(hosts=HOSTS[:2])
    service.ok("cluster", "drain", "lab", HOSTS[0])
    assert service.counts() == {"idle": 1, "unusable": 1}
    service.submit("nodeCount: 2\ncommand: 'true'\n", "--name", "both")
    service.submit("command: 'true'\n", "--name", "one")
    assert service("wait", "one").returncode == 0
    assert json.loads(service.show("one", "nodes"))[0]["nodeId"] == HOSTS[1]
    assert service.state_of("both") == "queued"
    service.ok("cluster", "resume", "lab")
    assert service("wait", "both").returncode == 0
    assert service("cluster", "drain", "lab", "nobody").returncode == 240


def test_a_job_outlives_the_shell_that_submitted_it(service):
    service.cluster()
    file = service.file(f"command: {GATE}; echo done\n")
    shell = run_shell(service, f"hvdrun submit -f {file} --name outliving >/dev/null && kill -9 $$")
    assert shell.wait(PATIENCE) == -signal.SIGKILL
    shell.communicate()
    service.wait_for_state("outliving", "running")
    (service.path / "gate").touch()
    assert service("wait", "outliving").returncode == 0


def test_a_job_runs_and_is_stopped_where_the_kernel_has_no_pidfds(service):
    def ok(*arguments):
        command = [*old_kernel(424, 1000, "ENOSYS"), HVDRUN, *arguments]
        done = subprocess.run(list(map(str, command)), env=service.env, cwd=service.path, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr

    service.cluster()
    ok("submit", "-f", service.file("nodeCount: 2\ncommand: sleep 1000\n"), "--name", "long")
    service.wait_for_state("long", "running")
    service.wait_for(lambda: service.counts() == {"running": 2, "idle": 2}, "its ranks run")
    ok("stop", "long")
    assert service.show("long", "executionInfo.errors.0.code") == "JobTerminated"
    service.wait_for(lambda: service.counts() == {"idle": 4}, "its nodes are idle")


def test_stop_ends_a_job_whether_it_waits_or_runs_and_its_files_stay(service):
    service.cluster(hosts=HOSTS[:1])
    service.submit("command: echo begun; sleep 1000\n", "--name", "running")
    service.submit("command: 'true'\n", "--name", "waiting")
    service.wait_for(lambda: service("logs", "running").stdout == "begun\n", "it runs")
    service.ok("stop", "waiting")
    service.ok("stop", "running")
    assert [line.split()[5] for line in service.ok("ps").splitlines()[2:]] == ["stopped", "stopped"]
    for name in ("waiting", "running"):
        shown = service.show(name)
        assert shown["executionState"] == "failed" and shown["executionInfo"]["exitCode"] is None
        assert shown["executionInfo"]["errors"][0]["code"] == "JobTerminated"
        waited = service("wait", name)
        assert waited.returncode == 143 and f"job {name} was stopped at " in waited.stderr
    service.ok("stop", "running")  # nothing, since it has ended
    assert service.counts() == {"idle": 1}
    assert service.ok("logs", "running") == "begun\n"
    assert wait_until_gone(service.marker) == {}


def test_a_second_job_of_a_file_has_a_name_that_is_told_and_a_failed_one_says_where_its_errors_are(service):
    service.cluster(hosts=HOSTS[:1])
    file = service.file("command: echo out; echo why >&2; exit 3\n")
    name = file.stem
    assert service("submit", "-f", file).stderr == ""
    assert "may be one line, 'command: python ...'; as in: hvdrun submit -f job.yaml" in service("submit", "python", "x.py").stderr
    assert service("submit", "-f", file).stderr == f"hvdrun: this job is named {name}-2, because there is a job {name} already\n"
    waited = service("wait", f"{name}-2")
    assert waited.returncode == 3 and f"job {name}-2 failed with exit code 3 at " in waited.stderr, waited.stderr
    shown = service("logs", f"{name}-2")
    assert (shown.stdout, shown.stderr) == (
        "out\n", f"hvdrun: job {name}-2 has failed; its standard error: hvdrun logs {name}-2 --file stderr.txt\n")
    assert service("logs", f"{name}-2", "--file", "stderr.txt").stderr == ""


def test_a_following_log_waits_for_its_file_and_ends_with_the_job(service):
    service.cluster(hosts=HOSTS[:1])
    service.submit(f"command: {GATE}\n", "--name", "ahead")
    service.submit("command: echo one; sleep 0.3; echo two\n", "--name", "followed")
    follower = service.start("logs", "-f", "followed")
    assert 'The file "stdout.txt" not found. Waiting' in follower.stderr.readline()
    never = service.start("logs", "-f", "followed", "--file", "absent.txt")
    (service.path / "gate").touch()
    assert follower.communicate(timeout=PATIENCE)[0] == "one\ntwo\n"
    assert follower.returncode == 0
    assert 'The file "absent.txt" not found for the completed job' in never.communicate(timeout=PATIENCE)[1]
    assert never.returncode == 240


def test_attach_shows_both_streams_and_ends_with_the_jobs_status(service):
    service.cluster()
    service.submit("command: echo out; echo err >&2; exit 4\n", "--name", "attached")
    done = service("attach", "attached")
    assert done.returncode == 4 and done.stdout == "out\n"
    assert "err\n" in done.stderr and "exited with code 4" in done.stderr


# Rank 0 fails when all have printed.
SPEAKING = """import os, pathlib, sys, time
rank, here = int(os.environ["HVD_RANK"]), pathlib.Path(__file__).parent
print("out of", rank, flush=True)
print("why", file=sys.stderr, flush=True)
(here / f"printed.{rank}").touch()
while rank or len(list(here.glob("printed.*"))) < int(os.environ["HVD_SIZE"]):
    time.sleep(0.05)
sys.exit(3)
"""


@pytest.mark.parametrize("settings, tail, size", [("pyTorchSettings", "-0", 2), ("tensorFlowSettings", "-wk-0", 3)])
def test_a_job_whose_processes_have_files_of_their_own_is_followed_like_any_other(service, settings, tail, size):
    service.cluster(hosts=HOSTS[:2])
    script = service.path / "train.py"
    script.write_text(SPEAKING)
    service.submit({"properties": {"nodeCount": 2, "stdOutErrPathPrefix": str(service.path / "out"), settings: {
        "pythonScriptFilePath": str(script), "pythonInterpreterPath": sys.executable}}}, "--name", "own", name="job.json")
    attached = service.start("attach", "own")
    assert service.ok("logs", "-f", "own") == "out of 0\n"
    out, err = attached.communicate(timeout=PATIENCE)
    assert attached.returncode == 3, err
    assert sorted(out.splitlines()) == [f"out of {rank}" for rank in range(size)]
    assert len(re.findall("^why$", err, re.M)) == size, err
    assert service("logs", "own").stderr == f"hvdrun: job own has failed; its standard error: hvdrun logs own --file stderr{tail}.txt\n"


def test_a_job_has_a_page_while_it_runs_and_afterwards(service, tmp_path):
    service.cluster(hosts=HOSTS[:1])
    service.submit(f"command: {GATE}; echo lost >&2; exit 9\n", "--name", "paged")
    service.submit("command: 'true'\n", "--name", "other", "--report", str(tmp_path / "own.html"))
    waiting = service("report", "other")
    assert waiting.returncode == 240
    assert waiting.stderr == "hvdrun: job other has no page before its ranks begin; it is queued\n"
    service.wait_for(lambda: service("report", "paged").returncode == 0, "it has a page")
    path = service.ok("report", "paged").strip()
    assert path.startswith(str(service.state)) and "<html" in service.ok("report", "paged", "-o", "-")
    (service.path / "gate").touch()
    assert service("wait", "paged").returncode == 9
    copy = tmp_path / "copy.html"
    assert service.ok("report", "paged", "-o", copy) == ""
    assert copy.read_text() == open(path).read()
    assert "exited with code 9" in copy.read_text() and "lost" in copy.read_text()
    assert service("wait", "other").returncode == 0
    assert service.ok("report", "other").strip() == str(tmp_path / "own.html")
    refused = service("report", "paged", "-o", tmp_path / "nowhere" / "x")
    assert refused.returncode != 0 and "nowhere/x" in refused.stderr and refused.stderr.count("\n") == 1
    service.ok("rm", "paged")
    assert service("report", "paged").returncode == 240


def test_exec_runs_a_command_on_a_node_of_the_job(service):
    service.cluster()
    service.submit(f"nodeCount: 2\ncommand: {GATE}\n", "--name", "inspected")
    service.wait_for(lambda: service.counts().get("running") == 2, "it runs")
    assert service.ok("exec", "inspected", "--node", HOSTS[1], "--", "echo", "a  b", "$HOME") == "a  b $HOME\n"
    assert service("exec", "inspected", "false").returncode == 1
    assert service("exec", "inspected", "--node", HOSTS[3], "true").returncode == 240
    (service.path / "gate").touch()
    assert service("wait", "inspected").returncode == 0


def test_exec_reaches_a_node_by_the_relative_paths_of_the_submission(service):
    (service.path / "reach.sh").write_text("shift\nexec \"$@\"\n")
    service.cluster(hosts=["far"])
    service.submit(f"command: {GATE}\n", "--name", "reached", "--rsh", "sh reach.sh")
    service.wait_for_state("reached", "running")
    assert service.ok("exec", "reached", "--", "pwd", cwd="/") == "/\n"
    (service.path / "gate").touch()
    assert service("wait", "reached").returncode == 0


def test_exec_reads_the_ssh_configuration_of_the_submission(service):
    service.cluster(hosts=["far"])
    (service.path / "conf").write_text(f"Host far\n ProxyCommand sh -c 'touch {service.path}/called.$$; cat >/dev/null; exit 1'\n")  # no answer, while ssh lives
    service.submit("command: 'true'\n", "--name", "slow", "--ssh-config", "conf", "--start-timeout", 2 * PATIENCE)

    def calls():
        return len(list(service.path.glob("called.*")))

    service.wait_for(lambda: calls() == 1, "the job calls its node")
    with service.start("exec", "slow", "true", cwd="/") as calling:
        service.wait_for(lambda: calls() == 2 or calling.poll() is not None, "exec does nothing")
        calling.terminate()
        _, err = calling.communicate(timeout=PATIENCE)
    assert calls() == 2, err
    service.ok("stop", "slow")


def test_names_are_unique_and_numbers_name_jobs_too(service):
    service.cluster()
    service.submit("command: 'true'\n", "--name", "twice")
    again = service("submit", "-f", service.path / "job.yaml", "--name", "twice")
    assert again.returncode == 240 and "there is a job 'twice' already" in again.stderr
    assert service.submit("command: 'true'\n")["name"] == "job"
    second = service.submit("command: 'true'\n")
    assert second["name"] == "job-2" and "/jobs/job-2/" in second["jobOutputDirectoryPathSegment"]
    assert service("wait", str(second["id"])).returncode == 0
    assert list(service.state.rglob("jobs/job-2/*/stdout.txt"))
    assert service("submit", "-f", service.path / "job.yaml", "--name", "7").returncode == 240
    service("wait", "twice")
    service.ok("rm", "twice")
    assert service.submit("command: 'true'\n", "--name", "twice")["id"] > second["id"]


def test_a_queued_job_starts_with_the_file_and_variables_of_its_submission(service):
    service.cluster(hosts=HOSTS[:1])
    service.submit(f"command: {GATE}\n", "--name", "ahead")
    service.env["WORD"] = "before"
    service.submit("command: echo $WORD $(pwd)\n", "--name", "kept", name="kept.yaml")
    service.env["WORD"] = "after"
    (service.path / "kept.yaml").unlink()
    (service.path / "gate").touch()
    assert service("wait", "kept").returncode == 0
    assert service.ok("logs", "kept") == f"before {service.path}\n"


HOSTILE = ["../../x", "$(touch executed)", "`touch executed`", "a\nb", "; touch executed", "'", '"', "日本語", "x" * 70, "-rf",
           "*", "a b", "", "'; DROP TABLE job; --", "%s%n", "\x1b[31m"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_refused_or_passed_on_and_nothing_is_executed(service, text):
    service.cluster()
    before = set(service.path.parent.iterdir())
    refused = [
        ("cluster", "add", text, "-H", "a"), ("cluster", "show", text or "-"), ("submit", "-c", text or "-", "-f", service.file("command: x\n")),
        ("show", text), ("logs", text), ("files", text), ("stop", text), ("rm", text), ("nodes", text), ("wait", text), ("attach", text),
        ("exec", text, "--", "true"), ("cluster", "drain", "lab", text or "-"), ("cluster", "remove", text),
        ("cluster", "add", "other", "-f", service.file({"hosts": [text]}, "hosts.json")),
        ("cluster", "add", "other", "-f", service.file({"hosts": ["a"], "mounts": {"x": text}}, "mounts.json")),
    ]
    for arguments in refused:
        done = service(*arguments)
        if "hosts.json" in str(arguments[-1]) and len(text) == 70:
            assert done.returncode == 0  # hosts may have such names
            service.ok("cluster", "remove", "other")
            continue
        assert done.returncode == 240, (arguments, done.stdout, done.stderr)
        assert "\x1b" not in done.stderr, arguments
    assert service("submit", "-f", service.file("command: x\n"), "--name", text).returncode == (240 if text else 0)
    service.submit("command: echo fine\n", "--name", "fine")
    assert service("wait", "fine").returncode == 0
    for arguments in (("logs", "fine", "--file", text), ("logs", "fine", "--node", text), ("files", "fine", "-d", text),
                      ("show", "fine", "--field", text or "-"), ("exec", "fine", "--node", text or "-", "true")):
        done = service(*arguments)
        assert done.returncode == 240 or text == "", (arguments, done.stderr)
    if text and "\n" not in text:
        env = service.submit({"script": "s.py", "python": "printf", "args": ["%s", text], "env": {"GREETING": text}}, "--name",
                             "quoted", name="quoted.json")
        service("wait", "quoted")
        assert env["environmentVariables"] == [{"name": "GREETING", "value": text}]
    assert not list(service.path.rglob("executed"))
    assert set(service.path.parent.iterdir()) == before


def test_files_of_an_output_directory_are_shown_by_its_id(service):
    service.cluster(mounts={"share": str(service.path / "share")})
    (service.path / "share").mkdir()
    root = "$AZ_BATCHAI_JOB_MOUNT_ROOT/share"
    service.submit({"properties": {"nodeCount": 1, "stdOutErrPathPrefix": root, "mountVolumes": {"azureFileShares": [
        {"azureFileUrl": "https://a.file.core.windows.net/share", "relativeMountPath": "share"}]},
        "outputDirectories": [{"id": "MODEL", "pathPrefix": root, "pathSuffix": "models"}, {"id": "LOCAL", "pathPrefix": "$AZ_BATCHAI_JOB_TEMP"}],
        "customToolkitSettings": {"commandLine": "mkdir $AZ_BATCHAI_OUTPUT_MODEL/a; echo weights > $AZ_BATCHAI_OUTPUT_MODEL/a/m.h5"}}},
        "--name", "modelled", name="job.json")
    assert service("wait", "modelled").returncode == 0
    assert re.search(r"^a +directory +\d{4}-", service.ok("files", "modelled", "-d", "MODEL"), re.M)
    assert re.search(r"^m\.h5 +file +8  ", service.ok("files", "modelled", "-d", "MODEL", "-p", "a"), re.M)
    assert service.ok("logs", "modelled", "-d", "MODEL", "--file", "a/m.h5") == "weights\n"
    assert service.ok("az", "batchai", "job", "file", "stream", "-j", "modelled", "-d", "MODEL", "-p", "a", "-f", "m.h5") == "weights\n"
    assert service("logs", "modelled", "-d", "MODEL", "-p", "../a", "--file", "m.h5").returncode == 240
    assert service("files", "modelled", "-d", "LOCAL").returncode == 240
    assert service("files", "modelled", "-p", "../..").returncode == 240


def test_the_files_of_a_job_whose_file_s_name_is_a_number_are_found(service):
    service.cluster(hosts=HOSTS[:1])
    (service.path / "models").mkdir()
    job = service.submit({"properties": {
        "nodeCount": 1, "stdOutErrPathPrefix": str(service.path / "out"),
        "outputDirectories": [{"id": "MODEL", "pathPrefix": str(service.path / "models")}],
        "customToolkitSettings": {"commandLine": "echo weights > $AZ_BATCHAI_OUTPUT_MODEL/m.h5"}}}, name="5.json")  # fmt: skip
    assert job["name"] == "job-5" and "/jobs/job-5/" in job["jobOutputDirectoryPathSegment"]
    assert service("wait", "job-5").returncode == 0
    assert "m.h5" in service.ok("files", "job-5", "-d", "MODEL")
    assert service.ok("logs", "job-5", "-d", "MODEL", "--file", "m.h5") == "weights\n"


def test_a_host_is_in_one_cluster_and_a_cluster_is_removed_when_its_jobs_have_ended(service):
    service.cluster(hosts=HOSTS[:2])
    done = service("cluster", "add", "other", "-H", f"{HOSTS[2]},{HOSTS[1]}")
    assert done.returncode == 240 and f"the host {HOSTS[1]} is in the cluster 'lab' already" in done.stderr
    assert "other" not in service.ok("cluster", "list")
    service.cluster("other", HOSTS[2:])
    assert "there are several clusters (lab, other)" in service("submit", "-f", service.file("command: 'true'\n")).stderr
    service.submit(f"command: {GATE}\n", "-c", "other", "--name", "holding")
    assert service("cluster", "remove", "other").returncode == 240
    (service.path / "gate").touch()
    assert service("wait", "holding").returncode == 0
    service.ok("cluster", "remove", "other")
    assert [c["name"] for c in json.loads(service.ok("cluster", "list", "--json"))] == ["lab"]


def test_what_the_cluster_says_is_what_its_jobs_have_unless_they_say_otherwise(service):
    for name in ("share", "own"):
        (service.path / name).mkdir()
        (service.path / name / "file").write_text(name)
    service.cluster(mounts={"data": str(service.path / "share")}, env={"COLOUR": "red", "SIZE": "big"})
    text = {"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "/tmp", "customToolkitSettings": {
        "commandLine": "echo $COLOUR $SIZE $(cat $AZ_BATCHAI_JOB_MOUNT_ROOT/data/file)"}, "mountVolumes": {"azureFileShares": [
            {"azureFileUrl": "https://a.file.core.windows.net/data", "relativeMountPath": "data"}]}}}
    text["properties"]["stdOutErrPathPrefix"] = str(service.path / "out")
    service.submit(text, "--name", "clusters", name="job.json")
    service.submit(text, "--name", "own", "-x", "SIZE=small", "--mount", f"data={service.path}/own", name="job.json")
    assert service("wait", "clusters").returncode == 0 and service("wait", "own").returncode == 0
    del text["properties"]["mountVolumes"]  # a file may only name what was mounted by its command line
    service.submit(text, "--name", "naming", name="job.json")
    assert service("wait", "naming").returncode == 0
    assert service.ok("logs", "clusters") == service.ok("logs", "naming") == "red big share\n"
    assert service.ok("logs", "own") == "red small own\n"


def test_submit_returns_before_the_job_starts_and_needs_no_terminal(service):
    service.cluster(hosts=HOSTS[:1])
    service.submit(f"command: {GATE}\n", "--name", "ahead")
    job = service.submit("command: 'true'\n", "--name", "behind")
    assert job["executionState"] == "queued" and job["executionInfo"] is None
    supervisors = service.supervisors()
    assert len(supervisors) == 2
    for pid in supervisors.values():  # its lock, until it is at work
        service.wait_for(lambda: os.readlink(f"/proc/{pid}/fd/0") == "/dev/null", "it reads nothing")  # noqa: B023
    (service.path / "gate").touch()
    assert service("wait", "behind").returncode == 0


def test_ps_shows_what_has_not_ended_and_the_newest_that_has(service):
    service.cluster()
    service.submit("command: 'true'\n", "--name", "real")
    assert service("wait", "real").returncode == 0
    with service.records() as records:
        columns = [row[1] for row in records.execute("PRAGMA table_info(job)")]
        chosen = [c for c in columns if c not in ("id", "uuid", "name")]
        for i in range(30):
            records.execute(f"INSERT INTO job(uuid, name, {', '.join(chosen)}) SELECT uuid || ?, name || ?, {', '.join(chosen)} "
                            "FROM job WHERE name = 'real'", (f"-{i}", f"-{i}"))
    few = service("ps")
    assert len(few.stdout.splitlines()) == 22 and "11 more have ended before; hvdrun ps --all" in few.stderr
    assert len(service.ok("ps", "--all").splitlines()) == 33


def test_each_command_has_its_help():
    text = subprocess.run([HVDRUN, "--help"], capture_output=True, text=True, timeout=PATIENCE).stdout
    for name in ("cluster add", "cluster show", "cluster list", "cluster drain", "cluster resume", "cluster remove", "submit", "ps",
                 "show", "wait", "files", "logs", "stop", "rm", "nodes", "exec", "attach"):
        assert name.split()[0] in text
        done = subprocess.run([HVDRUN, *name.split(), "--help"], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0 and done.stdout.startswith(f"usage: hvdrun {name}"), name
    assert subprocess.run([HVDRUN, "cluster", "frobnicate"], capture_output=True, timeout=PATIENCE).returncode == 240


def test_the_sample_of_a_cluster_is_read(service):
    assert "tutorial" in service.ok("cluster", "add", "tutorial", "-f", ROOT / "configs/cluster.yaml")


def test_an_empty_file_of_a_cluster_is_told_as_one(service, tmp_path):
    (tmp_path / "cluster.yaml").touch()
    done = service("cluster", "add", "lab", "-f", tmp_path / "cluster.yaml")
    assert done.returncode == 240
    assert done.stderr == f"hvdrun: {tmp_path}/cluster.yaml:1:1: the file is empty; expected keys with their values\n"
