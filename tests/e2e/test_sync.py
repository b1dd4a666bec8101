"""hvdrun --sync: the folder of the launcher on the hosts, which share no file system with it."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import time

import pytest

from hvdrun import HVDRUN, env_with, hvdrun, read_until, replace_hosts, start, wait_until_gone
from job_files import left_folders
from lab import wait_until
from patience import PATIENCE
from ways import EXECUTES

# Hosts a and b are this machine, reached by a command; their cache folder is the test's own.
HOSTS = ["--rsh", EXECUTES, "-H", "a:1,b:1"]


@pytest.fixture
def project(tmp_path):
    """A folder with a repository of git's, and what git does not show."""
    root = tmp_path / "project"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "build").mkdir()
    (root / "train.py").write_text("import os; print(os.getcwd(), flush=True)\n")
    (root / "src" / "deep" / "module.py").write_text("x = 1\n")
    (root / "src" / "tool.sh").write_text("#!/bin/sh\necho tool\n")
    (root / "src" / "tool.sh").chmod(0o755)
    (root / "link").symlink_to("src/tool.sh")
    (root / "build" / "object.o").write_text("not source")
    (root / "notes.log").write_text("not source")
    (root / ".gitignore").write_text("build/\n*.log\n")
    (root / "large.bin").write_bytes(bytes(1000))
    (root / ".hvdignore").write_text("# stays here\n*.bin\n")
    git("init", "-q", cwd=root)
    git("add", "train.py", "large.bin", cwd=root)
    inner = root / "third_party"
    inner.mkdir()
    (inner / "lib.py").write_text("y = 2\n")
    git("init", "-q", cwd=inner)
    return root


def git(*words, cwd):
    if not shutil.which("git"):
        pytest.skip("no git here")
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], cwd=cwd, check=True, capture_output=True)


def sync(project, *words, cache, env=None, **options):
    return hvdrun("--sync", "--no-tags", *HOSTS, *words, cwd=project,
                  env={**os.environ, "XDG_CACHE_HOME": str(cache), **(env or {})}, **options)


def files_of(folder):
    """{path: what it is} of all that is in a folder."""
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        status = path.lstat()
        name = str(path.relative_to(folder))
        mode = stat.S_IMODE(status.st_mode)
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = ("folder", mode)
        else:
            found[name] = (path.read_bytes(), mode)
    return found


def copied(done):
    """What the job's messages say of files."""
    return re.findall(r"--sync: (.*)", done.stderr)


def test_ranks_start_in_a_copy_of_what_git_shows_and_the_ignore_file_leaves(project, tmp_path):
    cache = tmp_path / "cache"
    done = sync(project, "-np", 2, "--verbose", "python3", "train.py", cache=cache)
    assert done.returncode == 0, done.stderr
    places = set(done.stdout.split())
    assert len(places) == 1  # both hosts are this machine, and share its cache
    place = places.pop()
    assert re.fullmatch(rf"{cache}/hvdrun/folders/project-[0-9a-f]{{12}}/files", place)
    assert stat.S_IMODE(os.stat(cache / "hvdrun" / "folders").st_mode) == 0o700
    expected = {name: what for name, what in files_of(project).items()
                if not name.startswith(("build", ".git/", "third_party/.git")) and name not in (".git", "notes.log", "large.bin")}
    assert files_of(place) == expected
    assert {"empty", "third_party/lib.py", "link", ".gitignore"} <= set(expected)
    assert copied(done) == ["copied 6 files (106 bytes) on 1 node"]
    # The second time nothing has changed, and nothing is said; then one file has.
    done = sync(project, "-np", 2, "--verbose", "python3", "train.py", cache=cache)
    assert (done.returncode, copied(done)) == (0, []), done.stderr
    (project / "src" / "deep" / "module.py").write_text("x = 22\n")
    (project / ".hvdignore").unlink()
    (project / "large.bin").unlink()
    done = sync(project, "-np", 2, "--verbose", "sh", "src/tool.sh", cache=cache)
    assert (done.returncode, done.stdout) == (0, "tool\ntool\n"), done.stderr
    assert copied(done) == ["copied 1 file (7 bytes) and removed 1 on 1 node"]


