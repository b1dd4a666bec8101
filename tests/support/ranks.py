"""Runs a Python script on N ranks of this machine: by the real hvdrun where it is built, else by agent.py.

Which hvdrun: that of tests/support/hvdrun.py. The ranks tell the test their results through files (`report` in
rank_side.py), so that the tests do not depend on how output is tagged.
"""

import atexit
import functools
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from agent import Agent
from hvdrun import HVDRUN, ROOT
from patience import PATIENCE


class Outcome:
    """What N ranks left: `codes` and `reports` by rank (None: no report), all output, seconds.

    By hvdrun there is one exit code, its own.
    """

    def __init__(self, codes, reports, output, seconds):
        self.codes, self.reports, self.output, self.seconds = codes, reports, output, seconds

    def check(self):
        assert all(code == 0 for code in self.codes), f"exit codes {self.codes}\n{self.output}"
        return self


# XLA compiles in two thirds of the time: what is tested is which programs run, and not how fast.
QUICK_XLA = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
# What a process imports once for all ranks that are forks of it, as far as it is there. torch._dynamo: the first optimizer
# would import it, which takes as long as torch itself.
FRAMEWORKS = {"torch": ("torch", "torch._dynamo"), "tensorflow": ("lean_imports", "tensorflow")}
# These are read when Python and a framework start, not when a rank does.
READ_AT_START = ("OMP_NUM_THREADS", "TF_CPP_MIN_LOG_LEVEL", "TF_USE_LEGACY_KERAS")


def run_ranks(size, script, *arguments, env=None, by_agent=False, launch=None, framework="torch", imports=(), nodes=None):
    """Runs `python script arguments...` on `size` ranks. `by_agent`: without hvdrun, so that nobody stops survivors.
    `launch`: a command line that ends with the script's; instead of hvdrun's or the agent.

    Without hvdrun: `framework` is one of FRAMEWORKS, and `imports` names more modules that are imported once for all ranks of all
    such runs. `nodes`: how many ranks each node has, where they are to be on several.
    """
    with tempfile.TemporaryDirectory(prefix="hvd-test-") as folder:
        paths = [str(ROOT / "tests" / "support"), os.environ.get("PYTHONPATH")]
        environment = dict(
            os.environ,
            OMP_NUM_THREADS="1",
            HVD_TEST_REPORTS=folder,
            PYTHONFAULTHANDLER="1",
            PYTHONPATH=os.pathsep.join(filter(None, paths)),
            PYTHONUNBUFFERED="1",
            XLA_FLAGS=QUICK_XLA,
        )
        environment.update(env or {})
        script, arguments = str(script), [str(argument) for argument in arguments]
        begin = time.monotonic()
        if launch is not None:
            codes, output = _by_command([*launch, sys.executable, script, *arguments], environment)
        elif os.access(HVDRUN, os.X_OK) and not by_agent:
            command = [HVDRUN, "-np", str(size), "-H", f"localhost:{size}", sys.executable, script, *arguments]
            codes, output = _by_command(command, environment)
        else:
            codes, output = _by_agent(size, script, arguments, environment, folder, framework, imports, nodes or [size])
        reports = []
        for rank in range(size):
            path = pathlib.Path(folder) / f"{rank}.json"
            reports.append(json.loads(path.read_text()) if path.exists() else None)
        return Outcome(codes, reports, output, time.monotonic() - begin)


def _by_command(command, environment):
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.terminate()  # it stops its ranks
        output, _ = process.communicate()
        output += f"\n({os.path.basename(command[0])} was stopped after {PATIENCE} s)"
    return [process.returncode], output


class _Forker:
    """The one process of this test session that has imported a framework; ranks are forks of it (fork_ranks.py)."""

    def __init__(self, modules, environment):
        self._process = subprocess.Popen([sys.executable, str(ROOT / "tests/support/fork_ranks.py"), *modules], env=environment,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)  # unbuffered: select is used
        atexit.register(self._process.stdin.close)  # it ends then

    def run(self, request):
        """The text of a failure, or None. Nothing of the request runs any more."""
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        leader = int(self._process.stdout.readline())
        try:
            if select.select([self._process.stdout], [], [], PATIENCE)[0]:
                return None
            os.killpg(leader, signal.SIGABRT)  # PYTHONFAULTHANDLER: each prints where it hangs
            select.select([self._process.stdout], [], [], 10)
            return "timeout"
        finally:
            try:
                os.killpg(leader, signal.SIGKILL)
            except ProcessLookupError:
                pass  # nothing is left, as it should be
            assert self._process.stdout.readline() == b"done\n"


@functools.lru_cache(maxsize=None)
def _forker(framework, settings):
    return _Forker(FRAMEWORKS[framework], dict(os.environ, PYTHONFAULTHANDLER="1", PYTHONUNBUFFERED="1", **dict(settings)))


def _by_agent(size, script, arguments, environment, folder, framework, imports, nodes):
    socket_folder = tempfile.mkdtemp(prefix="hvd-")  # short: a socket's path has 107 bytes at most
    agent = Agent(socket_folder + "/agent", size)
    try:
        settings = tuple((name, environment[name]) for name in READ_AT_START if name in environment)
        failure = _forker(framework, settings).run({
            "folder": folder, "script": script, "arguments": arguments, "environment": environment,
            "imports": imports, "after_failure": int(PATIENCE / 3), "ranks": [_identity(agent, rank, nodes) for rank in range(size)],
        })  # fmt: skip
    finally:
        agent.stop()
        shutil.rmtree(socket_folder)
    codes = [failure] * size if failure else json.loads(pathlib.Path(folder, "codes.json").read_text())
    output = ""
    for path in sorted(pathlib.Path(folder).glob("*.out")):
        lines = path.read_text(errors="replace").splitlines()
        output += "".join(f"[{path.stem}] {line}\n" for line in lines)
    return codes, output + (f"agent: {agent.errors}\n" if agent.errors else "")


def _identity(agent, rank, nodes):
    """The rank environment of runtime/base/contract.h."""
    places = [(node, local) for node, ranks in enumerate(nodes) for local in range(ranks)]
    node, local = places[rank]
    across = [index for index, ranks in enumerate(nodes) if ranks > local]
    numbers = {
        "RANK": rank, "SIZE": len(places), "LOCAL_RANK": local, "LOCAL_SIZE": nodes[node], "CROSS_RANK": across.index(node),
        "CROSS_SIZE": len(across), "NODE_INDEX": node, "NODE_COUNT": len(nodes), "JOB_ID": "test-" + agent.token[:12],
        "AGENT_SOCKET": agent.path, "AGENT_TOKEN": agent.token, "NODE_ADDRESS": f"127.0.0.{node + 1}",
    }  # fmt: skip
    return {"HVD_" + key: str(value) for key, value in numbers.items()}
