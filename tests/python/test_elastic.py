"""Elastic jobs: ranks that end are started again by hvdrun, and training goes on from the last commit."""

import json
import os
import pathlib
import re
import sys

import pytest
from hvdrun import HVDRUN, ROOT, hvdrun

SCRIPT = pathlib.Path(__file__).parent / "rank_elastic.py"
pytestmark = pytest.mark.skipif(not os.access(HVDRUN, os.X_OK), reason="hvdrun is not built")
SIZE = 3
STEPS = list(range(12))

# Weights of about 1 are added up in another order; what is left near 0 has their rounding.
FLOAT32 = 4e-7


def train(tmp_path, kind, *flags, size=SIZE, script=SCRIPT):
    """The end of the job, and what its ranks have reported."""
    flags = [str(flag) for flag in flags]
    folder = tmp_path / kind
    folder.mkdir()
    environment = dict(os.environ, OMP_NUM_THREADS="1", HVD_TEST_REPORTS=str(folder), HVD_RSH="sh -c 'exec \"$@\"' {host}",
                       PYTHONPATH=str(ROOT / "tests/support"))  # fmt: skip
    done = hvdrun("-np", size, *flags, sys.executable, script, kind, folder, env=environment)
    reports = [folder / f"{rank}.json" for rank in range(size)]
    return done, [json.loads(path.read_text()) if path.exists() else None for path in reports]


@pytest.fixture(scope="module")
def weight(tmp_path_factory):
    """What comes out when nobody ends."""
    done, reports = train(tmp_path_factory.mktemp("elastic"), "none", "--elastic-restarts", 1)
    assert done.returncode == 0, done.stderr
    assert all(report["begun"] == [0] and report["restarts"] == "0" for report in reports)
    return reports[0]["weight"]


@pytest.mark.parametrize(
    "kind, begun, ended, flags",
    [
        # `begun`: at which steps rank 1's last self began; `ended`: who was started anew, in order (sorted: at once).
        ("kill", [4], ["1"], ["--elastic-restarts", 5]),
        ("at_once", [4], ["0", "1"], ["--min-np", 3, "--max-np", 4, "--elastic-restarts", 5, "--elastic-timeout", 300]),
        ("one_after_the_other", [2, 6, 8], ["1", "0", "2"], ["--elastic-restarts", 5, "-H", "localhost:2,elsewhere:1"]),
        ("no_commit", [0], ["1"], ["--elastic-restarts", 5]),
        ("meeting", [4], ["1", "1"], ["--elastic-restarts", 5]),
        ("parallel", [4], ["1"], ["--elastic-restarts", 5]),
    ],
)
def test_training_goes_on_with_restarted_ranks(tmp_path, weight, kind, begun, ended, flags):
    done, reports = train(tmp_path, kind, *flags)
    assert done.returncode == 0, done.stderr
    for report in reports:
        assert report["seen"] == STEPS, "each step is made once"
        assert report["weight"] == pytest.approx(weight, abs=FLOAT32)
    assert reports[1]["begun"] == begun
    lines = re.findall(r"^hvdrun: rank (\d) on \w+ \(pid \d+\) (.*); it is started again \(restart (\d) of 5\)$",
                       done.stderr, re.M)  # fmt: skip
    assert [line[2] for line in lines] == [str(number + 1) for number in range(len(lines))], done.stderr
    assert [line[0] for line in lines] == ended or kind == "at_once" and sorted(line[0] for line in lines) == ended
    assert lines[0][1] == "was killed by signal 9 (SIGKILL)"


def test_what_is_allowed_is_used_up(tmp_path):
    done, _ = train(tmp_path, "at_once", "--elastic-restarts", 1)
    assert done.returncode == 137
    assert "restart 1 of 1" in done.stderr and "after 1 restart of ranks, the most that are allowed" in done.stderr


def test_a_script_that_fails_before_it_joins_is_not_started_anew():
    done = hvdrun("-np", 2, "--elastic-restarts", 5, sys.executable, "-c", "import no_such_module")
    assert done.returncode == 1 and "started again" not in done.stderr
    assert "no_such_module" in done.stderr


def test_restarts_are_events():
    script = "import horovod.torch as hvd, os; hvd.init(); os.kill(os.getpid(), 9) if hvd.rank() == 1 else hvd.barrier()"
    done = hvdrun("--json", "-np", 2, "--elastic-restarts", 2, sys.executable, "-c", script)
    events = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    restarts = [event for event in events if event["event"] == "rank_restarted"]
    assert [(event["restart"], event["limit"]) for event in restarts] == [(1, 2), (2, 2)]
    assert done.returncode != 0


@pytest.mark.parametrize(
    "kind, least, left",
    [("loss", 1, [0, 2]), ("rank_0", 2, [1, 2]), ("two", 1, [1])],
)
def test_the_others_go_on_at_once_when_ranks_are_lost(tmp_path, weight, kind, least, left):
    done, reports = train(tmp_path, kind, "--min-np", least, "--elastic-restarts", 5, script=SCRIPT.with_name("rank_shrink.py"))
    assert done.returncode == 0, done.stderr
    for place, rank in enumerate(left):
        assert reports[rank]["seen"] == STEPS, "each step is made once"
        assert reports[rank]["weight"] == pytest.approx(weight, abs=FLOAT32)
        assert reports[rank]["ranks"] == [place, len(left), place, len(left)]
        assert reports[rank]["sizes"] == [3] * 5 + [len(left)] * 7
        print(f"{kind}: rank {rank} paused for {reports[rank]['pause']:.3f} s")
    assert "generation 2: " in done.stderr


def test_a_rank_that_comes_back_is_taken_in_while_the_others_train(tmp_path, weight):
    done, reports = train(tmp_path, "return", "--min-np", 2, "--elastic-restarts", 5, script=SCRIPT.with_name("rank_shrink.py"))
    assert done.returncode == 0, done.stderr
    for place, rank in enumerate([0, 2, 1]):
        assert reports[rank]["seen"] == STEPS
        assert reports[rank]["weight"] == pytest.approx(weight, abs=FLOAT32)
        assert reports[rank]["ranks"][:2] == [place, 3], "who comes later stands behind those who have stayed"
        assert reports[rank]["sizes"] == [3] * 5 + [2] + [3] * 6
    assert reports[1]["begun"] == [6]
    assert "generation 3: 3 ranks train together" in done.stderr
