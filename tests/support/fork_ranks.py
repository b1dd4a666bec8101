"""Runs the ranks of a test as forks of one process that has imported torch: that import is most of a short test's time.

    fork_ranks.py FOLDER SCRIPT ARGUMENTS...    with a JSON list of each rank's extra environment on standard input

Writes rank R's output to FOLDER/R.out and the exit codes to FOLDER/codes.json. The library is loaded by the script, in
each rank for itself, and reads the rank's own environment.
"""

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


def main():
    folder, script, *arguments = sys.argv[1:]
    environments = json.load(sys.stdin)
    children = []
    for rank, environment in enumerate(environments):
        child = os.fork()
        if child == 0:
            become_rank(f"{folder}/{rank}.out", environment)
            sys.argv = [script, *arguments]
            runpy.run_path(script, run_name="__main__")
            return  # and leave as a script does, exit handlers and all
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    with open(f"{folder}/codes.json", "w") as file:
        json.dump(codes, file)


if __name__ == "__main__":
    main()
