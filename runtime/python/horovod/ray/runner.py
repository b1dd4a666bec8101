"""RayExecutor: Horovod's interface for ranks on a Ray cluster."""

import atexit
import contextlib
import dataclasses
import pickle
import threading
import uuid
import warnings
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence

from horovod.ray._callbacks import Logs, here, logs_for
from horovod.ray._params import ElasticParams, Params
from horovod.ray._payload import make_payload
from horovod.ray.worker import BaseHorovodWorker as BaseHorovodWorker  # for code that imports it from here
from horovod.runner._numbers import whole_number
from horovod.runner.common._absent import absent_class

# How often it looks whether a callback has raised, in seconds.
_LOOK_S = 0.5
# The time in seconds for ranks to end when Python does.
_END_S = 60.0

Coordinator = absent_class("horovod.ray.runner.Coordinator")
StaticParams = absent_class("horovod.ray.runner.StaticParams")
StaticAdapter = absent_class("horovod.ray.runner.StaticAdapter")


@dataclasses.dataclass
class MiniSettings:
    """What RayExecutor.create_settings returns."""

    nics: Any = None  # names of network interfaces for what the ranks tell each other; None: any
    verbose: int = 1  # 2 and above: hvdrun tells each step
    ssh_identity_file: Optional[str] = None
    timeout_s: float = 300  # for Ray to start the actors, and again for the ranks to start
    placement_group_timeout_s: float = 100
    # Which hosts an elastic job may use, with override_discovery=False: an object with find_available_hosts_and_slots(),
    # which returns the slots of each host, by the name or address that Ray has for it. With a Ray Client it is copied.
    discovery: Any = None


def _renamed(old: str, given: Any, new: str, otherwise: Any) -> Any:
    """What an argument means that may still be given by its old name."""
    if given is None:
        return otherwise
    warnings.warn(f"{old} has been renamed to {new}", DeprecationWarning, stacklevel=3)
    return given


