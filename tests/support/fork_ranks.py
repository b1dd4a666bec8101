"""Runs the ranks of tests as forks of one process that has imported torch: that import is most of a short test's time.

Started once per test session (ranks.py). Each line on standard input is a request, a JSON object: `folder`, `script`,
`arguments`, `environment`, `ranks` (each rank's own environment), and `imports` (modules that they find imported). Answers,
a line each: the pid of a process that leads a session of its own and runs the ranks; and, when it has ended, "done". It
writes rank R's output to folder/R.out and the exit codes to folder/codes.json. The library is loaded by the script, in each
rank for itself, and reads the rank's own environment.
"""

import importlib
import json
import os
import runpy
import sys

import torch  # noqa: F401  (the point of it)


def become_rank(output, environment):
    os.environ.update(environment)
    nothing = os.open(os.devnull, os.O_RDONLY)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for source, target in ((nothing, 0), (file, 1), (file, 2)):
        os.dup2(source, target)


def run_ranks(request):
    """In the leader: forks the ranks and waits for them. In a rank: returns when its script has ended."""
    os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    folder, script = request["folder"], request["script"]
    sys.path[:0] = [os.path.dirname(script)]
    children = []
    for rank, environment in enumerate(request["ranks"]):
        child = os.fork()
        if child == 0:
            become_rank(f"{folder}/{rank}.out", environment)
            sys.argv = [script, *request["arguments"]]
            runpy.run_path(script, run_name="__main__")
            return  # and leave as a script does, exit handlers and all
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    with open(f"{folder}/codes.json", "w") as file:
        json.dump(codes, file)


def main():
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        for module in request["imports"]:
            importlib.import_module(module)
        leader = os.fork()
        if leader == 0:
            return run_ranks(request)
        print(leader, flush=True)
        os.waitpid(leader, 0)
        print("done", flush=True)


if __name__ == "__main__":
    main()
