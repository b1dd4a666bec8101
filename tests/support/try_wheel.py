"""Installs the wheel beside this file in a new environment, uses it, and prints one line. Runs on a system that has
Python 3.9 or newer, venv and numpy, and no compiler and no network: scripts/wheel_systems.py."""

import os
import pathlib
import platform
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
VENV = pathlib.Path("/tmp/venv")

RANK = """
import sys
import numpy as np
from horovod.common import _arrays, _lib, basics
basics.init()
(total,) = _arrays.allreduce([np.arange(5, dtype=np.float32)], ["x"], op=_lib.SUM)
assert total.tolist() == [0, 2, 4, 6, 8], total
assert _arrays.allgather_object({"rank": basics.rank()}) == [{"rank": 0}, {"rank": 1}]
print("rank", basics.rank(), "of", basics.size())
if "fail" in sys.argv and basics.rank() == 1:
    raise ValueError("batch 17 is empty")
"""

# A function goes to the ranks by value, also with this version's own code objects.
FUNCTION = """
import horovod
def work(base):
    from horovod.common import basics
    basics.init()
    return [base + basics.rank() for _ in range(2)]
print(horovod.run(work, (10,), np=2))
"""


def run(*command, code=0):
    done = subprocess.run(command, text=True, capture_output=True, timeout=120, cwd="/tmp")
    if done.returncode != code:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def check(is_right, what):
    if not is_right:
        sys.exit(what)


def main():
    python, hvdrun = VENV / "bin/python", VENV / "bin/hvdrun"
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", VENV], check=True)
    began = time.monotonic()
    run(python, "-m", "pip", "install", "--disable-pip-version-check", "--no-index", "--find-links", HERE, *HERE.glob("hvdrun-*.whl"))
    run(hvdrun, "bench", "allreduce", "-np", "2", "--max", "1M")
    seconds = time.monotonic() - began

    (HERE / "rank.py").write_text(RANK)
    said = run(hvdrun, "-np", "2", python, HERE / "rank.py")
    check("rank 0 of 2" in said and "rank 1 of 2" in said, said)
    said = run(hvdrun, "-np", "2", python, HERE / "rank.py", "fail", code=1)
    check("rank 1 " in said and "failed: ValueError: batch 17 is empty, /trial/rank.py:11 in <module>" in said, said)
    said = run(python, "-W", "error", "-c", FUNCTION)
    check("[[10, 10], [11, 11]]" in said, said)
    # Each file of the package must be code of this version of Python, and no later one must warn of it.
    package = run(python, "-c", "import horovod, os; print(os.path.dirname(horovod.__file__))").strip()
    run(python, "-W", "error", "-m", "compileall", "-q", "-f", package)
    print(f"glibc {os.confstr('CS_GNU_LIBC_VERSION').split()[-1]}, Python {platform.python_version()}: "
          f"installed and 2 ranks measured in {seconds:.1f} s; collectives, a failing rank and horovod.run are right")


if __name__ == "__main__":
    main()
