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
from patience import PATIENCE

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
            template=closed(["spec"], metadata=closed(labels={"type": "object"}, annotations={"type": "object"}),
                            spec={"type": "object"}),
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

# Those of trainer.kubeflow.org/v1alpha1, by kind; the template holds the spec of a JobSet.
META = closed(["name"], name=TEXT, namespace=TEXT, labels={"type": "object"}, annotations={"type": "object"})
TRAINER = {
    "TrainingRuntime": closed(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion={"const": "trainer.kubeflow.org/v1alpha1"}, kind=TEXT, metadata=META,
        spec=closed(
            ["template"],
            mlPolicy=closed(numNodes=COUNT, torch={"type": "object"}, mpi={"type": "object"}, flux={"type": "object"},
                            jax={"type": "object"}, xgboost={"type": "object"}),
            podGroupPolicy={"type": "object"},
            template=closed(["spec"], metadata={"type": "object"}, spec=JOBSET["properties"]["spec"]))),
    "TrainJob": closed(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion={"const": "trainer.kubeflow.org/v1alpha1"}, kind=TEXT, metadata=META,
        spec=closed(
            ["runtimeRef"],
            runtimeRef=closed(["name"], apiGroup=TEXT, kind={"enum": ["TrainingRuntime", "ClusterTrainingRuntime"]}, name=TEXT),
            trainer=closed(image=TEXT, command=TEXTS, args=TEXTS, env={"type": "array"}, numNodes=COUNT,
                           numProcPerNode=COUNT, resourcesPerNode={"type": "object"}),
            initializer={"type": "object"}, labels={"type": "object"}, annotations={"type": "object"},
            runtimePatches={"type": "array"}, activeDeadlineSeconds=COUNT, suspend=FLAG, managedBy=TEXT)),
}

SAMPLES = {
    "jobset": ["--image", "train:1", "--nodes", "4", "python", "train.py"],
    "jobset-gpus": ["--image", "train:1", "--hvdrun-image", "hvdrun:1", "--nodes", "2", "--gpus-per-node", "8", "--name", "bert",
                    "-x", "A=b c", "--grace", "20", "--secret-name", "keys", "python", "train.py", "--lr", "0.1"],
    "job": ["--kind", "job", "--image", "train:1", "--nodes", "2", "-np", "4", "sh", "-c", "echo $(HOME) \"$RANK\"\n'x'"],
    "job-gpus": ["--kind", "job", "--image", "train:1", "--hvdrun-image", "hvdrun:1", "--nodes", "3", "--gpus-per-node", "1",
                 "--agent-port", "5000", "--start-timeout", "90", "true"],
    "trainjob": ["--kind", "trainjob", "--image", "train:1", "--hvdrun-image", "hvdrun:1", "--nodes", "3",
                 "--gpus-per-node", "2", "--name", "bert", "python", "train.py"],
}


def manifest(*words):
    done = hvdrun("manifest", *words)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def check(thing):
    """Raises a jsonschema.ValidationError, or nothing."""
    if thing["kind"] in TRAINER:
        jsonschema.validate(thing, TRAINER[thing["kind"]])
        if thing["kind"] == "TrainingRuntime":
            check({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "made-of-it"},
                   "spec": thing["spec"]["template"]["spec"]})
        return
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
        if thing["kind"] in ("JobSet", "TrainingRuntime"):
            for job in thing["spec"].get("template", thing)["spec"]["replicatedJobs"]:
                found[job["name"]] = job["template"]["spec"]["template"]["spec"]
        elif thing["kind"] == "Job":
            found[thing["metadata"]["name"].rpartition("-")[2]] = thing["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_manifest_is_what_the_schemas_allow(sample):
    things = manifest(*SAMPLES[sample])
    made = {"jobset": {"JobSet"}, "job": {"Job", "Service"}, "trainjob": {"TrainingRuntime", "TrainJob"}}
    assert {thing["kind"] for thing in things} >= made[sample.partition("-")[0]]
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
                                          ("trainjob", "bert-launcher-0-0.bert:4711"),
                                          ("job-gpus", "hvdrun-launcher.hvdrun:5000")])
