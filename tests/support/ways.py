"""The ways to start three ranks on this machine: by an agent here, by a command, by one agent through another, by mpirun's
agents."""

import shutil

import pytest

# A remote-shell command that stays here: it runs what it is given, whatever the host.
EXECUTES = "sh -c 'shift; exec \"$@\"' exec"
WAYS = {
    "local": ["-np", "3"],
    "rsh": ["--rsh", EXECUTES, "-H", "a:1,b:2"],
    "tree": ["--rsh", EXECUTES, "--fanout", "1", "-H", "a:1,b:1,c:1"],
    "mpi": ["--launcher", "mpi", "-np", "3"],
}


@pytest.fixture(params=WAYS)
def way(request):
    if request.param == "mpi" and shutil.which("mpirun") is None:
        pytest.skip("no mpirun on this machine")
    return WAYS[request.param]
