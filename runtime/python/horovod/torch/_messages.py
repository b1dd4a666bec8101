"""Messages between two ranks of a torch.distributed group, over libhvd's own links.

A message is a broadcast in the process set of the two, under a name that says whose it is and its number among those of its
tag: so messages of different tags do not wait for each other, and those that go both ways do not either. The set is made
when two ranks first speak, in a thread of its own, since `isend` must not wait for the other; it stays until hvd.shutdown().

torch's `send` and `recv` wait at once for what they start. Then the message goes the way of synchronous operations, which for a
small one is many times as short.
"""

import inspect
import sys
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist

from horovod.common import basics
from horovod.common.process_sets import ProcessSet, add_by_members, known_process_set
from horovod.torch._broadcast import broadcast_, broadcast_into
from horovod.torch._works import Operation


_AWAITED = {inspect.unwrap(function).__code__ for function in (dist.send, dist.recv)}
_FRAMES = 6  # between those and us, with what torch and the backend have around functions


def _is_awaited() -> bool:
    """Returns whether the caller's caller waits for the message at once."""
    frame = sys._getframe(2)
    for _ in range(_FRAMES):
        if frame is None or frame.f_code in _AWAITED:
            break
        frame = frame.f_back
    return frame is not None and frame.f_code in _AWAITED


class _Pair:
    """_Pair is this rank and another one."""

    def __init__(self, ranks: List[int]) -> None:
        self._ranks = ranks
        self._lock = threading.Lock()  # guards what follows
        self._set: Optional[ProcessSet] = None
        self._waiting: Optional[List[Callable[[Optional[ProcessSet], Optional[Exception]], None]]] = None

    def known(self) -> Optional[ProcessSet]:
        """Returns the process set, if it exists and nothing waits to be started in it."""
        with self._lock:
            if self._set is None and self._waiting is None:
                self._set = known_process_set(self._ranks)
            return self._set

    def call(self, start: Callable[[Optional[ProcessSet], Optional[Exception]], None]) -> None:
        """Calls with the process set: at once if it exists, otherwise in the thread that makes it. If it cannot be
        made, calls with an error."""
        with self._lock:
            if self._set is None:
                if self._waiting is None:
                    self._waiting = []
                    threading.Thread(target=self._make, name="hvd-pair", daemon=True).start()
                self._waiting.append(start)
                return
        start(self._set, None)

    def _make(self) -> None:
        process_set, error = None, None
        try:
            process_set = add_by_members(self._ranks)
        except Exception as failure:
            error = failure
        with self._lock:
            self._set = process_set
            waiting, self._waiting = self._waiting, None
        for start in waiting:
            start(process_set, error)


_pairs: Dict[int, _Pair] = {}  # by the other rank
_pairs_lock = threading.Lock()
basics.when_left.append(_pairs.clear)


def _pair_with(rank: int) -> _Pair:
    with _pairs_lock:
        pair = _pairs.get(rank)
        if pair is None:
            pair = _pairs[rank] = _Pair(sorted((rank, basics.rank())))
        return pair


class Messages:
    """Messages are those of a group. Ranks are numbered as in the job."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._counts: Dict[Tuple[int, int, int], int] = {}  # by sender, receiver, tag

    def send(self, tensor: torch.Tensor, receiver: int, tag: int) -> Optional[Operation]:
        """Sends; None means that it is done."""
        return self._start(tensor, basics.rank(), receiver, tag)

    def receive(self, tensor: torch.Tensor, sender: int, tag: int) -> Optional[Operation]:
        """Receives; None means that it is done."""
        return self._start(tensor, sender, basics.rank(), tag)

    def _start(self, tensor: torch.Tensor, sender: int, receiver: int, tag: int) -> Optional[Operation]:
        if sender == receiver:
            raise ValueError(f"rank {sender} sends to itself, or receives from itself")
        number = self._counts[sender, receiver, tag] = self._counts.get((sender, receiver, tag), 0) + 1
        name = f"{self._group}.message.{sender}.{receiver}.{tag}.noname.{number}"
        plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
        memory = plain.reshape(-1).view(torch.uint8)  # of any type: nothing is computed with it
        receives = receiver == basics.rank()

        def finish(_: List[Any]) -> List[torch.Tensor]:
            if receives and (plain.data_ptr() != tensor.data_ptr() or tensor.is_neg() or tensor.is_conj()):
                tensor.detach().copy_(plain)
            return [tensor]

        pair = _pair_with(receiver if not receives else sender)
        known = pair.known()
        if known is not None and _is_awaited():
            broadcast_(memory, sender, name, known)
            finish([])
            return None
        operation = Operation(None, finish)
        operation.path = name  # ranks that send and receive nothing do not count messages

        def start(process_set: Optional[ProcessSet], error: Optional[Exception]) -> None:
            handles = []
            if error is None:
                try:
                    handles.append(broadcast_into(memory, memory, sender, name, process_set))
                except Exception as failure:
                    error = failure
            operation.begin(handles, error)

        pair.call(start)
        return operation
