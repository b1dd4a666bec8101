"""Where the processes of an estimator run: in Spark's executors, on this machine, or on hosts that are no part of Spark.

An estimator needs two things of a backend: run() and num_processes(). Horovod's, and your own, work as well.
"""

import contextlib
import inspect
import os
import pickle
import threading
from typing import Any, Callable, Dict, Iterator, List, Optional

from horovod.runner import run as run_on_hosts
from horovod.runner._job import pickled_call


class Backend:
    """Calls a function on each of several processes, which are one Horovod job."""

    # True: the processes run where Spark's executors or the driver do, so that they can read files which are in no store.
    reads_where_spark_does = False

    def run(
        self,
        fn: Callable[..., Any],
        args: tuple = (),
        kwargs: Optional[Dict[str, Any]] = None,
        env: Optional[Dict[str, str]] = None,
    ) -> List[Any]:
        """What `fn(*args, **kwargs)` returned on each process, in rank order. `env`: variables for the processes."""
        raise NotImplementedError

    def num_processes(self) -> int:
        """How many there will be."""
        raise NotImplementedError


def default_num_proc() -> int:
    """The number of processes where none is given: spark.default.parallelism. ValueError: there is no session."""
    from horovod.spark import _session

    return _session.active().default_parallelism()


# A job that horovod.spark.run starts again knows nothing of the checkpoints that a fit has written meanwhile.
_RESTARTS = ("restarts", "elastic_restarts")


class SparkBackend(Backend):
    """In Spark's executors, a task for each process.

    Args:
        num_proc: number of processes; default: spark.default.parallelism.
        env: variables for them. Without it they get those that this program has set in os.environ, where their executor has
            no others of the same names.
        arguments: what else horovod.spark.run takes: stdout, stderr, prefix_output_with_timestamp, start_timeout, verbose, ...
            but for restarts and elastic_restarts: the estimator's restarts goes on from the last checkpoint.
    """

    reads_where_spark_does = True

    def __init__(self, num_proc: Optional[int] = None, env: Optional[Dict[str, str]] = None, **arguments: Any) -> None:
        from horovod import spark

        for name in _RESTARTS:
            if arguments.get(name):
                raise ValueError(
                    f"SparkBackend: leave {name} out, which would train again from where the fit began; use the estimator's restarts="
                )
        _check_arguments("SparkBackend", spark.run, arguments, ("fn", "args", "kwargs", "num_proc", "env"))
        self._num_proc = num_proc
        self._env = env  # programs' subclasses know it and the next by these names
        self._kwargs = arguments

    def run(
        self,
        fn: Callable[..., Any],
        args: tuple = (),
        kwargs: Optional[Dict[str, Any]] = None,
        env: Optional[Dict[str, str]] = None,
    ) -> List[Any]:
        from horovod import spark

        count = self.num_processes()
        variables = {} if self._env else _variables_of_the_program()
        call = (fn, args, kwargs or {})
        if variables:
            call = (_call_with_defaults, (variables, pickled_call(*call)), {})
        with _turns.take(count, _task_slots(self._kwargs.get("gpus_per_process") or 0)):
            return spark.run(*call, num_proc=count, env={**(self._env or {}), **(env or {})} or None, **self._kwargs)

    def num_processes(self) -> int:
        return self._num_proc or default_num_proc()


class LocalBackend(Backend):
    """On this machine, without Spark: its data is read by Spark all the same.

    Args:
        num_proc: number of processes.
        env: variables for them.
        arguments: what else horovod.run takes.
    """

    reads_where_spark_does = True

    def __init__(self, num_proc: int = 1, env: Optional[Dict[str, str]] = None, **arguments: Any) -> None:
        _check_arguments(type(self).__name__, run_on_hosts, arguments, ("func", "args", "kwargs", "num_proc", "np"))
        self._num_proc = num_proc
        self._env = env  # programs' subclasses know it and the next by these names
        self._kwargs = arguments

    def run(
        self,
        fn: Callable[..., Any],
        args: tuple = (),
        kwargs: Optional[Dict[str, Any]] = None,
        env: Optional[Dict[str, str]] = None,
    ) -> List[Any]:
        call = ({**(self._env or {}), **(env or {})}, fn, args, kwargs or {})
        return run_on_hosts(_call_with_variables, call, num_proc=self._num_proc, **self._kwargs)

    def num_processes(self) -> int:
        return self._num_proc


