"""hvdrun stacks: where the ranks of a running job are, of a job in another terminal, on one host and on lab hosts."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from hvdrun import HVDRUN, LIBHVD, PYTHON, env_with, hvdrun, program, read_until, start, wait_until_gone
from lab import wait_until
from patience import PATIENCE
from ways import WAYS, way  # noqa: F401  (a fixture)

# Rank 1 is elsewhere; all say when they are where they stay.
SCRIPT = """
import os, time
def wait():
    print('here', flush=True)
    while not os.access(%r, os.F_OK): time.sleep(0.05)  # no frame of Python's own, as that of os.path.exists
def step(): wait()
def data(): wait()
data() if os.environ['RANK'] == '1' else step()
"""


@pytest.fixture
def place(tmp_path, marker, monkeypatch):
    """The environment of a user whose only jobs are this test's."""
    folder = tempfile.mkdtemp(prefix="hvd-")
    monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
    (tmp_path / "train.py").write_text(SCRIPT % str(tmp_path / "go"))
    yield tmp_path
    (tmp_path / "go").touch()
    assert wait_until_gone(marker) == {}
    shutil.rmtree(folder)


def begin(place, marker, count, *flags, python=(sys.executable,)):
    job = start(*flags, *python, str(place / "train.py"), env=env_with(marker))
    read_until(job.stdout, "here", count)
    return job


def end(job, place):
    (place / "go").touch()
    job.communicate(timeout=PATIENCE)
    assert job.returncode == 0


def test_a_stopped_hvdrun_is_not_called_absent(place, marker):
    job = begin(place, marker, 1, "-q", "-np", "1")
    os.kill(job.pid, signal.SIGSTOP)
    done = hvdrun("stacks")
    os.kill(job.pid, signal.SIGCONT)
    assert done.returncode == 241 and re.search(r"job \w{8} does not answer; is its hvdrun stopped", done.stderr), done
    end(job, place)


def test_the_odd_rank_stands_alone_and_all_go_on(way, place, marker):
    job = begin(place, marker, 3, "-q", *way)
    done = hvdrun("stacks")
    assert done.returncode == 0, done.stderr
    assert re.match(r"job \w{8}, stacks of 3 running ranks\n", done.stdout)
    assert re.search(r"^ +\[0,2\] train.py:\d+ step > train.py:\d+ wait$", done.stdout, re.M), done
    assert re.search(r"^ +\[1\] train.py:\d+ data > train.py:\d+ wait  \(.*pid \d+\)$", done.stdout, re.M)
    end(job, place)


def test_json_has_each_rank_and_native_has_frames_of_c(place, marker):
    job = begin(place, marker, 2, "-q", "-np", "2")
    ranks = json.loads(hvdrun("stacks", str(job.pid), "--json").stdout)
    assert [(rank["rank"], rank["read"]) for rank in ranks] == [(0, True), (1, True)]
    assert all(rank["frames"][-1].endswith(" wait") for rank in ranks)
    native = json.loads(hvdrun("stacks", "--json", "--native").stdout)
    assert all(not re.match(r".*:\d+ ", rank["frames"][-1]) for rank in native), native
    end(job, place)


def test_a_python_below_a_shell_is_found_and_a_rank_without_one_says_so(place, marker):
    job = start("-q", "-np", "2", "sh", "-c", f'[ $RANK = 0 ] && {sys.executable} {place}/train.py; echo here; '
                f'until [ -e {place}/go ]; do sleep 0.1; done', env=env_with(marker))  # fmt: skip
    read_until(job.stdout, "here", 2)
    out = hvdrun("stacks").stdout
    assert re.search(r"\[0\] train.py:\d+ <module> > ", out), out
    assert re.search(r"\[1\] \(no stack: it runs no Python; the kernel says: ", out), out
    end(job, place)


def test_without_py_spy_it_says_how_to_get_it_and_what_the_kernel_knows(place, marker):
    # Python by a link in a folder where there is nothing else.
    (place / "bin").mkdir()
    (place / "bin/python3").symlink_to(os.path.realpath(sys.executable))
    path = {"PATH": "/usr/bin:/bin", "HOME": str(place)}
    if shutil.which("py-spy", path=path["PATH"]):
        pytest.skip("the system has py-spy")
    job = start("-q", str(place / "bin/python3"), str(place / "train.py"), env={**env_with(marker), **path})
    read_until(job.stdout, "here", 1)
    out = hvdrun("stacks").stdout
    assert "pip install py-spy; the kernel says: sleeping" in out
    end(job, place)