def test_the_nodes_call_the_name_that_the_launcher_s_pod_has(sample, name):
    things = manifest(*SAMPLES[sample])
    assert pods(things)["node"]["containers"][0]["command"][-1] == name
    if sample == "jobset":
        network = things[-1]["spec"]["network"]
        assert network == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    elif sample == "trainjob":
        runtime, job = things[-2:]
        assert job["metadata"]["name"] == "bert"  # and so of the JobSet that Trainer makes
        assert job["spec"]["runtimeRef"] == {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime",
                                             "name": runtime["metadata"]["name"]}
        assert runtime["spec"]["mlPolicy"] == {"numNodes": 3}
        jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        labels = {each["name"]: each["template"].get("metadata", {}).get("labels") for each in jobs}
        assert labels == {"launcher": None, "node": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
        assert [each["name"] for each in pods(things)["node"]["containers"]] == ["node"]
    else:
        launcher = pods(things)["launcher"]
        service = next(thing for thing in things if thing["kind"] == "Service")
        assert f"{launcher['hostname']}.{launcher['subdomain']}" == name.partition(":")[0]
        assert service["metadata"]["name"] == launcher["subdomain"]
        labels = [thing["spec"]["template"]["metadata"]["labels"] for thing in things if thing["kind"] == "Job"]
        assert all(service["spec"]["selector"].items() <= each.items() for each in labels)


def test_the_longest_name_leaves_room_for_what_kubernetes_adds_to_those_of_pods():
    name = "b" * 44
    jobset = manifest("--image", "a", "--nodes", "10000", "--name", name, "true")[-1]
    for job in jobset["spec"]["replicatedJobs"]:
        pod = f"{name}-{job['name']}-0-{job['template']['spec']['completions'] - 1}-abcde"  # as JobSet checks it
        assert len(pod) <= 63, pod


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
    plan = subprocess.run([HVDRUN, "plan", *words[1:]], capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE)
    assert plan.returncode == 0, plan.stderr


def given_by_kubernetes(word):
    """What a container gets of a word of its command where no variable is known: $$ is one $, $(NAME) is replaced."""
    return re.sub(r"\$(\$|\(([^)]*)\))", lambda found: "$" if found[1] == "$" else f"<{found[2]}>", word)


@pytest.mark.parametrize("word", ["$$", "kill -9 $$", "echo $$(A)", "$$$(A)", "$(A)$(B)", "$A $", "a$$b$(A$$)", "$((1+2))", "($)"])
def test_a_word_with_dollars_reaches_the_program_as_it_is(word):
    words = pods(manifest("--image", "a", "--nodes", "2", "sh", "-c", word))["launcher"]["containers"][0]["command"]
    assert given_by_kubernetes(words[-1]) == word, words[-1]


def test_a_word_that_is_not_unicode_is_refused():
    done = subprocess.run([HVDRUN, "manifest", "--image", "a", "--nodes", "2", "echo", b"\xff"], capture_output=True,
                          text=True, errors="replace", timeout=PATIENCE)
    assert done.returncode == 240 and "not UTF-8, which a manifest cannot hold" in done.stderr, done.stderr


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
    ("--image 'a b' --nodes 2 true", "--image 'a b' cannot be the name of an image"),
    ("--image a --hvdrun-image=-v --nodes 2 true", "--hvdrun-image '-v' cannot be the name of an image"),
    ("--image a --nodes 2", "no command given"),
    ("--image a --nodes 2 --name Bert true", "--name 'Bert': expected a small letter"),
    (f"--image a --nodes 2 --name {'b' * 45} true", "up to 43 small letters"),
    ("--image a --nodes 2 -np 1 true", "leaves some of --nodes 2 without a rank"),
    ("--image a --nodes 2 -H b true", "without -H"),
    ("--image a --nodes 2 --launcher ssh true", "not for --launcher ssh"),
    ("--image a -f nowhere.json", "nowhere.json"),
    ("--image a --nodes 2 --kind mpijob true", "--kind"),
    ("--image a --nodes 2 --secret-name Key true", "--secret-name: 'Key': expected small letters"),
    ("--image a --nodes 2 --secret-name '' true", "--secret-name: '': expected small letters"),
])
def test_what_no_manifest_can_be_written_for_is_one_line(words, said):
    done = hvdrun("manifest", *shlex.split(words))
    assert done.returncode == 240 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert done.stdout == ""


def job_file(folder, **keys):
    file = folder / "digits.yaml"
    file.write_text(yaml.safe_dump(keys))
    return str(file)


