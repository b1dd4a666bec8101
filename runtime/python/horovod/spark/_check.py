"""horovod.spark.check(): what a job could do on this cluster, found out by a stage of Spark that only looks."""

import dataclasses
import importlib.metadata
import os
import pickle
import platform
import resource
import secrets
import socket
import sys
import tempfile
from typing import Any, Dict, List, Optional

import horovod
from horovod.spark import _reach, _session, _stage, _task
from horovod.spark._shared import SharedFolder

# The address space that CUDA reserves without using it, in bytes. A smaller limit of the executor's Python stops it.
_LEAST_ADDRESS_SPACE = 64 << 30


@dataclasses.dataclass
class TaskFacts:
    """What one task found."""

    partition: int
    host: str
    python: str
    executable: str
    machine: str  # the architecture
    release: str  # of this package
    agent: str  # the path of hvdrun-agent; empty: agent_error says why
    agent_error: str = ""
    torch: str = ""  # its release; empty: not installed
    gpus: List[str] = dataclasses.field(default_factory=list)
    noexec: List[str] = dataclasses.field(default_factory=list)  # folders for temporary files where nothing can be run
    address_space: int = 0  # bytes that the worker's limit allows; 0: any
    calls_driver: str = ""  # empty: it can connect to the driver's machine; else why not
    called_by_driver: str = ""
    unreached: Dict[int, str] = dataclasses.field(default_factory=dict)  # other partitions, and why
    store: str = ""  # empty: the store is shared, or none was asked for


