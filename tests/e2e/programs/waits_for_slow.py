"""Ranks that reduce until FILE has WORDS, or for good; rank 1 comes late each time, so that the others wait for it."""

import array
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "runtime/python"))
from horovod.common import _lib, basics  # noqa: E402

basics.init()
path = pathlib.Path(sys.argv[1])
words = sys.argv[2]
is_over = array.array("f", [0.0])
ended = array.array("f", [0.0])
small = _lib.Plan(_lib.ALLREDUCE, _lib.FLOAT32, (1,), "is over")
given, sums = (array.array("f", [1.0]) * 100_000 for _ in range(2))
large = _lib.Plan(_lib.ALLREDUCE, _lib.FLOAT32, (len(given),), "gradient")
while not ended[0]:
    if basics.rank() == 1:
        time.sleep(0.1)
    assert not large.execute(given.buffer_info()[0], sums.buffer_info()[0]), _lib.last_error()
    is_over[0] = path.exists() and words in path.read_text()
    assert not small.execute(is_over.buffer_info()[0], ended.buffer_info()[0]), _lib.last_error()

# What rank 1 has counted stays on the page when it has left libhvd: one look at the ranks comes before the second page.
if basics.rank() == 1:
    basics.shutdown()
for _ in range(2):
    before = path.stat().st_mtime_ns
    while path.stat().st_mtime_ns == before:
        time.sleep(0.02)
