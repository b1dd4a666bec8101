"""Runs a script of the repository on N ranks of this machine; prints one JSON object: {"codes", "reports", "output"}.

Usage: run_on_gpu.py N SCRIPT [ARGUMENT...]      scripts/gpu-check says which Python and which library.
"""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))

from ranks import run_ranks  # noqa: E402


def main():
    size, script, *arguments = sys.argv[1:]
    # Without hvdrun, which may want libraries that are not on this machine.
    outcome = run_ranks(int(size), ROOT / script, *arguments, by_agent=True)
    print(json.dumps({"codes": outcome.codes, "reports": outcome.reports, "output": outcome.output[-20000:]}))


if __name__ == "__main__":
    main()
