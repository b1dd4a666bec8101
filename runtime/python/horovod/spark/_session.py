"""What a job needs of a Spark session: how many tasks it can run at once, a stage of tasks, and its end."""

import threading
import time
import uuid
from typing import Any, Callable, List, Optional

from horovod.spark import _task


def active() -> "Session":
    """The session of this program. ValueError when there is none."""
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ValueError("horovod.spark needs pyspark, which is not installed here: pip install pyspark") from error
    session = SparkSession.getActiveSession()
    context = getattr(SparkContext, "_active_spark_context", None)
    if context is not None:
        return ClassicSession(context)
    if session is not None:
        return ConnectSession(session)
    raise ValueError(
        "there is no active Spark session; make one first: pyspark.sql.SparkSession.builder.getOrCreate()"
    )


class Session:
    """One session, classic or over Spark Connect."""

    # Whether all executors are on this machine, so that they can call loopback.
    is_local = False

    def default_parallelism(self) -> int:
        raise NotImplementedError

    def check_slots(self, tasks: int, patience_s: float) -> None:
        """ValueError when the cluster cannot run so many tasks at once, also when its executors have had time to register."""

    def run_stage(self, tasks: int, task: Callable[[int], int]) -> List[int]:
        """Runs the task function once for each partition, all at the same time; what they returned."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Ends the stage that another thread runs."""
        raise NotImplementedError


class ClassicSession(Session):
    """A session in this process, with a SparkContext."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._group = f"horovod.spark.run.{uuid.uuid4().hex[:8]}"
        self.is_local = context.master.startswith("local")

    def default_parallelism(self) -> int:
        return self._context.defaultParallelism

    def _is_dynamic(self) -> bool:
        return self._context.getConf().get("spark.dynamicAllocation.enabled", "false").lower() == "true"

    def _slots(self) -> Optional[int]:
        try:
            scala = self._context._jsc.sc()
            return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))
        except Exception:  # a Spark that names these otherwise tells by the start timeout
            return None

    def check_slots(self, tasks: int, patience_s: float) -> None:
        if self._is_dynamic():
            return
        until = time.monotonic() + patience_s
        slots = self._slots()
        while slots is not None and slots < tasks and time.monotonic() < until:
            time.sleep(0.1)
            slots = self._slots()
        if slots is not None and slots < tasks:
            raise ValueError(
                f"num_proc={tasks} needs as many task slots at the same time, and the cluster has {slots}; ask for fewer "
                "ranks, or give the cluster more cores (or GPUs, if spark.task.resource.gpu.amount is set)"
            )

    def run_stage(self, tasks: int, task: Callable[[int], int]) -> List[int]:
        # pyspark has a JVM thread for each of Python's, so that the group is this thread's alone.
        self._context.setJobGroup(self._group, "ranks of horovod.spark.run", interruptOnCancel=True)
        partitions = self._context.parallelize(range(tasks), tasks)

        def run_one(numbers: Any) -> List[int]:
            return [task(number) for number in numbers]

        # A barrier stage starts all tasks or none. Spark refuses it where executors come and go; then hvdrun waits.
        stage = partitions if self._is_dynamic() else partitions.barrier()
        return stage.mapPartitions(run_one).collect()

    def cancel(self) -> None:
        self._context.cancelJobGroup(self._group)


class ConnectSession(Session):
    """A session of Spark Connect: the cluster is behind a server, and there is no SparkContext here."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._tag = f"horovod-spark-run-{uuid.uuid4().hex[:8]}"
        self.is_local = str(self._conf("spark.master", "")).startswith("local")

    def _conf(self, name: str, default: str) -> str:
        try:
            return self._session.conf.get(name, default)
        except Exception:  # a server may hide it
            return default

    def default_parallelism(self) -> int:
        return int(self._conf("spark.default.parallelism", "0")) or self._session.range(1).count() + 1

    def run_stage(self, tasks: int, task: Callable[[int], int]) -> List[int]:
        def run_one(batches: Any) -> Any:
            import pyarrow

            for batch in batches:
                codes = [task(number) for number in batch.column(0).to_pylist()]
                yield pyarrow.RecordBatch.from_pydict({"code": pyarrow.array(codes, pyarrow.int64())})

        is_dynamic = self._conf("spark.dynamicAllocation.enabled", "false").lower() == "true"
        self._session.addTag(self._tag)
        try:
            frame = self._session.range(0, tasks, 1, tasks).mapInArrow(run_one, "code bigint", barrier=not is_dynamic)
            return [row["code"] for row in frame.collect()]
        finally:
            self._session.removeTag(self._tag)

    def cancel(self) -> None:
        self._session.interruptTag(self._tag)


class Stage(threading.Thread):
    """The stage, on a thread of its own: it ends when all its tasks have."""

    def __init__(self, session: Session, tasks: int, order: _task.Order, on_over: Callable[[str], None]) -> None:
        super().__init__(name="hvd-spark-stage", daemon=True)
        self._session = session
        self._tasks = tasks
        self._order = order
        self._on_over = on_over
        self.error: Optional[BaseException] = None

    def run(self) -> None:
        try:
            self._session.run_stage(self._tasks, self._order.run)
            self._on_over("the tasks of Spark have ended")
        except BaseException as error:  # also what Java raised
            self.error = error
            text = str(error).strip().splitlines()
            self._on_over(f"Spark ended the tasks: {text[0] if text else type(error).__name__}")

    def end(self, patience_s: float) -> None:
        """Waits for the end, and asks for it when that does not come."""
        self.join(patience_s)
        if self.is_alive():
            try:
                self._session.cancel()
            except Exception:
                pass  # the session may have been stopped, and its tasks with it
            self.join(patience_s)
