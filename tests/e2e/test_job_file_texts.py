"""What stands in job files: what is refused and where, what is passed on, and what the schema says of it."""

import json
import os
import pathlib
import re

import pytest

from hvdrun import ROOT, hvdrun
from job_files import ACCOUNT, Place, left_folders
from lab import wait_until


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


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
    ('{"command": "x", "output": "~/logs"}', "1:28", "write the absolute path"),
    ('{"command": "x", "output": "$NOWHERE/logs"}', "1:28", "nothing here says what $NOWHERE is"),
    ('{"command": "x\\u0000y"}', "1:13", "NUL"),
    ('{"command": "x", "container": "-v /:/host image"}', "1:31", "cannot be the name of an image"),
    ('{"command": "x", "timeout": "soon"}', "1:29", "expected seconds or a duration"),
    ('{"command": "x", "script": "y"}', "1:13", "both given"),
    ('{"nodeCount": 5, "command": "x"}', "1:15", "needs 5 nodes"),
    ('{"horovodSettings": {}}', "1:2", "below 'properties'"),
    ('{"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "/l"}}', "1:16", "no toolkit"),
    ('{"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "/l", "cntkSettings": {"languageType": "Python", "configFilePath": "a"}}}',
     "1:62", "pythonScriptFilePath"),
    ('{"command": "x", "env": {"LONG": "%s"}}' % ("y" * 131072), "1:26", "131071"),
    ('{"command": "x", "processCount": 900000}', "1:13", "900000 ranks on localhost"),
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
    assert not (place.path.parent / "x").exists()
    wait_until(lambda: left_folders() <= folders, "a folder is left")  # those of other tests come and go


def test_unknown_keys_are_refused_once_each_with_the_nearest_name(place):
    file = place.write('{"comand": "x", "command": "true", "nodecount": 1, "$comment": "no", "none": 2}', "job.json")
    done = place.run(file, hosts="localhost")
    assert done.returncode == 240
    assert re.findall(r"job\.json:1:(\d+): the key '(\S+)' means nothing in a job file(?:; did you mean '(\S+)'\?)?", done.stderr) == [
        ("2", "comand", "command"), ("36", "nodecount", "nodeCount"), ("70", "none", "")]


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


def test_the_storage_account_is_known_to_a_job_for_slurm_too(place):
    file = place.write(json.dumps({"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "/l", "customMpiSettings": {
        "commandLine": "train --from <AZURE_BATCHAI_STORAGE_ACCOUNT>"}}}), "job.json")  # fmt: skip
    plan = ("plan", "--engine", "slurm", "-f", file)
    given = hvdrun(*plan, *ACCOUNT)
    assert given.returncode == 0 and " --storage-account-name account" in given.stdout.replace("=", " "), given.stderr
    variable = hvdrun(*plan, env={**os.environ, "AZURE_BATCHAI_STORAGE_ACCOUNT": "account"})
    assert variable.returncode == 0, variable.stderr
    assert "<AZURE_BATCHAI_STORAGE_ACCOUNT> stands here" in hvdrun(*plan).stderr


BATCHAI = pathlib.Path(os.environ.get("HVD_BATCHAI_JOBS", ROOT.parent / "shared/data/batchai-jobs"))
EXPECTED = {  # toolkit, nodes, processes
    "CNTK-GPU-Python": ("cntk", 1, 1), "Caffe2-GPU-Distributed": ("caffe2", 2, 2),
    "Chainer-GPU-Distributed": ("chainer", 2, 2), "Horovod-Infiniband-Benchmark": ("horovod", 2, 8),
    "Horovod-PyTorch": ("horovod", 2, 2), "Horovod-Tensorflow": ("horovod", 2, 2),
    "PyTorch-GPU-Distributed-Gloo": ("pytorch", 2, 2), "TensorFlow-GPU-Distributed": ("tensorflow", 2, 3),
    "hist-Horovod@722df9e": ("custom", 2, 1), "tutorial-cifar": ("horovod", 4, 4),
    "hist-TensorFlow-GPU-Distributed@7cef9df": "25:9: a comma before ']'",
}


# The recipe names a directory that it does not have.
NOTICES = {"TensorFlow-GPU-Distributed": ["9:38: nothing here sets $AZ_BATCHAI_INPUT_DATASET: the file has no input directory 'DATASET'"]}


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
    assert job["notices"] == [f"{file}:{notice}" for notice in NOTICES.get(name, [])]
