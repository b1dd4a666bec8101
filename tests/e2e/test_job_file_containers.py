"""Job files that name a container image, with stubs of the engines that a node may have."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from hvdrun import hvdrun, start
from job_files import JOBS, Place
from patience import PATIENCE, wait_until


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def engine(place, name, log):
    """A container engine that records its command line and runs the program on the host."""
    place.program(name, f"""#!/bin/bash
echo "{name} $*" >> {log}
case $1 in
run) while [ $# -gt 0 ]; do case $1 in -c) shift; exec bash -c "$@";; esac; shift; done;;
exec) while [ $# -gt 0 ]; do case $1 in bash) exec "$@";; esac; shift; done;;
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
        hub = "docker.io/library/" if name == "podman" else ""  # podman takes no name without a registry
        assert {c.split()[-1] for c in calls if c.startswith(f"{name} pull ")} == {f"{hub}python:3.11"}
        assert sum(f" {hub}python:3.11 -c " in c for c in started) == 4 and sum(" hvdrun-job:" in c for c in started) == 4
        assert sum(" commit " in c for c in calls) == 4 and any(" rmi " in c for c in calls)
        assert all("-e API_TOKEN" in c and "--network host" in c for c in started)


def test_an_image_that_the_node_has_by_its_short_name_is_that_image_under_podman(place):
    log = place.path / "engine.log"
    engine(place, "podman", log)
    place.program("podman", (place.bin / "podman").read_text().replace("image) exit 1", "image) exit 0"))
    file = place.write("command: 'true'\ncontainer: made/here\n")
    done = hvdrun("-f", file, "-H", "localhost", "--container", "podman", env=place.env)
    assert done.returncode == 0, done.stderr
    calls = log.read_text().splitlines()
    assert any(" made/here -c " in c for c in calls) and not any("docker.io" in c or " pull " in c for c in calls)


def test_an_engine_that_is_asked_for_and_not_there_is_told(place):
    arguments = [a for a in place.arguments(JOBS / "horovod.json") if a not in ("--container", "none")]
    done = hvdrun(*arguments, "--container", "podman", env=place.env)
    assert done.returncode == 242 and "there is no podman on" in done.stderr


def test_every_host_runs_it_where_no_engine_is(place):
    done = place.run(JOBS / "horovod.json")
    assert done.stderr.count("the job runs on its hosts, and not in python:3.11") == 1


CLIENT = """#!{python} -S
import json, os, signal, sys, time
if "run" not in sys.argv[1:2]:
    sys.exit(0)
request = "{folder}/%d" % os.getpid()
signal.signal(signal.SIGTERM, lambda *_: open(request + ".TERM", "w").close())  # podman's too passes it on
with open(request + ".new", "w") as file:
    json.dump([sys.argv[sys.argv.index("-c"):], sys.stdin.read(), dict(os.environ)], file)
os.rename(request + ".new", request + ".asked")
while not os.path.exists(request + ".code"):
    time.sleep(0.02)
print(open(request + ".out").read(), end="")
sys.exit(int(open(request + ".code").read()))
"""


class Engine:
    """An engine whose containers are no children of its clients, as those of podman and docker; they end with the test."""

    def __init__(self, place):
        self.folder = place.path / "engine"
        self.folder.mkdir()
        self.containers = {}
        self.over = threading.Event()
        place.program("podman", CLIENT.format(python=sys.executable, folder=self.folder))
        self.thread = threading.Thread(target=self.serve)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        for container in self.containers.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(container.pid, signal.SIGKILL)
            container.wait()

    def serve(self):
        while not self.over.wait(0.02):
            for file in self.folder.glob("*.asked"):
                arguments, text, environment = json.loads(file.read_text())
                file.unlink()
                out = open(file.with_suffix(".out"), "wb")
                container = subprocess.Popen(["bash", *arguments], stdin=subprocess.PIPE, stdout=out, stderr=out,
                                             env=environment, start_new_session=True)  # fmt: skip
                container.stdin.write(text.encode())
                container.stdin.close()
                self.containers[file.stem] = container
            for name, container in self.containers.items():
                if (term := self.folder / f"{name}.TERM").exists():
                    term.unlink()
                    container.terminate()
                if container.poll() is not None:
                    new = self.folder / f"{name}.ended"
                    new.write_text(str(container.returncode if container.returncode >= 0 else 128 - container.returncode))
                    new.rename(self.folder / f"{name}.code")


RANK = """import os, pathlib, signal, time
def leave(*_):
    pathlib.Path({said!r}).write_text("TERM")
    raise SystemExit(7)
signal.signal(signal.SIGTERM, leave)
pathlib.Path({there!r}).write_text(str(os.getpid()))
time.sleep(1000)
"""


@pytest.fixture
def contained(place):
    """A job in a container of such an engine, whose rank runs behind a shell, once the rank is there."""
    said, there = place.path / "said", place.path / "there"
    (place.path / "rank.py").write_text(RANK.format(said=str(said), there=str(there)))
    file = place.write(f"""properties:
  nodeCount: 1
  containerSettings: {{imageSourceRegistry: {{image: "python:3.11"}}}}
  stdOutErrPathPrefix: {place.path}/out
  customToolkitSettings: {{commandLine: "{sys.executable} {place.path}/rank.py && echo never"}}
""")
    with Engine(place) as engine:
        job = start("-f", file, "-H", "localhost", "--container", "podman", "--grace", 60, env=place.env)
        try:
            wait_until(lambda: there.exists() or job.poll() is not None, "the container has not started")
            assert job.poll() is None, job.communicate(timeout=PATIENCE)
            yield job, said, *next(iter(engine.containers.items()))
        finally:
            job.kill()
            job.communicate(timeout=PATIENCE)


def test_a_signal_reaches_the_program_in_a_container_behind_a_shell(contained):
    job, said, *_ = contained
    job.terminate()
    job.communicate(timeout=PATIENCE)
    assert said.read_text() == "TERM"


def test_a_container_ends_when_its_client_is_killed(contained):
    job, said, client, container = contained
    os.kill(int(client), signal.SIGKILL)
    assert job.wait(PATIENCE) == 137
    wait_until(lambda: container.poll() is not None, "the container runs on")
    assert said.read_text() == "TERM"
