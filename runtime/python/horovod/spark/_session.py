"""What a job needs of a Spark session: how many tasks it can run at once, a stage of tasks, and its end."""

import re
import sys
import time
import uuid
from typing import Any, Callable, Dict, List, Optional, Tuple

# A task's result is returned in rows of this size. Spark Connect allows at most 4 MiB in one row.
_CHUNK_BYTES = 1 << 20
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30,
          "t": 1 << 40, "tb": 1 << 40}  # fmt: skip

# Spark's settings that encrypt what its machines send each other. spark.io.encryption.enabled is not one of them: it is
# about files that a machine writes for itself.
_ENCRYPTING = ("spark.network.crypto.enabled", "spark.authenticate.enableSaslEncryption", "spark.ssl.enabled",
               "spark.ssl.rpc.enabled")  # fmt: skip

# The most slots that each application of Spark has had for tasks of so many GPUs, as far as a job has looked.
_most_slots: Dict[Tuple[str, int], int] = {}

# This runs in a task, and what it returns goes to the driver.
Task = Callable[[int], bytes]


def active(gpus_per_task: int = 0) -> "Session":
    """The session of this program. ValueError when there is none.

    `gpus_per_task`: how many GPUs each task of its stages asks for; 0: what the cluster's settings say."""
    try:
        from pyspark import SparkContext, TaskContext
    except ImportError as error:
        raise ValueError("horovod.spark needs pyspark, which is not installed here: pip install pyspark") from error
    if TaskContext.get() is not None:
        raise ValueError("horovod.spark starts its own tasks, so call it on the driver, not in a task of Spark")
    # This case comes first: remote("local[2]") has a SparkContext in this process too, which belongs to its server.
    remote = _connect_session()
    if remote is not None:
        return ConnectSession(remote, gpus_per_task)
    context = getattr(SparkContext, "_active_spark_context", None)
    if context is not None:
        return ClassicSession(context, gpus_per_task)
    raise ValueError(
        "there is no active Spark session; make one first: pyspark.sql.SparkSession.builder.getOrCreate()"
    )


def _connect_session() -> Any:
    """This program's session of Spark Connect, None where it has none; a program that has one has loaded its module."""
    module = sys.modules.get("pyspark.sql.connect.session")
    if module is None:
        return None
    return module.SparkSession.getActiveSession() or getattr(module.SparkSession, "_default_session", None)


