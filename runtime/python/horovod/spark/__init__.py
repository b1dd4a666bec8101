"""Horovod jobs on a Spark cluster: `horovod.spark.run`.

    import horovod.spark

    losses = horovod.spark.run(train, args=(0.1,), num_proc=4)

Spark places one task for each rank. Each task starts hvdrun's agent, which calls hvdrun on the driver's machine; from then
on the job is like any other: ranks are tagged, watched and ended by hvdrun. This package must be installed in the Python
of the executors. Nothing of a job stays in a Spark worker, whose process and environment serve other jobs later.
"""

import os
import sys
import warnings
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from horovod.common._variables import seconds_from
from horovod.runner._numbers import whole_number

__all__ = ["check", "run", "run_elastic"]

# Horovod's default for Spark, in seconds: a cluster may have to make room first.
_START_TIMEOUT_S = 600.0
# The time in seconds in which the executors of a new session register, one after the other.
_REGISTER_S = 10.0
# How often ranks that commit their state are started again, where their caller gives no limit.
_ELASTIC_RESTARTS = 3
# The bounds of hvdrun's --heartbeat, in seconds.
_HEARTBEATS_S = (0.1, 3600)


class _Limits(NamedTuple):
    """How many ranks an elastic job needs and may have, and how often they may change."""

    least: int
    most: int
    changes: Optional[int]

    def words(self) -> List[str]:
        """hvdrun's options."""
        words = ["--min-np", str(self.least), "--max-np", str(self.most)]
        return words if self.changes is None else [*words, "--reset-limit", str(self.changes)]


