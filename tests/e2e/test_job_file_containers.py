"""Job files that name a container image, with stubs of the engines that a node may have."""

import json

import pytest

from hvdrun import hvdrun
from job_files import JOBS, Place


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def engine(place, name, log):
    """A container engine that records its command line and runs the program on the host."""
    place.program(name, f"""#!/bin/bash
echo "{name} $*" >> {log}
case $1 in
run) while [ $# -gt 0 ]; do case $1 in -c) shift; exec bash -c "$1";; esac; shift; done;;
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
        assert sum(" commit " in c for c in calls) == 4 and any(" rmi " in c for c in calls)
        assert all("-e API_TOKEN" in c and "--network host" in c for c in started)


def test_an_engine_that_is_asked_for_and_not_there_is_told(place):
    arguments = [a for a in place.arguments(JOBS / "horovod.json") if a not in ("--container", "none")]
    done = hvdrun(*arguments, "--container", "podman", env=place.env)
    assert done.returncode == 242 and "there is no podman on" in done.stderr


def test_every_host_runs_it_where_no_engine_is(place):
    done = place.run(JOBS / "horovod.json")
    assert done.stderr.count("the job runs on its hosts, and not in python:3.11") == 1