class HostsBackend(LocalBackend):
    """On hosts that are reached as hvdrun reaches them, and need no Spark: only the store must be one that they see.

    Args:
        hosts: as hvdrun's -H: "a:8,b:8".
        env: variables for the processes.
        arguments: what else horovod.run takes: ssh_port, ssh_identity_file, network_interfaces, ...
    """

    reads_where_spark_does = False

    def __init__(self, hosts: str, env: Optional[Dict[str, str]] = None, **arguments: Any) -> None:
        try:
            count = sum(int(host.rpartition(":")[2]) if ":" in host else 1 for host in hosts.split(","))
        except ValueError:
            raise ValueError(f"HostsBackend: hosts are NAME:SLOTS with commas between, not {hosts!r}") from None
        super().__init__(count, env, hosts=hosts, **arguments)


def _check_arguments(who: str, function: Callable[..., Any], arguments: Dict[str, Any], ours: tuple) -> None:
    """TypeError before anything is made ready, not after the data was written."""
    known = [name for name in inspect.signature(function).parameters if name not in ours]
    for name in arguments:
        if name not in known:
            raise TypeError(f"{who} has no argument {name!r}; it takes {', '.join(known)}")


# These say what a process is, or where; the runtime's own are sent in any case.
_OF_A_PROCESS = ("HVD_", "HOROVOD_", "NCCL_", "SPARK_", "PYSPARK_", "PYTHON", "JAVA_", "LD_", "CUDA_VISIBLE_DEVICES", "MPLBACKEND")


def _variables_of_the_program() -> Dict[str, str]:
    """The variables that this program has set itself, as notebooks do: those that differ from what it was started with.
    What else a machine or a launcher has set for this process is not for others."""
    try:
        with open("/proc/self/environ", "rb") as file:
            began = dict(line.split(b"=", 1) for line in file.read().split(b"\0") if b"=" in line)
    except OSError:
        return {}
    if not any(os.fsencode(name) in began for name in ("PATH", "HOME")):
        return {}  # the file holds something else, as after setproctitle
    return {name: value for name, value in os.environ.items()
            if began.get(os.fsencode(name)) != os.fsencode(value) and not name.startswith(_OF_A_PROCESS)}  # fmt: skip


def _call_with_defaults(variables: Dict[str, str], call: bytes) -> Any:
    """Makes a call in a process that has these variables where it has no others of the same names, also while modules that the
    call needs are loaded."""
    for name, value in variables.items():
        os.environ.setdefault(name, value)
    fn, args, kwargs = pickle.loads(call)
    return fn(*args, **kwargs)


def _call_with_variables(variables: Dict[str, str], fn: Callable[..., Any], args: tuple, kwargs: Dict[str, Any]) -> Any:
    os.environ.update({name: str(value) for name, value in variables.items()})
    return fn(*args, **kwargs)


def _task_slots(gpus_per_task: int) -> int:
    """How many tasks the cluster runs at once. `gpus_per_task`: as of _session.active().

    Where it does not tell (Spark Connect), as many as it has cores."""
    from horovod.spark import _session

    session = _session.active(gpus_per_task)
    slots = session.slots()
    return session.default_parallelism() if slots is None else slots


class _Turns:
    """Fits that run in threads share the cluster's slots: one whose tasks would find none waits here, where no time runs."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._taken = 0

    @contextlib.contextmanager
    def take(self, count: int, slots: Optional[int]) -> Iterator[None]:
        with self._changed:
            # Each wait is bounded by the job before it, which has deadlines of its own.
            self._changed.wait_for(lambda: slots is None or not self._taken or self._taken + count <= slots)
            self._taken += count
        try:
            yield
        finally:
            with self._changed:
                self._taken -= count
                self._changed.notify_all()


_turns = _Turns()