class RayExecutor:
    """Ranks on a Ray cluster. Ray must be connected (ray.init) before start().

    With num_workers or num_hosts the ranks stay from start() to shutdown(). With min_workers each call is an elastic job:
    its ranks come and go with Ray's nodes, and those that fail are started again, while the others wait in
    hvd.elastic.run.

    What ranks print comes out of the driver's standard output and error, tagged with their rank. The driver's HOROVOD_*,
    HVD_* and NCCL_* variables are set for them. A function that raises ends the ranks of the job, and what it raised is
    raised here, with the rank, its host and traceback as its cause; start() makes new ones. Call it from one thread.

    Args:
        settings: of create_settings().
        num_workers: number of ranks, packed on few hosts; or
        num_hosts, num_workers_per_host: so many hosts, with so many ranks on each.
        cpus_per_worker: CPUs of Ray for each rank.
        use_gpu, gpus_per_worker: GPUs of Ray for each rank; default with use_gpu: 1. With one, ranks of a host see those
            of all, each its own at its local rank; with more, a rank sees only its own.
        use_current_placement_group: ranks run in the placement group of the calling actor, where there is one.
        min_workers: an elastic job begins with as many ranks as there is room for, and so many at least; it goes on while so
            many are left.
        max_workers: it never has more; default: as many as the nodes have room for.
        reset_limit: how often its ranks may change before it ends; default: any number of times.
        cooldown_range: least and most seconds in which nothing is started on a node where an actor or an agent was lost,
            twice as long each time, and least again once a rank was there for longer than the most; default: 10, 600.
        elastic_timeout: seconds to wait for min_workers ranks.
        override_discovery: the job may use all nodes of Ray. False: those of `settings.discovery`.
        num_slots, cpus_per_slot, gpus_per_slot: older names of num_workers_per_host, cpus_per_worker, gpus_per_worker.

    Raises:
        ValueError: an argument is wrong.
    """

    @classmethod
    def create_settings(
        cls,
        timeout_s: float = 30,
        ssh_identity_file: Optional[str] = None,
        ssh_str: Optional[str] = None,
        placement_group_timeout_s: float = 100,
        nics: Any = None,
    ) -> MiniSettings:
        """Settings for RayExecutor.

        Args:
            timeout_s: seconds for Ray to start the actors, and again for the ranks to start.
            ssh_identity_file, ssh_str: accepted; Ray starts the ranks, not SSH, and no key is written.
            placement_group_timeout_s: seconds for Ray to reserve all places.
            nics: names of network interfaces for what the ranks tell each other.
        """
        return MiniSettings(nics=nics, ssh_identity_file=ssh_identity_file, timeout_s=timeout_s,
                            placement_group_timeout_s=placement_group_timeout_s)  # fmt: skip

    def __init__(
        self,
        settings: Any,
        num_workers: Optional[int] = None,
        num_hosts: Optional[int] = None,
        num_workers_per_host: Optional[int] = 1,
        cpus_per_worker: float = 1,
        use_gpu: bool = False,
        gpus_per_worker: Optional[int] = None,
        use_current_placement_group: bool = True,
        min_workers: Optional[int] = None,
        max_workers: Optional[int] = None,
        reset_limit: Optional[int] = None,
        cooldown_range: Optional[List[int]] = None,
        elastic_timeout: float = 600,
        override_discovery: bool = True,
        num_slots: Optional[int] = None,
        cpus_per_slot: Optional[float] = None,
        gpus_per_slot: Optional[int] = None,
    ) -> None:
        num_workers_per_host = _renamed("num_slots", num_slots, "num_workers_per_host", num_workers_per_host)
        cpus_per_worker = _renamed("cpus_per_slot", cpus_per_slot, "cpus_per_worker", cpus_per_worker)
        if use_gpu:  # scripts give gpus_per_slot without it too, where it meant nothing
            gpus_per_worker = _renamed("gpus_per_slot", gpus_per_slot, "gpus_per_worker", gpus_per_worker)
        if max_workers and (not min_workers or min_workers <= 0):
            raise ValueError("max_workers is for elastic jobs, which need a positive min_workers")
        if min_workers and (num_workers or num_hosts):
            raise ValueError("give min_workers for an elastic job, or num_workers or num_hosts for another, and not both")
        if num_workers and num_hosts:
            raise ValueError("give num_workers, or num_hosts with num_workers_per_host, and not both")
        if not isinstance(settings, MiniSettings):
            raise ValueError(f"settings must be what RayExecutor.create_settings returns, not {type(settings).__name__}")
        if isinstance(cpus_per_worker, bool) or not isinstance(cpus_per_worker, (int, float)) or cpus_per_worker < 0:
            raise ValueError(f"cpus_per_worker must be a number, 0 or more, not {cpus_per_worker!r}")
        if gpus_per_worker and not use_gpu:
            raise ValueError(f"gpus_per_worker={gpus_per_worker} needs use_gpu=True")
        if use_gpu and gpus_per_worker is not None:
            gpus_per_worker = _checked_count("gpus_per_worker", gpus_per_worker)
        gpus = (gpus_per_worker or 1) if use_gpu else 0
        if min_workers is not None:
            self._params: Any = ElasticParams(
                least=_checked_count("min_workers", min_workers),
                most=0 if max_workers is None else _checked_count("max_workers", max_workers, min_workers),
                cpus_per_worker=cpus_per_worker,
                gpus_per_worker=gpus,
                reset_limit=None if reset_limit is None else _checked_count("reset_limit", reset_limit, 0),
                cooldown_range=_checked_range("cooldown_range", cooldown_range),
                elastic_timeout=elastic_timeout,
            )
            if override_discovery:
                settings = dataclasses.replace(settings, discovery=None)
            elif not hasattr(settings.discovery, "find_available_hosts_and_slots"):
                raise ValueError(
                    "override_discovery=False needs settings.discovery, an object with find_available_hosts_and_slots(), not "
                    f"{settings.discovery!r}"
                )
        else:
            per_host = _checked_count("num_workers_per_host", num_workers_per_host) if num_hosts is not None else 1
            self._params = Params(
                ranks=_checked_count("num_hosts", num_hosts) * per_host
                if num_hosts is not None
                else _checked_count("num_workers", num_workers),
                num_hosts=num_hosts or 0,
                num_workers_per_host=per_host,
                cpus_per_worker=cpus_per_worker,
                gpus_per_worker=gpus,
                use_current_placement_group=use_current_placement_group,
            )
        self._is_elastic = min_workers is not None
        self.settings = settings
        self.adapter: Any = None
        self._is_remote = False
        self._group_name = ""  # of the placement group of a Ray Client's ranks
        self._ray_job: Any = None  # of the connection to Ray in which the ranks were started
        self._on_dropped: Optional[weakref.finalize] = None

    def start(
        self,
        executable_cls: Optional[type] = None,
        executable_args: Optional[List[Any]] = None,
        executable_kwargs: Optional[Dict[str, Any]] = None,
        extra_env_vars: Optional[Dict[str, Any]] = None,
    ) -> None:
        """Starts the ranks, and makes an object of `executable_cls` in each. Ranks of an earlier start() are ended first.

        With min_workers it waits until the cluster has nodes enough; the ranks of each call make an object of their own.

        Args:
            extra_env_vars: variables for the ranks, over those of Ray's workers.

        Raises:
            TimeoutError: Ray has no room for the ranks, or does not start its actors in time.
            Whatever the class raised first. RuntimeError: the ranks could not be started; with hvdrun's report.
        """
        import ray

        from horovod.ray._adapter import Adapter
        from horovod.ray._elastic import ElasticAdapter
        from horovod.ray._launched import reason_of
        from horovod.runner._launch import own_settings

        if not ray.is_initialized():
            raise ValueError('RayExecutor.start: Ray is not connected; call ray.init() first, or ray.init("auto") in a cluster')
        make = None
        if executable_cls is not None:
            make = make_payload(executable_cls, executable_args, executable_kwargs)
        self.shutdown()
        self._is_remote = ray.util.client.ray.is_connected()
        self._ray_job = _ray_job()
        adapter_cls: Any = ElasticAdapter if self._is_elastic else Adapter
        params = self._params
        if self._is_remote:
            self._group_name = f"hvdrun-{uuid.uuid4().hex}"
            params = params if self._is_elastic else params._replace(group_name=self._group_name)
            # It needs no room, and is where the driver's connection ends; shutdown() must reach an elastic job that runs.
            options = {"num_cpus": 0, "scheduling_strategy": here(), "max_concurrency": 2 if self._is_elastic else 1}
            adapter_cls = ray.remote(adapter_cls).options(**options).remote
        self.adapter = adapter_cls(self.settings, params)
        _started.add(self)
        self._on_dropped = weakref.finalize(self, _end_dropped, self.adapter, self._is_remote)
        self._on_dropped.atexit = False
        # Functions that were registered last are called first: this one before Ray's own.
        atexit.unregister(_shut_down)
        atexit.register(_shut_down)
        environment = {str(name): str(value) for name, value in (extra_env_vars or {}).items()}
        try:
            self._ask("start", make, environment, own_settings())
        except ray.exceptions.RayActorError as error:
            self._forget_remote()
            raise RuntimeError(
                "RayExecutor: the actor of Ray in which hvdrun runs, on the node of the Ray Client's server, has ended: "
                f"{reason_of(error)}"
            ) from error
        except BaseException as error:
            if self._is_remote and not isinstance(error, Exception):  # Ctrl-C here, of which the adapter knows nothing
                self._forget_remote()
            self._forget()
            raise

    def run(
        self,
        fn: Callable[..., Any],
        args: Optional[List[Any]] = None,
        kwargs: Optional[Dict[str, Any]] = None,
        callbacks: Optional[List[Callable[[Any], None]]] = None,
    ) -> List[Any]:
        """Calls `fn(*args, **kwargs)` on each rank; the results in rank order. In an elastic job they are of the ranks that there are at its end.

        Args:
            fn: anything that cloudpickle can carry, as can `args` and `kwargs`.
            callbacks: they are called in this process, on a thread of their own, with all that the ranks give to
                horovod.ray.ray_logger.log(). What one raises is raised here, and ends the ranks if they still call `fn`.

        Raises:
            Whatever `fn` raised first, with the rank, its host, traceback and the job's last lines as its cause.
            RuntimeError: a rank was killed or ended by itself, an actor died, ...; with hvdrun's report.
        """
        return self._results("run", make_payload(fn, args, kwargs), callbacks)

    def run_remote(
        self, fn: Callable[..., Any], args: Optional[List[Any]] = None, kwargs: Optional[Dict[str, Any]] = None
    ) -> List[Any]:
        """As run(), without waiting: Ray's references to the results, in rank order. Later calls wait for this one.

        NotImplementedError with min_workers, where ranks may come and go during a call."""
        self._refuse_elastic("run_remote", "run")
        return self._ask("ask", "run", make_payload(fn, args, kwargs), self._params.ranks)

    def execute(self, fn: Callable[[Any], Any], callbacks: Optional[List[Callable[[Any], None]]] = None) -> List[Any]:
        """As run(), with each rank's object of executable_cls (None where start() had no class) as the argument of `fn`."""
        return self._results("execute", make_payload(fn, (), {}), callbacks)

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """As execute(), on rank 0 alone. NotImplementedError with min_workers, where that may become another process."""
        self._refuse_elastic("execute_single", "execute")
        return self._results("execute", make_payload(fn, (), {}), ranks=1)[0]

    def shutdown(self) -> None:
        """Ends the ranks, and gives back what Ray has reserved. Ranks that still call a function are stopped."""
        if self.adapter is None:
            return
        import ray

        try:
            if _ray_job() == self._ray_job:  # else all actors have ended, and with them the ranks
                self._ask("shutdown")
        except ray.exceptions.RayActorError:
            self._forget_remote()  # its actors have ended with it
        finally:
            self._forget()

    def _forget_remote(self) -> None:
        """Ends a Ray Client's adapter, and what it has reserved: Ray would keep that as long as the client is connected."""
        import ray

        adapter = self.adapter
        self._forget()
        with contextlib.suppress(Exception):  # there is none, or the connection has ended
            ray.kill(adapter)
            ray.util.remove_placement_group(ray.util.get_placement_group(self._group_name))

    def _forget(self) -> None:
        _started.discard(self)
        if self._on_dropped is not None:
            self._on_dropped.detach()
        self.adapter = None

    def _check_started(self) -> None:
        if self.adapter is None:
            raise RuntimeError("RayExecutor: there are no ranks; call start() first, and again after shutdown()")
        if _ray_job() != self._ray_job:  # where there is none, the next call of Ray would start one
            raise RuntimeError("RayExecutor: Ray was shut down, and with it the ranks; call ray.init() and start() again")

    def _ask(self, name: str, *arguments: Any) -> Any:
        self._check_started()
        method = getattr(self.adapter, name)
        if not self._is_remote:
            return method(*arguments)
        import ray

        try:
            return ray.get(method.remote(*arguments))
        except ray.exceptions.RayTaskError as error:  # what the adapter raised, in an actor
            raise error.cause from error

    def _refuse_elastic(self, name: str, other: str) -> None:
        if self._is_elastic:
            raise NotImplementedError(f"RayExecutor(min_workers=...).{name}: its ranks come and go; use {other}()")

    def _results(
        self,
        kind: str,
        payload: bytes,
        callbacks: Optional[List[Callable[[Any], None]]] = None,
        ranks: Optional[int] = None,
    ) -> List[Any]:
        self._check_started()
        with logs_for(callbacks) as logs:
            if self._is_elastic:
                return self._elastic_results(kind, payload, logs)
            return self._results_of_ranks(kind, payload, ranks or self._params.ranks, logs)

    def _elastic_results(self, kind: str, payload: bytes, logs: Optional[Logs]) -> List[Any]:
        if logs is not None:
            logs.on_error = self._give_up  # on another thread
        try:
            values = self._ask("run", kind, payload, logs and logs.queue)
        except BaseException:
            if self._is_remote:
                self._give_up()  # after Ctrl-C here
            raise
        try:
            return [pickle.loads(value) for value in values]
        except Exception as error:
            raise _no_results(str(error)) from error

    def _give_up(self) -> None:
        """Ends the job of a call, if it still runs."""
        try:
            self._ask("give_up")
        except Exception:
            pass  # after shutdown(), or Ray is gone

    def _results_of_ranks(self, kind: str, payload: bytes, ranks: int, logs: Optional[Logs]) -> List[Any]:
        import ray

        from horovod.ray._adapter import settle
        from horovod.ray._launched import LOGS_S, reason_of

        asked: List[Any] = []
        try:
            pending = asked = self._ask("ask", kind, payload, ranks, logs and logs.queue)
            while pending:
                done, pending = ray.wait(pending, num_returns=1, timeout=_LOOK_S)
                ray.get(done)  # raises what failed
                self._check_started()
                if logs is not None:
                    logs.check()
            return ray.get(asked)
        except ray.exceptions.RaySystemError as error:  # the ranks have done their part, and stay
            raise _no_results(reason_of(error)) from error
        except Exception as error:
            try:
                self._ask("explain", reason_of(error))
            finally:
                settle(asked, LOGS_S)
                self._ask("shutdown")  # others may need what Ray has reserved
            raise
        except BaseException:  # Ctrl-C, or a callback that raises
            self.shutdown()
            settle(asked)
            raise


