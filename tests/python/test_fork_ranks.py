"""The tests' own fork_ranks.py."""

import json
import os
import pathlib
import signal
import subprocess
import sys

from patience import PATIENCE

FORK_RANKS = pathlib.Path(__file__).resolve().parents[1] / "support/fork_ranks.py"


def test_ranks_that_wait_for_one_that_has_failed_are_ended_with_their_stacks(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(f"""import os, pathlib, sys, time
there = pathlib.Path({str(tmp_path / "there")!r})
if os.environ["RANK"] == "0":
    there.touch()
    time.sleep(600)
while not there.exists():
    time.sleep(0.01)
sys.exit(3)
""")
    request = {"folder": str(tmp_path), "script": str(script), "arguments": [], "environment": {}, "imports": [], "after_failure": 1,
               "ranks": [{"RANK": "0"}, {"RANK": "1"}]}  # fmt: skip
    subprocess.run([sys.executable, FORK_RANKS], input=json.dumps(request) + "\n", text=True, check=True, timeout=PATIENCE,
                   env={**os.environ, "PYTHONFAULTHANDLER": "1"})  # fmt: skip
    assert json.loads((tmp_path / "codes.json").read_text()) == [-signal.SIGABRT, 3]
    assert "script.py" in (tmp_path / "0.out").read_text()