def test_what_ranks_write_is_there_the_next_time_and_the_launchers_folder_is_not_touched(project, tmp_path):
    before = files_of(project)
    for expected in ("1\n", "1\n2\n"):
        done = sync(project, "-np", 1, "sh", "-c", "wc -l <seen >/dev/null 2>&1; echo $(( $(cat seen 2>/dev/null | wc -l) + 1 )) >>seen; cat seen",
                    cache=tmp_path / "cache")
        assert (done.returncode, done.stdout) == (0, expected), done.stderr
    assert files_of(project) == before


def test_ranks_start_in_the_same_place_within_the_folder(project, tmp_path):
    cache = tmp_path / "cache"
    done = hvdrun(f"--sync={project}", "--no-tags", *HOSTS, "-np", 1, "sh", "-c", "pwd; cat deep/module.py",
                  cwd=project / "src", env={**os.environ, "XDG_CACHE_HOME": str(cache)})
    assert done.returncode == 0, done.stderr
    place, content = done.stdout.splitlines()
    assert place.endswith("/files/src") and content == "x = 1"
    # From elsewhere they start at its top.
    done = hvdrun("--sync=project", "--no-tags", *HOSTS, "-np", 1, "pwd", cwd=tmp_path,
                  env={**os.environ, "XDG_CACHE_HOME": str(cache)})
    assert done.stdout.strip() == place.removesuffix("/src"), done.stderr