class Session:
    """One session, classic or over Spark Connect."""

    # True if all executors are on this machine, so that they can call loopback.
    is_local = False
    # True if the client may be far from the cluster, so that executors may be unable to call it.
    is_remote = False

    def __init__(self, gpus_per_task: int) -> None:
        self._gpus_per_task = gpus_per_task
        self._made_profile: Any = None

    @property
    def gpus_per_task(self) -> int:
        """How many GPUs a task of this session's stages has."""
        said = self.conf("spark.task.resource.gpu.amount", "0")
        return self._gpus_per_task or int(float(said))

    def prepare(self) -> None:
        """Call it once before several threads run stages."""
        self._profile()

    def _profile(self) -> Any:
        """What a task asks for, where the cluster's own settings are not to count; else None."""
        if self._gpus_per_task and self._made_profile is None:
            from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

            cores = int(self.conf("spark.task.cpus", "1"))
            tasks = TaskResourceRequests().cpus(cores).resource("gpu", self._gpus_per_task)
            self._made_profile = ResourceProfileBuilder().require(tasks).build
        return self._made_profile

    def conf(self, name: str, default: str) -> str:
        """A setting of the cluster; the default also where the cluster hides it."""
        raise NotImplementedError

    def default_parallelism(self) -> int:
        raise NotImplementedError

    @property
    def application_id(self) -> str:
        """Spark's name of the application whose slots are counted; empty where it does not tell them."""
        return ""

    @property
    def is_dynamic(self) -> bool:
        """Whether executors come and go. Spark refuses barrier stages there."""
        return self.conf("spark.dynamicAllocation.enabled", "false").lower() == "true"

    @property
    def encrypting_setting(self) -> str:
        """The first setting by which this cluster encrypts what its machines send each other; empty: it has none."""
        return next((name for name in _ENCRYPTING if self.conf(name, "false").lower() == "true"), "")

    @property
    def largest_result(self) -> int:
        """How many bytes the tasks of a job may send to the driver in all; 0: any number."""
        text = self.conf("spark.driver.maxResultSize", "1g").strip().lower()
        parsed = re.fullmatch(r"(\d+)([a-z]*)", text)
        return int(parsed.group(1)) * _UNITS[parsed.group(2)] if parsed and parsed.group(2) in _UNITS else 1 << 30

    def slots(self) -> Optional[int]:
        """How many tasks the cluster can run at the same time, now; None where it does not tell."""
        return None

    def planned_slots(self) -> int:
        """How many tasks the executors could run at once that the cluster's settings ask for; 0: they do not say."""
        names = ("instances", "cores", "resource.gpu.amount")
        told = [self.conf(f"spark.executor.{name}", "") for name in names]
        executors, cores, gpus = (int(text) if text.isdigit() else 0 for text in told)
        of_each = max(cores // int(self.conf("spark.task.cpus", "1")), 1)
        return executors * min(of_each, gpus // self.gpus_per_task if self.gpus_per_task else of_each)

    def check_slots(self, tasks: int, patience_s: float, limit_s: float) -> None:
        """ValueError when the cluster cannot run so many tasks at once, also when its executors have had time to register.

        The patience begins again with each executor that registers. While there is none at all, and in any case after
        it, the limit counts: a session that has just begun may wait for its first machines. So it does where the cluster is
        told to have enough executors, or has lost one, meanwhile or since an earlier job of the application: what takes its
        place may be a machine that has yet to start.
        """
        if self.is_dynamic:
            return
        begin = changed = time.monotonic()
        slots = self.slots()
        application = self.application_id, self._gpus_per_task
        most, is_awaited = max(_most_slots.get(application, 0), slots or 0), self.planned_slots() >= tasks
        while slots is not None and slots < tasks:
            now = time.monotonic()
            is_awaited = is_awaited or slots < most
            if now - begin > limit_s or (slots > 0 and not is_awaited and now - changed > patience_s):
                break
            time.sleep(0.1)
            before, slots = slots, self.slots()
            most = max(most, slots or 0)
            changed = changed if slots == before else time.monotonic()
        _most_slots[application] = most
        if slots is not None and slots < tasks:
            raise ValueError(
                f"Timed out waiting for Spark tasks to start. num_proc={tasks} needs as many task slots at the same time, "
                f"and the cluster has {slots}; ask for fewer ranks, or give the cluster more cores (or GPUs, if "
                "spark.task.resource.gpu.amount or gpus_per_process is set)"
            )

    def run_stage(self, tasks: int, task: Task, is_gang: bool = True) -> List[bytes]:
        """Runs the task function once for each partition; what they returned, by partition. `is_gang`: all at the same time,
        where the cluster can see to that."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Ends the stages that other threads run."""
        raise NotImplementedError


class ClassicSession(Session):
    """A session in this process, with a SparkContext."""

    def __init__(self, context: Any, gpus_per_task: int) -> None:
        super().__init__(gpus_per_task)
        self._context = context
        self.is_local = context.master.startswith("local")
        self._tag = f"horovod.spark.run.{uuid.uuid4().hex[:8]}"
        # What cancels the caller's jobs (a notebook's stop button) is to cancel these tasks too, and they wait in the
        # caller's pool: the stage's thread takes both over.
        self._group = context.getLocalProperty("spark.jobGroup.id") or self._tag
        self._pool = context.getLocalProperty("spark.scheduler.pool")
        self._description = f"ranks of horovod.spark.run ({self._tag.rpartition('.')[2]})"

    def conf(self, name: str, default: str) -> str:
        return self._context.getConf().get(name, default)

    def default_parallelism(self) -> int:
        return self._context.defaultParallelism

    @property
    def application_id(self) -> str:
        return self._context.applicationId

    def slots(self) -> Optional[int]:
        try:
            scala = self._context._jsc.sc()
            profiles, profile = scala.resourceProfileManager(), self._profile()
            if profile is None:
                return int(scala.maxNumConcurrentTasks(profiles.defaultResourceProfile()))
            profiles.addResourceProfile(profile._java_resource_profile)  # Spark counts no slots for one that it does not know
            return int(scala.maxNumConcurrentTasks(profile._java_resource_profile))
        except Exception:  # in a Spark with other names, the start timeout reports it
            return None

    def run_stage(self, tasks: int, task: Task, is_gang: bool = True) -> List[bytes]:
        # pyspark has one JVM thread for each Python thread, so the values set here hold for this thread only.
        self._context.setJobGroup(self._group, self._description, interruptOnCancel=True)
        if self._pool:
            self._context.setLocalProperty("spark.scheduler.pool", self._pool)
        if hasattr(self._context, "addJobTag"):  # Spark 3.5 and later
            self._context.addJobTag(self._tag)
        partitions = self._context.parallelize(range(tasks), tasks)
        profile = self._profile()
        if profile is not None:
            partitions = partitions.map(lambda number: number).withResources(profile)

        def run_one(numbers: Any) -> List[bytes]:
            return [task(number) for number in numbers]

        # A barrier stage starts all tasks or none. Spark refuses it where executors come and go; then hvdrun waits.
        stage = partitions.barrier() if is_gang and not self.is_dynamic else partitions
        return stage.mapPartitions(run_one).collect()

    def cancel(self) -> None:
        if hasattr(self._context, "cancelJobsWithTag"):
            self._context.cancelJobsWithTag(self._tag)
        elif self._group == self._tag:
            self._context.cancelJobGroup(self._group)
        else:  # the group is the caller's, and so are its other jobs
            scala = self._context._jsc.sc()
            for job in self._context.statusTracker().getActiveJobsIds():
                told = scala.statusStore().job(job).description()
                if told.isDefined() and told.get() == self._description:
                    scala.cancelJob(job)


class ConnectSession(Session):
    """A session of Spark Connect: the cluster is behind a server, and there is no SparkContext here."""

    is_remote = True

    def __init__(self, session: Any, gpus_per_task: int) -> None:
        super().__init__(gpus_per_task)
        self._session = session
        self._tag = f"horovod-spark-run-{uuid.uuid4().hex[:8]}"
        # The server's executors may call this machine's loopback only if the server is here.
        is_here = getattr(session.client, "host", "") in ("localhost", "127.0.0.1", "::1")
        self.is_local = is_here and self.conf("spark.master", "").startswith("local")

    def conf(self, name: str, default: str) -> str:
        try:
            return str(self._session.conf.get(name, default))
        except Exception:  # a server may hide it
            return default

    def default_parallelism(self) -> int:
        told = int(self.conf("spark.default.parallelism", "0"))
        # A frame of many numbers has one partition per core of the cluster, unless something else is set.
        return told or self._session.range(1 << 20).selectExpr("spark_partition_id()").distinct().count()

    def run_stage(self, tasks: int, task: Task, is_gang: bool = True) -> List[bytes]:
        def run_one(batches: Any) -> Any:
            import pyarrow

            for batch in batches:
                for number in batch.column(0).to_pylist():
                    value = task(number)
                    for begin in range(0, max(len(value), 1), _CHUNK_BYTES):
                        part = value[begin : begin + _CHUNK_BYTES]
                        columns = {"partition": pyarrow.array([number], pyarrow.int64()),
                                   "begin": pyarrow.array([begin], pyarrow.int64()),
                                   "part": pyarrow.array([part], pyarrow.binary())}  # fmt: skip
                        yield pyarrow.RecordBatch.from_pydict(columns)

        self._session.addTag(self._tag)
        try:
            numbers = self._session.range(0, tasks, 1, tasks)
            schema = "partition bigint, begin bigint, part binary"
            profile = self._profile()
            asked = {} if profile is None else {"profile": profile}  # Spark 4.0 and later
            rows = numbers.mapInArrow(run_one, schema, barrier=is_gang and not self.is_dynamic, **asked).collect()
        finally:
            self._session.removeTag(self._tag)
        rows.sort(key=lambda row: (row["partition"], row["begin"]))
        return [b"".join(bytes(row["part"]) for row in rows if row["partition"] == number) for number in range(tasks)]

    def cancel(self) -> None:
        self._session.interruptTag(self._tag)
