"""What `hvdrun manifest` prints: checked against the schemas of Kubernetes' own kinds, which the package kubernetes-validate
carries, and for JobSet against the fields of its API, below. No cluster is asked."""

import copy
import re
import shlex
import subprocess

import jsonschema
import kubernetes_validate
import pytest
import yaml

from hvdrun import HVDRUN, ROOT, hvdrun

# The fields of jobset.x-k8s.io/v1alpha2 that a user may set, without those that hold templates of other kinds.
TEXT, FLAG, COUNT = {"type": "string"}, {"type": "boolean"}, {"type": "integer", "minimum": 0}
TEXTS = {"type": "array", "items": TEXT}


def closed(required=(), **properties):
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


JOBSET = closed(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "jobset.x-k8s.io/v1alpha2"}, kind={"const": "JobSet"},
    metadata=closed(["name"], name=TEXT, namespace=TEXT, labels={"type": "object"}, annotations={"type": "object"}),
    spec=closed(
        ["replicatedJobs"],
        replicatedJobs={"type": "array", "items": closed(
            ["name", "template"], name=TEXT, groupName=TEXT, replicas=COUNT,
            template=closed(["spec"], metadata={"type": "object"}, spec={"type": "object"}),
            dependsOn={"type": "array", "items": closed(["name", "status"], name=TEXT, status={"enum": ["Ready", "Complete"]})})},
        network=closed(enableDNSHostnames=FLAG, subdomain=TEXT, publishNotReadyAddresses=FLAG),
        successPolicy=closed(["operator"], operator={"enum": ["All", "Any"]}, targetReplicatedJobs=TEXTS),
        failurePolicy=closed(
            maxRestarts=COUNT, restartStrategy={"enum": ["Recreate", "BlockingRecreate", "InPlaceRestart"]},
            rules={"type": "array", "items": closed(
                ["name", "action"], name=TEXT, targetReplicatedJobs=TEXTS, onJobFailureReasons=TEXTS,
                onJobFailureMessagePatterns=TEXTS,
                action={"enum": ["FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts", "RestartJob",
                                 "RestartJobAndIgnoreMaxRestarts"]})}),
        startupPolicy=closed(["startupPolicyOrder"], startupPolicyOrder={"enum": ["AnyOrder", "InOrder"]}),
        coordinator=closed(["replicatedJob"], replicatedJob=TEXT, jobIndex=COUNT, podIndex=COUNT),
        volumeClaimPolicies={"type": "array"}, suspend=FLAG, managedBy=TEXT, ttlSecondsAfterFinished=COUNT))

SAMPLES = {
    "jobset": ["--image", "train:1", "--nodes", "4", "python", "train.py"],
    "jobset-gpus": ["--image", "train:1", "--hvdrun-image", "hvdrun:1", "--nodes", "2", "--gpus-per-node", "8", "--name", "bert",
                    "-x", "A=b c", "--grace", "20", "--secret-name", "keys", "python", "train.py", "--lr", "0.1"],
    "job": ["--kind", "job", "--image", "train:1", "--nodes", "2", "-np", "4", "sh", "-c", "echo $(HOME) \"$RANK\"\n'x'"],
    "job-gpus": ["--kind", "job", "--image", "train:1", "--hvdrun-image", "hvdrun:1", "--nodes", "3", "--gpus-per-node", "1",
                 "--agent-port", "5000", "--start-timeout", "90", "true"],
}


def manifest(*words):
    done = hvdrun("manifest", *words)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def check(thing):
    """Raises a jsonschema.ValidationError, or nothing."""
    if thing["kind"] != "JobSet":
        kubernetes_validate.validate(thing, kubernetes_validate.latest_version(), strict=True)
        return
    jsonschema.validate(thing, JOBSET)
    for job in thing["spec"]["replicatedJobs"]:
        check({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}, "spec": job["template"]["spec"]})


