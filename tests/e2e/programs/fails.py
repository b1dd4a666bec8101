"""Ranks that reduce until one of them, FAILING, fails in the way HOW after its second time; the others then fail because of it.

It tells when it failed, for who measures how soon hvdrun says so. With a third argument the others catch what they get, and
end by an exit code: "exit" when they wait for the one that fails, "exit-late" when they come to the operation after its end.
"""

import array
import atexit
import ctypes
import os
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "runtime/python"))
from horovod.common import _lib, basics  # noqa: E402
from horovod.common.exceptions import HorovodInternalError  # noqa: E402

LONG = 1.5  # seconds that the end of a program may take, as that of an experiment tracker does


def fail(how):
    if how in ("atexit", "caught"):
        atexit.register(time.sleep, LONG)  # sleeps: an exit function that has much to do
    if how in ("thread", "hang"):
        threading.Thread(target=time.sleep, args=(LONG if how == "thread" else 3600,)).start()  # sleeps: the same
    if how == "hook":
        sys.excepthook = lambda *_: print("a hook of the program's own", file=sys.stderr)
    if how in ("sys.exit", "os._exit", "segfault"):
        print(f"failed at {time.time()}", flush=True)
    if how == "sys.exit":
        sys.exit(3)
    if how == "os._exit":
        os._exit(3)
    if how == "segfault":
        threading.Thread(target=ctypes.string_at, args=(0,)).start()
        threading.Event().wait()
    if how == "caught":
        try:
            raise ValueError("caught")
        except ValueError:
            sys.excepthook(*sys.exc_info())
        sys.exit(0)
    if how == "leaves":
        try:
            raise ValueError(f"failed at {time.time()}")
        finally:
            basics.shutdown()
            threading.Event().wait()  # what is still to be saved takes longer than the time of grace
    raise ValueError(f"failed at {time.time()}")  # a line on its own would wake others up before


failing, how = int(sys.argv[1]), sys.argv[2]
if how == "sys.exit" and os.environ["HVD_RANK"] == str(failing):
    atexit.register(time.sleep, LONG)  # sleeps: the same, behind libhvd's own, so that the others know that it has left
basics.init()
given, sums = (array.array("f", [1.0]) * 4 for _ in range(2))
plan = _lib.Plan(_lib.ALLREDUCE, _lib.FLOAT32, (4,), "gradient")
for step in range(1 << 62):
    if basics.rank() == failing and step == 2:
        fail(how)
    if sys.argv[3:] == ["exit-late"] and step == 2:
        time.sleep(0.5)  # sleeps: what their runtimes learn by themselves cannot be seen from here
    status = plan.execute(given.buffer_info()[0], sums.buffer_info()[0])
    if status and len(sys.argv) > 3:
        sys.exit(f"gave up: {_lib.last_error()}")
    if status:
        raise HorovodInternalError(_lib.last_error(), status)