def test_on_the_launchers_own_machine_ranks_run_in_the_folder_itself(project, tmp_path):
    done = hvdrun("--sync", "--no-tags", "-np", 2, "pwd", cwd=project,
                  env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert (done.returncode, done.stdout) == (0, f"{project}\n" * 2), done.stderr
    assert not (tmp_path / "cache" / "hvdrun").exists()


NATIVE = """nodeCount: 2
processCount: 2
script: train.py
python: python3
output: {output}
prepare: cat src/deep/module.py; ! ls out 2>/dev/null
"""
BATCHAI = """{{"properties": {{"nodeCount": 2, "stdOutErrPathPrefix": "{output}",
"horovodSettings": {{"pythonScriptFilePath": "train.py", "pythonInterpreterPath": "python3", "processCount": 2}},
"jobPreparation": {{"commandLine": "cat src/deep/module.py; ! ls out 2>/dev/null"}}}}}}
"""


@pytest.mark.parametrize("name, form", [("job.yaml", NATIVE), ("job.json", BATCHAI)])
def test_a_job_file_runs_in_the_copy_too_and_leaves_nothing(project, tmp_path, name, form):
    before = left_folders()
    (project / name).write_text(form.format(output=tmp_path / "output"))
    (project / "out").mkdir()
    (project / "out" / "old").write_text("of an earlier job, and brought to no step of this one")
    done = sync(project, "-f", name, "--output-filename", "out", cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("/files\n") == 2
    assert done.stdout.count("x = 1\n") == 2  # preparation runs there too
    assert "cleaning up" not in done.stderr and "--sync" not in done.stderr, done.stderr
    wait_until(lambda: left_folders() <= before, "a folder is left")  # those of other tests come and go


@pytest.mark.parametrize("name, form", [("job.yaml", NATIVE), ("job.json", BATCHAI)])
def test_where_nothing_is_copied_a_job_file_runs_in_the_folder_itself_and_leaves_nothing(project, tmp_path, name, form):
    before = left_folders()
    (project / name).write_text(form.format(output=tmp_path / "output"))
    done = hvdrun("--sync", "--no-tags", "-f", name, "-H", "localhost,127.0.0.1", cwd=project,
                  env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert (done.returncode, done.stdout.count(f"{project}\n")) == (0, 2), done.stderr
    assert "cleaning up" not in done.stderr and "--sync" not in done.stderr, done.stderr
    wait_until(lambda: left_folders() <= before, "a folder is left")


def test_a_node_that_cannot_keep_the_files_ends_the_job_before_a_rank_runs(project, tmp_path):
    cache = tmp_path / "cache"
    cache.write_text("no folder")
    done = sync(project, "-np", 2, "echo", "ran", cache=cache)
    assert done.returncode not in (0, 240) and "ran" not in done.stdout
    assert f"a: --sync: {cache}/hvdrun: Not a directory" in done.stderr, done.stderr


def test_a_folder_that_is_none_or_means_everything_is_refused(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "file").write_text("x")
    for words, told in ((["--sync=nowhere"], "--sync nowhere: No such file or directory"),
                        (["--sync=file"], "--sync file: this is not a folder"),
                        (["--sync"], f"--sync: {home} would be copied to every node with all that is in it")):
        done = hvdrun(*words, *HOSTS, "-np", 1, "true", cwd=home, env={**os.environ, "HOME": str(home)})
        assert done.returncode == 240, done.stderr
        assert told in done.stderr.replace(f"{home}/", ""), done.stderr
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_each_host_has_its_own_copy_and_a_restart_finds_it(lab2):
    root = lab2.shared / "project"
    root.mkdir()
    (root / "big").write_bytes(os.urandom(5_000_000))
    (root / "train.sh").write_text("echo $(hostname) $(pwd) $(cksum <big)\n")
    sum_ = subprocess.run(["cksum"], input=(root / "big").read_bytes(), capture_output=True).stdout.decode().split()
    outcome = []
    for _ in range(2):
        done = lab2.run(HVDRUN, "--sync", "--verbose", "--no-tags", "-np", "4", "-H", "node1:2,node2:2", "sh", "train.sh", cwd=root)
        assert done.returncode == 0, done.stderr
        outcome.append((sorted(set(done.stdout.splitlines())), copied(done)))
    lines, said = outcome[0]
    assert [line.split()[0] for line in lines] == ["node1", "node2"]
    assert all("/.cache/hvdrun/folders/project-" in line and line.split()[2:] == sum_ for line in lines)
    assert said == [f"copied 4 files ({2 * (5_000_000 + 38)} bytes) on 2 nodes"]
    assert outcome[1] == (lines, [])
    assert lab2.wait_for_no_processes() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_job_that_is_ended_while_files_travel_leaves_nothing_and_the_next_goes_on(number, make_lab, marker):
    lab = make_lab(2, rate="40mbit")
    root = lab.shared / "project"
    root.mkdir()
    for part in range(20):
        (root / f"part{part}").write_bytes(os.urandom(1_000_000))
    words = [HVDRUN, "--sync", "--verbose", "-np", "2", "-H", "node1,node2", "sh", "-c", "ls | wc -l"]
    job = lab.popen(*words, cwd=root)
    folder = lab.path("node1", "/root/.cache/hvdrun/folders")
    wait_until(lambda: list(folder.glob("*/files/part12")), "no file has come")  # the fifth of 20
    os.kill(lab.pid_of(job), number)
    job.communicate()
    assert lab.wait_for_no_processes() == []
    done = lab.run(*words, cwd=root)
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[1] for line in done.stdout.splitlines()] == ["20", "20"]
    if number == signal.SIGINT:  # what had come was kept
        [(count,)] = [re.findall(r"copied (\d+) files", line) for line in copied(done)]
        assert int(count) < 36, done.stderr


def test_a_joining_host_gets_the_folder_before_its_ranks_start(project, tmp_path, marker):
    hosts = tmp_path / "hosts"
    replace_hosts(hosts, ["a:1"])
    (project / "train.sh").write_text("pwd; cat src/deep/module.py; while ! [ -e stop ]; do sleep 0.1; done\n")
    cache = tmp_path / "cache"
    job = start("--sync", "--no-tags", "--rsh", EXECUTES, "--hostfile", hosts, "--watch-hostfile", "--min-np", 1, "--max-np", 2,
                "sh", "train.sh", cwd=project, env={**env_with(marker), "XDG_CACHE_HOME": str(cache)})
    first = read_until(job.stdout, "x = 1\n")
    replace_hosts(hosts, ["a:1", "b:1"])
    second = read_until(job.stdout, "x = 1\n")
    assert first == second
    (pathlib.Path(first[0].strip()) / "stop").touch()
    output, errors = job.communicate()
    assert (job.returncode, output) == (0, ""), errors
    assert wait_until_gone(marker) == {}


def test_a_joining_host_is_turned_away_where_a_file_has_changed_meanwhile_and_the_job_goes_on(lab2):
    """Each host has its own home, so that the second one gets the folder anew."""
    root = lab2.shared / "late"
    root.mkdir()
    hosts = lab2.shared / "late-hosts"
    replace_hosts(hosts, ["node1:1"])
    (root / "train.sh").write_text("cat code; while ! [ -e stop ]; do sleep 0.1; done\n")
    (root / "code").write_text("first\n")
    job = lab2.popen(HVDRUN, "--sync", "--no-tags", "--hostfile", hosts, "--watch-hostfile", "--min-np", 1, "--max-np", 2,
                     "sh", "train.sh", cwd=root)
    read_until(job.stdout, "first\n")
    # What the launcher still has in memory is as it was; so the host has got the other file before.
    (root / "code").rename(lab2.shared / "code")
    early = lab2.run(HVDRUN, "--sync", "-np", "1", "-H", "node2", "true", cwd=root)
    assert early.returncode == 0, early.stderr
    (root / "code").write_text("other\n")
    replace_hosts(hosts, ["node1:1", "node2:1"])
    told = read_until(job.stderr, "has changed since the job began")
    assert f"node2: --sync: {root}/code has changed since the job began" in told[-1], told
    [place] = lab2.path("node1", "/root/.cache/hvdrun/folders").glob("late-*/files")
    (place / "stop").touch()
    output, errors = job.communicate()
    assert (job.returncode, output) == (0, ""), errors
    assert lab2.wait_for_no_processes() == []


def test_files_that_ranks_make_come_home_into_a_folder_of_their_host(lab2):
    root = lab2.shared / "results"
    (root / "out").mkdir(parents=True)
    (root / "out" / "brought.pt").write_text("from home")
    (root / "train.sh").write_text(
        "mkdir -p out/deep; hostname >out/deep/model.pt; head -c 9000000 /dev/zero >out/big.pt; chmod 640 out/big.pt\n"
        "echo no >out/log; ln -sf deep/model.pt out/last.pt\n"
        # The first that fails ends the other, which has to have written all by then.
        f"touch {lab2.shared}/written.$CODE.$HVD_RANK\n"
        f"until [ -e {lab2.shared}/written.$CODE.0 ] && [ -e {lab2.shared}/written.$CODE.1 ]; do sleep 0.05; done\n"
        "exit $CODE\n"
    )
    for code in (0, 7):  # a job that fails may have written what is worth most
        for host in ("node1", "node2"):
            shutil.rmtree(root / "synced-back" / host, ignore_errors=True)
        done = lab2.run(HVDRUN, "--sync", "--sync-back", "*.pt", "-np", "2", "-H", "node1,node2", "-x", f"CODE={code}",
                        "sh", "train.sh", cwd=root)
        assert done.returncode == code, done.stderr
        assert f"hvdrun: 4 files (18000012 bytes) of 2 nodes are in {root}/synced-back" in done.stderr, done.stderr
        for host in ("node1", "node2"):
            back = files_of(root / "synced-back" / host)
            assert set(back) == {"out", "out/deep", "out/deep/model.pt", "out/big.pt", "out/last.pt"}
            assert back["out/deep/model.pt"][0] == f"{host}\n".encode()
            assert back["out/big.pt"] == (bytes(9_000_000), 0o640)
            assert back["out/last.pt"] == ("link", "deep/model.pt")
    assert lab2.wait_for_no_processes() == []
    # What has come home does not travel back.
    done = lab2.run(HVDRUN, "--sync", "-np", "1", "-H", "node1", "sh", "-c", "ls", cwd=root)
    assert "synced-back" not in done.stdout, done.stdout


def test_a_pattern_that_no_result_fits_is_told(project, tmp_path):
    done = sync(project, "--sync-back", "*.zip", "--sync-back", "made", "-np", 1, "true", cache=tmp_path / "cache")
    assert done.returncode == 0
    for pattern in ("*.zip", "made"):
        assert done.stderr.count(f"no file of any host fits --sync-back '{pattern}'") == 1, done.stderr


def test_on_the_launchers_own_machine_results_are_where_they_belong(project, tmp_path):
    done = hvdrun("--sync", "--sync-back", "made", "-np", 1, "touch", "made", cwd=project)
    assert done.returncode == 0 and "no file of any host fits" not in done.stderr, done.stderr
    assert (project / "made").exists()


def test_where_a_host_lacks_a_script_that_is_here_sync_is_named(lab2):
    folder = lab2.path("launcher", "/root/my 'project'")  # which no other host sees
    folder.mkdir()
    (folder / "train.py").write_text("")
    lab2.path("node1", "/root/my 'project'").mkdir()
    told = "it is on this machine, and --sync brings the folder to the hosts"
    for host, script, is_told in (("node1", "train.py", True), ("node1", "misspelt.py", False), ("node2", "train.py", True)):
        done = lab2.run("sh", "-c", f"cd /root/my*project* && {HVDRUN} -np 1 -H {host} python3 {script}")
        assert done.returncode == 127 and (told in done.stderr) == is_told, done.stderr


def test_results_that_cannot_be_kept_are_told_and_count(project, tmp_path):
    (project / "synced-back").write_text("in the way")
    done = sync(project, "--sync-back", "made", "-np", 2, "touch", "made", cache=tmp_path / "cache")
    assert done.returncode not in (0, 240), done.stderr
    assert done.stderr.count(f"--sync-back: {project}/synced-back/a: Not a directory; its files stay there") == 1, done.stderr


def test_a_result_that_has_no_room_here_is_named_and_the_others_come_with_their_holes(lab2):
    root = lab2.shared / "full"
    back = root / "synced-back"
    back.mkdir(parents=True)
    assert lab2.run("mount", "-t", "tmpfs", "-o", "size=4m", "small", back).returncode == 0
    done = lab2.run(HVDRUN, "--sync", "--sync-back", "*.pt", "-np", "1", "-H", "node1", "sh", "-c",
                    "head -c 60000000 /dev/urandom >big.pt; echo kept >last.pt; echo begun >long.pt; truncate -s 1T long.pt", cwd=root)
    assert done.returncode == 244, done.stderr
    assert f"node1: --sync: {back}/node1/big.pt: No space left on device; it stays there" in done.stderr, done.stderr
    seen = lab2.run("sh", "-c", f"cd {back}/node1; ls -A; cat last.pt; head -n 1 long.pt; stat -c %s long.pt")
    assert seen.stdout.split() == ["last.pt", "long.pt", "kept", "begun", str(1 << 40)], seen
    assert lab2.wait_for_no_processes() == []


def test_a_second_interrupt_does_not_wait_for_results(make_lab):
    lab = make_lab(1, rate="40mbit")
    root = lab.shared / "project"
    root.mkdir()
    job = lab.popen(HVDRUN, "--sync", "--sync-back", "big", "-np", "1", "-H", "node1", "sh", "-c",
                    "head -c 60000000 /dev/zero >big; echo written", cwd=root)
    read_until(job.stdout, "written")
    home = root / "synced-back" / "node1"
    wait_until(lambda: any(home.glob(".hvdrun-part-*")), "nothing comes home")
    pid = lab.pid_of(job)
    os.kill(pid, signal.SIGINT)
    read_until(job.stderr, "hvdrun got SIGINT")
    os.kill(pid, signal.SIGINT)
    job.communicate()
    assert job.returncode == 130
    assert list(home.iterdir()) == []  # no part of a file has its name
    assert lab.wait_for_no_processes() == []


def test_sync_back_without_sync_is_refused():
    done = hvdrun("--sync-back", "x", "-np", 1, "true")
    assert (done.returncode, done.stderr) == (
        240, "hvdrun: --sync-back says nothing without --sync: ranks write where they run\n")


def random_files(root, count, size):
    root.mkdir()
    for part in range(count):
        (root / f"part{part}").write_bytes(os.urandom(size))


def test_hosts_get_files_from_each_other_and_from_here_where_they_cannot(lab4):
    """What leaves the launcher is counted at its network interface."""
    root = lab4.shared / "spread"
    random_files(root, 50, 200_000)
    hosts = ["node1", "node2", "node3", "node4"]
    words = [HVDRUN, "--sync", "--no-tags", "-np", "4", "-H", ",".join(hosts), "sh", "-c", "cat part* | cksum"]

    def run():
        before = sent_by_launcher(lab4)
        done = lab4.run(*words, cwd=root)
        assert done.returncode == 0, done.stderr
        assert len(set(done.stdout.splitlines())) == 1 and len(done.stdout.splitlines()) == 4
        return (sent_by_launcher(lab4) - before) / 10_000_000

    assert lab4.run(HVDRUN, "-q", "-np", "4", "-H", ",".join(hosts), "true").returncode == 0  # the agent is pushed
    deadline = time.monotonic() + PATIENCE
    while not 2 <= (copies := run()) < 3.9:  # on a busy machine some come too late at their source, and get the files from here
        assert 2 <= copies < 5 and time.monotonic() < deadline, copies
        for part in root.iterdir():
            part.write_bytes(os.urandom(200_000))
    for one in hosts:
        for other in hosts[hosts.index(one) + 1:]:
            lab4.cut(one, other)
    for part in root.iterdir():
        part.write_bytes(os.urandom(200_000))
    assert 4 <= run() < 5
    lab4.heal()
    assert lab4.wait_for_no_processes() == []


def sent_by_launcher(lab):
    text = lab.run("cat", "/proc/net/dev").stdout
    return sum(int(line.split(":")[1].split()[8]) for line in text.splitlines()[2:] if not line.strip().startswith("lo:"))


def test_a_source_that_is_killed_while_it_gives_files_ends_the_job_naming_it(make_lab):
    lab = make_lab(4, rate="40mbit")
    root = lab.shared / "project"
    random_files(root, 20, 1_000_000)
    job = lab.popen(HVDRUN, "--sync", "-np", "4", "-H", "node1,node2,node3,node4", "true", cwd=root)
    folders = {host: lab.path(host, "/root/.cache/hvdrun/folders") for host in ("node1", "node2", "node3", "node4")}
    wait_until(lambda: all(list(folder.glob("*/files/part1*")) for folder in folders.values()), "files do not come")
    for process in lab.ps("node1", "node2"):
        if "hvdrun" in process.args and "serve" in process.args:
            with contextlib.suppress(ProcessLookupError):  # the end of its guardian has ended it
                os.kill(process.pid, signal.SIGKILL)
    _, errors = job.communicate()
    assert job.returncode not in (0, 240)
    # Both, or the one whose guardian was killed before its agent, which ends the job at once.
    named = [host for host in ("node1", "node2") if host in errors]
    assert named and (len(named) == 2 or "its guardian was killed" in errors), errors
    assert "node3:" not in errors and "node4:" not in errors, errors
    assert lab.wait_for_no_processes() == []