def test_a_job_that_is_too_late_shows_its_stacks_and_keeps_them(place, marker):
    job = start("--timeout", "20", "--output-filename", str(place / "out"), "-np", "2", *PYTHON,
                str(place / "train.py"), env=env_with(marker))  # fmt: skip
    out, err = job.communicate(timeout=PATIENCE)
    assert job.returncode != 0
    assert "hvdrun: --timeout: stacks of 2 running ranks" in err, err
    kept = (place / "out/stacks.txt").read_text()
    assert re.search(r"\[1\] train.py:\d+ data > train.py:\d+ wait", kept), kept


def test_ranks_that_wait_too_long_are_shown_with_their_operation_and_the_job_goes_on(place, marker):
    out = place / "out"
    job = start("-np", 3, "--stacks-on-stall", "5", "--output-filename", out, *PYTHON, program("waits.py"),
                place / "go", env={**env_with(marker), "HVD_LIBRARY": LIBHVD})  # fmt: skip
    wait_until(lambda: (out / "stacks.txt").exists() and "layer4.weight" in (out / "stacks.txt").read_text(), "no stacks were kept")
    (place / "go").touch()
    err = job.communicate(timeout=PATIENCE)[1]
    assert job.returncode == 0
    assert err.count("in allreduce 'layer4.weight': stacks of 3 running ranks") == 1
    assert "hvdrun: ranks 0,2 have waited for 5 s in allreduce 'layer4.weight': stacks of 3 running ranks" in err, err
    assert re.search(r"\[0,2\] .* > Plan.execute > \(libhvd waits for allreduce 'layer4.weight'\)", err), err
    assert re.search(r"\[1\] waits.py:\d+ <module>  \(", err), err


def test_without_libhvd_silence_is_a_stall_where_the_user_says_so(place, marker):
    job = start("-np", 2, "--stacks-on-stall", "2", sys.executable, str(place / "train.py"), env=env_with(marker))
    read_until(job.stderr, "no rank has printed for 2 s: stacks of 2 running ranks", 1)
    end(job, place)


def test_many_ranks_are_read_in_a_few_seconds(place, marker):
    job = begin(place, marker, 64, "-q", "-np", "64", python=(sys.executable, "-S"))
    began = time.monotonic()
    out = hvdrun("stacks").stdout
    print(f"64 ranks: {time.monotonic() - began:.2f} s")
    assert re.search(r"\[0,2-63\] train.py:\d+ step", out), out
    assert re.search(r"\[1\] train.py:\d+ data", out), out
    end(job, place)


def test_bad_input_is_one_line(place, marker):
    def refused(*words):
        done = hvdrun("stacks", *words)
        assert done.returncode == 240 and len(done.stderr.splitlines()) == 1, done
        return done.stderr

    assert "no job of yours runs on this machine" in refused()
    assert "no job 'x' of yours runs" in refused("x")
    jobs = [begin(place, marker, 1, "-q", "-np", "1") for _ in range(2)]
    for words, told in (((), "2 jobs run; name one of them:"), (("x",), "no job 'x' runs; those that do:")):
        done = hvdrun("stacks", *words)
        assert done.returncode == 240 and done.stderr.startswith(f"hvdrun: {told}\n"), done
        rows = dict(re.findall(r"^  [0-9a-f]{8}  pid (\d+), since (\S+Z): \S*python", done.stderr, re.M))
        assert set(rows) == {str(job.pid) for job in jobs}, done
    assert "As in: hvdrun stacks" in refused("--nativ")
    for job in jobs:
        end(job, place)


def test_a_killed_hvdrun_leaves_nothing_that_is_taken_for_a_job(place, marker):
    job = begin(place, marker, 1, "-q", "-np", "1")
    job.kill()
    job.communicate(timeout=PATIENCE)
    assert "no job of yours runs" in hvdrun("stacks").stderr
    assert os.listdir(os.path.join(os.environ["XDG_RUNTIME_DIR"], "hvdrun")) == []


def test_another_user_cannot_ask(place, marker):
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    job = begin(place, marker, 1, "-q", "-np", "1")
    done = subprocess.run([HVDRUN, "stacks"], user=65534, env={**os.environ, "HOME": "/"}, capture_output=True, text=True,
                          timeout=PATIENCE)  # fmt: skip
    assert done.returncode != 0 and len(done.stderr.splitlines()) == 1, done
    end(job, place)