# Executors whose ranks run. Those that are left when Python ends are shut down before Ray is.
_started: "weakref.WeakSet[RayExecutor]" = weakref.WeakSet()
# What ends the ranks of those that nobody has any more, and whether Python is ending.
_ending: List[threading.Thread] = []
_is_over = threading.Event()


def _end_dropped(adapter: Any, is_remote: bool) -> None:
    """Ends the ranks of an executor that nobody has any more."""

    def end() -> None:
        import ray

        if not is_remote:
            adapter.shutdown_when_idle(_is_over)
        elif ray.is_initialized():
            with contextlib.suppress(Exception):  # the connection has ended, and with it the adapter
                ray.get(adapter.shutdown_when_idle.remote())

    thread = threading.Thread(target=end, name="hvd-ray-dropped", daemon=True)
    _ending[:] = [*(other for other in _ending if other.is_alive()), thread]
    thread.start()  # since this is called in the middle of anything


def _ray_job() -> Any:
    """Which connection to Ray this process has; None: none. Ray is not asked, because this is called often."""
    import ray

    if not ray.is_initialized():
        return None
    if ray.util.client.ray.is_connected():
        return ray.util.client.ray.get_context().client_worker  # one for each connection
    context = ray.get_runtime_context()
    return context.get_node_id(), context.get_job_id()  # a Ray that is new counts its jobs anew


def _shut_down() -> None:
    _is_over.set()
    for executor in list(_started):
        try:
            executor.shutdown()
        except Exception as error:
            warnings.warn(f"RayExecutor: the ranks were not ended in order: {error}")
    for thread in _ending:
        thread.join(_END_S)


def _checked_count(name: str, value: Any, least: int = 1) -> int:
    number = whole_number(value)
    if number is None or number < least:
        raise ValueError(f"{name} must be a whole number, {least} or more, not {value!r}")
    return number


def _checked_range(name: str, value: Optional[Sequence[float]]) -> Optional[Any]:
    if value is None:
        return None
    if len(value) != 2 or not all(isinstance(each, (int, float)) for each in value) or not 0 <= value[0] <= value[1]:
        raise ValueError(f"{name} must be two numbers of seconds, the smaller one first, not {value!r}")
    return tuple(value)


def _no_results(why: str) -> RuntimeError:
    return RuntimeError(
        f"RayExecutor: the results cannot be read here: {why}; if a module is missing, install it in the driver's Python "
        "too, or return plain numbers, lists and arrays"
    )
