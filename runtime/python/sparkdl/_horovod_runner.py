"""HorovodRunner over horovod.run and horovod.spark.run."""

import functools
import warnings
from typing import Any, Callable, Dict

from sparkdl._kept_output import KeptOutput

_VERBOSITIES = ("all", "log_callback_only")


def _for_rank_0(main: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose result is wanted of rank 0 only: that of others would come to the driver in vain."""

    @functools.wraps(main, updated=())
    def call(**kwargs: Any) -> Any:
        from horovod.runner._called import present_rank

        result = main(**kwargs)
        return result if present_rank() == 0 else None

    call.__qualname__ = getattr(main, "__qualname__", repr(main))
    return call


class HorovodRunner:
    """Runs a function as the ranks of one job.

    Args:
        np: how many ranks. 1 and more: as many tasks of Spark, which start together; a task has a core, or a GPU where
            spark.task.resource.gpu.amount says so. -1 and less: -np processes on this machine, without Spark. 0, which is
            deprecated: one for each slot that Spark has.
        driver_log_verbosity: "all": what the ranks print is shown here. "log_callback_only": only what they send with
            sparkdl.horovod.log_to_driver and LogCallback, and warnings; the rest is kept in a file here, whose path is told.
            With np below 0 all is shown.
    """

    def __init__(self, np: int, driver_log_verbosity: str = "log_callback_only") -> None:
        if isinstance(np, bool) or not isinstance(np, int):
            raise TypeError(f"np must be a whole number, not {np!r}")
        if np == 0:
            warnings.warn(
                "HorovodRunner(np=0) is one rank for each slot that Spark has when run() begins; "
                "write the number of ranks that you want",
                DeprecationWarning,
                stacklevel=2,
            )
        if driver_log_verbosity not in _VERBOSITIES:
            raise ValueError(f"driver_log_verbosity must be one of {', '.join(_VERBOSITIES)}, not {driver_log_verbosity!r}")
        self.num_processor = np
        self.driver_log_verbosity = driver_log_verbosity

    def run(self, main: Callable[..., Any], **kwargs: Any) -> Any:
        """Calls main(**kwargs) on each rank; what rank 0 returned.

        Raises what a rank raised first, with its traceback as the cause. The function and what it returns travel by
        cloudpickle: imports belong inside the function, and large data into files.
        """
        if callable(main):
            main = _for_rank_0(main)
        if self.num_processor < 0:
            import horovod.runner

            return horovod.runner.run(main, kwargs=kwargs, np=-self.num_processor)[0]
        return self._run_on_spark(main, kwargs)

    def _run_on_spark(self, main: Callable[..., Any], kwargs: Dict[str, Any]) -> Any:
        import horovod.spark
        from horovod.spark import _session

        size = self.num_processor
        if size == 0:
            session = _session.active()
            size = session.slots() or session.default_parallelism()
        if self.driver_log_verbosity == "all":
            return horovod.spark.run(main, kwargs=kwargs, num_proc=size)[0]
        kept = KeptOutput()
        try:
            return horovod.spark.run(main, kwargs=kwargs, num_proc=size, stdout=kept, stderr=kept)[0]
        finally:
            kept.close()
