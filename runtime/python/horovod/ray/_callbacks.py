"""The way from ray_logger.log() in a rank to the callbacks of RayExecutor.run()."""

import contextlib
import pickle
import threading
from typing import Any, Callable, Iterator, List, Optional


# The time in seconds for callbacks of a call that has failed.
_LAST_S = 60.0


class Stopped(BaseException):
    """Stopped ends a call whose callback has raised."""


class Logs(threading.Thread):
    """Logs calls the callbacks with each thing that comes, in order, until None does."""

    def __init__(self, queue: Any, callbacks: List[Callable[[Any], Any]]) -> None:
        super().__init__(name="hvd-ray-callbacks", daemon=True)
        self.queue = queue
        self._callbacks = callbacks
        self.error: Optional[BaseException] = None
        self.on_error: Callable[[], Any] = lambda: None

    def run(self) -> None:
        while (item := self._next()) is not None:
            try:
                info = pickle.loads(item)
                for callback in self._callbacks:
                    callback(info)
            except BaseException as error:
                self.error = error
                self.on_error()
                return

    def _next(self) -> Optional[bytes]:
        import ray

        try:
            return self.queue.get() if ray.is_initialized() else None
        except Exception:
            return None  # Ray has ended the queue

    def finish(self, patience_s: Optional[float]) -> None:
        """Waits until all has been passed on."""
        import ray

        if not ray.is_initialized():  # else the call would start another one
            return
        try:
            self.queue.put(None)
        except Exception:
            return  # Ray has ended the queue
        self.join(patience_s)

    def check(self) -> None:
        """Stopped: a callback has raised."""
        if self.error is not None:
            raise Stopped


def here() -> Any:
    """For an actor on the node of this process, or of a Ray Client's server: it is needed as long as that node."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)


@contextlib.contextmanager
def logs_for(callbacks: Optional[List[Callable[[Any], Any]]]) -> Iterator[Optional[Logs]]:
    """Gives what passes on what the ranks log during a call; None where there is no callback.

    All has been passed on at the end, also where the call fails. What a callback raises is raised there, whatever else comes
    out of the call."""
    if not callbacks:
        yield None
        return
    import ray
    from ray.util.queue import Queue

    logs = Logs(Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here()}), list(callbacks))
    logs.start()
    try:
        yield logs
    except BaseException as failed:
        if logs.error is None:
            if isinstance(failed, Exception):
                logs.finish(_LAST_S)
            raise
    else:
        logs.finish(None)
    finally:
        logs.on_error = lambda: None
        if logs.error is not None:
            logs.join()  # it may be ending this call, and must not end the next one
        if ray.is_initialized():
            with contextlib.suppress(ValueError):  # it is of a Ray that was shut down, and with it the queue
                logs.queue.shutdown(force=True)
    if logs.error is not None:
        raise logs.error