@pytest.mark.parametrize("kind", ["jobset", "job", "trainjob"])
def test_a_job_file_says_what_pods_run(tmp_path, kind):
    file = job_file(tmp_path, nodeCount=2, processCount=4, script="train.py", args="--lr 0.1", container="train:1",
                    env={"A": "b c", "HOME_OF": "$HOME/x"}, gpus="one", timeout="1:30:00")
    things = manifest("-f", file, "--kind", kind, "-x", "C=d")
    for thing in things:
        check(thing)
    node, launcher = pods(things)["node"], pods(things)["launcher"]
    assert node["containers"][0]["image"] == "train:1" and launcher["containers"][0]["image"] == "train:1"
    assert any(thing["metadata"]["name"].startswith("digits") for thing in things)
    words = [word.replace("$$(", "$(") for word in launcher["containers"][0]["command"]]
    assert "--nodes=2" in words
    options = words[6:words.index("bash")]
    assert options[:3] == ["--np=4", "--timeout=5400", "--gpus=one"]
    assert f"--setting-of-timeout=the timeout of {file}" in options
    assert "C=d" in options and "A=b c" not in words
    assert words[words.index("bash"):-1] == ["bash", "-c"]
    (tmp_path / "python").write_text("#!/bin/sh\necho $A, $HOME_OF, $C, $*\n")
    (tmp_path / "python").chmod(0o755)
    done = subprocess.run(words[words.index("bash"):], env={"HOME": "/h", "C": "d", "PATH": f"{tmp_path}:/usr/bin:/bin"},
                          capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "b c, /h/x, d, train.py --lr 0.1\n", done.stderr + words[-1]
    plan = subprocess.run([HVDRUN, "plan", *words[1:]], capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE)
    assert plan.returncode == 0, plan.stderr


def test_flags_win_over_the_job_file(tmp_path):
    file = job_file(tmp_path, nodeCount=2, command="echo $RANK", container="train:1", timeout=60)
    things = manifest("-f", file, "--nodes", "3", "-np", "6", "--image", "other:1", "--name", "mine", "--timeout", "5")
    assert things[-1]["metadata"]["name"] == "mine"
    assert pods(things)["node"]["containers"][0]["image"] == "other:1"
    words = pods(things)["launcher"]["containers"][0]["command"]
    assert "--nodes=3" in words and "--np=6" in words and "--timeout=5" in words and "--timeout=60" not in words
    assert "echo $RANK" in words[-1]
    # What the text does is what ranks on hosts would do.
    done = subprocess.run(["bash", "-c", words[-1].replace("$$(", "$(")], env={"RANK": "3", "PATH": "/usr/bin:/bin"},
                          capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "3\n", done.stderr


@pytest.mark.parametrize("keys, said", [
    ({"mounts": {"data": "/data"}}, "mounts, which the cluster's volumes replace"),
    ({"prepare": "true"}, "prepare, which belongs into the image"),
    ({"secrets": {"A": "b"}}, "secrets, which would stand in the manifest"),
    ({"output": "/out"}, "output, which is what kubectl logs shows"),
    ({"minNodes": 1}, "minNodes and maxNodes"),
    ({"hosts": ["a", "b"]}, "hosts, which the cluster chooses"),
])
def test_what_pods_cannot_do_of_a_job_file_is_one_line(tmp_path, keys, said):
    file = job_file(tmp_path, nodeCount=2, script="train.py", **keys)
    done = hvdrun("manifest", "--image", "a", "-f", file)
    assert done.returncode == 240 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert done.stdout == ""


def test_batch_ai_s_form_is_for_hosts(tmp_path):
    file = tmp_path / "job.json"
    file.write_text('{"properties": {"nodeCount": 2, "customToolkitSettings": {"commandLine": "true"},'
                    ' "stdOutErrPathPrefix": "/out"}}')
    done = hvdrun("manifest", "--image", "a", "-f", file)
    assert done.returncode == 240 and "Batch AI's form, whose folders and mounts pods do not have" in done.stderr


def test_the_page_s_command_prints_a_manifest():
    page = (ROOT / "launcher/docs/kubernetes.md").read_text()
    (command,) = re.findall(r"^hvdrun manifest (.*)$", page, re.M)
    for thing in manifest(*shlex.split(command)):
        check(thing)
