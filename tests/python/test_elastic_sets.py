"""Process sets of elastic jobs are formed again of the processes that are left."""

import pathlib

from test_elastic import train

SCRIPT = pathlib.Path(__file__).parent / "rank_elastic_sets.py"


def test_sets_have_the_members_that_are_left(tmp_path):
    done, reports = train(tmp_path, "loss", "--min-np", 2, "--elastic-restarts", 5, script=SCRIPT)
    assert done.returncode == 0, done.stderr
    first, _, last = reports
    # [0, 1] is rank 0 alone; [1] is nobody; [0, 2] are both that are left.
    assert first[0] == [[0], 1] and last[0] == [[0], 0]
    assert "none of the processes that it was made of is left" in first[2] == last[2]
    assert first[3] == last[3] == [[0, 1], 2]
    assert first[4] == last[4] == 2, "the same set may be added again, as after a reset without elastic"
