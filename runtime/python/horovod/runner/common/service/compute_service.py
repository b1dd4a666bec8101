"""The processes of a tf.data service meet here: dispatchers and workers register, and training tasks wait for them.

One process has the ComputeService, all others a ComputeClient of it. Horovod's names, for scripts that use them.
"""

import threading
from typing import Dict, Iterable, Optional, Set

from horovod.runner.common.service._calls import Addresses, Caller, Server
from horovod.runner.common.util.timeout import TimeoutException

# A wait without a timeout asks again after this many seconds, so that no connection stays silent for ever.
_ASK_AGAIN_S = 30.0


class ComputeService:
    """ComputeService knows the dispatchers' addresses, and which workers each has.

    Args:
        dispatchers: how many there will be.
        workers_per_dispatcher: how many workers each of them will have.
        key: what clients need to be answered; of `secret.make_secret_key()`.
        nics: the network interfaces that it may be called by; default: all.
    """

    def __init__(self, dispatchers: int, workers_per_dispatcher: int, key: bytes, nics: Optional[Iterable[str]] = None) -> None:
        if dispatchers < 1 or workers_per_dispatcher < 1:
            raise ValueError(f"dispatchers={dispatchers}, workers_per_dispatcher={workers_per_dispatcher}: both must be 1 or more")
        self._workers_wanted = workers_per_dispatcher
        self._addresses: Dict[int, Optional[str]] = dict.fromkeys(range(dispatchers))
        self._workers: Dict[int, Set[int]] = {number: set() for number in range(dispatchers)}
        self._is_over = False
        self._changed = threading.Condition()
        functions = {
            "register_dispatcher": self._register_dispatcher,
            "wait_for_dispatcher": self._wait_for_dispatcher,
            "register_worker": self._register_worker,
            "wait_for_workers": self._wait_for_workers,
            "wait_for_shutdown": self._wait_for_shutdown,
            "shutdown": self._shut_down,
        }
        self._server = Server(functions, key, nics)

    def addresses(self) -> Addresses:
        """Returns where clients find it: {interface: [(address, port)]}."""
        return self._server.addresses()

    def shutdown(self) -> None:
        """Tells all who wait that it is over, and ends. A second call does no harm."""
        self._shut_down()
        self._server.close()

    def _check(self, dispatcher: int) -> None:
        if dispatcher not in self._addresses:
            raise IndexError(f"Dispatcher id {dispatcher} is none of 0 to {len(self._addresses) - 1}")

    def _register_dispatcher(self, dispatcher: int, address: str) -> None:
        self._check(dispatcher)
        with self._changed:
            known = self._addresses[dispatcher]
            if known not in (None, address):
                raise ValueError(
                    f"Dispatcher with id {dispatcher} has already been registered under different address {known}: {address}"
                )
            self._addresses[dispatcher] = address
            self._changed.notify_all()

    def _register_worker(self, dispatcher: int, worker: int) -> None:
        self._check(dispatcher)
        with self._changed:
            self._workers[dispatcher].add(worker)
            self._changed.notify_all()

    def _wait_for_dispatcher(self, dispatcher: int, timeout: float) -> str:
        self._check(dispatcher)
        self._wait(lambda: self._addresses[dispatcher] is not None, timeout, f"dispatcher {dispatcher}", "dispatcher")
        return str(self._addresses[dispatcher])

    def _wait_for_workers(self, dispatcher: int, timeout: float) -> None:
        self._check(dispatcher)
        workers = self._workers[dispatcher]
        self._wait(lambda: len(workers) >= self._workers_wanted, timeout, f"workers for dispatcher {dispatcher}", "workers")

    def _wait(self, is_there, timeout: float, who: str, what: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: is_there() or self._is_over, timeout)
            if is_there():
                return
            if self._is_over:
                raise RuntimeError(f"the compute service was shut down before {who} had registered")
        raise TimeoutException(
            f"Timed out waiting for {who} to register. Try to find out what takes the {what} so long to register "
            f"or increase timeout. Timeout after {timeout} seconds."
        )

    def _wait_for_shutdown(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._is_over, seconds)

    def _shut_down(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


class ComputeClient:
    """ComputeClient is the ComputeService, seen from another process.

    Args:
        addresses: what its addresses() gave.
        key: its key.
        verbose: accepted for scripts that pass it.

    All methods raise ConnectionError when nobody with this key answers.
    """

    def __init__(self, addresses: Addresses, key: bytes, verbose: int = 1) -> None:
        self._caller = Caller(addresses, key)
        self._wait_for_shutdown_thread: Optional[threading.Thread] = None

    def own_address(self) -> str:
        """Returns the address of this host by which it reaches the service, so that others there can reach this
        host."""
        self._caller.call("wait_for_shutdown", 0)
        return self._caller.own_address

    def register_dispatcher(self, dispatcher_id: int, dispatcher_address: str) -> None:
        """Registers a dispatcher. IndexError: there is no such dispatcher. ValueError: it has registered another
        address."""
        self._caller.call("register_dispatcher", dispatcher_id, dispatcher_address)

    def wait_for_dispatcher_registration(self, dispatcher_id: int, timeout: float) -> str:
        """Returns the dispatcher's address. TimeoutException: it has not registered in so many seconds."""
        return self._caller.call("wait_for_dispatcher", dispatcher_id, timeout, takes_s=timeout)

    def register_worker_for_dispatcher(self, dispatcher_id: int, worker_id: int) -> None:
        """Notes that a worker is ready. IndexError: there is no such dispatcher."""
        self._caller.call("register_worker", dispatcher_id, worker_id)

    def wait_for_dispatcher_worker_registration(self, dispatcher_id: int, timeout: float) -> None:
        """Waits until all workers of the dispatcher are ready. TimeoutException: they are not in so many seconds."""
        self._caller.call("wait_for_workers", dispatcher_id, timeout, takes_s=timeout)

    def shutdown(self) -> None:
        """Tells the service, and all who wait for that, that it is over."""
        self._caller.call("shutdown")

    def wait_for_shutdown(self) -> None:
        """Waits until somebody calls shutdown(), or until the service, which has answered once, is gone."""
        is_over = self._caller.call("wait_for_shutdown", 0)
        try:
            while not is_over:
                is_over = self._caller.call("wait_for_shutdown", _ASK_AGAIN_S, takes_s=_ASK_AGAIN_S)
        except ConnectionError:
            pass  # the process that had it has ended

    def is_running(self) -> bool:
        """Returns whether the service has not been shut down yet. The first call begins to watch it."""
        if self._wait_for_shutdown_thread is None:
            self._wait_for_shutdown_thread = threading.Thread(target=self._watch, name="hvd-compute-watch", daemon=True)
            self._wait_for_shutdown_thread.start()
        return self._wait_for_shutdown_thread.is_alive()

    def _watch(self) -> None:
        try:
            self.wait_for_shutdown()
        except ConnectionError:
            pass  # the service is not running, as is_running() reports
