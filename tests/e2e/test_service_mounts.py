"""What a job mounts, really mounted where its cluster says how: by the real mount for what needs no server, and by helpers
first on PATH, which record what they are given, for what does."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import pytest

from hvdrun import HVDRUN, processes_with, wait_until_gone
from patience import PATIENCE
from service import HOSTS, Service

GATE = "until [ -e {gate} ]; do sleep 0.05; done"

# A mount of a kind that this machine has no server for becomes one of a folder; all others are the real one's.
MOUNT = r"""#!/bin/bash
for ((i = 1; i <= $#; i++)); do [ "${!i}" = -t ] && { i=$((i + 1)); type=${!i}; }; done
case $type in nfs|cifs) ;; *) exec @MOUNT@ "$@";; esac
printf '%s\n' "$*" >>@RECORDS@/$type.argv
if [[ "$*" =~ credentials=([^,\ ]*) ]]; then
  stat -c %a "${BASH_REMATCH[1]}" >@RECORDS@/$type.mode; cat "${BASH_REMATCH[1]}" >@RECORDS@/$type.credentials
fi
env >@RECORDS@/$type.env
[ ! -e @RECORDS@/refuse ] || { echo "mount.$type: access denied by server" >&2; exit 32; }
exec @MOUNT@ --bind @SHARES@/$type "${!#}"
"""
# As blobfuse2 does, it goes on behind the mount, holding its output open.
BLOBFUSE = r"""#!/bin/bash
printf '%s\n' "$*" >>@RECORDS@/blobfuse.argv
env >@RECORDS@/blobfuse.env
@MOUNT@ --bind @SHARES@/blobfuse "$2" || exit 1
setsid sleep 1000 &
"""


def why_not(*words):
    done = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"{' '.join(words)}: {done.stderr.strip()}"


needs_root = pytest.mark.skipif(os.geteuid() != 0 or why_not("unshare", "--mount") is not None,
                                reason="mounting needs root, who may make mount namespaces")


def make_service(path, marker):
    service = Service(path, marker)
    for name in ("records", "bin", "shares/nfs", "shares/cifs", "shares/blobfuse", "folder"):
        (path / name).mkdir(parents=True)
    for name, text in (("mount", MOUNT), ("blobfuse2", BLOBFUSE)):
        for word, value in (("@MOUNT@", shutil.which("mount", path="/usr/bin:/bin")), ("@RECORDS@", path / "records"),
                            ("@SHARES@", path / "shares")):
            text = text.replace(word, str(value))
        (path / "bin" / name).write_text(text)
        (path / "bin" / name).chmod(0o755)
    return service


@pytest.fixture
def service(tmp_path, marker):
    service = make_service(tmp_path, marker)
    yield service
    assert service.end() == {}
    assert who_sees("hvdrun-job-", marker) == []


def who_sees(text, marker):
    """Processes of the test in whose mount namespaces it stands, and this one."""
    found = []
    for pid in [os.getpid(), *processes_with(marker)]:
        try:
            found += [pid] if text in pathlib.Path(f"/proc/{pid}/mountinfo").read_text() else []
        except OSError:
            pass
    return found


def cluster(service, *systems, hosts=HOSTS[:2], **more):
    env = {"PATH": f"{service.path}/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
    return service.cluster(hosts=hosts, fileSystems=list(systems), env=env, **more)


def record(service, name):
    return (service.path / "records" / name).read_text()


def job_of(service, mounts, command, **more):
    return {"nodeCount": 2, "mounts": {name: None for name in mounts}, "command": command, **more}


BIND = {"name": "work", "type": "bind"}


@needs_root
def test_preparation_and_ranks_see_what_is_mounted_and_nobody_else(service):
    (service.path / "folder/data").write_text("42\n")
    cluster(service, {**BIND, "source": str(service.path / "folder")}, {"name": "fast/scratch", "type": "tmpfs", "source": "tmpfs"})
    service.submit(job_of(
        service, ["work", "fast/scratch"],
        "cd $AZ_BATCHAI_JOB_MOUNT_ROOT; cat work/data work/prepared | sort -u; stat -f -c %T fast/scratch; touch work/rank$HVD_RANK; "
        "echo $AZ_BATCHAI_JOB_TEMP_DIR > work/where; [ ! -L work ] && mountpoint work", prepare="echo prepared > $AZ_BATCHAI_JOB_MOUNT_ROOT/work/prepared"), "--name", "mounting")
    assert service("wait", "mounting").returncode == 0, service("logs", "mounting", "--file", "stderr.txt").stdout
    words = service.ok("logs", "mounting").splitlines()
    assert sorted(w for w in words if "mountpoint" not in w) == ["42", "42", "prepared", "prepared", "tmpfs", "tmpfs"]
    # The mount has gone, and what was in it has not.
    own_folder = pathlib.Path((service.path / "folder/where").read_text().strip())
    (service.path / "folder/where").unlink()
    assert sorted(f.name for f in (service.path / "folder").iterdir()) == ["data", "prepared", "rank0", "rank1"]
    assert not own_folder.exists()
    shown = service.show("mounting")["mountVolumes"]
    assert [m["fileSystem"] for m in shown] == [f"bind {service.path}/folder", "tmpfs tmpfs"]


@needs_root
def test_a_job_that_only_names_what_its_cluster_mounts_has_it(service):
    cluster(service, {**BIND, "source": str(service.path / "folder")})
    service.submit({"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/work/logs", "customToolkitSettings": {
        "commandLine": "echo weights > $AZ_BATCHAI_JOB_MOUNT_ROOT/work/m.h5"}}}, "--name", "naming", name="job.json")  # fmt: skip
    assert service("wait", "naming").returncode == 0, service("logs", "naming", "--file", "stderr.txt").stdout
    assert (service.path / "folder/m.h5").read_text() == "weights\n"


@needs_root
def test_a_share_is_mounted_with_its_options_and_its_password_on_no_command_line(service):
    service.env["SHARE_KEY"] = "s3cret,k'ey$X"
    cluster(service, {"name": "nfs", "type": "nfs", "source": "server:/export", "options": "vers=4.1,ro"},
            {"name": "afs", "type": "cifs", "source": "//account.file.core.windows.net/my share", "options": "vers=3.0",
             "account": "account", "passwordVariable": "SHARE_KEY"})
    (service.path / "shares/nfs/word").write_text("of nfs\n")
    (service.path / "shares/cifs/word").write_text("of cifs\n")
    service.submit(job_of(service, ["nfs", "afs"], "cat $AZ_BATCHAI_JOB_MOUNT_ROOT/*/word; env | grep -c MOUNT_PASSWORD; "
                          "tr '\\0' ' ' < /proc/self/environ | grep -c 's3c[r]et'; true"), "--name", "shared")
    assert service("wait", "shared").returncode == 0, service("logs", "shared", "--file", "stderr.txt").stdout
    assert sorted(service.ok("logs", "shared").splitlines()) == ["0"] * 4 + ["of cifs"] * 2 + ["of nfs"] * 2
    places = {line.split()[-1].split("/")[-1] for line in record(service, "nfs.argv").splitlines()}
    assert places == {"nfs"}
    # Set up and each process, on two nodes each.
    assert [line.rsplit(" ", 1)[0] for line in record(service, "nfs.argv").splitlines()] == ["-t nfs -o vers=4.1,ro -- server:/export"] * 4
    for line in record(service, "cifs.argv").splitlines():
        assert line.startswith("-t cifs -o credentials=/tmp/hvdrun-job-") and "s3cret" not in line
        assert line.rsplit("/", 3)[0].endswith("/own/credentials,vers=3.0 -- //account.file.core.windows.net/my share /tmp"), line
    assert record(service, "cifs.credentials") == "username=account\npassword=s3cret,k'ey$X\n"
    assert record(service, "cifs.mode") == "600\n"
    assert [f for f in service.files_with("s3cret") if "tickets" not in str(f)] == []
    assert "s3cret" not in service.ok("show", "shared", "--json") + service.ok("cluster", "show", "lab", "--json")


@needs_root
def test_a_blob_container_is_mounted_by_blobfuse_which_ends_with_the_job(service):
    service.env["AZURE_BATCHAI_STORAGE_KEY"] = "the-account-key"
    cluster(service, {"name": "blobs", "type": "blobfuse", "source": "container", "account": "account", "options": "--read-only -o allow_other"})
    (service.path / "shares/blobfuse/word").write_text("of a blob\n")
    service.submit(job_of(service, ["blobs"], "cat $AZ_BATCHAI_JOB_MOUNT_ROOT/blobs/word; env | grep -c AZURE_STORAGE_; true"), "--name", "blob")
    assert service("wait", "blob").returncode == 0, service("logs", "blob", "--file", "stderr.txt").stdout
    assert sorted(service.ok("logs", "blob").splitlines()) == ["0", "0", "of a blob", "of a blob"]
    line = record(service, "blobfuse.argv").splitlines()[0]
    assert line.startswith("mount /tmp/hvdrun-job-") and line.endswith(" --read-only -o allow_other")
    assert "/mounts/blobs --container-name=container --tmp-path=/tmp/hvdrun-job-" in line and "the-account-key" not in line
    env = record(service, "blobfuse.env")
    assert "AZURE_STORAGE_ACCOUNT=account\n" in env and "AZURE_STORAGE_ACCESS_KEY=the-account-key\n" in env
    assert wait_until_gone(service.marker) == {}


@needs_root
def test_a_mount_that_fails_is_told_with_the_host_what_was_said_and_what_to_try(service):
    (service.path / "records/refuse").touch()
    cluster(service, {"name": "nfs", "type": "nfs", "source": "server:/export"}, hosts=HOSTS[:1])
    service.submit({"mounts": {"nfs": None}, "command": "touch ran"}, "--name", "refused")
    assert service("wait", "refused").returncode == 242
    assert service.show("refused", "executionInfo.errors.0.code") == "JobSetUpFailed"
    said = service.show("refused", "executionInfo.errors.0.details")
    assert "the mount 'nfs' (nfs server:/export) on " in said
    assert "mount.nfs: access denied by server (code 32)" in said and "--mount nfs=DIR" in said
    assert not (service.path / "ran").exists()
    (service.path / "bin/blobfuse2").unlink()
    service.env["AZURE_BATCHAI_STORAGE_KEY"] = "the-account-key"
    service.ok("cluster", "remove", "lab")
    cluster(service, {"name": "blobs", "type": "blobfuse", "source": "container", "account": "account"}, hosts=HOSTS[:1])
    service.submit({"mounts": {"blobs": None}, "command": "touch ran"}, "--name", "unable")
    assert service("wait", "unable").returncode == 242
    assert "there is no blobfuse here" in service.show("unable", "executionInfo.errors.0.details")


def parent_of(pid):
    """0 for one that is gone."""
    try:
        return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@needs_root
@pytest.mark.parametrize("who", ["supervisor", "agents", "guardians", "all"])
def test_nothing_stays_mounted_whoever_is_killed(service, who):
    """Each kind of process, on all nodes. Guardian and agent in one moment are not among them: then programs that a rank's
    shell has started go on, as the manual says."""
    cluster(service, {**BIND, "source": str(service.path / "folder")})
    service.submit(job_of(service, ["work"], "cd $AZ_BATCHAI_JOB_MOUNT_ROOT/work; echo $AZ_BATCHAI_JOB_TEMP_DIR > name$HVD_RANK; mv name$HVD_RANK begun$HVD_RANK; sleep 1000"),
                   "--name", "killed")
    begun = [service.path / "folder/begun0", service.path / "folder/begun1"]
    service.wait_for(lambda: all(file.exists() for file in begun), "it runs")
    assert len(who_sees("/mounts/work", service.marker)) >= 2
    looks = {pid: args for pid, args in processes_with(service.marker).items()}
    agents = {pid for pid, args in looks.items() if "agent" in args and "supervise" not in args}
    guardians = {pid for pid in agents if parent_of(pid) not in agents}
    for pid, args in looks.items():
        kind = ("guardians" if pid in guardians else "agents" if pid in agents else "supervisor" if "supervise" in args else "")
        if who in ("all", kind):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    assert service("wait", "killed").returncode in (243, 246)
    assert wait_until_gone(service.marker) == {}
    assert who_sees("/mounts/work", service.marker) == []
    assert sorted((service.path / "folder").iterdir()) == begun
    shutil.rmtree(begun[0].read_text().strip(), ignore_errors=True)  # the folder stays behind who is killed


@needs_root
def test_the_files_of_a_job_are_where_this_machine_has_what_is_mounted(service):
    cluster(service, {**BIND, "source": str(service.path / "folder"), "localDirectory": str(service.path / "folder")})
    service.submit(job_of(service, ["work"], "echo printed; echo x > $AZ_BATCHAI_SHARED_JOB_TEMP/$HVD_RANK; "
                          "until [ $(ls $AZ_BATCHAI_SHARED_JOB_TEMP | wc -l) = 2 ]; do sleep 0.05; done",
                          output="$AZ_BATCHAI_JOB_MOUNT_ROOT/work/logs"), "--name", "kept")
    assert service("wait", "kept").returncode == 0
    (kept,) = (service.path / "folder/logs").rglob("stdout.txt")
    assert kept.read_text() == "printed\n" * 2 == service.ok("logs", "kept")
    # The folder that the nodes shared, in the mount, has been removed with the job.
    assert not list((service.path / "folder").rglob("shared"))


def test_a_plan_for_a_cluster_shows_what_is_mounted_how_and_no_password(service):
    service.env["AZURE_BATCHAI_STORAGE_KEY"] = "the-account-key"
    cluster(service, {"name": "afs", "type": "cifs", "source": "//server/share", "account": "account"})
    file = service.file(job_of(service, ["afs"], "true"))
    text = service.ok("plan", "-c", "lab", "-f", file)
    assert "$AZ_BATCHAI_JOB_MOUNT_ROOT/afs is cifs //server/share, mounted there" in text
    plan = json.loads(service.ok("plan", "--json", "--cluster", "lab", "-f", file))
    assert [node["host"] for node in plan["nodes"]] == HOSTS[:2]
    assert "credentials=" in plan["job"]["setUp"]
    assert "the-account-key" not in text + json.dumps(plan)
    # The directory that a command line names is linked, as ever.
    text = service.ok("plan", "-c", "lab", "-f", file, "--mount", "afs=/srv/afs")
    assert "$AZ_BATCHAI_JOB_MOUNT_ROOT/afs is /srv/afs\n" in text
    del service.env["AZURE_BATCHAI_STORAGE_KEY"]
    refused = service("submit", "-f", file)
    assert refused.returncode == 240
    assert "the mount 'afs' (cifs //server/share) needs the password of 'account'" in refused.stderr
    assert "AZURE_BATCHAI_STORAGE_KEY" in refused.stderr
    # What stands in a job.json for the key is not the key.
    share = {"azureFileUrl": "https://account.file.core.windows.net/share", "relativeMountPath": "afs",
             "credentials": {"accountKey": "<AZURE_BATCHAI_STORAGE_KEY>"}}
    file = service.file({"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "/tmp", "customToolkitSettings": {"commandLine": "true"},
                                        "mountVolumes": {"azureFileShares": [share]}}}, "job.json")
    refused = service("submit", "-f", file)
    assert refused.returncode == 240, refused.stdout
    assert "needs the password of 'account'" in refused.stderr and "AZURE_BATCHAI_STORAGE_KEY=... hvdrun" in refused.stderr
    assert service.ok("ps", "--json") == "[]\n"


@pytest.mark.parametrize("system, words", [
    ({"name": "../x", "type": "nfs", "source": "a:/b"}, "cannot be where something is mounted"),
    ({"name": "x", "type": "ntfs", "source": "a:/b"}, "type: expected"),
    ({"name": "x", "type": "nfs", "source": "--bind"}, "cannot be mounted"),
    ({"name": "x", "type": "bind", "source": "b"}, "absolute path"),
    ({"name": "x", "type": "cifs", "source": "//a/b", "options": "username=u,password=p"}, "passwordVariable"),
    ({"name": "x", "type": "nfs", "source": "a:/b\n"}, "control characters"),
    ({"name": "x", "type": "blobfuse", "source": "b"}, "needs the storage account"),
    ({"name": "x", "type": "cifs", "source": "//a/b", "account": "u", "passwordVariable": "$(id)"}, "cannot be the name of a variable"),
    ({"name": "x", "type": "nfs"}, "the key 'source' is missing"),
])
def test_what_is_wrong_with_a_file_system_is_told_with_its_place(service, system, words):
    file = service.file({"hosts": HOSTS[:1], "fileSystems": [system]}, "cluster.json")
    done = service("cluster", "add", "lab", "-f", file)
    assert done.returncode == 240 and f"{file}:1:" in done.stderr and words in done.stderr, done.stderr


@needs_root
def test_hostile_texts_of_a_file_system_are_given_to_mount_as_they_are(service):
    hostile = f"srv:/a b'$(touch {service.path}/executed)`id`;x\"\\"
    cluster(service, {"name": "a b'$(id)", "type": "nfs", "source": hostile, "options": "x=$(id);y='z"}, hosts=HOSTS[:1])
    service.submit({"mounts": {"a b'$(id)": None}, "command": "ls $AZ_BATCHAI_JOB_MOUNT_ROOT"}, "--name", "hostile")
    assert service("wait", "hostile").returncode == 0, service("logs", "hostile", "--file", "stderr.txt").stdout
    assert service.ok("logs", "hostile") == "a b'$(id)\n"
    assert record(service, "nfs.argv").startswith(f"-t nfs -o x=$(id);y='z -- {hostile} /tmp/hvdrun-job-")
    assert not (service.path / "executed").exists()


# Runs what a container would, on the host.
ENGINE = r"""#!/bin/bash
echo "${0##*/} $*" >>@RECORDS@/engine
[ "$1" = run ] && while [ $# -gt 0 ]; do [ "$1" = -c ] && exec bash -c "$2"; shift; done
[ "$1" != image ]
"""


@needs_root
@pytest.mark.parametrize("engine, status", [("podman", 0), ("docker", 242)])
def test_a_container_sees_what_is_mounted_unless_a_daemon_starts_it(service, engine, status):
    (service.path / "folder/data").write_text("42\n")
    (service.path / "bin" / engine).write_text(ENGINE.replace("@RECORDS@", str(service.path / "records")))
    (service.path / "bin" / engine).chmod(0o755)
    cluster(service, {**BIND, "source": str(service.path / "folder")}, hosts=HOSTS[:1])
    service.submit({"mounts": {"work": None}, "container": "image:1", "command": "cat $AZ_BATCHAI_JOB_MOUNT_ROOT/work/data"},
                   "--name", "contained", "--container", engine)
    assert service("wait", "contained").returncode == status, service.show("contained")
    if status == 0:
        assert service.ok("logs", "contained") == "42\n"
        (run,) = [line for line in record(service, "engine").splitlines() if line.startswith("podman run ")]
        assert "-v /tmp/hvdrun-job-" in run and str(service.path / "folder") not in run
    else:
        assert "docker's containers are started by its daemon" in service.show("contained", "executionInfo.errors.0.details")


# --- who is not root --------------------------------------------------------------------------------------------------

SOMEBODY = 61234
AS_SOMEBODY = ["setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups"]


@pytest.fixture
def somebody(marker):
    """The service of a user who is not root, in a folder that is that user's."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    if why := why_not(*AS_SOMEBODY, HVDRUN, "--version"):
        pytest.skip(f"another user cannot run hvdrun: {why}")
    with tempfile.TemporaryDirectory() as folder:
        service = make_service(pathlib.Path(folder), marker)
        give_away(service)
        yield service
        assert service.end() == {}


def give_away(service):
    for path in [service.path, *service.path.rglob("*")]:
        os.chown(path, SOMEBODY, SOMEBODY)


def test_a_user_is_told_that_only_root_may_mount_a_share(somebody):
    cluster(somebody, {"name": "nfs", "type": "nfs", "source": "server:/export"}, hosts=HOSTS[:1])
    file = somebody.file({"mounts": {"nfs": None}, "command": "true"})
    give_away(somebody)
    run_as(somebody, "submit", "-f", file, "--name", "plain")
    assert run_as(somebody, "wait", "plain", check=False).returncode == 242
    said = run_as(somebody, "show", "plain", "--field", "executionInfo.errors.0.details").stdout
    assert f"only root may mount this, and the job runs as user {SOMEBODY} on " in said and "--mount nfs=DIR" in said


def test_a_user_may_bind_a_folder_in_a_user_namespace_and_stays_who_that_is(somebody):
    if why := why_not(*AS_SOMEBODY, "unshare", "--user", "--map-root-user", "--mount"):
        pytest.skip(f"no user namespaces here: {why}")
    (somebody.path / "folder/data").write_text("42\n")
    cluster(somebody, {**BIND, "source": str(somebody.path / "folder")}, hosts=HOSTS[:1])
    file = somebody.file({"mounts": {"work": None}, "processCount": 2,
                          "command": "cd $AZ_BATCHAI_JOB_MOUNT_ROOT/work; cat data; id -u; touch rank$HVD_RANK"})
    give_away(somebody)
    run_as(somebody, "submit", "-f", file, "--name", "bound")
    done = run_as(somebody, "wait", "bound", check=False)
    assert done.returncode == 0, run_as(somebody, "show", "bound").stdout
    assert sorted(run_as(somebody, "logs", "bound").stdout.split()) == ["42", "42", str(SOMEBODY), str(SOMEBODY)]
    assert (somebody.path / "folder/rank1").stat().st_uid == SOMEBODY


def run_as(service, *arguments, check=True):
    done = subprocess.run([*AS_SOMEBODY, HVDRUN, *map(str, arguments)], env=service.env, cwd=service.path, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0 or not check, done.stderr
    return done
