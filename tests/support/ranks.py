"""Runs a Python script on N ranks of this machine: by the real hvdrun where it is built, else by agent.py.

Which hvdrun: that of tests/support/hvdrun.py. The ranks tell the test their results through
files (`report` in rank_side.py), so that the tests do not depend on how output is tagged.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from agent import Agent
from hvdrun import HVDRUN, ROOT


class Outcome:
    """What N ranks left: `codes` and `reports` by rank (None: no report), all output, seconds.

    By hvdrun there is one exit code, its own.
    """

    def __init__(self, codes, reports, output, seconds):
        self.codes, self.reports, self.output, self.seconds = codes, reports, output, seconds

    def check(self):
        assert all(code == 0 for code in self.codes), f"exit codes {self.codes}\n{self.output}"
        return self


def run_ranks(size, script, *arguments, timeout=300, env=None, by_agent=False):
    """Runs `python script arguments...` on `size` ranks. `by_agent`: without hvdrun, so that nobody stops survivors."""
    with tempfile.TemporaryDirectory(prefix="hvd-test-") as folder:
        paths = [str(ROOT / "tests" / "support"), os.environ.get("PYTHONPATH")]
        environment = dict(
            os.environ,
            OMP_NUM_THREADS="1",
            HOROVOD_START_TIMEOUT="240",  # ranks that import torch on a busy machine come minutes apart
            HVD_TEST_REPORTS=folder,
            PYTHONFAULTHANDLER="1",
            PYTHONPATH=os.pathsep.join(filter(None, paths)),
            PYTHONUNBUFFERED="1",
        )
        environment.update(env or {})
        command = [sys.executable, str(script), *map(str, arguments)]
        begin = time.monotonic()
        if os.access(HVDRUN, os.X_OK) and not by_agent:
            codes, output = _by_hvdrun(size, command, environment, timeout)
        else:
            codes, output = _by_agent(size, command, environment, timeout, folder)
        reports = []
        for rank in range(size):
            path = pathlib.Path(folder) / f"{rank}.json"
            reports.append(json.loads(path.read_text()) if path.exists() else None)
        return Outcome(codes, reports, output, time.monotonic() - begin)


def _by_hvdrun(size, command, environment, timeout):
    process = subprocess.Popen(
        [HVDRUN, "-np", str(size), "-H", f"localhost:{size}", *command],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.terminate()  # it stops its ranks
        output, _ = process.communicate()
        output += f"\n(hvdrun was stopped after {timeout} s)"
    return [process.returncode], output


def _by_agent(size, command, environment, timeout, folder):
    socket_folder = tempfile.mkdtemp(prefix="hvd-")  # short: a socket's path has 107 bytes at most
    agent = Agent(socket_folder + "/agent", size)
    processes = []
    try:
        for rank in range(size):
            numbers = {
                "RANK": rank, "SIZE": size, "LOCAL_RANK": rank, "LOCAL_SIZE": size, "CROSS_RANK": 0, "CROSS_SIZE": 1,
                "NODE_INDEX": 0, "NODE_COUNT": 1, "JOB_ID": "test-" + agent.token[:12], "AGENT_SOCKET": agent.path,
                "AGENT_TOKEN": agent.token, "NODE_ADDRESS": "127.0.0.1",
            }  # fmt: skip
            rank_environment = dict(environment, **{"HVD_" + key: str(value) for key, value in numbers.items()})
            with open(f"{folder}/{rank}.out", "w") as out:
                processes.append(subprocess.Popen(command, env=rank_environment, stdout=out, stderr=out))
        deadline = time.monotonic() + timeout
        codes = []
        for process in processes:
            try:
                codes.append(process.wait(max(0.1, deadline - time.monotonic())))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGABRT)  # PYTHONFAULTHANDLER: it prints where it hangs
                process.wait()
                codes.append("timeout")
        output = ""
        for rank in range(size):
            lines = pathlib.Path(f"{folder}/{rank}.out").read_text(errors="replace").splitlines()
            output += "".join(f"[{rank}] {line}\n" for line in lines)
        if agent.errors:
            output += f"agent: {agent.errors}\n"
        return codes, output
    finally:
        for process in processes:
            process.kill()
            process.wait()
        agent.stop()
        shutil.rmtree(socket_folder)