def run(
    fn: Callable[..., Any],
    args: tuple = (),
    kwargs: Optional[Dict[str, Any]] = None,
    num_proc: Optional[int] = None,
    start_timeout: Optional[float] = None,
    use_mpi: Optional[bool] = None,
    use_gloo: Optional[bool] = None,
    extra_mpi_args: Optional[str] = None,
    env: Optional[Dict[str, str]] = None,
    stdout: Any = None,
    stderr: Any = None,
    verbose: int = 1,
    nics: Any = None,
    prefix_output_with_timestamp: bool = False,
    executable: Optional[str] = None,
    restarts: int = 0,
    launcher: str = "auto",
    elastic_restarts: int = 0,
    elastic_timeout: Optional[float] = None,
    gpus_per_process: Optional[int] = None,
    heartbeat: Optional[float] = None,
    *,
    _limits: Optional[_Limits] = None,
) -> List[Any]:
    """Calls `fn(*args, **kwargs)` on each of `num_proc` ranks, which run in Spark's executors; results in rank order.

    Ranks of one machine have consecutive numbers. What they print comes out of `stdout` and `stderr`, tagged with their
    rank. The driver's HOROVOD_*, HVD_* and NCCL_* variables are set for them too. Ctrl-C stops them. Where Spark's own
    encryption between machines is on, that of the ranks is too, unless HVD_LINK_SECURITY says otherwise.

    Args:
        fn: anything that cloudpickle can carry, as can `args` and `kwargs`, such as a model's bytes.
        num_proc: number of ranks; default: spark.default.parallelism.
        start_timeout: seconds until all tasks must have started; default: HOROVOD_SPARK_START_TIMEOUT, else 600.
        env: variables for the ranks, over those of the executors.
        stdout, stderr: anything with write(text); default: sys.stdout and sys.stderr.
        verbose: 2 and above: hvdrun tells each step.
        nics: network interfaces for what the ranks tell each other, by name.
        executable: the Python of the ranks; default: the one that the executors run.
        restarts: after a failure of ranks that ran, all of them are started anew, so many times at most. `fn` then finds
            its own checkpoint and goes on from there.
        launcher: where hvdrun runs. "driver": on this machine, which the executors must be able to connect to. "task0": in
            the first task; output comes at the end, and Spark needs a second more. "auto": here, and in the first task
            where the executors cannot connect to this machine.
        elastic_restarts: so many ranks that fail are started again in their tasks, while the others wait in
            horovod.torch.elastic.run and the like. elastic_timeout: seconds for them to meet again; default: 600.
        gpus_per_process: so many GPUs for each task, whatever spark.task.resource.gpu.amount says. A rank with more than
            one sees its own GPUs only, as devices 0, 1, ...
        heartbeat: seconds between two signs of life of each task; after three without an answer its host is lost.
            Default: the driver's HVD_HEARTBEAT, else 10.
        use_gloo: accepted. use_mpi: accepted with a warning, because Spark starts the ranks, and libhvd's own links connect
            them. extra_mpi_args: must not be set.

    Raises:
        ValueError: an argument is wrong, there is no Spark session, or the cluster has too few slots.
        Whatever `fn` raised first on a rank, with that rank's traceback and the job's last lines as its cause.
        RuntimeError: tasks did not start in time, an executor was lost, ...; with hvdrun's report, and Spark's own
            exception, if there is one by then, as its cause.
    """
    from horovod.runner import _launch
    from horovod.runner._job import RemoteTraceback, check_stream, make_payload
    from horovod.spark import _job, _session

    if extra_mpi_args:
        raise ValueError("horovod.spark.run: Spark starts the ranks, not mpirun; leave extra_mpi_args out")
    if use_mpi:
        text = "horovod.spark.run: use_mpi changes nothing: Spark starts the ranks, and libhvd's own links connect them"
        warnings.warn(text, stacklevel=2)
    check_stream("stdout", stdout)
    check_stream("stderr", stderr)
    if env is not None and not isinstance(env, dict):
        raise ValueError(f"env must be a dict of variables, not {type(env).__name__}")
    if launcher not in _job.LAUNCHERS:
        raise ValueError(f"launcher must be one of {', '.join(_job.LAUNCHERS)}, not {launcher!r}")
    if gpus_per_process is not None:
        gpus_per_process = _checked_count("gpus_per_process", gpus_per_process, 1)
    if heartbeat is not None:
        _checked_seconds("heartbeat", heartbeat, *_HEARTBEATS_S)
    session = _session.active(gpus_per_process or 0)
    if launcher == "task0" and session.is_dynamic:
        raise ValueError(
            'launcher="task0" needs a barrier stage, which Spark refuses where spark.dynamicAllocation.enabled is set; use '
            '"driver", or switch dynamic allocation off'
        )
    num_proc = _checked_count("num_proc", session.default_parallelism() if num_proc is None else num_proc, 1)
    restarts = _checked_count("restarts", restarts, 0)
    elastic_restarts = _checked_count("elastic_restarts", elastic_restarts, 0)
    if start_timeout is None:
        start_timeout = seconds_from("HOROVOD_SPARK_START_TIMEOUT", _START_TIMEOUT_S)
    launch = _launch.Launch(
        num_proc=num_proc,
        words=[
            *_words(start_timeout, nics, prefix_output_with_timestamp, verbose),
            *_elastic_words(elastic_restarts if _limits is None else max(1, elastic_restarts), elastic_timeout),
            *([] if _limits is None else _limits.words()),
            *([] if heartbeat is None else ["--heartbeat", str(heartbeat)]),
            *_security_words(session, env or {}),
            # hvdrun would count on one GPU for a rank, and give out the others of its host.
            *(["--gpus", "none"] if session.gpus_per_task > 1 else []),
        ],
        environment={str(name): str(value) for name, value in (env or {}).items()},
        executable=executable,
        is_local=session.is_local,
        largest_result=session.largest_result,
        payload=make_payload(fn, args, kwargs),
        is_elastic=_limits is not None,
    )
    for attempt in range(restarts + 1):
        session = _session.active(gpus_per_process or 0)
        # An executor that was lost takes some time to come back.
        session.check_slots(num_proc, start_timeout if attempt else _REGISTER_S, start_timeout)
        job = _job.ElasticJob(session, launch, _limits.least, _limits.most) if _limits else _job.Job(session, launch, launcher)
        try:
            return job.run(stdout, stderr)
        except Exception as error:
            # A failure of the ranks themselves was answered in their tasks already, as often as asked for.
            is_answered = elastic_restarts > 0 and isinstance(error.__cause__, RemoteTraceback)
            if attempt == restarts or is_answered or not job.may_run_again:
                raise
            text = f"horovod.spark.run: {type(error).__name__}; the ranks are started again, {attempt + 1} of {restarts}\n"
            (stderr or sys.stderr).write(text)
    raise AssertionError("the last attempt returns or raises")


def _checked_count(name: str, value: Any, least: int) -> int:
    number = whole_number(value)
    if number is None or number < least:
        raise ValueError(f"{name} must be a whole number, {least} or more, not {value!r}")
    return number