@dataclasses.dataclass
class Check:
    """What was found. `problems`: what would stop a job; `notes`: what is worth to know. Its text is for people."""

    num_proc: int
    slots: Optional[int]  # None: the cluster does not report it
    is_connect: bool
    is_dynamic: bool
    tasks: List[TaskFacts] = dataclasses.field(default_factory=list)
    problems: List[str] = dataclasses.field(default_factory=list)
    notes: List[str] = dataclasses.field(default_factory=list)

    @property
    def is_ok(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        kind = "Spark Connect" if self.is_connect else "a classic session"
        slots = "unknown" if self.slots is None else str(self.slots)
        lines = [f"{kind}; task slots: {slots}; looked at {len(self.tasks)} of {self.num_proc} tasks"]
        for task in self.tasks:
            gpus = f"GPUs {','.join(task.gpus)}" if task.gpus else "no GPU"
            lines.append(f"  task {task.partition} on {task.host} ({task.machine}): Python {task.python}, hvdrun "
                         f"{task.release}, torch {task.torch or 'not installed'}, {gpus}")  # fmt: skip
        lines += [f"problem: {text}" for text in self.problems] + [f"note: {text}" for text in self.notes]
        return "\n".join([*lines, "a job can run" if self.is_ok else "a job cannot run, or not well"])


def check(session: _session.Session, num_proc: int, store: Any) -> Check:
    """What horovod.spark.check returns."""
    found = Check(num_proc, session.slots(), session.is_remote, session.is_dynamic)
    found.problems += _problems_here(found)
    if found.slots is not None and found.slots < num_proc and not session.is_dynamic:
        return found  # a stage of so many tasks would wait for ever
    folder = SharedFolder.of(store) if store is not None else None
    try:
        with _reach.DriverListener(session) as listener:
            if folder is not None:
                folder.write("driver")
            probe = _Probe(listener.call, folder, session.is_dynamic, horovod.hvdrun_version)
            found.tasks = [pickle.loads(facts) for facts in session.run_stage(num_proc, probe.run)]
        if folder is not None:
            for task in found.tasks:
                task.store = task.store or folder.why_missing(f"task-{task.partition}")
    except Exception as error:
        found.problems.append(f"Spark could not run {num_proc} tasks that only look: {_stage.reason_of(error)}")
    finally:
        if folder is not None:
            folder.remove()
    found.problems += [text for task in found.tasks for text in _problems_of(task)]
    found.notes += _notes_of(session, found)
    return found


@dataclasses.dataclass
class _Probe:
    """What the tasks of the check do."""

    call: _reach.Call
    folder: Optional[SharedFolder]
    is_dynamic: bool
    release: str

    def run(self, partition: int) -> bytes:
        facts = _own_facts(partition)
        with _reach.TaskListener(self.call.token) as listener:
            facts.calls_driver, facts.called_by_driver = _reach.call_driver(self.call, listener)
            if not self.is_dynamic:
                facts.unreached = _reach.call_others(partition, listener)
        if self.folder is not None:
            facts.store = self.folder.why_missing("driver") or self.folder.why_not_written(f"task-{partition}")
        return pickle.dumps(facts)


def _own_facts(partition: int) -> TaskFacts:
    from horovod.runner._job import find_program

    agent, agent_error = "", ""
    try:
        agent = find_program("hvdrun-agent")
    except FileNotFoundError as error:
        agent_error = str(error)
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch = ""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return TaskFacts(
        partition=partition, host=socket.gethostname(), python=platform.python_version(), executable=sys.executable,
        machine=platform.machine(), release=horovod.hvdrun_version, agent=agent, agent_error=agent_error, torch=torch,
        gpus=_task.gpu_addresses(), noexec=_noexec_folders(),
        address_space=0 if limit == resource.RLIM_INFINITY else limit,
    )  # fmt: skip


def _noexec_folders() -> List[str]:
    folders = {tempfile.gettempdir(), *os.environ.get("SPARK_LOCAL_DIRS", "").split(",")} - {""}
    return sorted(path for path in folders if os.path.isdir(path) and os.statvfs(path).f_flag & os.ST_NOEXEC)


def _problems_here(found: Check) -> List[str]:
    from horovod.runner._job import find_program

    problems = []
    try:
        find_program("hvdrun")
    except FileNotFoundError as error:
        problems.append(f"on the driver: {error}")
    if found.slots is not None and found.slots < found.num_proc and not found.is_dynamic:
        problems.append(f"{found.num_proc} ranks need as many task slots at the same time, and the cluster has "
                        f"{found.slots}: ask for fewer, or give the cluster more cores or GPUs")  # fmt: skip
    return problems


def _problems_of(task: TaskFacts) -> List[str]:
    who = f"task {task.partition} on {task.host}"
    problems = []
    if task.agent_error:
        problems.append(f"{who}: {task.agent_error}")
    if task.release != horovod.hvdrun_version:
        problems.append(f"{who} has hvdrun {task.release}, the driver {horovod.hvdrun_version}: install the same release")
    if task.calls_driver:
        problems.append(f'{who} cannot connect to the driver: {task.calls_driver}; launcher="task0" does without')
    for other, why in task.unreached.items():
        problems.append(f"{who} cannot connect to task {other}: {why}; ranks need every port between executors")
    if task.store:
        problems.append(f"{who}: {task.store}")
    return problems


def _notes_of(session: _session.Session, found: Check) -> List[str]:
    notes = []
    here = platform.python_version()
    others = sorted({task.python for task in found.tasks if task.python.split(".")[:2] != here.split(".")[:2]})
    if others:
        notes.append(f"the driver has Python {here}, executors {', '.join(others)}: functions may not unpickle there")
    for task in found.tasks:
        if task.called_by_driver:
            notes.append(f"the driver cannot connect to task {task.partition} on {task.host} ({task.called_by_driver}); a "
                         "job does not need it")  # fmt: skip
        if task.noexec:
            notes.append(f"task {task.partition} on {task.host}: nothing can be run from {', '.join(task.noexec)} (noexec)")
        if 0 < task.address_space < _LEAST_ADDRESS_SPACE:
            notes.append(f"task {task.partition} on {task.host} may use {task.address_space >> 20} MiB of addresses "
                         "(spark.executor.pyspark.memory); CUDA needs far more")  # fmt: skip
    if found.is_dynamic:
        notes.append("executors come and go here (spark.dynamicAllocation.enabled): tasks wait for each other until "
                     "start_timeout, and what they reach among themselves was not tried")  # fmt: skip
    if session.encrypting_setting:
        notes.append(f"{session.encrypting_setting} is set: what ranks send to other hosts is encrypted too, unless "
                     "HVD_LINK_SECURITY=plain")  # fmt: skip
    if session.conf("spark.task.cpus", "1") == "1" and any(task.gpus for task in found.tasks):
        notes.append("spark.task.cpus is 1, and ranks with a GPU usually keep more cores busy with loading data")
    return notes
