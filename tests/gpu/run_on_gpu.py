"""Runs a script of the repository on N ranks of this machine; prints one JSON object: {"codes", "reports",
"outputs"}, each by rank.

Usage: run_on_gpu.py N SCRIPT [ARGUMENT...]      scripts/gpu-check says which Python and which library.
"""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))

from ranks import run_ranks  # noqa: E402


def output_of(rank, output):
    """Its beginning and its end, where it is long."""
    own = [line[len(f"[{rank}] ") :] for line in output.splitlines() if line.startswith(f"[{rank}] ")]
    text = "\n".join(own)
    return text if len(text) <= 20000 else f"{text[:8000]}\n[...]\n{text[-12000:]}"


def main():
    size, script, *arguments = sys.argv[1:]
    # Without hvdrun, which may want libraries that are not on this machine.
    outcome = run_ranks(int(size), ROOT / script, *arguments, by_agent=True)
    outputs = [output_of(rank, outcome.output) for rank in range(int(size))]
    print(json.dumps({"codes": outcome.codes, "reports": outcome.reports, "outputs": outputs}))


if __name__ == "__main__":
    main()
