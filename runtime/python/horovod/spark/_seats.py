"""The tasks of an elastic job. Each is a stage of its own, so that Spark ends none of them because of another."""

import pathlib
import re
import threading
import time
from functools import partial
from typing import Any, Callable, List, Optional, Union

from horovod.runner._agent import JoinOrder, Order
from horovod.spark import _session, _stage, _task

_WHO = "horovod.spark.run_elastic"
# How often the tasks are looked at, in seconds.
_LOOK_S = 0.2
# The seconds until a task that was lost is replaced: at first, and at most. Each loss doubles it, and a task that has run
# for longer than the most begins anew.
_PAUSE_S = (1.0, 60.0)
# What Spark's errors contain when somebody has cancelled the stage or stopped the session.
_WANTED_END = re.compile(r"cancel|interrupted|SparkContext (?:was|has been) shut ?down|stopped SparkContext", re.IGNORECASE)


class _Seat(_stage.Stage):
    """The stage of one task."""

    def __init__(self, session: _session.Session, order: Union[Order, JoinOrder], number: int) -> None:
        super().__init__(session, 1, partial(_task.run_elastic_agent, order, number), lambda _: None, is_gang=False)
        self.begun_at = time.monotonic()

    def loss(self) -> str:
        """Why it has ended; empty: in order."""
        return _stage.reason_of(self.error) if self.error is not None else self.results[0].decode(errors="replace")

    def is_wanted_end(self) -> bool:
        return self.error is not None and _WANTED_END.search(str(self.error)) is not None


class _Pause:
    """_Pause says when a task may be replaced."""

    def __init__(self) -> None:
        self._length_s = _PAUSE_S[0]
        self._until = 0.0

    def note_loss(self, ran_s: float, now: float) -> None:
        if ran_s > _PAUSE_S[1]:
            self._length_s = _PAUSE_S[0]
        if now >= self._until:  # those that are lost together count once
            self._until = now + self._length_s
            self._length_s = min(2 * self._length_s, _PAUSE_S[1])

    def is_over(self, now: float) -> bool:
        return now >= self._until


class Seats(threading.Thread):
    """Seats keeps as many tasks as the job may have ranks. The first ones begin the job, and all others join it, as soon as
    Spark has room for them. One that is lost is replaced.

    It ends when told to, or when Spark has ended the tasks because somebody wanted that."""

    def __init__(self, session: _session.Session, order: Order, most: int, join_file: pathlib.Path, on_over: Callable[[str], None],
                 stderr: Any) -> None:  # fmt: skip
        super().__init__(name="hvd-spark-seats", daemon=True)
        self._session = session
        self._order = order
        self._most = most
        self._join_file = join_file
        self._on_over = on_over
        self._stderr = stderr
        self._seats: List[_Seat] = []
        self._pause = _Pause()
        self._is_to_end = threading.Event()
        self._has_begun = False
        self._has_returned = False  # a rank has: the job is ending, and takes nobody any more
        self.error: Optional[BaseException] = None  # of the task that ended the job, else of the last that was lost

    def run(self) -> None:
        for number in range(self._order.tasks):
            self._start(self._order, number)
        while not self._is_to_end.wait(_LOOK_S):
            join = self._join_order()
            ended = [seat for seat in self._seats if not seat.is_alive()]
            self._seats = [seat for seat in self._seats if seat.is_alive()]
            for seat in ended:
                if seat.is_wanted_end() or not self._has_begun:
                    self.error = seat.error or self.error
                    return self._on_over(f"Spark ended the tasks: {seat.loss() or 'one has ended'}")
                self._note_end(seat, join)
            if join is not None and not self._has_returned and self._pause.is_over(time.monotonic()):
                for _ in range(self._most - len(self._seats)):
                    self._start(join, 0)

    def end(self, patience_s: float, cancel_s: float) -> None:
        """As Stage.end()."""
        self._is_to_end.set()
        self.join()
        deadline = time.monotonic() + patience_s
        for seat in self._seats:
            seat.join(max(0.0, deadline - time.monotonic()))
        if any(seat.is_alive() for seat in self._seats):  # also those that wait for room
            try:
                self._session.cancel()
            except Exception:
                pass  # the session may have been stopped, and its tasks with it
            deadline = time.monotonic() + cancel_s
            for seat in self._seats:
                seat.join(max(0.0, deadline - time.monotonic()))

    def _start(self, order: Union[Order, JoinOrder], number: int) -> None:
        self._seats.append(_Seat(self._session, order, number))
        self._seats[-1].start()

    def _note_end(self, seat: _Seat, join: Optional[JoinOrder]) -> None:
        loss = seat.loss()
        self._has_returned = self._has_returned or not loss
        if not loss or join is None or self._has_returned:
            return  # the job is ending
        self.error = seat.error or self.error
        self._pause.note_loss(time.monotonic() - seat.begun_at, time.monotonic())
        self._stderr.write(f"{_WHO}: a task has ended: {loss}; another one will take its place\n")

    def _join_order(self) -> Optional[JoinOrder]:
        """What a task needs to join the job; None: it has not begun, or is ending."""
        try:
            order = JoinOrder(self._join_file.read_text(encoding="ascii"))
        except FileNotFoundError:
            return None
        self._has_begun = True
        return order
