"""A rank that does barriers until FILE tells of its operations, then 20,000 more, says how many there were, and is gone."""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "runtime/python"))
from horovod.common import _lib, basics  # noqa: E402

basics.init()
path = pathlib.Path(sys.argv[1])
plan = _lib.Plan(_lib.BARRIER, _lib.UINT8, (), "step")
count = more = 0
while more < 20_000:
    more += 1 if more > 0 or "hvdrun_rank_collectives_total" in path.read_text() else 0
    assert not plan.execute(0, 0), _lib.last_error()
    count += 1
print(f"did {count}", flush=True)
os._exit(0)
