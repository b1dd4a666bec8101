"""Jobs of a real Slurm whose nodes are hosts of a lab: what is noticed of a node that falls silent."""

import re
import sys
import time

import pytest

import slurm as slurm_support
from hvdrun import HVDRUN, LIBHVD, ROOT, read_until
from patience import PATIENCE

pytestmark = pytest.mark.skipif(slurm_support.missing() is not None, reason=slurm_support.missing() or "")


@pytest.mark.parametrize("is_elastic", [False, True])
def test_a_node_that_is_cut_off_is_named_and_the_others_go_on_if_they_can(make_lab, is_elastic):
    lab = make_lab(3)
    go = lab.shared / "go"
    words = ["--min-np", 2] if is_elastic else []
    with slurm_support.Slurm(lab.shared / "slurm", 3, lab=lab) as cluster:
        job = lab.popen("salloc", "-Q", "--no-kill", "-N3", HVDRUN, "-np", 3, *words, "--heartbeat", 1, "--grace", 1, "-x",
                        f"PYTHONPATH={ROOT / 'runtime/python'}", "-x", f"HVD_LIBRARY={LIBHVD}", sys.executable,
                        ROOT / "tests/support/offered_steps.py", 1, go, env=cluster.environment)
        read_until(job.stdout, "size 3 rank", 3)
        lab.cut("node2")
        begin = time.monotonic()
        line = read_until(job.stderr, "node n2 was lost|n2: ")[-1]
        print(f"known after {time.monotonic() - begin:.1f} s: {line}")  # 4 s are wanted
        if is_elastic:
            read_until(job.stdout, "size 2 rank", 2)
            go.touch()
        _, err = job.communicate(timeout=PATIENCE)
        assert job.returncode == (0 if is_elastic else 243), line + err
        assert re.search("n2", line), line
        lab.heal("node2")
