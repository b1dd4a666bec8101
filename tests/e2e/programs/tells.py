"""A rank that moves MARK in all ways that it can: tensors, their names, objects, a process set's operations. It says "moved"."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "runtime/python"))
import numpy as np  # noqa: E402
from horovod.common import _arrays, basics, process_sets  # noqa: E402

mark = sys.argv[1]
basics.init()
text = np.frombuffer(mark.encode() * 4096, dtype=np.uint8)
rank, size = basics.rank(), basics.size()
ends = process_sets.add_process_set([0, size - 1])
for number in range(3):
    name = f"{mark}.{number}"
    (found,) = _arrays.broadcast([text if rank == 0 else np.zeros_like(text)], [f"{name}.tensor"], 0)
    assert bytes(found) == bytes(text)
    assert bytes(_arrays.allgather(text, f"{name}.all")) == bytes(text) * size
    if rank in (0, size - 1):
        assert bytes(_arrays.allgather(text, f"{name}.ends", ends)) == bytes(text) * 2
    assert _arrays.broadcast_object({"key": mark} if rank == 0 else None, 0, f"{name}.object") == {"key": mark}
    assert _arrays.allgather_object((rank, mark), f"{name}.objects") == [(each, mark) for each in range(size)]
print("moved", flush=True)
basics.shutdown()
