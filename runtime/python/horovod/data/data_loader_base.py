"""A base class for data loaders, and a mixin that reads ahead in a thread.

    class Loader(AsyncDataLoaderMixin, MyLoader): ...      # MyLoader is a BaseDataLoader

    loader = Loader(async_loader_queue_size=8, path=...)
"""

import atexit
import queue
import sys
import threading
import time
import weakref
from typing import Any, Iterator, Optional, Set

# The time in seconds that the end of the process waits for a loader that is in the middle of a batch.
_EXIT_S = 5.0


class BaseDataLoader:
    """A loader gives batches through `_iterate`; `_process_batch` sees each before it is given out."""

    def __len__(self) -> int:
        """Returns how many batches there are."""
        raise NotImplementedError

    def _iterate(self) -> Iterator[Any]:
        raise NotImplementedError

    def _process_batch(self, batch: Any) -> Any:
        return batch

    def __iter__(self) -> Iterator[Any]:
        for batch in self._iterate():
            yield self._process_batch(batch)


class _Reading:
    """_Reading is one pass over the data, in a thread."""

    def __init__(self, source: Iterator[Any], room: int) -> None:
        self._source = source
        self._batches: "queue.Queue" = queue.Queue(room)
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, name="hvd-data", daemon=True)
        self._thread.start()
        _readings.add(self)

    def _put(self, item: Any) -> bool:
        """Returns whether it is in the queue; False when nobody wants it any more."""
        while not self._is_stopped.is_set():
            try:
                self._batches.put(item, timeout=0.2)
                return True
            except queue.Full:
                pass  # looks whether it is stopped
        return False

    def _read(self) -> None:
        try:
            for batch in self._source:
                if not self._put((batch, None)):
                    return
            self._put((None, StopIteration()))
        except BaseException as error:  # raised in the thread that iterates
            self._put((None, error))

    def __iter__(self) -> Iterator[Any]:
        while not self._is_stopped.is_set():
            batch, end = self._batches.get()
            if isinstance(end, StopIteration):
                return
            if end is not None:
                raise end
            yield batch

    _full = queue.Full  # a generator may end us when Python has cleared its modules

    def ask_to_stop(self) -> None:
        self._is_stopped.set()
        try:
            self._batches.put_nowait((None, StopIteration()))  # for a thread that waits for a batch
        except self._full:
            pass

    def stop(self, patience: Optional[float] = None) -> None:
        """Ends the thread. `patience`: waits for it no longer than so many seconds."""
        self.ask_to_stop()
        # A thread that Python has stopped while finalizing never ends, so it is not waited for.
        if self._thread is not threading.current_thread() and not sys.is_finalizing():
            self._thread.join(patience)


_readings: "weakref.WeakSet[_Reading]" = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Stops all threads when Python ends: one that comes out of C++ code then, as torch's does, ends the process by
    std::terminate."""
    late = time.monotonic() + _EXIT_S
    readings = list(_readings)
    for reading in readings:
        reading.ask_to_stop()
    for reading in readings:
        reading.stop(max(0.0, late - time.monotonic()))


class AsyncDataLoaderMixin:
    """AsyncDataLoaderMixin reads batches ahead in a thread. It comes before the loader's class among the bases.

    An exception of the loader is raised where the batches are taken. Leaving an iteration early, by `break` or by an
    exception, ends the thread, and so does the end of the process.

    Args:
        async_loader_queue_size: how many batches are read ahead; 0: none, and no thread.
        debug_data_loader: accepted for scripts that pass it; not needed.
    """

    def __init__(
        self, async_loader_queue_size: int = 64, debug_data_loader: bool = False, *args: Any, **kwargs: Any
    ) -> None:
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        self._open: Set[_Reading] = set()
        super().__init__(*args, **kwargs)

    def close_async_loader(self) -> None:
        """Ends the threads that read, and iterations that wait for them."""
        for reading in list(self._open):
            reading.stop()

    def __iter__(self) -> Iterator[Any]:
        if self.async_loader_queue_size <= 0:
            for batch in self._iterate():  # type: ignore[attr-defined]
                yield self._process_batch(batch)  # type: ignore[attr-defined]
            return
        reading = _Reading(self._iterate(), self.async_loader_queue_size)  # type: ignore[attr-defined]
        self._open.add(reading)
        try:
            for batch in reading:
                yield self._process_batch(batch)  # type: ignore[attr-defined]
        finally:
            reading.stop()
            self._open.discard(reading)
