"""The tasks of an elastic job. Each is a stage of its own, so that Spark ends none of them because of another."""

import pathlib
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
# Ending the tasks is asked for again and again, for so many seconds: one may just be on its way into Spark's queue.
_CANCEL_S = 5.0
_CANCEL_AGAIN_S = 0.1
# An agent's message contains this if the driver's machine cannot be called (launcher/agent/dial.cpp).
_UNREACHABLE = "cannot call hvdrun back"
_OTHER_WAY = '; with launcher="task0" hvdrun runs in a task, and the ranks stay those of the start'


class _Seat(_stage.Stage):
    """The stage of one task."""

    def __init__(self, session: _session.Session, order: Union[Order, JoinOrder], number: int, is_to_end: threading.Event) -> None:
        super().__init__(session, 1, partial(_task.run_elastic_agent, order, number), lambda _: None, is_gang=False)
        self._is_to_end = is_to_end
        self.begun_at = time.monotonic()

    def run(self) -> None:
        if not self._is_to_end.is_set():
            super().run()

    def loss(self) -> str:
        """Why it has ended."""
        told = _stage.reason_of(self.error) if self.error is not None else b"".join(self.results).decode(errors="replace")
        return told or "its agent has ended"


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
        self.was_lost_early = False  # an executor was, before the job began
        self.error: Optional[BaseException] = None  # of the task that ended the job, else of the last that was lost

    def run(self) -> None:
        try:
            self._follow()
        except BaseException as error:
            self.error = error
            self._on_over(f"Spark takes no tasks: {_stage.reason_of(error)}")

    def _follow(self) -> None:
        self._session.prepare()
        for number in range(self._order.tasks):
            self._start(self._order, number)
        while not self._is_to_end.wait(_LOOK_S):
            ended = [seat for seat in self._seats if not seat.is_alive()]
            self._seats = [seat for seat in self._seats if seat not in ended]
            join = self._join_order()  # read after that: hvdrun removes it before the agents of a job that ends
            for seat in ended:
                if _stage.is_wanted_end(seat.error) or not self._has_begun:
                    return self._end_job(seat)
                if join is not None:
                    self._note_loss(seat)
            if join is not None and self._pause.is_over(time.monotonic()):
                for _ in range(self._most - len(self._seats)):
                    self._start(join, 0)

    def end(self, patience_s: float, cancel_s: float) -> None:
        """As Stage.end()."""
        self._is_to_end.set()
        self.join()
        deadline = time.monotonic() + patience_s
        for seat in self._seats:
            seat.join(max(0.0, deadline - time.monotonic()))
        deadline = time.monotonic() + max(cancel_s, _CANCEL_S)
        while any(seat.is_alive() for seat in self._seats) and time.monotonic() < deadline:  # also those that wait for room
            try:
                self._session.cancel()
            except Exception:
                return  # the session may have been stopped, and its tasks with it
            time.sleep(_CANCEL_AGAIN_S)

    def _start(self, order: Union[Order, JoinOrder], number: int) -> None:
        self._seats.append(_Seat(self._session, order, number, self._is_to_end))
        self._seats[-1].start()

    def _end_job(self, seat: _Seat) -> None:
        self.error = seat.error
        self.was_lost_early = not _stage.is_wanted_end(seat.error) and seat.error is not None
        loss = seat.loss()
        self._on_over(f"Spark ended the tasks: {loss}{_OTHER_WAY if _UNREACHABLE in loss else ''}")

    def _note_loss(self, seat: _Seat) -> None:
        self.error = seat.error or self.error
        self._pause.note_loss(time.monotonic() - seat.begun_at, time.monotonic())
        try:
            self._stderr.write(f"{_WHO}: a task has ended: {seat.loss()}; another one will take its place\n")
        except Exception:
            pass  # a stream of the user's, without which the job goes on

    def _join_order(self) -> Optional[JoinOrder]:
        """What a task needs to join the job; None: it has not begun, or is ending."""
        order = JoinOrder.read(self._join_file)
        self._has_begun = self._has_begun or order is not None
        if order is not None:
            order.function = self._order.function
        return order