def pods(things):
    """{"launcher": pod spec, "node": pod spec}"""
    found = {}
    for thing in things:
        if thing["kind"] == "JobSet":
            for job in thing["spec"]["replicatedJobs"]:
                found[job["name"]] = job["template"]["spec"]["template"]["spec"]
        elif thing["kind"] == "Job":
            found[thing["metadata"]["name"].rpartition("-")[2]] = thing["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_manifest_is_what_the_schemas_allow(sample):
    things = manifest(*SAMPLES[sample])
    assert {thing["kind"] for thing in things} >= ({"JobSet"} if sample.startswith("jobset") else {"Job", "Service"})
    for thing in things:
        check(thing)


def places(thing, at=()):
    """The path of every object within this one."""
    if isinstance(thing, dict):
        yield at
        for key, value in thing.items():
            yield from places(value, (*at, key))
    elif isinstance(thing, list):
        for index, value in enumerate(thing):
            yield from places(value, (*at, index))


FREE = {"labels", "selector", "stringData", "limits"}  # their keys are the user's


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_wrong_key_anywhere_is_refused(sample):
    tried = 0
    for thing in manifest(*SAMPLES[sample]):
        for place in places(thing):
            if place and place[-1] in FREE:
                continue
            wrong = copy.deepcopy(thing)
            inside = wrong
            for step in place:
                inside = inside[step]
            inside["restartpolicy"] = "Never"
            with pytest.raises(jsonschema.ValidationError):
                check(wrong)
            tried += 1
    assert tried > 15


def test_a_wrong_value_is_refused():
    (_, thing) = manifest(*SAMPLES["jobset"])
    thing["spec"]["successPolicy"]["operator"] = "all"
    with pytest.raises(jsonschema.ValidationError):
        check(thing)


@pytest.mark.parametrize("sample, name", [("jobset", "hvdrun-launcher-0-0.hvdrun:4711"),
                                          ("job-gpus", "hvdrun-launcher.hvdrun:5000")])
def test_the_nodes_call_the_name_that_the_launcher_s_pod_has(sample, name):
    things = manifest(*SAMPLES[sample])
    assert pods(things)["node"]["containers"][0]["command"][-1] == name
    if sample == "jobset":
        network = things[-1]["spec"]["network"]
        assert network == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    else:
        launcher = pods(things)["launcher"]
        service = next(thing for thing in things if thing["kind"] == "Service")
        assert f"{launcher['hostname']}.{launcher['subdomain']}" == name.partition(":")[0]
        assert service["metadata"]["name"] == launcher["subdomain"]
        labels = [thing["spec"]["template"]["metadata"]["labels"] for thing in things if thing["kind"] == "Job"]
        assert all(service["spec"]["selector"].items() <= each.items() for each in labels)


def test_options_and_the_command_reach_hvdrun_in_its_pod_as_they_were(tmp_path, monkeypatch):
    words = pods(manifest(*SAMPLES["jobset-gpus"]))["launcher"]["containers"][0]["command"]
    assert words[:6] == ["hvdrun", "--launcher=kubernetes", "--nodes=2", "--key-file=/etc/hvdrun/key", "--agent-port=4711",
                         "--start-timeout=600"]
    assert sorted(words[6:9]) == ["--grace=20", "-x", "A=b c"] and words[9:] == ["python", "train.py", "--lr", "0.1"]
    # What this machine's variables and files say is said to the pod in words.
    file = tmp_path / "settings.yaml"
    file.write_text("params:\n  fusion_threshold_mb: 8\n")
    monkeypatch.setenv("HERE", "and now")
    words = pods(manifest("--image", "a", "--nodes", "2", "-x", "HERE", "--config-file", str(file), "true"))
    words = words["launcher"]["containers"][0]["command"]
    assert "HERE=and now" in words and any(re.fullmatch(r"H\w+_FUSION_THRESHOLD=\d+", word) for word in words)
    assert not any("config-file" in word for word in words)
    # Kubernetes would replace $(HOME); the doubled $ keeps it.
    words = pods(manifest(*SAMPLES["job"]))["launcher"]["containers"][0]["command"]
    assert words[-4:] == ["--np=4", "sh", "-c", "echo $$(HOME) \"$RANK\"\n'x'"]
    plan = subprocess.run([HVDRUN, "plan", *words[1:]], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert plan.returncode == 0, plan.stderr


def test_the_key_is_fresh_closed_and_in_no_variable():
    keys = []
    for _ in range(2):
        things = manifest(*SAMPLES["jobset"])
        (secret,) = [thing for thing in things if thing["kind"] == "Secret"]
        keys.append(secret["stringData"]["key"])
        for pod in pods(things).values():
            (volume,) = [each["secret"] for each in pod["volumes"] if "secret" in each]
            assert volume == {"secretName": secret["metadata"]["name"], "defaultMode": 0o400}
            assert "env" not in pod["containers"][0] and keys[-1] not in str(pod)
    assert keys[0] != keys[1] and all(re.fullmatch("[0-9a-f]{64}", key) for key in keys)
    things = manifest(*SAMPLES["jobset-gpus"])
    assert all(thing["kind"] != "Secret" for thing in things)
    assert all(pod["volumes"][0]["secret"]["secretName"] == "keys" for pod in pods(things).values())


def test_nodes_have_shared_memory_gpus_the_agent_and_time_to_end():
    pod = pods(manifest(*SAMPLES["jobset-gpus"]))["node"]
    (container,) = pod["containers"]
    assert {"name": "shm", "emptyDir": {"medium": "Memory"}} in pod["volumes"]
    assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    assert container["image"] == "train:1" and pod["initContainers"][0]["image"] == "hvdrun:1"
    assert container["command"][0] == "/opt/hvdrun/hvdrun-agent"
    assert pod["terminationGracePeriodSeconds"] == 50  # the grace of 20 s, and time to report
    assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize("words, said", [
    ("--nodes 2 true", "manifest needs --image IMAGE and --nodes N"),
    ("--image a true", "manifest needs --image IMAGE and --nodes N"),
    ("--image a --nodes 2", "no command given"),
    ("--image a --nodes 2 --name Bert true", "--name 'Bert': expected a small letter"),
    (f"--image a --nodes 2 --name {'b' * 46} true", "up to 44 small letters"),
    ("--image a --nodes 2 -np 1 true", "leaves some of --nodes 2 without a rank"),
    ("--image a --nodes 2 -H b true", "without -H"),
    ("--image a --nodes 2 --launcher ssh true", "not for --launcher ssh"),
    ("--image a --nodes 2 -f job.json", "takes a command and no job file"),
    ("--image a --nodes 2 --kind mpijob true", "--kind"),
])
def test_what_no_manifest_can_be_written_for_is_one_line(words, said):
    done = hvdrun("manifest", *shlex.split(words))
    assert done.returncode == 240 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert done.stdout == ""


def test_the_page_s_command_prints_a_manifest():
    page = (ROOT / "launcher/docs/kubernetes.md").read_text()
    (command,) = re.findall(r"^hvdrun manifest (.*)$", page, re.M)
    for thing in manifest(*shlex.split(command)):
        check(thing)
