"""Jobs of horovod.spark.run one of whose processes is killed: for the tests, and for scripts/bench/spark that measures them."""

import contextlib
import io
import json
import os
import pathlib
import signal
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import horovod.spark
from horovod.spark import _session
from patience import PATIENCE, left_of, wait_until

# The rank whose processes are killed.
VICTIM_RANK = 1
VICTIMS = ("executor", "worker", "guardian", "agent", "rank", "hvdrun")


class Death(NamedTuple):
    error: BaseException
    to_error_s: float  # from the kill to the exception
    to_nothing_s: float  # from the kill until no process of the job is left
    left: List[str]  # which processes are still there after all patience


def note(folder: str) -> None:
    """In a rank: notes the processes that it hangs on."""
    found = {"rank": os.getpid()}
    pid = os.getpid()
    for name in ("agent", "guardian", "worker"):
        pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found[name] = pid
    while pid > 1:
        pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if b"CoarseGrainedExecutorBackend" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
            found["executor"] = pid
            break
    part = pathlib.Path(folder) / f"{os.environ['HOROVOD_RANK']}.part"
    part.write_text(json.dumps(found))
    part.rename(part.with_suffix(".json"))


def record(folder: str) -> None:
    """In a rank: notes the processes that it hangs on, and waits to be ended."""
    note(folder)
    time.sleep(3600)


def records(folder: pathlib.Path, count: int, is_over: Callable[[], bool] = lambda: False) -> Dict[int, Dict[str, int]]:
    """What the ranks have noted, once all have."""
    deadline = time.monotonic() + PATIENCE
    while len(found := list(folder.glob("*.json"))) < count:
        assert time.monotonic() < deadline and not is_over(), f"of {count} ranks only {len(found)} have started"
        time.sleep(0.01)
    return {int(path.stem): json.loads(path.read_text()) for path in found}


def own_hvdrun() -> int:
    """The pid of this process's hvdrun."""
    for task in pathlib.Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread or a process has ended meanwhile
            for pid in (task / "children").read_text().split():
                if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "hvdrun":
                    return int(pid)
    raise AssertionError("this process has no hvdrun")


def is_alive(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for_nothing(processes: Dict[str, int]) -> List[str]:
    """Waits until none of them is left; which are, after all patience."""
    return left_of(lambda: [name for name, pid in processes.items() if is_alive(pid)])


def job_processes(noted: Dict[int, Dict[str, int]], hvdrun: int) -> Dict[str, int]:
    """What must be gone after the job: Spark's own processes are not of it."""
    ours = {f"{name} of rank {rank}": pid for rank, found in noted.items() for name, pid in found.items()
            if name in ("rank", "agent", "guardian")}  # fmt: skip
    return {**ours, "hvdrun": hvdrun}


def die(
    folder: pathlib.Path, strike: Callable[[Dict[str, int]], None], num_proc: int = 2, run: Callable = horovod.spark.run
) -> Death:
    """Runs a job, calls `strike` with the processes of VICTIM_RANK (and hvdrun) when all ranks are up; what came of it."""
    processes: Dict[str, int] = {}
    struck: List[float] = []
    gone: List[float] = []
    left: List[str] = []
    over = threading.Event()

    def watch() -> None:
        noted = records(folder, num_proc, over.is_set)
        hvdrun = own_hvdrun()
        processes.update(job_processes(noted, hvdrun))
        struck.append(time.monotonic())
        strike({**noted[VICTIM_RANK], "hvdrun": hvdrun})
        left.extend(wait_for_nothing(processes))
        gone.append(time.monotonic())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    error: Optional[BaseException] = None
    try:
        run(record, args=(str(folder),), num_proc=num_proc, stdout=io.StringIO(), stderr=io.StringIO())
    except BaseException as raised:
        error = raised
    ended = time.monotonic()
    over.set()
    watcher.join(PATIENCE)
    assert error is not None, "the job went on to its end"
    assert struck, f"the job ended before anything was killed: {error}"
    return Death(error, ended - struck[0], gone[0] - struck[0], left)


def wait_for_slots(count: int) -> None:
    """Executors of a new session, and one in the place of a lost one, take a while to come."""
    _session.active().check_slots(count, PATIENCE, PATIENCE)


def train_until_told(folder: str) -> Tuple[int, int, int, List[int]]:
    """In a rank of an elastic job: trains until there is a file `end`. Its rank, its process, its steps, and of how many ranks
    the job was, one after the other, which the file `sizes` tells meanwhile."""
    import torch

    import horovod.torch as hvd

    hvd.init()
    note(folder)
    place = pathlib.Path(folder)

    @hvd.elastic.run
    def train(state):
        is_told = False
        while not is_told:
            if state.sizes[-1:] != [hvd.size()]:
                state.sizes = [*state.sizes, hvd.size()]
                state.save()  # what the file tells is not taken back when a rank is lost now
                part = place / f"sizes.{os.getpid()}"
                part.write_text(json.dumps(state.sizes))
                part.rename(place / "sizes")
            is_told = hvd.allreduce(torch.tensor(float((place / "end").exists())), op=hvd.Sum, name="told").item() > 0
            state.step += 1
            state.commit()
        return hvd.rank(), os.getpid(), state.step, state.sizes

    return train(hvd.elastic.TorchState(step=0, sizes=[]))


def sizes_in(folder: pathlib.Path) -> List[int]:
    path = folder / "sizes"
    return json.loads(path.read_text()) if path.exists() else []


def train_elastic(folder: pathlib.Path, then: Callable[[], None], **words: Any) -> List[Any]:
    """run_elastic(train_until_told); `then` runs beside it, and ends it when it returns or raises."""
    raised: List[BaseException] = []

    def watch() -> None:
        try:
            then()
        except BaseException as error:
            raised.append(error)
        (folder / "end").touch()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        found = horovod.spark.run_elastic(train_until_told, args=(str(folder),), **words)
    finally:
        watcher.join(PATIENCE)
    if raised:
        raise raised[0]
    return found


def wait_for_sizes(folder: pathlib.Path, wanted: List[int]) -> None:
    wait_until(lambda: sizes_in(folder) == wanted, lambda: f"the job was of {sizes_in(folder)} ranks, not of {wanted}")


def kill(victim: str) -> Callable[[Dict[str, int]], None]:
    return lambda processes: os.kill(processes[victim], signal.SIGKILL)