def _checked_seconds(name: str, value: Any, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise ValueError(f"{name} must be a number of seconds, {least} to {most}, not {value!r}")


def _words(start_timeout: float, nics: Any, prefix_output_with_timestamp: bool, verbose: Optional[int]) -> List[str]:
    """hvdrun's options."""
    words = ["--start-timeout", str(start_timeout)]
    if nics:
        words += ["--network-interfaces", nics if isinstance(nics, str) else ",".join(nics)]
    if prefix_output_with_timestamp:
        words.append("--prefix-output-with-timestamp")
    if verbose is None or verbose < 2:
        words.append("--quiet")
    return words


def _elastic_words(restarts: int, timeout: Optional[float]) -> List[str]:
    if not restarts:
        return []
    return ["--elastic-restarts", str(restarts), *(["--elastic-timeout", str(timeout)] if timeout else [])]


def _security_words(session: Any, environment: Dict[str, str]) -> List[str]:
    """Where Spark encrypts what its machines send each other, what ranks send is encrypted too.

    ValueError where it would go over MPI, which cannot. Who sets HVD_LINK_SECURITY has decided for himself."""
    said = {**os.environ, **environment}
    setting = session.encrypting_setting
    if not setting or "HVD_LINK_SECURITY" in said:
        return []
    if str(said.get("HOROVOD_CPU_OPERATIONS", "")).lower() == "mpi":
        raise ValueError(
            f"{setting} is set, so what ranks send to other hosts must be encrypted, and HOROVOD_CPU_OPERATIONS=mpi sends "
            "it over MPI, which encrypts nothing. Leave HOROVOD_CPU_OPERATIONS out, or set HVD_LINK_SECURITY=plain if "
            "others cannot read that network"
        )
    return ["--secure-links"]


def check(num_proc: Optional[int] = None, store: Any = None) -> Any:
    """What a job of `num_proc` ranks could do on this cluster: a value whose text is for people, and `problems` for programs.

    It runs one short stage of Spark, whose tasks tell of their Python, packages, GPUs and folders, and try to reach the
    driver's machine and each other.

    Args:
        num_proc: how many tasks to look at; default: spark.default.parallelism.
        store: a URL or path, or a horovod.spark.common.store.Store, that driver and executors are to share.
    """
    from horovod.spark import _check, _session

    session = _session.active()
    count = _checked_count("num_proc", session.default_parallelism() if num_proc is None else num_proc, 1)
    return _check.check(session, count, store)


def run_elastic(
    fn: Callable[..., Any],
    args: tuple = (),
    kwargs: Optional[Dict[str, Any]] = None,
    num_proc: Optional[int] = None,
    min_num_proc: Optional[int] = None,
    max_num_proc: Optional[int] = None,
    start_timeout: Optional[float] = None,
    elastic_timeout: Optional[float] = None,
    reset_limit: Optional[int] = None,
    *,
    min_np: Optional[int] = None,
    max_np: Optional[int] = None,
    **others: Any,
) -> List[Any]:
    """horovod.spark.run for a function with hvd.elastic.run, whose ranks come and go with Spark's executors.

    The job begins with `num_proc` ranks. Up to `max_num_proc` tasks wait in Spark's queue, and each joins the job when Spark
    has room for it. A rank that fails is started again in its task. After the loss of an executor the others train on from
    their last commit if they are `min_num_proc`; a new task takes the place of each that was lost. If all ranks are lost at
    once, they are started anew, and only what stands in files is left.

    Args:
        min_num_proc, max_num_proc, and their former names min_np, max_np; default: num_proc.
        elastic_timeout: seconds for the ranks to meet again after a failure, and for tasks to come where there are too few;
            default: 600.
        reset_limit: how often the ranks may change, and how often all may be started anew; default: any number of times, but
            no more than 3 ranks that fail and 3 starts anew.
        others: what else horovod.spark.run takes: env, stdout, stderr, verbose, nics, ... With launcher="task0", for
            executors that cannot connect to the driver's machine, the ranks stay those of the start.

    Returns:
        What each rank returned that was there at the end, in rank order.
    """
    from horovod.spark import _session

    if num_proc is None:
        num_proc = _session.active().default_parallelism()
    least = _one_of("min_num_proc", min_num_proc, min_np, num_proc)
    most = _one_of("max_num_proc", max_num_proc, max_np, num_proc)
    if not least <= num_proc <= most:
        raise ValueError(
            f"horovod.spark.run_elastic: min_num_proc={least}, num_proc={num_proc} and max_num_proc={most} must not fall"
        )
    limit = _ELASTIC_RESTARTS if reset_limit is None else _checked_count("reset_limit", reset_limit, 0)
    _refuse_copies()
    stays = others.get("launcher") == "task0"
    if stays and least != most:
        raise ValueError('launcher="task0" keeps its ranks, so min_num_proc and max_num_proc must be num_proc')
    return run(fn, args=args, kwargs=kwargs, num_proc=num_proc, start_timeout=start_timeout, restarts=limit,
               elastic_restarts=limit, elastic_timeout=elastic_timeout, **others,
               _limits=None if stays else _Limits(least, most, reset_limit))  # fmt: skip


def _refuse_copies() -> None:
    """ValueError where Spark would start copies of tasks that run for long, and end the first when a copy has ended."""
    from horovod.spark import _session

    session, threshold = _session.active(), "spark.speculation.task.duration.threshold"
    if session.conf("spark.speculation", "false").lower() == "true" and session.conf(threshold, ""):
        raise ValueError(f"horovod.spark.run_elastic: with spark.speculation and {threshold} Spark ends ranks that run for long; "
                         f"leave {threshold} out")  # fmt: skip


def _one_of(name: str, value: Any, former: Any, default: int) -> int:
    """An argument that has a former name."""
    if value is not None and former is not None:
        raise ValueError(f"{name} has a former name, and both were given: {value!r} and {former!r}")
    found = value if value is not None else former
    return default if found is None else _checked_count(name, found, 1)
