"""Horovod jobs on a Spark cluster: `horovod.spark.run`.

    import horovod.spark

    losses = horovod.spark.run(train, args=(0.1,), num_proc=4)

Spark places one task for each rank. Each task starts hvdrun's agent, which calls hvdrun on the driver's machine; from then
on the job is like any other: ranks are tagged, watched and ended by hvdrun. This package must be installed in the Python
of the executors. Nothing of a job stays in a Spark worker, whose process and environment serve other jobs later.
"""

import os
from typing import Any, Callable, Dict, List, Optional

__all__ = ["run", "run_elastic"]

# Horovod's default for Spark, in seconds: a cluster may have to make room first.
_START_TIMEOUT_S = 600.0
# Executors of a session that has just started register one after the other, in seconds.
_REGISTER_S = 10.0


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
) -> List[Any]:
    """Calls `fn(*args, **kwargs)` on each of `num_proc` ranks, which run in Spark's executors; results in rank order.

    Ranks of one machine have consecutive numbers. What they print comes out of `stdout` and `stderr`, tagged with their
    rank. The driver's HOROVOD_*, HVD_* and NCCL_* variables are set for them too. Ctrl-C stops them.

    Args:
        fn: anything that cloudpickle can carry, as can `args` and `kwargs`, about 1 MiB when compressed.
        num_proc: number of ranks; default: spark.default.parallelism.
        start_timeout: seconds until all tasks must have started; default: HOROVOD_SPARK_START_TIMEOUT, else 600.
        env: variables for the ranks, over those of the executors.
        stdout, stderr: anything with write(text); default: sys.stdout and sys.stderr.
        verbose: 2 and above: hvdrun tells each step.
        nics: network interfaces for what the ranks tell each other, by name.
        executable: the Python of the ranks; default: the one that the executors run.
        use_mpi, extra_mpi_args: must not be set: Spark starts the ranks. use_gloo: accepted.

    Raises:
        ValueError: an argument is wrong, there is no Spark session, or the cluster has too few slots.
        Whatever `fn` raised first on a rank, with that rank's traceback as its cause.
        RuntimeError: tasks did not start in time, an executor was lost, ...; with hvdrun's report, and Spark's own
            exception, if there is one, as its cause.
    """
    from horovod.spark import _job, _session

    if use_mpi or extra_mpi_args:
        raise ValueError("horovod.spark.run: Spark starts the ranks, not mpirun; leave use_mpi and extra_mpi_args out")
    if env is not None and not isinstance(env, dict):
        raise ValueError(f"env must be a dict of variables, not {type(env).__name__}")
    session = _session.active()
    if num_proc is None:
        num_proc = session.default_parallelism()
    if isinstance(num_proc, bool) or not isinstance(num_proc, int) or num_proc < 1:
        raise ValueError(f"num_proc must be a number of ranks, 1 or more, not {num_proc!r}")
    if start_timeout is None:
        start_timeout = float(os.environ.get("HOROVOD_SPARK_START_TIMEOUT", _START_TIMEOUT_S))
    session.check_slots(num_proc, min(start_timeout, _REGISTER_S))
    words = ["--start-timeout", str(start_timeout)]
    if nics:
        words += ["--network-interfaces", nics if isinstance(nics, str) else ",".join(nics)]
    if prefix_output_with_timestamp:
        words.append("--prefix-output-with-timestamp")
    if verbose is None or verbose < 2:
        words.append("--quiet")
    job = _job.Job(session, num_proc, words, {str(k): str(v) for k, v in (env or {}).items()}, executable)
    return job.run(fn, tuple(args), dict(kwargs or {}), stdout, stderr)


def run_elastic(*_args: Any, **_kwargs: Any) -> List[Any]:
    """Refused: ranks that come and go with Spark's executors are not supported yet."""
    raise NotImplementedError(
        "horovod.spark.run_elastic: jobs whose ranks come and go are not supported yet; horovod.spark.run starts a fixed "
        "number of them, and a function that saves checkpoints can be started again"
    )
