"""HorovodRunner over horovod.run and horovod.spark.run."""

import sys
import warnings
from typing import Any, Callable, Dict, Optional

_VERBOSITIES = ("all", "log_callback_only")


class _Nowhere:
    """Takes output that is not to be shown."""

    def write(self, text: str) -> None:
        pass


class HorovodRunner:
    """Runs a function as the ranks of one job.

    Args:
        np: how many ranks. 1 and more: as many tasks of Spark, which start together; a task has a core, or a GPU where
            spark.task.resource.gpu.amount says so. -1 and less: -np processes on this machine, without Spark. 0, which is
            deprecated: one for each slot that Spark has.
        driver_log_verbosity: "all": what the ranks print is shown here. "log_callback_only": only what they send with
            sparkdl.horovod.log_to_driver and LogCallback. With np below 0 all is shown.
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
        shown = self.driver_log_verbosity == "all"
        stdout: Optional[Any] = sys.stdout if shown else _Nowhere()
        stderr: Optional[Any] = sys.stderr if shown else _Nowhere()
        return horovod.spark.run(main, kwargs=kwargs, num_proc=size, stdout=stdout, stderr=stderr)[0]
